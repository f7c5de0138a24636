#include "anneal/engine/run/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <ranges>
#include <string>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/version.h"
#include "anneal/engine/run/engine.h"

struct anneal_engine {
  std::shared_ptr<const anneal::Engine> engine;
  std::string device;
};
struct anneal_context {
  anneal::ExecutionContext context;
  // Texts of the last profile, ending in 0 as C wants them.
  std::vector<std::string> texts = {};
};

namespace anneal {
namespace {

static_assert(static_cast<int>(DataType::kBool) == ANNEAL_BOOL &&
              static_cast<int>(DataType::kF32) == ANNEAL_F32);
static_assert(kMaxRank == ANNEAL_MAX_RANK);

anneal_code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidModel:
      return ANNEAL_INVALID_MODEL;
    case ErrorCode::kUnsupported:
      return ANNEAL_UNSUPPORTED;
    case ErrorCode::kInvalidArgument:
      return ANNEAL_INVALID_ARGUMENT;
    case ErrorCode::kIncompatiblePlan:
      return ANNEAL_INCOMPATIBLE_PLAN;
    case ErrorCode::kIo:
      return ANNEAL_IO;
    case ErrorCode::kDevice:
      return ANNEAL_DEVICE;
    case ErrorCode::kInternal:
      return ANNEAL_INTERNAL;
    case ErrorCode::kCancelled:
      return ANNEAL_CANCELLED;
    case ErrorCode::kOutOfMemory:
      return ANNEAL_OUT_OF_MEMORY;
    case ErrorCode::kLimit:
      return ANNEAL_LIMIT;
    case ErrorCode::kCannotWrite:
      return ANNEAL_CANNOT_WRITE;
  }
  return ANNEAL_INTERNAL;
}

anneal_code report(anneal_error* error, anneal_code code, const char* text) {
  if (!error) return code;
  error->code = code;
  const size_t length = std::min<size_t>(std::strlen(text), ANNEAL_ERROR_TEXT - 1);
  std::memcpy(error->text, text, length);
  error->text[length] = 0;
  return code;
}

// No exception crosses into C.
template <class Body>
anneal_code guarded(anneal_error* error, Body&& body) {
  try {
    body();
    return ANNEAL_OK;
  } catch (const Error& failure) {
    return report(error, code_of(failure.code()), failure.what());
  } catch (const std::bad_alloc&) {
    return report(error, ANNEAL_DEVICE, "memory ran out");
  } catch (const std::exception& failure) {
    return report(error, ANNEAL_INTERNAL, failure.what());
  }
}

void require(const void* pointer, std::string_view what) {
  if (!pointer) fail(ErrorCode::kInvalidArgument, std::string(what) + " is null");
}

TensorView view_of(const anneal_tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > kMaxRank || tensor.dtype < ANNEAL_F32 ||
      tensor.dtype > ANNEAL_BOOL || tensor.memory < ANNEAL_HOST || tensor.memory > ANNEAL_CUDA)
    fail(ErrorCode::kInvalidArgument,
         "the tensor has an impossible rank, element type or kind of memory");
  const auto rank = static_cast<size_t>(tensor.rank);
  return {static_cast<DataType>(tensor.dtype),
          Dims(std::span<const int64_t>(tensor.dims, rank)),
          Dims(std::span<const int64_t>(tensor.strides, rank)),
          static_cast<std::byte*>(tensor.data),
          {static_cast<MemoryKind>(tensor.memory), tensor.memory_device}};
}

anneal_tensor tensor_of(const TensorView& view) {
  anneal_tensor result = {};
  result.dtype = static_cast<anneal_dtype>(view.dtype);
  result.rank = view.dims.rank();
  result.data = view.data;
  std::ranges::copy(view.dims, result.dims);
  std::ranges::copy(view.strides, result.strides);
  return result;
}

