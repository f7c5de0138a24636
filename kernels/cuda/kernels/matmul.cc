// MatMul on tensor cores, "cuda.matmul.mma", for operands of 16 bits that are read 16 bytes at once
// and of 8 bits that are read 4 at once; and of all types, strides and sizes on CUDA cores,
// "cuda.matmul.simt".
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/text/matmul_text.h"
#include "anneal/kernels/cuda/text/product_text.h"
#include "anneal/kernels/cuda/text/zero_text.h"

namespace anneal::cuda {
namespace {

// How one side comes to shared memory: along the axis whose neighbours are adjacent. apart: no
// vector along the lines, for each line has its zero point.
struct SideAccess {
  bool along_depth = true;
  VectorAccess vectors = {};
};

SideAccess side_read(const Request& request, size_t input, int line_axis, int depth_axis,
                     int64_t most_along_lines, int64_t most, bool apart) {
  const Operand& operand = request.inputs[input];
  SideAccess read;
  read.along_depth =
      operand.strides[depth_axis] == Size(1) || !(operand.strides[line_axis] == Size(1));
  const int axis = read.along_depth ? depth_axis : line_axis;
  if (!read.along_depth) most = std::min(most, most_along_lines);
  read.vectors = {input, axis, 1};
  if (read.along_depth || !apart)
    read.vectors.elements = vector_elements(operand, axis, operand.type.shape[axis], most);
  return read;
}

// All that decides the text.
struct MatMulTexts {
  const Request& request;
  const MatMul& op;
  std::string type;  // of sums
  Extents& extents;
  const StoreText& store;
  const MatMulText& product;
  const ShapeText& shape;
  const ZeroText &a_zero, &b_zero;
  const SideAccess &a, &b;
  const TilingText& tiling;
};

// A struct Lines of device/matmul_side.h.
std::string lines_text(const MatMulTexts& s, std::string_view name, const std::string& offset,
                       const char* line, const ZeroText& zero) {
  return fmt::format(
      "struct {} {{\n  using Index = Shape::Index;\n  enum : bool {{ kHasZero = {} }};\n"
      "  const Shape& s;\n{}"
      "  __device__ Index offset(Index row) const {{\n{}  }}\n"
      "  __device__ {} zero(Index row) const {{\n{}    return {};\n  }}\n}};\n",
      name, zero.is_present(), zero.members(s.extents), offset, s.type,
      zero.is_per_line() ? fmt::format("    const i64 i = {};\n", line) : "", zero.value());
}

std::string side_type(const MatMulTexts& s, size_t input, std::string_view lines,
                      const SideAccess& read) {
  return fmt::format("matmul::Side<{}, {}, Shape::Index, {}, {}, {}>",
                     type_text(s.request.inputs[input].type.dtype), s.type, lines,
                     read.vectors.elements, read.along_depth);
}

FunctionText matmul_text(const MatMulTexts& s, std::string_view family) {
  FunctionText text{.family = std::string(family), .headers = s.tiling.headers, .text = {}};
  text.headers.push_back("matmul_side.h");
  text.text = s.store.definition() + s.shape.definition() +
              lines_text(s, "RowsOfA", s.product.row_offset(), "row % s.m", s.a_zero) +
              lines_text(s, "ColumnsOfB", "    return row * s.b_column;\n", "row", s.b_zero) +
              s.product.result_definition(s.type) + s.tiling.definition;
  text.text += fmt::format(
      "KERNEL($name, {threads})(In<{a}> a, In<{b}> b{a_zero}{b_zero}{parameters}"
      "{extents}) {{\n"
      "  const Shape s = {made};\n"
      "{block}{batch}"
      "  const {side_a} side_a{{a + ({offset_a}), RowsOfA{{s{zeros_a}}}, s.rows, s.depth,"
      " s.a_depth, (aligned & 1) != 0}};\n"
      "  const {side_b} side_b{{b + ({offset_b}), ColumnsOfB{{s{zeros_b}}}, s.columns, s.depth,"
      " s.b_depth, (aligned & 2) != 0}};\n"
      "  {function}(side_a, side_b, {result}, row, s.rows, column,"
      " {end}, s.depth);\n}}\n",
      fmt::arg("threads", s.tiling.threads),
      fmt::arg("a", type_text(s.request.inputs[0].type.dtype)),
      fmt::arg("b", type_text(s.request.inputs[1].type.dtype)),
      fmt::arg("a_zero", s.a_zero.parameter()), fmt::arg("b_zero", s.b_zero.parameter()),
      fmt::arg("parameters", s.store.parameters()), fmt::arg("extents", s.extents.parameters()),
      fmt::arg("made", s.shape.construction()), fmt::arg("block", s.tiling.block(s.op.split)),
      fmt::arg("end", s.op.split.empty() ? "s.columns" : "part_end"),
      fmt::arg("function", s.tiling.function), fmt::arg("batch", s.product.batch_coordinates()),
      fmt::arg("side_a", side_type(s, 0, "RowsOfA", s.a)),
      fmt::arg("side_b", side_type(s, 1, "ColumnsOfB", s.b)),
      fmt::arg("offset_a", s.product.batch_offset('a')),
      fmt::arg("offset_b", s.product.batch_offset('b')),
      fmt::arg("zeros_a", s.a_zero.arguments(s.extents)),
      fmt::arg("zeros_b", s.b_zero.arguments(s.extents)),
      fmt::arg("result", s.product.result_construction(s.store.construction())));
  return text;
}

DataType matmul_sum(const Request& request) {
  const DataType a = request.inputs[0].type.dtype;
  return size_of(a) == 1 ? DataType::kI32 : accumulator(a);
}

ProductSizes matmul_sizes(const Request& request, const MatMulText& product) {
  ProductSizes sizes = product.sizes();
  sizes.accumulator_bytes = size_of(matmul_sum(request));
  sizes.element_bytes = size_of(request.inputs[0].type.dtype);
  return sizes;
}

// Nullopt: a tactic that is none of the kernel's.
std::optional<TilingText> matmul_tiling(const Request& request, const MatMulText& product,
                                        DataType sum, bool on_tensor_cores) {
  const ProductSizes sizes = matmul_sizes(request, product);
  const DeviceSpec& spec = spec_of(request.device);
  if (on_tensor_cores) {
    const auto config = mma_for(sizes, spec, request.tactic);
    if (!config) return std::nullopt;
    return TilingText(*config, sizes.element_bytes);
  }
  const auto config = tile_for(sizes, spec, request.tactic);
  if (!config) return std::nullopt;
  return TilingText(*config, sum, product.rows_are_nearest());
}

KernelResult make_matmul(const MatMul& op, const Request& request, bool on_tensor_cores) {
  if (request.op_input_count > 4 && request.inputs[4].present) return refuse("quantized weights");
  const DataType a = request.inputs[0].type.dtype;
  if (size_of(request.inputs[1].type.dtype) != size_of(a)) return refuse("operands of two types");
  const DataType sum = matmul_sum(request);
  const std::string type = type_text(register_type(sum));
  Extents extents(request);
  const MatMulText product(op, request, extents);
  const auto tiling = matmul_tiling(request, product, sum, on_tensor_cores);
  if (!tiling) return refuse("a tactic that is none of this kernel's");
  FusedProductParts parts;
  const StoreLanes lanes = product.store_lanes(tiling->store_lanes);
  auto store = StoreText::make(request, sum, extents, std::max<size_t>(op.split.size(), 1), &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);

  ShapeText shape(index_type(request));
  product.add_numbers(shape);
  const ZeroText a_zero(request, extents, 2, "a_zero", type);
  const ZeroText b_zero(request, extents, 3, "b_zero", type);
  const int64_t in_vector = 16 / static_cast<int64_t>(size_of(a));
  const int64_t most = on_tensor_cores ? in_vector : std::min<int64_t>(in_vector, 4);
  // Bytes are read along the lines in squares of 4 by 4.
  const bool bytes = on_tensor_cores && size_of(a) == 1;
  const auto along_lines = [&](int64_t lines) { return bytes ? std::gcd(lines, 4) : lines; };
  const SideAccess read_a =
      side_read(request, 0, product.a_row_axis, product.a_depth_axis, along_lines(tiling->rows),
                most, !on_tensor_cores && a_zero.is_per_line());
  // Vectors along the columns begin where an output's tiles do.
  int64_t along_columns = tiling->columns, column = 0;
  for (const int64_t part : op.split) along_columns = std::gcd(along_columns, column += part);
  const SideAccess read_b =
      side_read(request, 1, product.b_column_axis, product.b_depth_axis, along_lines(along_columns),
                most, !on_tensor_cores && b_zero.is_per_line());
  const int64_t least = bytes ? 4 : in_vector;
  if (on_tensor_cores && std::min(read_a.vectors.elements, read_b.vectors.elements) < least)
    return refuse(bytes ? "operands that cannot be read 4 bytes at once"
                        : "operands that cannot be read 16 bytes at once");
  parts.vectors = {read_a.vectors, read_b.vectors};
  add_functions(parts, request,
                matmul_text({request, op, type, extents, *parts.store, product, shape, a_zero,
                             b_zero, read_a, read_b, *tiling},
                            on_tensor_cores ? "matmul_mma" : "matmul_simt"));
  parts.inputs = {0, 1};
  if (a_zero.is_present()) parts.inputs.push_back(2);
  if (b_zero.is_present()) parts.inputs.push_back(3);
  parts.sources = extents.sources();
  parts.tactic = tiling->tactic;
  parts.geometry = [rows = tiling->rows, columns = tiling->columns, threads = tiling->threads,
                    bytes = tiling->shared_bytes, joined = product.first_joined(),
                    split = op.split](std::span<const TensorView>,
                                      std::span<const TensorView> outputs) {
    const ProductSizes now = product_sizes(outputs[0].dims, joined, split);
    return blocks_of(block_count(now, rows, columns), threads, bytes);
  };
  return make_fused_product(std::move(parts), request);
}

KernelResult make_simt_matmul(const MatMul& op, const Request& request) {
  return make_matmul(op, request, false);
}

template <bool on_tensor_cores>
std::vector<Tactic> matmul_tactics(const MatMul& op, const Request& request) {
  Extents extents(request);
  const ProductSizes sizes = matmul_sizes(request, MatMulText(op, request, extents));
  const DeviceSpec& spec = spec_of(request.device);
  return on_tensor_cores ? mma_tactics(sizes, spec) : tile_tactics(sizes, spec);
}

// Rows of a and of the result are read and written whole where they are adjacent; a layout that
// would part them has nothing to offer.
constexpr KernelEntry kMatmulEntries[] = {
    tactics_entry<MatMul, make_on_tensor_cores<MatMul, make_matmul>, matmul_tactics<true>>(
        "cuda.matmul.mma", Layout::kRowMajor),
    tactics_entry<MatMul, make_simt_matmul, matmul_tactics<false>>("cuda.matmul.simt",
                                                                   Layout::kRowMajor),
};

}  // namespace

std::span<const KernelEntry> matmul_entries() { return kMatmulEntries; }

}  // namespace anneal::cuda
