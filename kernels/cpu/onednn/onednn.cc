#include "anneal/kernels/cpu/onednn/onednn.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/library.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/onednn/api.h"

namespace anneal::cpu::onednn {
namespace {

struct OneDnnLibrary {
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

Result<Library> open_library() {
  const char* const setting = std::getenv("ANNEAL_ONEDNN");
  const std::string_view wanted = setting != nullptr ? setting : "";
  if (wanted == "0") return refuse("ANNEAL_ONEDNN=0 switches oneDNN off");
  if (!wanted.empty() && wanted != "1") return Library::open(std::string(wanted));
  auto library = Library::open("libdnnl.so.2");
  if (!library && Library::open("libdnnl.so.3"))
    return refuse("oneDNN 2 (libdnnl.so.2) is not installed; libdnnl.so.3 has another interface");
  return library;
}

template <class F>
void find(const Library& library, const char* name, F& function) {
  void* const found = library.find(name);
  std::memcpy(&function, &found, sizeof(function));
}

// Empty, or the name of a missing function.
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
  return found ? "" : "its OpenMP runtime has no call that sets the number of threads";
}

OneDnnLibrary open() {
  OneDnnLibrary opened;
  if (current_isa() < Isa::kAvx2) {
    opened.why_not = "needs AVX2";
    return opened;
  }
  const auto library = open_library();
  if (!library) {
    opened.why_not = library.reason();
    return opened;
  }
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

const OneDnnLibrary& opened() {
  static const OneDnnLibrary it = open();
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
  void operator()(DnnPostOps* it) const { api().dnnl_post_ops_destroy(it); }
};
template <class T>
using Handle = std::unique_ptr<T, Destroy>;

// The object that a function returns through its first argument; null if it fails.
template <class T, class... Parameters, class... Arguments>
Handle<T> make_handle(Status (*function)(T**, Parameters...), Arguments... arguments) {
  T* made = nullptr;
  return Handle<T>(function(&made, arguments...) == kStatusSuccess ? made : nullptr);
}

void demand(Status status, const char* what) {
  if (status != kStatusSuccess)
    fail(ErrorCode::kDevice, fmt::format("oneDNN cannot {}: status {}", what, status));
}

int dnnl_type(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return kTypeF32;
    case DataType::kBF16:
      return kTypeBF16;
    case DataType::kI32:
      return kTypeS32;
    case DataType::kI8:
      return kTypeS8;
    case DataType::kU8:
      return kTypeU8;
    default:
      break;
  }
  check(false, "an operand of oneDNN is f32, bf16, i32, i8 or u8");
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

// One number for each column of y.
MemoryDesc per_column(const Operand& y) {
  Operand numbers{DataType::kF32, {}, {}};
  for (int axis = 0; axis < y.dims.rank(); ++axis) {
    numbers.dims.push_back(axis == 1 ? y.dims[1] : 1);
    numbers.strides.push_back(1);
  }
  return describe(numbers);
}

// A bias is added to sums that stay f32 or become bf16. Requantization scales them first.
bool has_bias(const PostOps& post_ops) { return post_ops.offset && !post_ops.requantize; }

// oneDNN 2.6 gives functions of one kind the same constants, so each kind occurs at most once.
Handle<DnnPostOps> list(const PostOps& wanted, const MemoryDesc& column) {
  auto made = make_handle<DnnPostOps>(api().dnnl_post_ops_create);
  if (!made) fail(ErrorCode::kDevice, "oneDNN cannot make post-ops");
  DnnPostOps* const to = made.get();
  const auto binary = [&](int algorithm) {
    demand(api().dnnl_post_ops_append_binary(to, algorithm, &column), "append a number per column");
  };
  const auto elementwise = [&](int algorithm, float alpha, float beta) {
    demand(api().dnnl_post_ops_append_eltwise(to, 1, algorithm, alpha, beta), "append a function");
  };
  if (wanted.addend) demand(api().dnnl_post_ops_append_sum(to, 1), "append a sum");
  if (const auto& to_8bit = wanted.requantize) {
    if (to_8bit->scale) binary(kBinaryMul);
    if (wanted.offset) binary(kBinaryAdd);
    if (to_8bit->factor != 1) elementwise(kEltwiseLinear, to_8bit->factor, 0);
    elementwise(kEltwiseClip, to_8bit->low, to_8bit->high);
    elementwise(kEltwiseRound, 0, 0);  // before the zero point is added
  }
  return made;
}

Handle<DnnAttributes> attributes(int32_t x_zero, const PostOps& post_ops,
                                 const MemoryDesc& column) {
  auto made = make_handle<DnnAttributes>(api().dnnl_primitive_attr_create);
  if (!made) fail(ErrorCode::kDevice, "oneDNN cannot make attributes");
  demand(api().dnnl_primitive_attr_set_scratchpad_mode(made.get(), kScratchpadUser),
         "leave scratch memory to its caller");
  const auto set_zero = [&](int arg, int32_t zero) {
    if (zero != 0)
      demand(api().dnnl_primitive_attr_set_zero_points(made.get(), arg, 1, 0, &zero),
             "take a zero point");
  };
  set_zero(kArgSource, x_zero);
  if (post_ops.requantize) set_zero(kArgOutput, post_ops.requantize->zero);
  if (post_ops != PostOps{})
    demand(api().dnnl_primitive_attr_set_post_ops(made.get(), list(post_ops, column).get()),
           "take post-ops");
  return made;
}

Handle<DnnPrimitive> make_reorder(const MemoryDesc& from, const MemoryDesc& to) {
  DnnEngine* const engine = opened().engine;
  const auto desc = make_handle<DnnPrimitiveDesc>(api().dnnl_reorder_primitive_desc_create, &from,
                                                  engine, &to, engine, nullptr);
  if (!desc) return nullptr;
  return make_handle<DnnPrimitive>(api().dnnl_primitive_create,
                                   static_cast<const DnnPrimitiveDesc*>(desc.get()));
}

Handle<DnnMemory> make_memory(const MemoryDesc& desc) {
  auto made = make_handle<DnnMemory>(api().dnnl_memory_create, &desc, opened().engine, nullptr);
  if (!made) fail(ErrorCode::kDevice, "oneDNN cannot make a memory object");
  return made;
}

void point(const Handle<DnnMemory>& memory, const void* data) {
  demand(api().dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data)),
         "take a pointer");
}

size_t bytes_of(const MemoryDesc& desc) { return api().dnnl_memory_desc_get_size(&desc); }

}  // namespace