InputShape input_shape_of(const anneal_input_shape& shape) {
  require(shape.name, "the name of a shape");
  if (shape.rank < 0 || shape.rank > kMaxRank)
    fail(ErrorCode::kInvalidArgument, "the shape has an impossible rank");
  return {shape.name, Dims(std::span<const int64_t>(shape.dims, static_cast<size_t>(shape.rank)))};
}

anneal_tensor_info info_of(const TensorInfo& info) {
  anneal_tensor_info result{.name = info.name.c_str(),
                            .dtype = static_cast<anneal_dtype>(info.dtype),
                            .rank = info.dims.rank(),
                            .dims = {},
                            .min_dims = {},
                            .max_dims = {},
                            .dim_names = {}};
  std::ranges::copy(info.dims, result.dims);
  std::ranges::copy(info.min_dims, result.min_dims);
  std::ranges::copy(info.max_dims, result.max_dims);
  std::ranges::transform(info.dim_names, result.dim_names,
                         [](const std::string& text) { return text.c_str(); });
  return result;
}

// Options of this version, from those of the program's: what an older struct does not have is 0.
template <class Options>
Options known_options(const Options* given, const char* name) {
  Options known = {};
  if (given->size < sizeof(given->size) || given->size > sizeof(known))
    fail(ErrorCode::kInvalidArgument,
         std::string("options are not of this version: set size to sizeof(") + name + ")");
  std::memcpy(&known, given, given->size);
  return known;
}

EngineOptions engine_options_of(const anneal_engine_options* given) {
  if (given == nullptr) return {};
  const auto known = known_options(given, "anneal_engine_options");
  return {.device = known.device ? known.device : "auto",
          .map = known.read_all == 0,
          .threads = known.threads};
}

ContextOptions context_options_of(const anneal_context_options* given) {
  if (given == nullptr) return {};
  const auto known = known_options(given, "anneal_context_options");
  ContextOptions options{.threads = known.threads,
                         .max_memory = known.max_memory,
                         .synchronous_steps = known.synchronous_steps != 0,
                         .spin = known.spin != 0,
                         .prewarm_profiles = known.no_prewarm == 0,
                         .micro_batch = known.micro_batch};
  if (known.shape_cache_size != 0) options.shape_cache_size = known.shape_cache_size;
  return options;
}

}  // namespace
}  // namespace anneal

using anneal::guarded;
using anneal::require;

const char* anneal_version(void) { return anneal::version().data(); }

anneal_code anneal_engine_load(const char* path, const anneal_engine_options* options,
                               anneal_engine** engine, anneal_error* error) {
  return guarded(error, [&] {
    require(path, "path");
    require(engine, "engine");
    auto loaded = anneal::Engine::load(path, anneal::engine_options_of(options));
    std::string device = loaded->device();
    *engine = new anneal_engine{std::move(loaded), std::move(device)};
  });
}

anneal_code anneal_engine_load_memory(const void* bytes, uint64_t byte_count,
                                      void (*release)(void* argument), void* argument,
                                      const anneal_engine_options* options, anneal_engine** engine,
                                      anneal_error* error) {
  return guarded(error, [&] {
    // Calls release() when its last owner is destroyed, or at once if loading fails.
    std::shared_ptr<const void> owner;
    if (release != nullptr)
      owner = {bytes, [release, argument](const void*) { release(argument); }};
    require(bytes, "bytes");
    require(engine, "engine");
    const std::span content(static_cast<const std::byte*>(bytes), byte_count);
    auto loaded =
        anneal::Engine::load(content, std::move(owner), anneal::engine_options_of(options));
    std::string device = loaded->device();
    *engine = new anneal_engine{std::move(loaded), std::move(device)};
  });
}

void anneal_engine_free(anneal_engine* engine) { delete engine; }

