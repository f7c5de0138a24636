#include "anneal/kernels/cpu/onednn.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/error.h"
#include "anneal/core/library.h"
#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/onednn_api.h"

namespace anneal::cpu::onednn {
namespace {

struct Opened {
  Api api;
  DnnEngine* engine = nullptr;  // lives as long as the library: to the end of the process
  int isa = 0;
  std::string why_not;
};

int isa_cap(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
    case Isa::kAvx2:
      return kIsaAvx2;
    case Isa::kAvx512:
      return kIsaAvx512;
    case Isa::kFull:
      break;
  }
  return kIsaAll;
}

std::optional<Library> open_library(std::string& why_not) {
  const char* const setting = std::getenv("ANNEAL_ONEDNN");
  const std::string_view wanted = setting != nullptr ? setting : "";
  if (wanted == "0") {
    why_not = "ANNEAL_ONEDNN=0 switches oneDNN off";
    return std::nullopt;
  }
  if (!wanted.empty() && wanted != "1") return Library::open(std::string(wanted), why_not);
  auto library = Library::open("libdnnl.so.2", why_not);
  std::string ignored;
  if (!library && Library::open("libdnnl.so.3", ignored))
    why_not = "oneDNN 2 (libdnnl.so.2) is not installed; libdnnl.so.3 has another interface";
  return library;
}

template <class F>
void find(const Library& library, const char* name, F& function) {
  void* const found = library.find(name);
  std::memcpy(&function, &found, sizeof(function));
}

// Empty, or what the library lacks.
std::string fill(Api& api, const Library& library) {
  find(library, "dnnl_version", api.dnnl_version);
  if (api.dnnl_version == nullptr) return "the library has no dnnl_version()";
  const Version& version = *api.dnnl_version();
  if (version.major != 2)
    return fmt::format("oneDNN {}.{} has another interface than oneDNN 2", version.major,
                       version.minor);
#define X(function, ...)                  \
  find(library, #function, api.function); \
  if (api.function == nullptr) return "the library has no " #function "()";
  ANNEAL_FOR_EACH_DNNL_FUNCTION(X)
#undef X
  if (version.cpu_runtime == kRuntimeSequential) return {};
  if (version.cpu_runtime != kRuntimeOpenMp)
    return "this oneDNN runs its own threads by other means than OpenMP";
  find(library, "omp_get_max_threads", api.omp_get_max_threads);
  find(library, "omp_set_num_threads", api.omp_set_num_threads);
  const bool found = api.omp_get_max_threads != nullptr && api.omp_set_num_threads != nullptr;
  return found ? "" : "its OpenMP cannot be told how many threads to use";
}

Opened open() {
  Opened opened;
  if (current_isa() < Isa::kAvx2) {
    opened.why_not = "needs AVX2";
    return opened;
  }
  const auto library = open_library(opened.why_not);
  if (!library) return opened;
  opened.why_not = fill(opened.api, *library);
  if (!opened.why_not.empty()) return opened;
  const int cap = isa_cap(current_isa());
  if (cap != kIsaAll) opened.api.dnnl_set_max_cpu_isa(cap);
  opened.isa = opened.api.dnnl_get_effective_cpu_isa();
  if (cap != kIsaAll && (opened.isa & ~cap) != 0)
    opened.why_not =
        "this process has used oneDNN with more instructions than ANNEAL_MAX_ISA allows";
  else if ((opened.isa & kIsaAvx2) != kIsaAvx2)
    opened.why_not = "needs AVX2";
  else if (opened.api.dnnl_engine_create(&opened.engine, kEngineCpu, 0) != kStatusSuccess)
    opened.why_not = "oneDNN gives no CPU engine";
  return opened;
}

const Opened& opened() {
  static const Opened it = open();
  return it;
}

const Api& api() { return opened().api; }

// OpenMP's number of threads is a setting of each thread of ours; the program may have one, too.
class OneOpenMpThread {
 public:
  OneOpenMpThread() {
    if (api().omp_get_max_threads == nullptr) return;
    before_ = api().omp_get_max_threads();
    if (before_ != 1) api().omp_set_num_threads(1);
  }
  ~OneOpenMpThread() {
    if (before_ != 1) api().omp_set_num_threads(before_);
  }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_ = 1;
};

struct Destroy {
  void operator()(DnnStream* it) const { api().dnnl_stream_destroy(it); }
  void operator()(DnnMemory* it) const { api().dnnl_memory_destroy(it); }
  void operator()(DnnPrimitive* it) const { api().dnnl_primitive_destroy(it); }
  void operator()(DnnPrimitiveDesc* it) const { api().dnnl_primitive_desc_destroy(it); }
  void operator()(DnnAttributes* it) const { api().dnnl_primitive_attr_destroy(it); }
};
template <class T>
using Handle = std::unique_ptr<T, Destroy>;

// What a function gives through its first argument; null if it fails.
template <class T, class... Parameters, class... Arguments>
Handle<T> make_handle(Status (*function)(T**, Parameters...), Arguments... arguments) {
  T* made = nullptr;
  return Handle<T>(function(&made, arguments...) == kStatusSuccess ? made : nullptr);
}

void demand(Status status, const char* what) {
  if (status != kStatusSuccess)
    fail(Code::kDevice, fmt::format("oneDNN cannot {}: status {}", what, status));
}

int dnnl_type(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return kTypeF32;
    case DataType::kI32:
      return kTypeS32;
    case DataType::kI8:
      return kTypeS8;
    case DataType::kU8:
      return kTypeU8;
    default:
      break;
  }
  check(false, "an operand of oneDNN is f32, i32, i8 or u8");
  return 0;
}

struct DimsArray {
  explicit DimsArray(const Dims& dims) {
    for (int axis = 0; axis < dims.rank(); ++axis) values[axis] = dims[axis];
  }
  DnnDims values{};
};

// oneDNN counts the elements between two taps.
Dims gaps(const Dims& dilations) {
  Dims result;
  for (const int64_t dilation : dilations) result.push_back(dilation - 1);
  return result;
}

MemoryDesc describe(const Operand& operand) {
  const DimsArray dims(operand.dims), strides(operand.strides);
  MemoryDesc desc{};
  demand(api().dnnl_memory_desc_init_by_strides(&desc, operand.dims.rank(), dims.values,
                                                dnnl_type(operand.dtype), strides.values),
         "describe a tensor");
  return desc;
}

MemoryDesc any_layout(const Operand& operand) {
  const DimsArray dims(operand.dims);
  MemoryDesc desc{};
  demand(api().dnnl_memory_desc_init_by_tag(&desc, operand.dims.rank(), dims.values,
                                            dnnl_type(operand.dtype), kTagAny),
         "describe a tensor");
  return desc;
}

// [K, C/groups, ...] as oneDNN sees the weights of groups.
Operand by_group(const Operand& w, int64_t groups) {
  if (groups == 1) return w;
  Operand result{w.dtype, {groups, w.dims[0] / groups}, {}};
  result.strides = {result.dims[1] * w.strides[0], w.strides[0]};
  for (int axis = 1; axis < w.dims.rank(); ++axis) {
    result.dims.push_back(w.dims[axis]);
    result.strides.push_back(w.strides[axis]);
  }
  return result;
}

Handle<DnnAttributes> attributes(int32_t x_zero) {
  auto made = make_handle<DnnAttributes>(api().dnnl_primitive_attr_create);
  if (!made) fail(Code::kDevice, "oneDNN cannot make attributes");
  demand(api().dnnl_primitive_attr_set_scratchpad_mode(made.get(), kScratchpadUser),
         "leave scratch memory to its caller");
  if (x_zero != 0)
    demand(api().dnnl_primitive_attr_set_zero_points(made.get(), kArgSource, 1, 0, &x_zero),
           "take a zero point");
  return made;
}

}  // namespace

