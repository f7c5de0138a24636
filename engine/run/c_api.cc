#include "anneal/engine/run/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "anneal/core/version.h"
#include "anneal/engine/run/engine.h"

struct anneal_engine {
  std::shared_ptr<const anneal::Engine> engine;
};
struct anneal_context {
  anneal::ExecutionContext context;
};

namespace anneal {
namespace {

static_assert(static_cast<int>(DataType::kBool) == ANNEAL_BOOL &&
              static_cast<int>(DataType::kF32) == ANNEAL_F32);
static_assert(kMaxRank == ANNEAL_MAX_RANK);

anneal_code code_of(Code code) {
  switch (code) {
    case Code::kInvalidModel:
      return ANNEAL_INVALID_MODEL;
    case Code::kUnsupported:
      return ANNEAL_UNSUPPORTED;
    case Code::kInvalidArgument:
      return ANNEAL_INVALID_ARGUMENT;
    case Code::kIncompatiblePlan:
      return ANNEAL_INCOMPATIBLE_PLAN;
    case Code::kIo:
      return ANNEAL_IO;
    case Code::kDevice:
      return ANNEAL_DEVICE;
    case Code::kInternal:
      return ANNEAL_INTERNAL;
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
  if (!pointer) fail(Code::kInvalidArgument, std::string(what) + " is null");
}

TensorView view_of(const anneal_tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > kMaxRank || tensor.dtype < ANNEAL_F32 ||
      tensor.dtype > ANNEAL_BOOL)
    fail(Code::kInvalidArgument, "the tensor has an impossible rank or element type");
  const auto rank = static_cast<size_t>(tensor.rank);
  return {static_cast<DataType>(tensor.dtype), Dims(std::span<const int64_t>(tensor.dims, rank)),
          Dims(std::span<const int64_t>(tensor.strides, rank)),
          static_cast<std::byte*>(tensor.data)};
}

InputShape input_shape_of(const anneal_input_shape& shape) {
  require(shape.name, "the name of a shape");
  if (shape.rank < 0 || shape.rank > kMaxRank)
    fail(Code::kInvalidArgument, "the shape has an impossible rank");
  return {shape.name, Dims(std::span<const int64_t>(shape.dims, static_cast<size_t>(shape.rank)))};
}

anneal_port port_of(const Port& port) {
  anneal_port result{
      port.name.c_str(), static_cast<anneal_dtype>(port.dtype), port.dims.rank(), {}};
  std::copy(port.dims.begin(), port.dims.end(), result.dims);
  return result;
}

}  // namespace
}  // namespace anneal

using anneal::guarded;
using anneal::require;

const char* anneal_version(void) { return anneal::version().data(); }

anneal_code anneal_engine_load(const char* path, const char* device, anneal_engine** engine,
                               anneal_error* error) {
  return guarded(error, [&] {
    require(path, "path");
    require(engine, "engine");
    *engine = new anneal_engine{anneal::Engine::load(path, {.device = device ? device : "cpu"})};
  });
}

void anneal_engine_free(anneal_engine* engine) { delete engine; }

int32_t anneal_engine_input_count(const anneal_engine* engine) {
  return static_cast<int32_t>(engine->engine->inputs().size());
}
int32_t anneal_engine_output_count(const anneal_engine* engine) {
  return static_cast<int32_t>(engine->engine->outputs().size());
}
anneal_port anneal_engine_input(const anneal_engine* engine, int32_t index) {
  return anneal::port_of(engine->engine->inputs()[static_cast<size_t>(index)]);
}
anneal_port anneal_engine_output(const anneal_engine* engine, int32_t index) {
  return anneal::port_of(engine->engine->outputs()[static_cast<size_t>(index)]);
}

anneal_code anneal_context_make(const anneal_engine* engine, int32_t threads,
                                anneal_context** context, anneal_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(context, "context");
    *context = new anneal_context{anneal::ExecutionContext(engine->engine, {.threads = threads})};
  });
}

anneal_code anneal_context_make_with(const anneal_engine* engine,
                                     const anneal_context_options* options,
                                     anneal_context** context, anneal_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(options, "options");
    require(context, "context");
    // Those of an older version end sooner.
    anneal_context_options known = {};
    if (options->size < offsetof(anneal_context_options, spin) || options->size > sizeof(known))
      anneal::fail(anneal::Code::kInvalidArgument,
                   "options are not of this version: set size to sizeof(anneal_context_options)");
    std::memcpy(&known, options, options->size);
    *context = new anneal_context{
        anneal::ExecutionContext(engine->engine, {.threads = known.threads,
                                                  .memory_limit = known.memory_limit,
                                                  .synchronous_steps = known.synchronous_steps != 0,
                                                  .spin = known.spin != 0})};
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
    const anneal::TensorView view = context->context.output(name);
    *output = {static_cast<anneal_dtype>(view.dtype), view.dims.rank(), {}, {}, view.data};
    std::copy(view.dims.begin(), view.dims.end(), output->dims);
    std::copy(view.strides.begin(), view.strides.end(), output->strides);
  });
}
