// The C interface, written on the C++ one.
#include "anneal/engine/run/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/version.h"
#include "anneal/engine/run/c_struct.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/stream.h"

struct anneal_engine {
  std::shared_ptr<const anneal::Engine> engine;
  std::string device;
  std::vector<const char*> load_warnings;
};
struct anneal_context {
  anneal::ExecutionContext context;
  std::vector<std::string> texts = {};  // of the last profile, ending in 0 as C wants them
  std::vector<const char*> run_warnings = {};
};
struct anneal_stream {
  anneal::Stream stream;
};
struct anneal_memory {
  std::shared_ptr<std::byte> data;
};

// A struct's name, for errors.
#define ANNEAL_READ(type, given) anneal::read_struct<type>(given, #type)
#define ANNEAL_WRITE(type, to, value) anneal::write_struct<type>(to, value, #type)

namespace anneal {
namespace {

static_assert(static_cast<int>(DataType::kBool) == ANNEAL_BOOL &&
              static_cast<int>(DataType::kF32) == ANNEAL_F32);
static_assert(kMaxRank == ANNEAL_MAX_RANK);

[[noreturn]] void fail_argument(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, why);
}

void require(const void* pointer, const char* what) {
  if (!pointer) fail_argument(std::string(what) + " is null");
}

// name: of the input or output that it is about.
void require_rank(int32_t rank, const std::string& name) {
  if (rank < 0 || rank > kMaxRank)
    throw Error(ErrorCode::kInvalidArgument,
                "a rank of " + std::to_string(rank) + "; tensors have 0 to 8 axes", name);
}

Dims c_dims(const int64_t* dims, int32_t rank) {
  return Dims(std::span<const int64_t>(dims, static_cast<size_t>(rank)));
}

// Of an enumeration whose value the caller may have set to anything.
template <class Enumeration>
int32_t number_of(const Enumeration& field) {
  int32_t number;
  static_assert(sizeof(number) == sizeof(field));
  std::memcpy(&number, &field, sizeof(number));
  return number;
}

MemoryKind memory_kind_of(anneal_memory_kind kind) {
  const int32_t number = number_of(kind);
  if (number < ANNEAL_HOST || number > ANNEAL_CUDA)
    fail_argument("there is no kind of memory " + std::to_string(number));
  return static_cast<MemoryKind>(number);
}

// name: of the input or output that the tensor is for.
TensorView view_of(const anneal_tensor* given, const std::string& name) {
  const anneal_tensor tensor = ANNEAL_READ(anneal_tensor, given);
  require_rank(tensor.rank, name);
  const Dims dims = c_dims(tensor.dims, tensor.rank);
  const auto refuse = [&](const char* what, int32_t value) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the tensor for \"" + name + "\" has an unknown " + what + ", " + std::to_string(value),
        name, dims.span());
  };
  const int32_t dtype = number_of(tensor.dtype), memory = number_of(tensor.memory);
  if (dtype < ANNEAL_F32 || dtype > ANNEAL_BOOL) refuse("dtype", dtype);
  if (memory < ANNEAL_HOST || memory > ANNEAL_CUDA) refuse("kind of memory", memory);
  return {static_cast<DataType>(dtype),
          dims,
          tensor.has_strides ? c_dims(tensor.strides, tensor.rank) : row_major_strides(dims),
          static_cast<std::byte*>(tensor.data),
          {static_cast<MemoryKind>(memory), tensor.memory_device}};
}

anneal_tensor tensor_of(const TensorView& view) {
  anneal_tensor result = {};
  result.dtype = static_cast<anneal_dtype>(view.dtype);
  result.rank = view.dims.rank();
  result.data = view.data;
  result.has_strides = 1;
  result.memory = static_cast<anneal_memory_kind>(view.place.kind);
  result.memory_device = view.place.device;
  std::ranges::copy(view.dims, result.dims);
  std::ranges::copy(view.strides, result.strides);
  return result;
}

anneal_tensor_info info_of(const TensorInfo& info) {
  anneal_tensor_info result = {};
  result.name = info.name.c_str();
  result.dtype = static_cast<anneal_dtype>(info.dtype);
  result.rank = info.dims.rank();
  std::ranges::copy(info.dims, result.dims);
  std::ranges::copy(info.min_dims, result.min_dims);
  std::ranges::copy(info.max_dims, result.max_dims);
  std::ranges::transform(info.dim_names, result.dim_names,
                         [](const std::string& text) { return text.c_str(); });
  if (info.default_value) {
    result.default_data = info.default_value->bytes().data();
    std::ranges::copy(info.default_value->dims(), result.default_dims);
  }
  if (!info.state_output.empty()) result.state_output = info.state_output.c_str();
  return result;
}

