// Conv of all types, strides and sizes as a product on CUDA cores: "cuda.conv.direct". What a tile
// needs of the input is gathered on its way to shared memory.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/anchor_kernel.h"
#include "anneal/kernels/cuda/conv_text.h"
#include "anneal/kernels/cuda/entries.h"
#include "anneal/kernels/cuda/tile_config.h"

namespace anneal::cuda {
namespace {

// Rows are output pixels, columns the output channels of a group, batches groups.
ProductSizes product_sizes(const Dims& y, int64_t groups) {
  ProductSizes sizes{y[0], y[1] / groups, 0, groups};
  for (int axis = 2; axis < y.rank(); ++axis) sizes.rows *= y[axis];
  return sizes;
}

ProductSizes product_sizes(const Conv& op, const Request& request) {
  const auto opt = [&](const Shape& shape) {
    Dims dims;
    for (const Size size : shape) dims.push_back(request.sizes.range(size).opt);
    return dims;
  };
  ProductSizes sizes = product_sizes(opt(request.outputs[0].type.shape), op.groups);
  const Dims w = opt(request.inputs[1].type.shape);
  sizes.depth = count(w) / std::max<int64_t>(w[0], 1);
  sizes.accumulator_bytes = size_of(conv_accumulator(request));
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

int64_t most_lanes(const Operand& operand) {
  return std::min<int64_t>(16 / static_cast<int64_t>(size_of(operand.type.dtype)), 4);
}

// REQUIRES: is_linear().
int64_t linear_elements(const Operand& w, int64_t most) {
  int64_t depth = 1;
  for (int axis = 1; axis < w.type.shape.rank(); ++axis) depth *= w.type.shape[axis].value();
  if (!w.strides[0].known()) return 1;
  while (most > 1 && (depth % most != 0 || w.strides[0].value() % most != 0)) most /= 2;
  return most;
}

struct Direct {
  const Request& request;
  std::string type;  // of sums
  const Extents& extents;
  const StoreText& store;
  const ShapeText& shape;
  const ZeroText &x_zero, &w_zero;
  int64_t x_lanes, w_lanes;
  TileConfig tile;
  bool lanes_are_pixels;
};

FunctionText text_of(const Direct& d) {
  const TileConfig& tile = d.tile;
  const int rank = d.request.inputs[0].type.shape.rank();
  FunctionText text{.family = "conv_direct",
                    .headers = {"program.h", "lanes.h", "tile_product.h", "conv_direct.h"},
                    .text = {}};
  text.text = d.store.definition() + d.shape.definition() +
              weight_zeros_definition(d.w_zero, d.extents, d.type) +
              fmt::format("using Tile = product::Tile<{}, {}, {}, {}, {}, {}, {}>;\n", tile.rows,
                          tile.columns, tile.depth, tile.thread_rows, tile.thread_columns,
                          tile.slices, d.lanes_are_pixels);
  text.text += fmt::format(
      "struct Result {{\n  using Index = Shape::Index;\n  const Shape& s;\n  Store store;\n"
      "  i64 first;\n"
      "  __device__ Shape::Pixel row(Index row) const {{ return s.pixel(row); }}\n"
      "  __device__ void operator()({} sum, const Shape::Pixel& at, Index k) const {{\n"
      "    store(sum, {});\n  }}\n}};\n",
      d.type, coordinates_text(rank, "first + k", "at."));
  text.text += fmt::format(
      "KERNEL($name, {threads})(In<{x}> x, In<{w}> w{x_zero}{w_zero}, i32 aligned{parameters}"
      "{extents}) {{\n"
      "  const Shape s = {made};\n"
      "  const i64 row_blocks = (s.rows + {rows} - 1) / {rows};\n"
      "  const i64 column_blocks = (s.columns + {columns} - 1) / {columns};\n"
      "  i64 rest = blockIdx.x;\n"
      "  const Shape::Index column = rest % column_blocks * {columns};\n"
      "  rest /= column_blocks;\n"
      "  const Shape::Index row = rest % row_blocks * {rows};\n"
      "  const i64 group = rest / row_blocks;\n"
      "  const conv::Input<{x}, {type}, Shape, {x_lanes}> input{{\n"
      "      x + group * s.channels * s.x_c, s, {x_zero_value}, (aligned & 1) != 0}};\n"
      "  const i64 first = group * s.columns;\n"
      "  const conv::Weights<{w}, {type}, Shape, Zeros, {w_lanes}> weights{{\n"
      "      w + first * s.w_k, s, {zeros}, (aligned & 2) != 0}};\n"
      "  product::tile_product<Tile, {type}>(input, weights, Result{{s, {store}, first}}, row,"
      " s.rows, column, s.columns, s.depth);\n}}\n",
      fmt::arg("threads", tile.threads()), fmt::arg("x", type_text(d.request.inputs[0].type.dtype)),
      fmt::arg("w", type_text(d.request.inputs[1].type.dtype)),
      fmt::arg("x_zero", d.x_zero.parameter()), fmt::arg("w_zero", d.w_zero.parameter()),
      fmt::arg("parameters", d.store.parameters()), fmt::arg("extents", d.extents.parameters()),
      fmt::arg("made", d.shape.construction()), fmt::arg("rows", tile.rows),
      fmt::arg("columns", tile.columns), fmt::arg("type", d.type), fmt::arg("x_lanes", d.x_lanes),
      fmt::arg("x_zero_value", d.x_zero.value()), fmt::arg("w_lanes", d.w_lanes),
      fmt::arg("zeros", weight_zeros(d.w_zero, d.extents, "first")),
      fmt::arg("store", d.store.construction()));
  return text;
}

Made make_direct(const Conv& op, const Request& request) {
  std::string why_not = why_no_conv_text(request);
  if (!why_not.empty()) return refuse(std::move(why_not));
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  const DataType sum = conv_accumulator(request);
  const std::string type = type_text(register_type(sum));
  Extents extents(request);
  AnchorParts parts;
  parts.store = StoreText::make(request, sum, extents, why_not);
  if (!parts.store) return refuse(std::move(why_not));
  const auto tile = tile_for(product_sizes(op, request), spec_of(request.device), request.tactic);
  if (!tile) return refuse("a tactic that is none of this kernel's");
  parts.tactic = tactic_of(*tile);

  // Neighbouring threads read neighbouring channels where those are adjacent, several at once where
  // that is aligned; else neighbouring pixels. The weights [K, C, kernel] are read along the depth
  // either way: in one go if it is theirs, else C's stride apart, which caches make up for since
  // all pixels read the same.
  const bool taps_first = is_channels_first_in_memory(x);
  const bool linear = is_linear(w, taps_first);
  ShapeText shape(index_type(request));
  add_conv(shape, extents, op, request);
  const int rank = x.type.shape.rank();
  std::string pixels = extents.output_dim(0, 0), taps = extents.input_dim(1, 1), decode;
  for (int i = 2; i >= 0; --i) {
    const int axis = axis_of(i, rank);
    if (axis < 0) continue;
    pixels += " * " + extents.output_dim(0, axis);
    taps += " * " + extents.input_dim(1, axis);
    decode += fmt::format("    at.{0} = rest % out_{0};\n    rest /= out_{0};\n", "zyx"[i]);
  }
  shape.number("rows", pixels);
  shape.number("columns", fmt::format("{} / {}", extents.output_dim(0, 1), op.groups));
  shape.number("channels", extents.input_dim(1, 1));
  shape.number("depth", taps);
  shape.flag("kTapsFirst", taps_first);
  shape.flag("kLinearWeights", linear);
  shape.add(
      fmt::format("  struct Pixel {{\n    i64 n, z, y, x;\n  }};\n"
                  "  __device__ Pixel pixel(Index rest) const {{\n    Pixel at{{}};\n{}"
                  "    at.n = rest;\n    return at;\n  }}\n",
                  decode));
  const ZeroText x_zero(request, extents, 2, "x_zero", type);
  const ZeroText w_zero(request, extents, 3, "w_zero", type);
  const int64_t x_lanes = taps_first ? vector_elements(x, 1, w.type.shape[1], most_lanes(x)) : 1;
  const int64_t w_lanes = linear ? linear_elements(w, most_lanes(w)) : 1;
  parts.vectors = {{.input = 0, .axis = 1, .elements = x_lanes},
                   {.input = 1, .elements = w_lanes, .is_linear = true}};
  parts.function =
      code_of(request.device)
          .add(text_of({request, type, extents, *parts.store, shape, x_zero, w_zero, x_lanes,
                        w_lanes, *tile, !is_channels_first_in_memory(request.outputs[0])}));
  parts.inputs = {0, 1};
  if (x_zero.is_present()) parts.inputs.push_back(2);
  if (w_zero.is_present()) parts.inputs.push_back(3);
  parts.sources = extents.sources();
  parts.geometry = [tile = *tile, groups = op.groups](std::span<const TensorView>,
                                                      std::span<const TensorView> outputs) {
    return blocks_of(block_count(tile, product_sizes(outputs[0].dims, groups)), tile.threads());
  };
  return make_anchor(std::move(parts), request);
}

// Channels that are neighbours are read together whatever the pads are, where pixels of a row begin
// anywhere; and the sums of a row of a tile are neighbours in the output.
constexpr KernelEntry kEntries[] = {
    entry<Conv, make_direct>("cuda.conv.direct", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> conv_direct_entries() { return kEntries; }

}  // namespace anneal::cuda