struct Primitive::State {
  // An operand in a layout of the primitive's own.
  struct ReorderedOperand {
    MemoryDesc desc;
    Handle<DnnPrimitive> reorder;  // into it, or out of it
  };

  // x_zero and post_ops: as in the shape, whose other operands are described here already.
  struct Numbers {
    int32_t x_zero = 0;
    PostOps post_ops;
  };
  static PrimitiveResult make(std::unique_ptr<State> state, const void* op,
                              const Numbers& numbers) {
    state->post_ops = numbers.post_ops;
    const auto attr = attributes(numbers.x_zero, numbers.post_ops, state->column);
    const auto desc = make_handle<DnnPrimitiveDesc>(api().dnnl_primitive_desc_create, op,
                                                    static_cast<const DnnAttributes*>(attr.get()),
                                                    opened().engine, nullptr);
    if (!desc) return refuse("oneDNN implements no such shape");
    const char* name = "";
    demand(api().dnnl_primitive_desc_query(desc.get(), kQueryImplementation, 0, &name),
           "name an implementation");
    state->implementation = name;
    if (std::string reason = why_refused(state->implementation); !reason.empty())
      return refuse(std::move(reason));
    const auto query = [&](int what) {
      return *api().dnnl_primitive_desc_query_md(desc.get(), what, 0);
    };
    state->scratch = query(kQueryScratchpad);
    if (state->has_weights) state->packed = query(kQueryWeights);
    state->primitive = make_handle<DnnPrimitive>(api().dnnl_primitive_create,
                                                 static_cast<const DnnPrimitiveDesc*>(desc.get()));
    if (!state->primitive || !state->reorder(query(kQuerySource), query(kQueryOutput)))
      return refuse(fmt::format("oneDNN cannot make {}", state->implementation));
    return std::unique_ptr<const Primitive>(new Primitive(std::move(state)));
  }

  size_t own_x_bytes() const { return own_x ? cache_aligned(bytes_of(own_x->desc)) : 0; }
  size_t own_y_bytes() const { return own_y ? cache_aligned(bytes_of(own_y->desc)) : 0; }

  Handle<DnnPrimitive> primitive;
  std::string implementation;
  PostOps post_ops;
  MemoryDesc x, y, scratch;
  MemoryDesc column, bias;  // a number for each column, and how a bias is described
  bool has_weights = false;
  MemoryDesc weights, packed;  // as they come, and as the primitive wants them
  std::optional<ReorderedOperand> own_x, own_y;

