// Conv as a product (implicit GEMM): what a tile needs of the input is gathered on its way to
// shared memory. On tensor cores, "cuda.conv.mma", for channels of 16 and 8 bits that are read 4, 8
// or 16 bytes at once; and of all types, strides and sizes on CUDA cores, "cuda.conv.direct".
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/kernels/input_layouts.h"
#include "anneal/kernels/cuda/text/conv_text.h"
#include "anneal/kernels/cuda/text/product_text.h"

namespace anneal::cuda {
namespace {

// Rows are output pixels, columns the output channels of a group, batches groups.
ProductSizes conv_product_sizes(const Dims& y, int64_t groups, const std::vector<int64_t>& split) {
  ProductSizes sizes{y[0], y[1] / groups, 0, groups};
  for (int axis = 2; axis < y.rank(); ++axis) sizes.rows *= y[axis];
  sizes.split = split;
  if (!split.empty()) sizes.columns = std::accumulate(split.begin(), split.end(), int64_t{0});
  return sizes;
}

// The vectors of a tensor core's operands.
struct CoreVectors {
  int64_t least, most;  // elements of a read of 4 and of 16 bytes
  explicit CoreVectors(DataType dtype)
      : least(4 / static_cast<int64_t>(size_of(dtype))), most(4 * least) {}
};

// The places for channels of a kernel element in the depth: on tensor cores those of one vector, if
// the channels are fewer and no whole vectors. The contents of the other places are ignored.
int64_t channel_places(const Conv& op, const Request& request, bool on_tensor_cores) {
  const Size channels = request.inputs[1].type.shape[1];
  const CoreVectors vectors(request.inputs[0].type.dtype);
  if (!channels.known()) return 0;
  const bool are_vectors = channels.value() >= vectors.most || channels.value() < 3 ||
                           channels.value() % vectors.least == 0;
  if (!on_tensor_cores || op.groups != 1 || are_vectors) return channels.value();
  return std::max(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(channels.value()))),
                  vectors.least);
}

ProductSizes conv_product_sizes(const Conv& op, const Request& request, int64_t places) {
  const auto opt = [&](const Shape& shape) {
    Dims dims;
    for (const Size size : shape) dims.push_back(request.sizes.range(size).opt);
    return dims;
  };
  ProductSizes sizes = conv_product_sizes(opt(request.outputs[0].type.shape), op.groups, op.split);
  const Dims w = opt(request.inputs[1].type.shape);
  sizes.depth = places;
  for (int axis = 2; axis < w.rank(); ++axis) sizes.depth *= w[axis];
  sizes.accumulator_bytes = size_of(conv_accumulator(request));
  sizes.element_bytes = size_of(request.inputs[0].type.dtype);
  return sizes;
}

// Whether the weights of an output channel are contiguous in the order of the depth, apart from the
// `places` places for channels of each kernel element.
bool is_linear(const Operand& w, bool taps_first, int64_t places) {
  const int rank = w.type.shape.rank();
  int64_t next = 1;
  for (int i = 0; i < rank - 1; ++i) {
    const int axis = taps_first ? (i == 0 ? 1 : rank - i) : rank - 1 - i;
    const Size size = w.type.shape[axis], stride = w.strides[axis];
    if (!size.known()) return false;
    if (size.value() != 1 && !(stride == Size(next))) return false;
    next *= axis == 1 ? places : size.value();
  }
  return true;
}

// REQUIRES: is_linear().
int64_t linear_elements(const Operand& w, int64_t places, int64_t most) {
  int64_t depth = places;
  for (int axis = 2; axis < w.type.shape.rank(); ++axis) depth *= w.type.shape[axis].value();
  if (!w.strides[0].known()) return 1;
  while (most > 1 && (depth % most != 0 || w.strides[0].value() % most != 0)) most /= 2;
  return most;
}

// Whether device/conv_side.h knows which elements of a window are outside: it has a bit for each z,
// y and x of the kernel, and needs none where windows lie inside.
bool has_few_taps(const Conv& op, const Operand& w) {
  int64_t bits = 0;
  for (int axis = 2; axis < w.type.shape.rank(); ++axis) {
    if (!w.type.shape[axis].known()) return false;
    bits += w.type.shape[axis].value();
  }
  const auto is_zero = [](int64_t pad) { return pad == 0; };
  const bool is_padded =
      !std::ranges::all_of(op.pads_begin, is_zero) || !std::ranges::all_of(op.pads_end, is_zero);
  return !is_padded || bits + 5 - w.type.shape.rank() <= 31;
}