struct Primitive::State {
  Handle<DnnPrimitive> primitive;
  std::string implementation;
  MemoryDesc x, y, scratch;
  bool has_weights = false;
  MemoryDesc weights, packed;  // as they come, and as the primitive wants them

  // x, y and weights are set already.
  static std::unique_ptr<State> finish(std::unique_ptr<State> state, const void* op, int32_t x_zero,
                                       std::string& why_not) {
    const auto attr = attributes(x_zero);
    const auto desc = make_handle<DnnPrimitiveDesc>(api().dnnl_primitive_desc_create, op,
                                                    static_cast<const DnnAttributes*>(attr.get()),
                                                    opened().engine, nullptr);
    if (!desc) {
      why_not = "oneDNN implements no such shape";
      return nullptr;
    }
    const char* name = "";
    demand(api().dnnl_primitive_desc_query(desc.get(), kQueryImplementation, 0, &name),
           "name an implementation");
    state->implementation = name;
    why_not = why_refused(state->implementation);
    if (!why_not.empty()) return nullptr;
    state->scratch = *api().dnnl_primitive_desc_query_md(desc.get(), kQueryScratchpad, 0);
    if (state->has_weights)
      state->packed = *api().dnnl_primitive_desc_query_md(desc.get(), kQueryWeights, 0);
    state->primitive = make_handle<DnnPrimitive>(api().dnnl_primitive_create,
                                                 static_cast<const DnnPrimitiveDesc*>(desc.get()));
    if (state->primitive) return state;
    why_not = fmt::format("oneDNN cannot make {}", state->implementation);
    return nullptr;
  }
};