int32_t anneal_engine_input_count(const anneal_engine* engine) {
  return static_cast<int32_t>(engine->engine->inputs().size());
}
int32_t anneal_engine_output_count(const anneal_engine* engine) {
  return static_cast<int32_t>(engine->engine->outputs().size());
}
anneal_tensor_info anneal_engine_input(const anneal_engine* engine, int32_t index) {
  return anneal::info_of(engine->engine->inputs()[static_cast<size_t>(index)]);
}
anneal_tensor_info anneal_engine_output(const anneal_engine* engine, int32_t index) {
  return anneal::info_of(engine->engine->outputs()[static_cast<size_t>(index)]);
}
int32_t anneal_engine_input_default(const anneal_engine* engine, int32_t index,
                                    anneal_tensor* value) {
  const auto& found = engine->engine->inputs()[static_cast<size_t>(index)].default_value;
  if (found && value != nullptr) *value = anneal::tensor_of(found->view());
  return found ? 1 : 0;
}
const char* anneal_engine_device(const anneal_engine* engine) { return engine->device.c_str(); }
int32_t anneal_engine_load_warning_count(const anneal_engine* engine) {
  return static_cast<int32_t>(engine->engine->load_warnings().size());
}
const char* anneal_engine_load_warning(const anneal_engine* engine, int32_t index) {
  return engine->engine->load_warnings()[static_cast<size_t>(index)].c_str();
}

anneal_code anneal_context_make(const anneal_engine* engine, const anneal_context_options* options,
                                anneal_context** context, anneal_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(context, "context");
    *context = new anneal_context{
        anneal::ExecutionContext(engine->engine, anneal::context_options_of(options))};
  });
}

void anneal_context_free(anneal_context* context) { delete context; }

anneal_code anneal_context_set_input(anneal_context* context, const char* name,
                                     const anneal_tensor* memory, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(name, "name");
    require(memory, "memory");
    context->context.set_input(name, anneal::view_of(*memory));
  });
}

anneal_code anneal_context_clear_input(anneal_context* context, const char* name,
                                       anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(name, "name");
    context->context.clear_input(name);
  });
}

anneal_code anneal_context_set_output(anneal_context* context, const char* name,
                                      const anneal_tensor* memory, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(name, "name");
    require(memory, "memory");
    context->context.set_output(name, anneal::view_of(*memory));
  });
}

anneal_code anneal_context_prepare(anneal_context* context, const anneal_input_shape* inputs,
                                   int32_t count, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    if (count > 0) require(inputs, "inputs");
    std::vector<anneal::InputShape> shapes;
    for (int32_t i = 0; i < count; ++i) shapes.push_back(anneal::input_shape_of(inputs[i]));
    context->context.prepare(shapes);
  });
}

anneal_code anneal_context_run(anneal_context* context, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    context->context.run();
  });
}

anneal_code anneal_context_output(const anneal_context* context, const char* name,
                                  anneal_tensor* output, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(name, "name");
    require(output, "output");
    *output = anneal::tensor_of(context->context.output(name));
  });
}

anneal_code anneal_context_profile(anneal_context* context, anneal_step_time* times,
                                   int32_t capacity, int32_t* count, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(count, "count");
    if (capacity > 0) require(times, "times");
    const std::vector<anneal::StepTime> all = context->context.profile();
    context->texts.clear();
    context->texts.reserve(2 * all.size());
    for (int32_t i = 0; i < capacity && static_cast<size_t>(i) < all.size(); ++i) {
      const anneal::StepTime& time = all[static_cast<size_t>(i)];
      const char* const step = context->texts.emplace_back(time.step).c_str();
      const char* const kernel = context->texts.emplace_back(time.kernel).c_str();
      times[i] = {step, kernel, time.microseconds, time.times};
    }
    *count = static_cast<int32_t>(all.size());
  });
}

uint64_t anneal_context_memory_bytes(const anneal_context* context) {
  return context->context.memory_bytes();
}
int32_t anneal_context_run_warning_count(const anneal_context* context) {
  return static_cast<int32_t>(context->context.run_warnings().size());
}
const char* anneal_context_run_warning(const anneal_context* context, int32_t index) {
  return context->context.run_warnings()[static_cast<size_t>(index)].c_str();
}