struct ConvTexts {
  const Request& request;
  const Conv& op;
  std::string type;  // of sums
  const Extents& extents;
  const StoreText& store;
  const ShapeText& shape;
  const ZeroText &x_zero, &w_zero;
  bool near;  // which side of device/conv_side.h
  int64_t x_lanes, w_lanes;
  int64_t valid;  // of each vector; 0: all
  const TilingText& tiling;
};

FunctionText conv_text(const ConvTexts& d, std::string_view family) {
  const int rank = d.request.inputs[0].type.shape.rank();
  FunctionText text{.family = std::string(family), .headers = d.tiling.headers, .text = {}};
  text.headers.push_back("conv_side.h");
  text.text = d.store.definition() + d.shape.definition() +
              weight_zeros_definition(d.w_zero, d.extents, d.type) + d.tiling.definition;
  text.text += fmt::format(
      "struct Result {{\n  using Index = Shape::Index;\n  enum : int {{ kLanes = "
      "Store::kLanes }};\n  const Shape& s;\n  Store store;\n  i64 first;\n"
      "  struct At {{\n    i64 row;\n    Shape::Pixel pixel;\n  }};\n"
      "  __device__ At row(Index row) const {{ return {{i64(row), s.pixel(row)}}; }}\n"
      "  __device__ Store::Columns columns(Index k) const {{ return store.columns(first + k); }}\n"
      "  __device__ Store::Inputs inputs(const At& at, Index k) const {{\n"
      "    return store.inputs(at.row, {1});\n  }}\n"
      "  __device__ void operator()(const Vec<{0}, kLanes>& sums, const Store::Columns& columns,\n"
      "                             const Store::Inputs& inputs, const At& at, Index k) const {{\n"
      "    store(sums, columns, inputs, at.row, {1});\n  }}\n}};\n",
      d.type, coordinates_text(rank, "first + k", "at.pixel."));
  // For a convolution of one group `rest` is 0.
  const bool is_split = !d.op.split.empty();
  const std::string block =
      d.tiling.block(d.op.split) +
      fmt::format("  const i64 group = {};\n", d.op.groups == 1 ? "0" : "rest");
  text.text += fmt::format(
      "KERNEL($name, {threads})(In<{x}> x, In<{w}> w{x_zero}{w_zero}{parameters}"
      "{extents}) {{\n"
      "  const Shape s = {made};\n"
      "{block}"
      "  const conv::{input}<{x}, {type}, Shape, {x_lanes}{x_valid}> input{{\n"
      "      x, s, {x_zero_value}, Shape::Index(group * s.channels * s.x_c),"
      " (aligned & 1) != 0}};\n"
      "  const i64 first = group * s.columns;\n"
      "  const conv::Weights<{w}, {type}, Shape, Zeros, {w_lanes}, {w_valid}> weights{{\n"
      "      w, s, {zeros}, Shape::Index(first), (aligned & 2) != 0}};\n"
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
      fmt::arg("type", d.type), fmt::arg("input", d.near ? "NearInput" : "Input"),
      fmt::arg("x_lanes", d.x_lanes),
      fmt::arg("x_valid", d.near ? fmt::format(", {}", d.valid ? d.valid : d.x_lanes) : ""),
      fmt::arg("w_valid", d.valid ? d.valid : d.w_lanes),
      fmt::arg("x_zero_value", d.x_zero.value()), fmt::arg("w_lanes", d.w_lanes),
      fmt::arg("zeros", weight_zeros(d.w_zero, d.extents, "first")),
      fmt::arg("store", d.store.construction()));
  return text;
}

// Threads hold neighbouring channels of an output, and rows are its pixels.
StoreLanes conv_store_lanes(const Conv& op, const Request& request, int64_t most) {
  StoreLanes lanes{.axis = 1, .most = most, .rows = {0}};
  const Size channels = request.inputs[1].type.shape[0];
  lanes.multiple = channels.known() ? channels.value() / op.groups : 1;
  for (const int64_t part : op.split) lanes.multiple = std::gcd(lanes.multiple, part);
  for (int axis = 2; axis < request.inputs[0].type.shape.rank(); ++axis) lanes.rows.push_back(axis);
  return lanes;
}

