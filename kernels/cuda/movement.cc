// Ops whose output is their input seen through other axes: "cuda.transpose.tiled",
// "cuda.transpose.strided", "cuda.expand.strided", "cuda.slice.strided", "cuda.bit_cast.strided",
// "cuda.reshape.strided". Integer inputs that decide shapes are constants or not read at all.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/graph/infer.h"
#include "anneal/kernels/cuda/elementwise.h"
#include "anneal/kernels/cuda/entries.h"
#include "anneal/kernels/cuda/function_kernel.h"
#include "anneal/kernels/cuda/program_text.h"

namespace anneal::cuda {
namespace {

// Copies keep every bit, those of a NaN, too.
Made make_copy(Seen seen, std::string_view family) {
  if (!has_epilogue(seen.request())) seen.as_bits();
  const Request request = seen.request();
  const DataType dtype = request.inputs[0].type.dtype;
  ProgramBuilder builder;
  return make_elementwise(builder.finish(builder.input(0, dtype), dtype), std::move(seen), family);
}

Made make_expand(const Expand&, const Request& request) {
  return make_copy(Seen(request, {0}), "expand");
}

Made make_bit_cast(const BitCast& op, const Request& request) {
  Seen seen(request, {0});
  seen.set_dtype(0, op.dtype);
  return make_copy(std::move(seen), "bit_cast");
}

Made make_slice(const Slice&, const Request& request) {
  const auto starts = integers(request.inputs[1]), axes = integers(request.inputs[3]),
             steps = integers(request.inputs[4]);
  if (!starts || !axes || !steps) return refuse("starts, axes or steps that are not constant");
  const int rank = request.inputs[0].type.shape.rank();
  if (axes->size() != starts->size() || steps->size() != starts->size())
    return refuse("another number of axes or steps than of starts");
  Look look = Look::all(rank);
  for (size_t i = 0; i < starts->size(); ++i) {
    const int64_t at = (*axes)[i] < 0 ? (*axes)[i] + rank : (*axes)[i];
    if (at < 0 || at >= rank) return refuse("axes that the input does not have");
    Look::Axis& axis = look.axes[static_cast<size_t>(at)];
    axis.sliced = true;
    axis.start = (*starts)[i];
    axis.step = (*steps)[i];
  }
  Seen seen(request, {0});
  seen.look_at_input(0, look);
  return make_copy(std::move(seen), "slice");
}

// Element number n of both, in row-major order.
Made make_reshape(const Reshape&, const Request& original) {
  Seen seen(original, {0});
  if (seen.is_dense(original.inputs[0])) {
    seen.look_at_input(0, {.dense = true});
    return make_copy(std::move(seen), "reshape");
  }
  if (!has_epilogue(original)) {
    seen.as_bits();
    if (seen.is_dense(original.outputs[0])) {
      seen.look_at_output(0, {.dense = true});
      return make_copy(std::move(seen), "reshape");
    }
  }
  const DataType dtype = seen.request().inputs[0].type.dtype;
  const auto body = [&](const Request& request, Extents& extents) {
    const Shape& from = request.inputs[0].type.shape;
    std::string text = "i64 left = n;\n";
    for (int axis = from.rank(); axis-- > 0;)
      text += fmt::format("const i64 j{0} = left % {1};\nleft /= {1};\n", axis,
                          extents.input_dim(0, axis));
    const std::string at = offset_text(request, extents, {false, 0}, from,
                                       [](int axis) { return fmt::format("j{}", axis); });
    return text + store_call(loaded(dtype, fmt::format("x0[{}]", at)), seen.space().rank());
  };
  return make_per_element(seen, accumulator(dtype), "reshape", body);
}

Seen transposed(const Transpose& op, const Request& request) {
  Look look;
  for (const int64_t axis : op.permutation) look.axes.push_back({.of = {static_cast<int>(axis)}});
  Seen seen(request, {0});
  seen.look_at_input(0, look);
  return seen;
}

Made make_transpose(const Transpose& op, const Request& request) {
  return make_copy(transposed(op, request), "transpose");
}

// Tiles of kTile x kTile: read along the input's fastest axis, written along the output's.
constexpr int kTile = 32;
constexpr int kRows = 8;  // of a tile at once

class TiledTranspose final : public FunctionKernel {
 public:
  TiledTranspose(Parts parts, int across) : FunctionKernel(std::move(parts)), across_(across) {}

 protected:
  Geometry geometry(Views, Views outputs) const override {
    const Dims& dims = outputs[0].dims;
    int64_t tiles = 1;
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const bool tiled = axis == across_ || axis + 1 == dims.rank();
      tiles *= tiled ? (dims[axis] + kTile - 1) / kTile : dims[axis];
    }
    return {.grid = {blocks(tiles * kTile * kRows, kTile * kRows), 1, 1},
            .block = {kTile, kRows, 1}};
  }