std::string why_unavailable(const Device& device) {
  if (!opened().why_not.empty()) return opened().why_not;
  if (isa_of(device) != current_isa()) return "oneDNN's instructions are those of target cpu";
  return {};
}

std::string version() {
  const Version& version = *api().dnnl_version();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

bool has_avx512() { return (opened().isa & kIsaAvx512) == kIsaAvx512; }
bool has_vnni() { return (opened().isa & kIsaVnni) == kIsaVnni; }

std::string why_refused(std::string_view implementation) {
  for (const std::string_view slow : {"ref", "simple"})
    if (implementation.find(slow) != std::string_view::npos)
      return fmt::format("oneDNN has only {} for it", implementation);
  return {};
}

Primitive::Primitive(std::unique_ptr<State> state) : state_(std::move(state)) {}
Primitive::~Primitive() = default;

std::unique_ptr<const Primitive> Primitive::make(const ConvShape& shape, const Primitive* like,
                                                 std::string& why_not) {
  const OneOpenMpThread one;
  auto state = std::make_unique<State>();
  const Operand w = by_group(shape.w, shape.groups);
  state->x = describe(shape.x), state->y = describe(shape.y), state->weights = describe(w);
  state->has_weights = true;
  const MemoryDesc packed = like != nullptr ? like->state_->packed : any_layout(w);
  const DimsArray strides(shape.strides), dilations(gaps(shape.dilations));
  const DimsArray begin(shape.pads_begin), end(shape.pads_end);
  ConvolutionDesc op{};
  if (api().dnnl_dilated_convolution_forward_desc_init(
          &op, kForwardInference, kConvolutionDirect, &state->x, &packed, nullptr, &state->y,
          strides.values, dilations.values, begin.values, end.values) != kStatusSuccess) {
    why_not = "oneDNN knows no such convolution";
    return nullptr;
  }
  state = State::finish(std::move(state), &op, shape.x_zero, why_not);
  return state ? std::unique_ptr<const Primitive>(new Primitive(std::move(state))) : nullptr;
}

std::unique_ptr<const Primitive> Primitive::make(const MatMulShape& shape, const Primitive* like,
                                                 std::string& why_not) {
  const OneOpenMpThread one;
  auto state = std::make_unique<State>();
  state->x = describe(shape.x), state->y = describe(shape.y), state->weights = describe(shape.w);
  state->has_weights = true;
  const MemoryDesc packed = like != nullptr ? like->state_->packed : any_layout(shape.w);
  MatMulDesc op{};
  if (api().dnnl_matmul_desc_init(&op, &state->x, &packed, nullptr, &state->y) != kStatusSuccess) {
    why_not = "oneDNN knows no such product";
    return nullptr;
  }
  state = State::finish(std::move(state), &op, shape.x_zero, why_not);
  return state ? std::unique_ptr<const Primitive>(new Primitive(std::move(state))) : nullptr;
}

std::unique_ptr<const Primitive> Primitive::make(const PoolShape& shape, std::string& why_not) {
  const OneOpenMpThread one;
  auto state = std::make_unique<State>();
  state->x = describe(shape.x), state->y = describe(shape.y);
  const DimsArray kernel(shape.kernel), strides(shape.strides), dilations(gaps(shape.dilations));
  const DimsArray begin(shape.pads_begin), end(shape.pads_end);
  PoolingDesc op{};
  if (api().dnnl_pooling_v2_forward_desc_init(
          &op, kForwardInference, kPoolingMax, &state->x, &state->y, strides.values, kernel.values,
          dilations.values, begin.values, end.values) != kStatusSuccess) {
    why_not = "oneDNN knows no such pool";
    return nullptr;
  }
  state = State::finish(std::move(state), &op, 0, why_not);
  return state ? std::unique_ptr<const Primitive>(new Primitive(std::move(state))) : nullptr;
}

const std::string& Primitive::implementation() const { return state_->implementation; }

size_t Primitive::packed_bytes() const {
  return state_->has_weights ? api().dnnl_memory_desc_get_size(&state_->packed) : 0;
}

size_t Primitive::scratch_bytes() const {
  return api().dnnl_memory_desc_get_size(&state_->scratch);
}

std::string Primitive::packed_form() const {
  return fmt::format("oneDNN {}: {:08x}", version(),
                     crc32c(std::as_bytes(std::span(&state_->packed, 1))));
}

bool Primitive::packs_like(const Primitive& other) const {
  return api().dnnl_memory_desc_equal(&state_->packed, &other.state_->packed) != 0;
}

bool Primitive::pack(const std::byte* weights, std::byte* to) const {
  const OneOpenMpThread one;
  DnnEngine* const engine = opened().engine;
  const auto desc =
      make_handle<DnnPrimitiveDesc>(api().dnnl_reorder_primitive_desc_create, &state_->weights,
                                    engine, &state_->packed, engine, nullptr);
  if (!desc) return false;
  const auto reorder = make_handle<DnnPrimitive>(api().dnnl_primitive_create,
                                                 static_cast<const DnnPrimitiveDesc*>(desc.get()));
  const auto stream = make_handle<DnnStream>(api().dnnl_stream_create, engine, kStreamDefault);
  const auto from_memory =
      make_handle<DnnMemory>(api().dnnl_memory_create, &state_->weights, engine,
                             static_cast<void*>(const_cast<std::byte*>(weights)));
  const auto to_memory = make_handle<DnnMemory>(api().dnnl_memory_create, &state_->packed, engine,
                                                static_cast<void*>(to));
  if (!reorder || !stream || !from_memory || !to_memory) return false;
  const ExecArg args[] = {{kArgSource, from_memory.get()}, {kArgOutput, to_memory.get()}};
  return api().dnnl_primitive_execute(reorder.get(), stream.get(), 2, args) == kStatusSuccess;
}

struct Call::State {
  const DnnPrimitive* primitive = nullptr;
  Handle<DnnStream> stream;
  Handle<DnnMemory> x, y, scratch, packed;
};

Call::Call(const Primitive& primitive) : state_(std::make_unique<State>()) {
  const auto memory = [](const MemoryDesc& desc) {
    auto made = make_handle<DnnMemory>(api().dnnl_memory_create, &desc, opened().engine, nullptr);
    if (!made) fail(Code::kDevice, "oneDNN cannot make a memory object");
    return made;
  };
  const Primitive::State& from = *primitive.state_;
  state_->primitive = from.primitive.get();
  state_->stream =
      make_handle<DnnStream>(api().dnnl_stream_create, opened().engine, kStreamDefault);
  if (!state_->stream) fail(Code::kDevice, "oneDNN cannot make a stream");
  state_->x = memory(from.x), state_->y = memory(from.y), state_->scratch = memory(from.scratch);
  if (from.has_weights) state_->packed = memory(from.packed);
}
Call::Call(Call&&) noexcept = default;
Call::~Call() = default;

void Call::run(const std::byte* x, const std::byte* packed, std::byte* y,
               std::byte* scratch) const {
  const State& s = *state_;
  const auto point = [](const Handle<DnnMemory>& memory, const std::byte* data) {
    demand(api().dnnl_memory_set_data_handle(memory.get(), const_cast<std::byte*>(data)),
           "take a pointer");
  };
  point(s.x, x), point(s.y, y), point(s.scratch, scratch);
  if (s.packed) point(s.packed, packed);
  const ExecArg args[] = {{kArgSource, s.x.get()},
                          {kArgOutput, s.y.get()},
                          {kArgScratchpad, s.scratch.get()},
                          {kArgWeights, s.packed.get()}};
  const OneOpenMpThread one;
  demand(api().dnnl_primitive_execute(s.primitive, s.stream.get(), s.packed ? 4 : 3, args),
         "run a primitive");
}

}  // namespace anneal::cpu::onednn
