// Conv as a product (implicit GEMM): what a tile needs of the input is gathered on its way to
// shared memory. On tensor cores, "cuda.conv.mma", for channels of 16 bits that are read 16 bytes
// at once and of 8 bits that are read 4 at once; and of all types, strides and sizes on CUDA cores,
// "cuda.conv.direct".
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/kernels/cuda/anchor_kernel.h"
#include "anneal/kernels/cuda/conv_text.h"
#include "anneal/kernels/cuda/entries.h"
#include "anneal/kernels/cuda/product_text.h"

namespace anneal::cuda {
namespace {

// Rows are output pixels, columns the output channels of a group, batches groups.
ProductSizes product_sizes(const Dims& y, int64_t groups, const std::vector<int64_t>& split) {
  ProductSizes sizes{y[0], y[1] / groups, 0, groups};
  for (int axis = 2; axis < y.rank(); ++axis) sizes.rows *= y[axis];
  sizes.split = split;
  if (!split.empty()) sizes.columns = std::accumulate(split.begin(), split.end(), int64_t{0});
  return sizes;
}

ProductSizes product_sizes(const Conv& op, const Request& request) {
  const auto opt = [&](const Shape& shape) {
    Dims dims;
    for (const Size size : shape) dims.push_back(request.sizes.range(size).opt);
    return dims;
  };
  ProductSizes sizes = product_sizes(opt(request.outputs[0].type.shape), op.groups, op.split);
  const Dims w = opt(request.inputs[1].type.shape);
  sizes.depth = count(w) / std::max<int64_t>(w[0], 1);
  sizes.accumulator_bytes = size_of(conv_accumulator(request));
  sizes.element_bytes = size_of(request.inputs[0].type.dtype);
  return sizes;
}

// Whether the weights of an output channel lie in the order of the depth, without gaps.
bool is_linear(const Operand& w, bool taps_first) {
  const int rank = w.type.shape.rank();
  int64_t next = 1;
  for (int i = 0; i < rank - 1; ++i) {
    const int axis = taps_first ? (i == 0 ? 1 : rank - i) : rank - 1 - i;
    const Size size = w.type.shape[axis], stride = w.strides[axis];
    if (!size.known()) return false;
    if (size.value() != 1 && !(stride == Size(next))) return false;
    next *= size.value();
  }
  return true;
}

// REQUIRES: is_linear().
int64_t linear_elements(const Operand& w, int64_t most) {
  int64_t depth = 1;
  for (int axis = 1; axis < w.type.shape.rank(); ++axis) depth *= w.type.shape[axis].value();
  if (!w.strides[0].known()) return 1;
  while (most > 1 && (depth % most != 0 || w.strides[0].value() % most != 0)) most /= 2;
  return most;
}

struct Texts {
  const Request& request;
  const Conv& op;
  std::string type;  // of sums
  const Extents& extents;
  const StoreText& store;
  const ShapeText& shape;
  const ZeroText &x_zero, &w_zero;
  int64_t x_lanes, w_lanes;
  const TilingText& tiling;
};

FunctionText text_of(const Texts& d, std::string_view family) {
  const int rank = d.request.inputs[0].type.shape.rank();
  FunctionText text{.family = std::string(family), .headers = d.tiling.headers, .text = {}};
  text.headers.push_back("conv_side.h");
  text.text = d.store.definition() + d.shape.definition() +
              weight_zeros_definition(d.w_zero, d.extents, d.type) + d.tiling.definition;
  text.text += fmt::format(
      "struct Result {{\n  using Index = Shape::Index;\n  const Shape& s;\n  Store store;\n"
      "  i64 first;\n"
      "  __device__ Shape::Pixel row(Index row) const {{ return s.pixel(row); }}\n"
      "  __device__ void operator()({} sum, const Shape::Pixel& at, Index k) const {{\n"
      "    store(sum, {});\n  }}\n}};\n",
      d.type, coordinates_text(rank, "first + k", "at."));
  // Of one group: `rest` is 0.
  const bool is_split = !d.op.split.empty();
  const std::string block = d.tiling.block(d.op.split) + "  const i64 group = rest;\n";
  text.text += fmt::format(
      "KERNEL($name, {threads})(In<{x}> x, In<{w}> w{x_zero}{w_zero}, i32 aligned{parameters}"
      "{extents}) {{\n"
      "  const Shape s = {made};\n"
      "{block}"
      "  const conv::Input<{x}, {type}, Shape, {x_lanes}> input{{\n"
      "      x + group * s.channels * s.x_c, s, {x_zero_value}, (aligned & 1) != 0}};\n"
      "  const i64 first = group * s.columns;\n"
      "  const conv::Weights<{w}, {type}, Shape, Zeros, {w_lanes}> weights{{\n"
      "      w + first * s.w_k, s, {zeros}, (aligned & 2) != 0}};\n"
      "  {function}(input, weights, Result{{s, {store}, {first_stored}}}, row,"
      " s.rows, column, {end}, s.depth);\n}}\n",
      fmt::arg("threads", d.tiling.threads),
      fmt::arg("x", type_text(d.request.inputs[0].type.dtype)),
      fmt::arg("w", type_text(d.request.inputs[1].type.dtype)),
      fmt::arg("x_zero", d.x_zero.parameter()), fmt::arg("w_zero", d.w_zero.parameter()),
      fmt::arg("parameters", d.store.parameters()), fmt::arg("extents", d.extents.parameters()),
      fmt::arg("made", d.shape.construction()), fmt::arg("block", block),
      fmt::arg("first_stored", is_split ? "-i64(part_begin)" : "first"),
      fmt::arg("end", is_split ? "part_end" : "s.columns"), fmt::arg("function", d.tiling.function),
      fmt::arg("type", d.type), fmt::arg("x_lanes", d.x_lanes),
      fmt::arg("x_zero_value", d.x_zero.value()), fmt::arg("w_lanes", d.w_lanes),
      fmt::arg("zeros", weight_zeros(d.w_zero, d.extents, "first")),
      fmt::arg("store", d.store.construction()));
  return text;
}

// Nullopt: a tactic that is none of the kernel's.
std::optional<TilingText> tiling_of(const Conv& op, const Request& request, std::string_view type,
                                    bool on_tensor_cores) {
  const ProductSizes sizes = product_sizes(op, request);
  const DeviceSpec& spec = spec_of(request.device);
  if (on_tensor_cores) {
    const auto config = mma_for(sizes, spec, request.tactic);
    if (!config) return std::nullopt;
    return TilingText(*config, sizes.element_bytes);
  }
  const auto config = tile_for(sizes, spec, request.tactic);
  if (!config) return std::nullopt;
  return TilingText(*config, type, !is_channels_first_in_memory(request.outputs[0]));
}

// rows, columns, depth, channels, and Pixel pixel(row).
void add_product(ShapeText& shape, Extents& extents, const Conv& op, const Request& request) {
  const int rank = request.inputs[0].type.shape.rank();
  std::string pixels = extents.output_dim(0, 0), taps = extents.input_dim(1, 1), decode;
  for (int i = 2; i >= 0; --i) {
    const int axis = axis_of(i, rank);
    if (axis < 0) continue;
    pixels += " * " + extents.output_dim(0, axis);
    taps += " * " + extents.input_dim(1, axis);
    decode += fmt::format("    at.{0} = rest % out_{0};\n    rest /= out_{0};\n", "zyx"[i]);
  }
  shape.number("rows", pixels);
  if (op.split.empty()) {
    shape.number("columns", fmt::format("{} / {}", extents.output_dim(0, 1), op.groups));
  } else {
    shape.number("columns", std::accumulate(op.split.begin(), op.split.end(), int64_t{0}));
  }
  shape.number("channels", extents.input_dim(1, 1));
  shape.number("depth", taps);
  shape.add(
      fmt::format("  struct Pixel {{\n    i64 n, z, y, x;\n  }};\n"
                  "  __device__ Pixel pixel(Index rest) const {{\n    Pixel at{{}};\n{}"
                  "    at.n = rest;\n    return at;\n  }}\n",
                  decode));
}

Made make(const Conv& op, const Request& request, bool on_tensor_cores) {
  std::string why_not = why_no_conv_text(request);
  if (!why_not.empty()) return refuse(std::move(why_not));
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  const DataType sum = conv_accumulator(request);
  const std::string type = type_text(register_type(sum));
  Extents extents(request);
  AnchorParts parts;
  parts.store =
      StoreText::make(request, sum, extents, why_not, std::max<size_t>(op.split.size(), 1));
  if (!parts.store) return refuse(std::move(why_not));
  const auto tiling = tiling_of(op, request, type, on_tensor_cores);
  if (!tiling) return refuse("a tactic that is none of this kernel's");

  // Neighbouring threads read neighbouring channels where those are adjacent, several at once where
  // that is aligned; else neighbouring pixels. The weights [K, C, kernel] are read along the depth
  // either way: in one go if it is theirs; else a kernel's size apart, and then all of its elements
  // for some channels follow each other, so that what a cache line holds is used while it is there.
  const bool taps_first = is_channels_first_in_memory(x);
  const bool linear = is_linear(w, taps_first);
  const Size channels = w.type.shape[1];
  const int64_t in_vector = 16 / static_cast<int64_t>(size_of(x.type.dtype));
  const int64_t most = on_tensor_cores ? in_vector : std::min<int64_t>(in_vector, 4);
  const int64_t x_lanes = taps_first ? vector_elements(x, 1, channels, most) : 1;
  int64_t w_lanes = linear ? linear_elements(w, most) : 1;
  const bool bytes = on_tensor_cores && in_vector == 16;
  const int64_t least = bytes ? 4 : in_vector;
  if (on_tensor_cores && x_lanes < least)
    return refuse(bytes ? "channels that cannot be read 4 bytes at once"
                        : "channels that cannot be read 16 bytes at once");
  if (on_tensor_cores && w_lanes < least) w_lanes = 1;
  parts.vectors = {{.input = 0, .axis = 1, .elements = x_lanes},
                   {.input = 1, .elements = w_lanes, .is_linear = true}};
  constexpr int64_t kChannelBlock = 32;
  const bool in_blocks =
      taps_first && !linear && channels.known() && channels.value() % kChannelBlock == 0;
  ShapeText shape(index_type(request));
  add_conv(shape, extents, op, request);
  add_product(shape, extents, op, request);
  shape.flag("kTapsFirst", taps_first);
  shape.flag("kLinearWeights", linear);
  shape.number("kChannelBlock", in_blocks ? kChannelBlock : 0);
  const ZeroText x_zero(request, extents, 2, "x_zero", type);
  const ZeroText w_zero(request, extents, 3, "w_zero", type);
  shape.flag("kInputHasZero", x_zero.is_present());
  parts.function = code_of(request.device)
                       .add(text_of({request, op, type, extents, *parts.store, shape, x_zero,
                                     w_zero, x_lanes, w_lanes, *tiling},
                                    on_tensor_cores ? "conv_mma" : "conv_direct"));
  parts.inputs = {0, 1};
  if (x_zero.is_present()) parts.inputs.push_back(2);
  if (w_zero.is_present()) parts.inputs.push_back(3);
  parts.sources = extents.sources();
  parts.tactic = tiling->tactic;
  parts.geometry = [rows = tiling->rows, columns = tiling->columns, threads = tiling->threads,
                    bytes = tiling->shared_bytes, groups = op.groups, split = op.split](
                       std::span<const TensorView>, std::span<const TensorView> outputs) {
    const ProductSizes now = product_sizes(outputs[0].dims, groups, split);
    return blocks_of(block_count(now, rows, columns), threads, bytes);
  };
  return make_anchor(std::move(parts), request);
}

Made make_direct(const Conv& op, const Request& request) { return make(op, request, false); }

Made make_mma(const Conv& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype;
  if (x != DataType::kF16 && x != DataType::kBF16 && size_of(x) != 1)
    return refuse("only f16, bf16 and 8 bits");
  return make(op, request, true);
}

// Channels that are neighbours are read together whatever the pads are, where pixels of a row begin
// anywhere; and the sums of a row of a tile are neighbours in the output.
constexpr KernelEntry kEntries[] = {
    entry<Conv, make_mma>("cuda.conv.mma", Layout::kChannelsLast),
    entry<Conv, make_direct>("cuda.conv.direct", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> conv_entries() { return kEntries; }

}  // namespace anneal::cuda