 private:
  int across_;
};

// The axis of the space along which the input's elements are next to each other.
std::optional<int> fastest_axis(const Operand& input) {
  for (int axis = 0; axis < input.type.shape.rank(); ++axis)
    if (input.strides[axis] == Size(1) && !(input.type.shape[axis] == Size(1))) return axis;
  return std::nullopt;
}

std::string tiled_text(const Request& request, const StoreText& store, Extents& extents, int p) {
  const Shape& space = request.outputs[0].type.shape;
  const int q = space.rank() - 1;
  const std::vector<std::string> dims = output_dims(request, extents, 0);
  std::vector<std::string> tiles = dims;
  for (const int axis : {p, q})
    tiles[static_cast<size_t>(axis)] =
        fmt::format("(({} + {}) / {})", dims[static_cast<size_t>(axis)], kTile - 1, kTile);
  std::string block;  // coordinates: of tiles along p and q, else of elements
  for (int axis = q; axis > 0; --axis)
    block += fmt::format("const i64 b{0} = rest % {1};\nrest /= {1};\n", axis,
                         tiles[static_cast<size_t>(axis)]);
  const auto at = [&](int axis) {
    return axis == p ? std::string("ip") : axis == q ? "iq" : fmt::format("b{}", axis);
  };
  std::string coordinates;
  for (int axis = 0; axis <= q; ++axis) coordinates += ", " + at(axis);
  const DataType dtype = request.inputs[0].type.dtype;
  const std::string from = offset_text(request, extents, {false, 0}, space, at);
  return fmt::format(
      R"({definition}
KERNEL($name, {threads})({inputs}{stores}{extents}) {{
  SHARED({type}, tile, {tile} * ({tile} + 1));
  const Store store = {construction};
  for (i64 block = blockIdx.x; block < {blocks}; block += gridDim.x) {{
    i64 rest = block;
    {block}
    const i64 b0 = rest;
    __syncthreads();
    for (i32 row = threadIdx.y; row < {tile}; row += {rows}) {{
      const i64 ip = b{p} * {tile} + threadIdx.x, iq = b{q} * {tile} + row;
      if (ip < {p_size} && iq < {q_size}) tile[row * ({tile} + 1) + i32(threadIdx.x)] = x0[{from}];
    }}
    __syncthreads();
    for (i32 row = threadIdx.y; row < {tile}; row += {rows}) {{
      const i64 ip = b{p} * {tile} + row, iq = b{q} * {tile} + threadIdx.x;
      if (ip < {p_size} && iq < {q_size})
        store({value}{coordinates});
    }}
  }}
}}
)",
      fmt::arg("definition", store.definition()), fmt::arg("threads", kTile * kRows),
      fmt::arg("inputs", input_parameters(request, 1)), fmt::arg("stores", store.parameters()),
      fmt::arg("extents", extents.parameters()), fmt::arg("type", type_text(dtype)),
      fmt::arg("tile", kTile), fmt::arg("rows", kRows),
      fmt::arg("construction", store.construction()), fmt::arg("blocks", product(tiles)),
      fmt::arg("block", block), fmt::arg("p", p), fmt::arg("q", q),
      fmt::arg("p_size", dims[static_cast<size_t>(p)]),
      fmt::arg("q_size", dims[static_cast<size_t>(q)]), fmt::arg("from", from),
      fmt::arg("value",
               loaded(dtype, fmt::format("tile[i32(threadIdx.x) * ({} + 1) + row]", kTile))),
      fmt::arg("coordinates", coordinates));
}

Made make_tiled_transpose(const Transpose& op, const Request& original) {
  Seen seen = transposed(op, original);
  if (!has_epilogue(original)) seen.as_bits();
  seen.merge_axes();
  const Request request = seen.request();
  const Operand &x = request.inputs[0], &y = request.outputs[0];
  const int last = y.type.shape.rank() - 1;
  const auto fastest = fastest_axis(x);
  if (!fastest || *fastest == last || x.type.shape.rank() != y.type.shape.rank())
    return refuse("the output's last axis is not another than the one the input is dense along");
  for (const int axis : {*fastest, last}) {
    const Size size = y.type.shape[axis];
    if (size.known() && size.value() < kRows) return refuse("an axis too short for tiles");
  }
  Extents extents(request);
  std::string why_not;
  const auto store = StoreText::make(request, accumulator(x.type.dtype), extents, why_not);
  if (!store) return refuse(std::move(why_not));
  std::string text = tiled_text(request, *store, extents, *fastest);
  FunctionText function{"transpose", {"program.h"}, std::move(text)};
  return {std::make_unique<TiledTranspose>(parts_of(request, seen, extents, std::move(function)),
                                           *fastest),
          {}};
}

constexpr KernelEntry kEntries[] = {
    entry<Transpose, make_tiled_transpose>("cuda.transpose.tiled"),
    entry<Transpose, make_transpose>("cuda.transpose.strided"),
    entry<Expand, make_expand>("cuda.expand.strided"),
    entry<Slice, make_slice>("cuda.slice.strided"),
    entry<BitCast, make_bit_cast>("cuda.bit_cast.strided"),
    entry<Reshape, make_reshape>("cuda.reshape.strided"),
};

}  // namespace

std::span<const KernelEntry> movement_entries() { return kEntries; }

}  // namespace anneal::cuda