void give_port(std::span<const TensorInfo> ports, const char* kind, int32_t index,
               anneal_tensor_info* info) {
  require(info, "info");
  if (index < 0 || static_cast<size_t>(index) >= ports.size())
    fail_argument("there is no " + std::string(kind) + " " + std::to_string(index) +
                  ": the engine has " + std::to_string(ports.size()));
  ANNEAL_WRITE(anneal_tensor_info, info, info_of(ports[static_cast<size_t>(index)]));
}

std::vector<const char*> c_strings(std::span<const std::string> texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  return result;
}

class CAllocator final : public Allocator {
 public:
  using Allocate = decltype(anneal_engine_options::allocate);
  using Release = decltype(anneal_engine_options::release);
  CAllocator(Allocate allocate, Release release, void* argument)
      : allocate_(allocate), release_(release), argument_(argument) {}
  void* allocate(size_t bytes, size_t alignment) override {
    return allocate_(argument_, bytes, alignment);
  }
  void release(void* memory, size_t bytes) override { release_(argument_, memory, bytes); }

 private:
  const Allocate allocate_;
  const Release release_;
  void* const argument_;
};

// Null if there are no functions.
std::shared_ptr<Allocator> allocator_of(CAllocator::Allocate allocate, CAllocator::Release release,
                                        void* argument, const char* names) {
  if ((allocate == nullptr) != (release == nullptr))
    fail_argument(std::string(names) + " must both be set, or neither");
  if (allocate == nullptr) return nullptr;
  return std::make_shared<CAllocator>(allocate, release, argument);
}

EngineOptions engine_options_of(const anneal_engine_options* given) {
  if (given == nullptr) return {};
  const auto known = ANNEAL_READ(anneal_engine_options, given);
  EngineOptions options;
  if (known.device != nullptr) options.device = known.device;
  options.map = known.read_all == 0;
  options.threads = known.threads;
  options.libraries = library_paths(known.libraries, known.library_count);
  options.allocator =
      allocator_of(known.allocate, known.release, known.allocator_argument, "allocate and release");
  options.gpu_allocator = allocator_of(known.gpu_allocate, known.gpu_release,
                                       known.allocator_argument, "gpu_allocate and gpu_release");
  options.log = log_sink(known.log, known.log_argument);
  if (known.weights != nullptr) options.weights = known.weights;
  return options;
}

ContextOptions context_options_of(const anneal_context_options* given) {
  if (given == nullptr) return {};
  const auto known = ANNEAL_READ(anneal_context_options, given);
  ContextOptions options;
  options.threads = known.threads;
  options.spin = known.spin != 0;
  options.max_memory = known.max_memory;
  options.micro_batch = known.micro_batch;
  if (known.profile < 0 || known.profile > std::numeric_limits<int>::max())
    fail(ErrorCode::kInvalidArgument, "profile is " + std::to_string(known.profile) +
                                          ": give 0, or the index of a profile plus 1");
  options.profile = static_cast<int>(known.profile) - 1;
  if (known.shape_cache_size != 0) options.shape_cache_size = known.shape_cache_size;
  options.prewarm_profiles = known.no_prewarm == 0;
  return options;
}

anneal_engine* owned(std::shared_ptr<const Engine> engine) {
  std::string device = engine->device();
  auto warnings = c_strings(engine->load_warnings());
  return new anneal_engine{std::move(engine), std::move(device), std::move(warnings)};
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
    *engine = anneal::owned(anneal::Engine::load(path, anneal::engine_options_of(options)));
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
    *engine = anneal::owned(
        anneal::Engine::load(content, std::move(owner), anneal::engine_options_of(options)));
  });
}

void anneal_engine_free(anneal_engine* engine) { delete engine; }

anneal_code anneal_engine_get_info(const anneal_engine* engine, anneal_engine_info* info,
                                   anneal_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(info, "info");
    anneal_engine_info result = {};
    result.input_count = static_cast<int32_t>(engine->engine->inputs().size());
    result.output_count = static_cast<int32_t>(engine->engine->outputs().size());
    result.device = engine->device.c_str();
    result.load_warning_count = static_cast<int32_t>(engine->load_warnings.size());
    result.load_warnings = engine->load_warnings.data();
    ANNEAL_WRITE(anneal_engine_info, info, result);
  });
}

anneal_code anneal_engine_get_input(const anneal_engine* engine, int32_t index,
                                    anneal_tensor_info* info, anneal_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    anneal::give_port(engine->engine->inputs(), "input", index, info);
  });
}

anneal_code anneal_engine_get_output(const anneal_engine* engine, int32_t index,
                                     anneal_tensor_info* info, anneal_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    anneal::give_port(engine->engine->outputs(), "output", index, info);
  });
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
    const anneal::TensorView view =
        memory == nullptr ? anneal::TensorView() : anneal::view_of(memory, name);
    if (memory != nullptr && view.data == nullptr && view.dims.empty())
      throw anneal::Error(anneal::ErrorCode::kInvalidArgument,
                          "the tensor for \"" + std::string(name) + "\" has no data", name);
    context->context.set_input(name, view);
  });
}