 private:
  // False if the operands that the primitive requires cannot be reordered from the given ones.
  bool reorder(const MemoryDesc& wanted_x, const MemoryDesc& wanted_y) {
    const auto is_same = [](const MemoryDesc& a, const MemoryDesc& b) {
      return api().dnnl_memory_desc_equal(&a, &b) != 0;
    };
    if (!is_same(x, wanted_x)) own_x = {wanted_x, make_reorder(x, wanted_x)};
    if (!is_same(y, wanted_y)) own_y = {wanted_y, make_reorder(wanted_y, y)};
    return (!own_x || own_x->reorder) && (!own_y || own_y->reorder);
  }
};

std::string why_unavailable(Isa isa) {
  if (!opened().why_not.empty()) return opened().why_not;
  if (isa != current_isa()) return "oneDNN's instructions are those of target cpu";
  return {};
}

std::string version() {
  const Version& version = *api().dnnl_version();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

bool has_avx512() { return (opened().isa & kIsaAvx512) == kIsaAvx512; }
bool has_vnni() { return (opened().isa & kIsaVnni) == kIsaVnni; }
bool has_bf16() { return (opened().isa & kIsaBf16) == kIsaBf16; }

std::string why_refused(std::string_view implementation) {
  for (const std::string_view slow : {"ref", "simple"})
    if (implementation.find(slow) != std::string_view::npos)
      return fmt::format("oneDNN has only {} for it", implementation);
  return {};
}

Primitive::Primitive(std::unique_ptr<State> state) : state_(std::move(state)) {}
Primitive::~Primitive() = default;

PrimitiveResult Primitive::make(const ConvShape& shape, const Primitive* like) {
  const OneOpenMpThread one;
  auto state = std::make_unique<State>();
  const Operand w = by_group(shape.w, shape.groups);
  state->x = describe(shape.x), state->y = describe(shape.y), state->weights = describe(w);
  state->column = per_column(shape.y);
  state->bias = describe({DataType::kF32, {shape.y.dims[1]}, {1}});
  state->has_weights = true;
  const MemoryDesc packed = like != nullptr ? like->state_->packed : any_layout(w);
  const MemoryDesc x = shape.winograd ? any_layout(shape.x) : state->x;
  const MemoryDesc y = shape.winograd ? any_layout(shape.y) : state->y;
  const DimsArray strides(shape.strides), dilations(gaps(shape.dilations));
  const DimsArray begin(shape.pads_begin), end(shape.pads_end);
  ConvolutionDesc op{};
  if (api().dnnl_dilated_convolution_forward_desc_init(
          &op, kForwardInference, shape.winograd ? kConvolutionWinograd : kConvolutionDirect, &x,
          &packed, has_bias(shape.post_ops) ? &state->bias : nullptr, &y, strides.values,
          dilations.values, begin.values, end.values) != kStatusSuccess)
    return refuse("oneDNN knows no such convolution");
  return State::make(std::move(state), &op, {shape.x_zero, shape.post_ops});
}

PrimitiveResult Primitive::make(const MatMulShape& shape, const Primitive* like) {
  const OneOpenMpThread one;
  auto state = std::make_unique<State>();
  state->x = describe(shape.x), state->y = describe(shape.y), state->weights = describe(shape.w);
  state->column = state->bias = per_column(shape.y);
  state->has_weights = true;
  const MemoryDesc packed = like != nullptr ? like->state_->packed : any_layout(shape.w);
  const MemoryDesc* const bias = has_bias(shape.post_ops) ? &state->bias : nullptr;
  MatMulDesc op{};
  if (api().dnnl_matmul_desc_init(&op, &state->x, &packed, bias, &state->y) != kStatusSuccess)
    return refuse("oneDNN knows no such product");
  return State::make(std::move(state), &op, {shape.x_zero, shape.post_ops});
}

PrimitiveResult Primitive::make(const PoolShape& shape) {
  const OneOpenMpThread one;
  auto state = std::make_unique<State>();
  state->x = describe(shape.x), state->y = describe(shape.y);
  const DimsArray kernel(shape.kernel), strides(shape.strides), dilations(gaps(shape.dilations));
  const DimsArray begin(shape.pads_begin), end(shape.pads_end);
  PoolingDesc op{};
  if (api().dnnl_pooling_v2_forward_desc_init(
          &op, kForwardInference, kPoolingMax, &state->x, &state->y, strides.values, kernel.values,
          dilations.values, begin.values, end.values) != kStatusSuccess)
    return refuse("oneDNN knows no such pool");
  return State::make(std::move(state), &op, {});
}

const std::string& Primitive::implementation() const { return state_->implementation; }

size_t Primitive::packed_bytes() const {
  return state_->has_weights ? bytes_of(state_->packed) : 0;
}

size_t Primitive::scratch_bytes() const {
  return state_->own_x_bytes() + state_->own_y_bytes() + bytes_of(state_->scratch);
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
  const auto reorder = make_reorder(state_->weights, state_->packed);
  const auto stream =
      make_handle<DnnStream>(api().dnnl_stream_create, opened().engine, kStreamDefault);
  if (!reorder || !stream) return false;
  const auto from_memory = make_memory(state_->weights), to_memory = make_memory(state_->packed);
  point(from_memory, weights), point(to_memory, to);
  const ExecArg args[] = {{kArgSource, from_memory.get()}, {kArgOutput, to_memory.get()}};
  return api().dnnl_primitive_execute(reorder.get(), stream.get(), 2, args) == kStatusSuccess;
}

struct Call::State {
  const Primitive::State* primitive = nullptr;
  Handle<DnnStream> stream;
  Handle<DnnMemory> x, y, scratch, packed, scales, offsets;
  Handle<DnnMemory> own_x, own_y;
  std::vector<ExecArg> args;

  void reorder(const Handle<DnnPrimitive>& by, const Handle<DnnMemory>& from,
               const Handle<DnnMemory>& to) const {
    const ExecArg pair[] = {{kArgSource, from.get()}, {kArgOutput, to.get()}};
    demand(api().dnnl_primitive_execute(by.get(), stream.get(), 2, pair), "reorder an operand");
  }
};

Call::Call(const Primitive& primitive) : state_(std::make_unique<State>()) {
  const Primitive::State& from = *primitive.state_;
  State& s = *state_;
  s.primitive = &from;
  s.stream = make_handle<DnnStream>(api().dnnl_stream_create, opened().engine, kStreamDefault);
  if (!s.stream) fail(ErrorCode::kDevice, "oneDNN cannot make a stream");
  s.x = make_memory(from.x), s.y = make_memory(from.y), s.scratch = make_memory(from.scratch);
  if (from.own_x) s.own_x = make_memory(from.own_x->desc);
  if (from.own_y) s.own_y = make_memory(from.own_y->desc);
  s.args = {{kArgSource, (from.own_x ? s.own_x : s.x).get()},
            {kArgOutput, (from.own_y ? s.own_y : s.y).get()},
            {kArgScratchpad, s.scratch.get()}};
  const auto add = [&](Handle<DnnMemory>& to, const MemoryDesc& desc, int arg) {
    to = make_memory(desc);
    s.args.push_back({arg, to.get()});
  };
  if (from.has_weights) add(s.packed, from.packed, kArgWeights);
  if (has_bias(from.post_ops)) add(s.offsets, from.bias, kArgBias);
  if (const auto& to_8bit = from.post_ops.requantize) {
    int post_op = kArgPostOp;
    if (to_8bit->scale) {
      add(s.scales, from.column, post_op | kArgSource1);
      post_op += kArgPostOp;
    }
    if (from.post_ops.offset) add(s.offsets, from.column, post_op | kArgSource1);
  }
}
Call::Call(Call&&) noexcept = default;
Call::~Call() = default;

void Call::run(const Memory& memory) const {
  const State& s = *state_;
  const Primitive::State& p = *s.primitive;
  point(s.x, memory.x), point(s.y, memory.y);
  std::byte* scratch = memory.scratch;
  if (s.own_x) point(s.own_x, std::exchange(scratch, scratch + p.own_x_bytes()));
  if (s.own_y) point(s.own_y, std::exchange(scratch, scratch + p.own_y_bytes()));
  point(s.scratch, scratch);
  if (s.packed) point(s.packed, memory.packed);
  if (s.scales) point(s.scales, memory.column_scales);
  if (s.offsets) point(s.offsets, memory.column_offsets);
  const OneOpenMpThread one;
  if (s.own_x) s.reorder(p.own_x->reorder, s.x, s.own_x);
  demand(api().dnnl_primitive_execute(p.primitive.get(), s.stream.get(),
                                      static_cast<int>(s.args.size()), s.args.data()),
         "run a primitive");
  if (s.own_y) s.reorder(p.own_y->reorder, s.own_y, s.y);
}

}  // namespace anneal::cpu::onednn
