#include "anneal/kernels/cuda/kernels/tiled_copy.h"

#include <fmt/format.h>

#include <optional>

#include "anneal/core/integer.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

// Tiles of kTile x kTile: read along the input's fastest axis, written along the output's.
constexpr int kTile = 32;
constexpr int kRows = 8;  // of a tile at once

// The axis along which elements are next to each other.
std::optional<int> fastest_axis(const Operand& operand) {
  for (int axis = 0; axis < operand.type.shape.rank(); ++axis)
    if (operand.strides[axis] == Size(1) && !(operand.type.shape[axis] == Size(1))) return axis;
  return std::nullopt;
}

// Along axis p elements are read, along axis q written.
std::string tiled_text(const Request& request, const StoreText& store, Extents& extents, int p,
                       int q) {
  const Shape& space = request.outputs[0].type.shape;
  const std::vector<std::string> dims = output_dims(request, extents, 0);
  std::vector<std::string> tiles = dims;
  for (const int axis : {p, q})
    tiles[static_cast<size_t>(axis)] =
        fmt::format("(({} + {}) / {})", dims[static_cast<size_t>(axis)], kTile - 1, kTile);
  std::string block;  // coordinates: of tiles along p and q, else of elements
  for (int axis = space.rank() - 1; axis > 0; --axis)
    block += fmt::format("const i64 b{0} = rest % {1};\nrest /= {1};\n", axis,
                         tiles[static_cast<size_t>(axis)]);
  const auto at = [&](int axis) {
    return axis == p ? std::string("ip") : axis == q ? "iq" : fmt::format("b{}", axis);
  };
  std::string coordinates;
  for (int axis = 0; axis < space.rank(); ++axis) coordinates += ", " + at(axis);
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
    UNROLL
    for (i32 step = 0; step < {tile}; step += {rows}) {{
      const i32 row = step + i32(threadIdx.y);
      const i64 ip = b{p} * {tile} + threadIdx.x, iq = b{q} * {tile} + row;
      if (ip < {p_size} && iq < {q_size}) tile[row * ({tile} + 1) + i32(threadIdx.x)] = x0[{from}];
    }}
    __syncthreads();
    UNROLL
    for (i32 step = 0; step < {tile}; step += {rows}) {{
      const i32 row = step + i32(threadIdx.y);
      const i64 ip = b{p} * {tile} + row, iq = b{q} * {tile} + threadIdx.x;
      if (ip < {p_size} && iq < {q_size}) {{
        const {type} element = tile[i32(threadIdx.x) * ({tile} + 1) + row];
        store({value}{coordinates});
      }}
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
      fmt::arg("value", loaded(dtype, "element")), fmt::arg("coordinates", coordinates));
}

}  // namespace

KernelResult make_tiled_copy(OperandViews seen, std::string_view family) {
  if (!has_epilogue(seen.request())) seen.as_bits();
  seen.merge_axes();
  const Request request = seen.request();
  const Operand &x = request.inputs[0], &y = request.outputs[0];
  const auto from = fastest_axis(x), to = fastest_axis(y);
  if (!from || !to || *from == *to || x.type.shape.rank() != y.type.shape.rank())
    return refuse("input and output are not dense along two different axes");
  for (const int axis : {*from, *to}) {
    const Size size = y.type.shape[axis];
    if (size.known() && size.value() < kRows) return refuse("an axis too short for tiles");
  }
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator(x.type.dtype), extents);
  if (!store) return refuse(store.reason());
  std::string text = tiled_text(request, *store, extents, *from, *to);
  FunctionText function{std::string(family), {"program.h", "lanes.h"}, std::move(text)};
  FunctionParts parts = parts_of(request, seen, extents, std::move(function));
  parts.geometry = [from = *from, to = *to, spec = &spec_of(request.device)](
                       FunctionParts::Views, FunctionParts::Views outputs) {
    const Dims& dims = outputs[0].dims;
    int64_t tiles = 1;
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const bool tiled = axis == from || axis == to;
      tiles *= tiled ? ceil_div(dims[axis], kTile) : dims[axis];
    }
    return Geometry{
        .grid = {resident_blocks_for(*spec, tiles * kTile * kRows, kTile * kRows), 1, 1},
        .block = {kTile, kRows, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

}  // namespace anneal::cuda