anneal_code anneal_context_set_output(anneal_context* context, const char* name,
                                      const anneal_tensor* memory, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(name, "name");
    context->context.set_output(
        name, memory == nullptr ? anneal::TensorView() : anneal::view_of(memory, name));
  });
}

anneal_code anneal_context_prepare(anneal_context* context, const anneal_input_shape* inputs,
                                   int32_t count, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    if (count < 0) anneal::fail_argument("fewer than 0 shapes");
    if (count > 0) require(inputs, "inputs");
    std::vector<anneal::InputShape> shapes;
    for (int32_t i = 0; i < count; ++i) {
      const auto shape =
          ANNEAL_READ(anneal_input_shape, anneal::element_of(inputs, "anneal_input_shape", i));
      require(shape.name, "the name of a shape");
      anneal::require_rank(shape.rank, shape.name);
      shapes.push_back({shape.name, anneal::c_dims(shape.dims, shape.rank)});
    }
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
    ANNEAL_WRITE(anneal_tensor, output, anneal::tensor_of(context->context.output(name)));
  });
}

anneal_code anneal_stream_make(const char* device, anneal_stream** stream, anneal_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    *stream = new anneal_stream{anneal::Stream::make(device != nullptr ? device : "cpu")};
  });
}

anneal_code anneal_stream_from_cuda(void* custream, anneal_stream** stream, anneal_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    *stream = new anneal_stream{anneal::Stream::from_cuda(custream)};
  });
}

anneal_code anneal_stream_wait(anneal_stream* stream, anneal_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    stream->stream.wait();
  });
}

void anneal_stream_free(anneal_stream* stream) { delete stream; }

anneal_code anneal_memory_make(anneal_memory_kind kind, uint64_t bytes, const char* gpu,
                               anneal_memory** memory, void** data, anneal_error* error) {
  return guarded(error, [&] {
    require(memory, "memory");
    require(data, "data");
    *memory = new anneal_memory{anneal::allocate_memory(anneal::memory_kind_of(kind), bytes,
                                                        gpu != nullptr ? gpu : "cuda")};
    *data = (*memory)->data.get();
  });
}

void anneal_memory_free(anneal_memory* memory) { delete memory; }

anneal_code anneal_copy(const anneal_tensor* to, const anneal_tensor* from, anneal_error* error) {
  return guarded(error, [&] {
    require(to, "to");
    require(from, "from");
    anneal::copy_tensor(anneal::view_of(to, "to"), anneal::view_of(from, "from"));
  });
}

anneal_code anneal_context_enqueue(anneal_context* context, anneal_stream* stream,
                                   void (*inputs_read)(void* argument), void* argument,
                                   anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(stream, "stream");
    std::function<void()> call;
    if (inputs_read != nullptr) call = [inputs_read, argument] { inputs_read(argument); };
    context->context.enqueue(stream->stream, std::move(call));
  });
}

anneal_code anneal_context_wait(anneal_context* context, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    context->context.wait();
  });
}

anneal_code anneal_context_is_done(const anneal_context* context, int32_t* done,
                                   anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(done, "done");
    *done = context->context.is_done() ? 1 : 0;
  });
}

anneal_code anneal_context_profile(anneal_context* context, anneal_step_time* times,
                                   int32_t capacity, int32_t* count, anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(count, "count");
    if (capacity < 0) anneal::fail_argument("room for fewer than 0 times");
    if (capacity > 0) {
      require(times, "times");
      anneal::checked_size(times, "anneal_step_time");
    }
    const std::vector<anneal::StepTime> all = context->context.profile();
    context->texts.clear();
    context->texts.reserve(2 * all.size());
    for (int32_t i = 0; i < capacity && static_cast<size_t>(i) < all.size(); ++i) {
      const anneal::StepTime& time = all[static_cast<size_t>(i)];
      anneal_step_time result = {};
      result.step = context->texts.emplace_back(time.step).c_str();
      result.kernel = context->texts.emplace_back(time.kernel).c_str();
      result.microseconds = time.microseconds;
      result.times = time.times;
      anneal_step_time* const to = anneal::element_of(times, "anneal_step_time", i);
      to->size = times->size;
      ANNEAL_WRITE(anneal_step_time, to, result);
    }
    *count = static_cast<int32_t>(all.size());
  });
}

anneal_code anneal_context_get_info(anneal_context* context, anneal_context_info* info,
                                    anneal_error* error) {
  return guarded(error, [&] {
    require(context, "context");
    require(info, "info");
    anneal_context_info result = {};
    result.memory_bytes = context->context.memory_bytes();
    context->run_warnings = anneal::c_strings(context->context.run_warnings());
    result.run_warning_count = static_cast<int32_t>(context->run_warnings.size());
    result.run_warnings = context->run_warnings.data();
    ANNEAL_WRITE(anneal_context_info, info, result);
  });
}
