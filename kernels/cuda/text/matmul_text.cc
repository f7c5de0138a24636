#include "anneal/kernels/cuda/text/matmul_text.h"

#include <fmt/format.h>

#include <cstdlib>
#include <numeric>

namespace anneal::cuda {

MatMulText::MatMulText(const MatMul& op, const Request& request, Extents& extents)
    : request_(request),
      split_(op.split),
      extents_(extents),
      rank_(request.outputs[0].type.shape.rank()) {
  const Shape &a = request.inputs[0].type.shape, &b = request.inputs[1].type.shape;
  a_row_axis = a.rank() - (op.transpose_a ? 1 : 2);
  a_depth_axis = a.rank() - (op.transpose_a ? 2 : 1);
  b_column_axis = b.rank() - (op.transpose_b ? 2 : 1);
  b_depth_axis = b.rank() - (op.transpose_b ? 1 : 2);
  first_joined_ = rank_ - 2;
  while (first_joined_ > 0) {
    const int axis = first_joined_ - 1 - (rank_ - b.rank());
    if (axis >= 0 && !(b[axis] == Size(1))) break;
    --first_joined_;
  }
}

ProductSizes MatMulText::sizes() const {
  Dims opt;
  for (const Size size : request_.outputs[0].type.shape)
    opt.push_back(request_.sizes.range(size).opt);
  ProductSizes sizes = product_sizes(opt, first_joined_, split_);
  sizes.depth = request_.sizes.range(request_.inputs[0].type.shape[a_depth_axis]).opt;
  return sizes;
}

bool MatMulText::rows_are_nearest() const {
  const Shape& strides = request_.outputs[0].strides;
  const Size row = strides[rank_ - 2], column = strides[rank_ - 1];
  if (!row.known() || !column.known()) return row == Size(1) && !(column == Size(1));
  return std::abs(row.value()) < std::abs(column.value());
}

ProductSizes product_sizes(const Dims& y, int first_joined, const std::vector<int64_t>& split) {
  const int rank = y.rank();
  ProductSizes sizes{y[rank - 2], y[rank - 1], 0, 1};
  for (int axis = 0; axis < rank - 2; ++axis)
    (axis < first_joined ? sizes.batches : sizes.rows) *= y[axis];
  sizes.split = split;
  if (!split.empty()) sizes.columns = std::accumulate(split.begin(), split.end(), int64_t{0});
  return sizes;
}

std::string MatMulText::leading_stride(char operand, int axis) const {
  const int input = operand == 'a' ? 0 : 1;
  const Operand& of = request_.inputs[static_cast<size_t>(input)];
  const int own = axis - (rank_ - of.type.shape.rank());
  if (own < 0 || of.type.shape[own] == Size(1)) return "0";
  std::string stride = extents_.input_stride(input, own);
  const Size size = of.type.shape[own];
  if (size.known() || size == request_.outputs[0].type.shape[axis]) return stride;
  return fmt::format("({} == 1 ? i64(0) : {})", extents_.input_dim(input, own), stride);
}

void MatMulText::add_numbers(ShapeText& shape) const {
  const Shape& y = request_.outputs[0].type.shape;
  std::string rows = extents_.output_dim(0, rank_ - 2);
  shape.number("m", divisor_text(y[rank_ - 2], rows));
  for (int axis = 0; axis < rank_ - 2; ++axis) {
    const std::string size = extents_.output_dim(0, axis);
    shape.number(fmt::format("size_{}", axis), divisor_text(y[axis], size));
    shape.number(fmt::format("a_{}", axis), leading_stride('a', axis));
    shape.number(fmt::format("b_{}", axis), leading_stride('b', axis));
    if (axis >= first_joined_) rows += " * " + size;
  }
  shape.number("rows", rows);
  if (is_split()) {
    shape.number("columns", std::accumulate(split_.begin(), split_.end(), int64_t{0}));
  } else {
    shape.number("columns", extents_.output_dim(0, rank_ - 1));
  }
  shape.number("depth", extents_.input_dim(0, a_depth_axis));
  shape.number("a_row", extents_.input_stride(0, a_row_axis));
  shape.number("a_depth", extents_.input_stride(0, a_depth_axis));
  shape.number("b_column", extents_.input_stride(1, b_column_axis));
  shape.number("b_depth", extents_.input_stride(1, b_depth_axis));
}

std::string MatMulText::batch_coordinates() const {
  std::string text;
  for (int axis = first_joined_ - 1; axis >= 0; --axis)
    text += fmt::format("  const i64 i{0} = rest % s.size_{0};\n  rest /= s.size_{0};\n", axis);
  return text;
}

std::string MatMulText::batch_offset(char operand) const {
  std::string sum = "i64(0)";
  for (int axis = 0; axis < first_joined_; ++axis)
    sum += fmt::format(" + i{0} * s.{1}_{0}", axis, operand);
  return sum;
}

std::string MatMulText::row_offset() const {
  if (first_joined_ == rank_ - 2) return "    return row * s.a_row;\n";
  std::string text = "    Index offset = row % s.m * s.a_row;\n    Index rest = row / s.m;\n";
  for (int axis = rank_ - 3; axis >= first_joined_; --axis) {
    text += fmt::format("    offset += rest % s.size_{0} * s.a_{0};\n", axis);
    text += fmt::format("    rest /= s.size_{};\n", axis);
  }
  return text + "    return offset;\n";
}

std::string MatMulText::result_definition(std::string_view accumulator) const {
  std::string batch, own, decode, coordinates;
  for (int axis = 0; axis < first_joined_; ++axis) {
    batch += fmt::format("  i64 i{};\n", axis);
    coordinates += fmt::format("i{}, ", axis);
  }
  for (int axis = rank_ - 3; axis >= first_joined_; --axis) {
    decode += fmt::format("    at.i{0} = rest % s.size_{0};\n    rest /= s.size_{0};\n", axis);
    own += fmt::format("    i64 i{};\n", axis);
  }
  for (int axis = first_joined_; axis < rank_ - 2; ++axis)
    coordinates += fmt::format("at.i{}, ", axis);
  const std::string_view m = decode.empty() ? "rest" : "rest % s.m";
  if (!decode.empty()) decode = "    rest /= s.m;\n" + decode;
  if (is_split()) batch = "  i64 begin;\n" + batch;
  return fmt::format(
      "struct Result {{\n  using Index = Shape::Index;\n  enum : int {{ kLanes = "
      "Store::kLanes }};\n  const Shape& s;\n  Store store;\n{0}"
      "  struct At {{\n    i64 row, m;\n{1}  }};\n"
      "  __device__ At row(Index rest) const {{\n    At at{{}};\n    at.row = rest;\n"
      "    at.m = {2};\n{3}    return at;\n  }}\n"
      "  __device__ Store::Columns columns(Index column) const {{\n"
      "    return store.columns(i64(column){6});\n  }}\n"
      "  __device__ Store::Inputs inputs(const At& at, Index column) const {{\n"
      "    return store.inputs(at.row, {5}at.m, i64(column){6});\n  }}\n"
      "  __device__ void operator()(const Vec<{4}, kLanes>& sums, const Store::Columns& columns,\n"
      "                             const Store::Inputs& inputs, const At& at, Index column) const "
      "{{\n    store(sums, columns, inputs, at.row, {5}at.m, i64(column){6});\n  }}\n}};\n",
      batch, own, m, decode, accumulator, coordinates, is_split() ? " - begin" : "");
}

StoreLanes MatMulText::store_lanes(int64_t most) const {
  StoreLanes lanes{.axis = rank_ - 1, .most = most};
  lanes.multiple = std::accumulate(split_.begin(), split_.end(), int64_t{0},
                                   [](int64_t a, int64_t b) { return std::gcd(a, b); });
  for (int axis = first_joined_; axis < rank_ - 1; ++axis) lanes.rows.push_back(axis);
  return lanes;
}

std::string MatMulText::result_construction(const std::string& store) const {
  std::string text = "Result{s, " + store + (is_split() ? ", part_begin" : "");
  for (int axis = 0; axis < first_joined_; ++axis) text += fmt::format(", i{}", axis);
  return text + "}";
}

}  // namespace anneal::cuda