// Nullopt: a tactic that is none of the kernel's.
std::optional<TilingText> conv_tiling(const Conv& op, const Request& request, DataType sum,
                                      int64_t places, bool on_tensor_cores) {
  const ProductSizes sizes = conv_product_sizes(op, request, places);
  const DeviceSpec& spec = spec_of(request.device);
  if (on_tensor_cores) {
    const auto config = mma_for(sizes, spec, request.tactic);
    if (!config) return std::nullopt;
    return TilingText(*config, sizes.element_bytes);
  }
  const auto config = tile_for(sizes, spec, request.tactic);
  if (!config) return std::nullopt;
  return TilingText(*config, sum, !is_channels_first_in_memory(request.outputs[0]));
}

// rows, columns, depth, channels, and Pixel pixel(row).
void add_product(ShapeText& shape, Extents& extents, const Conv& op, const Request& request,
                 int64_t places) {
  const int rank = request.inputs[0].type.shape.rank();
  // Without a sign, so that the compiler knows where coordinates end.
  const std::string_view count = shape.index() == "i32" ? "u32" : "u64";
  const std::string channels = places > 0 ? fmt::format("{}", places) : extents.input_dim(1, 1);
  std::string pixels = extents.output_dim(0, 0), taps = channels, decode;
  for (int i = 2; i >= 0; --i) {
    const int axis = axis_of(i, rank);
    if (axis < 0) continue;
    pixels += " * " + extents.output_dim(0, axis);
    taps += " * " + extents.input_dim(1, axis);
    decode += fmt::format("    at.{0} = left % {1}(out_{0});\n    left /= {1}(out_{0});\n",
                          "zyx"[i], count);
  }
  shape.number("rows", pixels);
  if (op.split.empty()) {
    shape.number("columns", fmt::format("{} / {}", extents.output_dim(0, 1), op.groups));
  } else {
    shape.number("columns", std::accumulate(op.split.begin(), op.split.end(), int64_t{0}));
  }
  shape.number("channels", channels);
  shape.number("depth", taps);
  shape.add(
      fmt::format("  struct Pixel {{\n    i64 n, z, y, x;\n  }};\n"
                  "  __device__ Pixel pixel(Index rest) const {{\n    Pixel at{{}};\n"
                  "    {} left = rest;\n{}    at.n = left;\n    return at;\n  }}\n",
                  count, decode));
}

KernelResult make_conv(const Conv& op, const Request& request, bool on_tensor_cores) {
  if (std::string reason = why_no_conv_text(request); !reason.empty())
    return refuse(std::move(reason));
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  const DataType sum = conv_accumulator(request);
  const std::string type = type_text(register_type(sum));
  Extents extents(request);
  const int64_t places = channel_places(op, request, on_tensor_cores);
  const auto tiling = conv_tiling(op, request, sum, places, on_tensor_cores);
  if (!tiling) return refuse("a tactic that is none of this kernel's");
  FusedProductParts parts;
  const StoreLanes lanes = conv_store_lanes(op, request, tiling->store_lanes);
  auto store = StoreText::make(request, sum, extents, std::max<size_t>(op.split.size(), 1), &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);

  // Neighbouring threads read neighbouring channels where those are adjacent, several at once where
  // that is aligned; else neighbouring pixels. The weights are read along the depth either way: in
  // one go if they lie in its order (weight_strides()); else, on CUDA cores alone, a kernel's size
  // apart, and then all of its elements for some channels follow each other, so that what a cache
  // line holds is used while it is there.
  const bool taps_first = is_channels_first_in_memory(x);
  const bool linear = is_linear(w, taps_first, places);
  const Size channels = w.type.shape[1];
  const int64_t in_vector = 16 / static_cast<int64_t>(size_of(x.type.dtype));
  const int64_t most = on_tensor_cores ? in_vector : std::min<int64_t>(in_vector, 4);
  const bool has_gap = channels.known() && places != channels.value();
  const bool few_taps = has_few_taps(op, w);
  if (has_gap && !few_taps) return refuse("a large kernel with padding over few channels");
  const bool near = on_tensor_cores && linear && few_taps;
  const Size in_tap = has_gap ? Size(places) : channels;
  const int64_t x_lanes = taps_first ? vector_elements(x, 1, in_tap, most) : 1;
  const int64_t w_lanes = linear ? linear_elements(w, places, has_gap ? places : most) : 1;
  const int64_t least = has_gap ? places : CoreVectors(x.type.dtype).least;
  if (on_tensor_cores && std::min(x_lanes, w_lanes) < least)
    return refuse(fmt::format("{} that cannot be read {} at once",
                              x_lanes < least ? "channels" : "weights", least));
  parts.vectors = {{.operand = 0, .axis = 1, .elements = x_lanes},
                   {.operand = 1, .elements = w_lanes, .is_linear = true}};
  constexpr int64_t kChannelBlock = 32;
  const bool in_blocks =
      taps_first && !linear && channels.known() && channels.value() % kChannelBlock == 0;
  ShapeText shape(index_type(request));
  add_conv(shape, extents, op, request);
  add_product(shape, extents, op, request, places);
  shape.flag("kTapsFirst", taps_first);
  shape.flag("kLinearWeights", linear);
  shape.number("kChannelBlock", in_blocks ? kChannelBlock : 0);
  const ZeroText x_zero(request, extents, 2, "x_zero", type);
  const ZeroText w_zero(request, extents, 3, "w_zero", type);
  shape.flag("kInputHasZero", x_zero.is_present());
  add_functions(parts, request,
                conv_text({request, op, type, extents, *parts.store, shape, x_zero, w_zero, near,
                           x_lanes, w_lanes, has_gap ? channels.value() : 0, *tiling},
                          on_tensor_cores ? "conv_mma" : "conv_direct"));
  parts.inputs = {0, 1};
  if (x_zero.is_present()) parts.inputs.push_back(2);
  if (w_zero.is_present()) parts.inputs.push_back(3);
  parts.sources = extents.sources();
  parts.tactic = tiling->tactic;
  parts.geometry = [rows = tiling->rows, columns = tiling->columns, threads = tiling->threads,
                    bytes = tiling->shared_bytes, groups = op.groups, split = op.split](
                       std::span<const TensorView>, std::span<const TensorView> outputs) {
    const ProductSizes now = conv_product_sizes(outputs[0].dims, groups, split);
    return blocks_of(block_count(now, rows, columns), threads, bytes);
  };
  return make_fused_product(std::move(parts), request);
}

// Axis 1 fastest, with `places` places; then the last axis, and so on to axis 0. Nullopt if a size
// of an axis after axis 1 is not known.
std::optional<Shape> channels_last(const Shape& shape, int64_t places) {
  Shape strides = shape;
  int64_t next = places;
  for (int axis = shape.rank() - 1; axis > 1; --axis) {
    if (!shape[axis].known()) return std::nullopt;
    strides[axis] = next;
    next *= std::max<int64_t>(shape[axis].value(), 1);
  }
  strides[1] = 1;
  strides[0] = next;
  return strides;
}

// Weights in the order of the depth if the channels of the input are adjacent; for other inputs
// they are already in this order.
std::optional<Shape> weight_strides(const Request& request, int64_t places) {
  if (!is_channels_first_in_memory(request.inputs[0]) || places == 0) return std::nullopt;
  return channels_last(request.inputs[1].type.shape, places);
}

// Few channels that are no vectors, the three of a picture say, have places for one.
std::optional<Shape> conv_mma_strides(const Request& request, size_t input) {
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  const int64_t places = channel_places(std::get<Conv>(request.op), request, true);
  if (input == 1) return weight_strides(request, places);
  if (input > 1 || places == 0 || w.type.shape[1] == Size(places)) return std::nullopt;
  return channels_last(x.type.shape, places);
}

std::optional<Shape> direct_strides(const Request& request, size_t input) {
  if (input != 1) return std::nullopt;
  return weight_strides(request, channel_places(std::get<Conv>(request.op), request, false));
}

KernelResult make_direct(const Conv& op, const Request& request) {
  return make_conv(op, request, false);
}

template <bool on_tensor_cores>
std::vector<Tactic> conv_tactics(const Conv& op, const Request& request) {
  const ProductSizes sizes =
      conv_product_sizes(op, request, channel_places(op, request, on_tensor_cores));
  const DeviceSpec& spec = spec_of(request.device);
  return on_tensor_cores ? mma_tactics(sizes, spec) : tile_tactics(sizes, spec);
}

// Channels that are neighbours are read together whatever the pads are, where pixels of a row begin
// anywhere; and the sums of a row of a tile are neighbours in the output.
constexpr KernelEntry kConvEntries[] = {
    tactics_entry<Conv, make_on_tensor_cores<Conv, make_conv>, conv_tactics<true>>(
        "cuda.conv.mma", Layout::kChannelsLast),
    tactics_entry<Conv, make_direct, conv_tactics<false>>("cuda.conv.direct",
                                                          Layout::kChannelsLast),
};
constexpr InputLayout kConvLayouts[] = {{"cuda.conv.mma", conv_mma_strides},
                                        {"cuda.conv.direct", direct_strides}};

}  // namespace

std::span<const KernelEntry> conv_entries() { return kConvEntries; }
std::span<const InputLayout> conv_input_layouts() { return kConvLayouts; }

}  // namespace anneal::cuda
