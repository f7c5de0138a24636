// MatMul's operands as a function's text sees them: which axes are rows, and where a row, a column
// and a product of the batch begin.
#pragma once
#include <string>
#include <vector>

#include "anneal/graph/op/ops.h"
#include "anneal/kernels/cuda/cost/tile_config.h"
#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/shape_text.h"
#include "anneal/kernels/cuda/text/store_vector_text.h"

namespace anneal::cuda {

// Leading axes along which b is the same are joined to the rows: one weight for a batch of
// sequences is one product.
class MatMulText {
 public:
  MatMulText(const MatMul& op, const Request& request, Extents& extents);

  int a_row_axis, a_depth_axis, b_column_axis, b_depth_axis;  // of a, of b
  // Leading axes of the output from this one on are joined.
  int first_joined() const { return first_joined_; }
  ProductSizes sizes() const;     // at the values to optimize for
  bool rows_are_nearest() const;  // in the memory of the output, rather than columns

  // rows, columns, depth, m, a_row, a_depth, b_column, b_depth, and per leading axis i size_i, a_i,
  // b_i.
  void add_numbers(ShapeText& shape) const;
  // Statements that take `rest` apart into i0, i1, ... of the batch; expressions of those: where
  // its matrix of 'a' or 'b' begins.
  std::string batch_coordinates() const;
  std::string batch_offset(char operand) const;
  // Statements that return where `row` begins in a matrix of a.
  std::string row_offset() const;
  // For a thread that stores `most` columns at once: a multiple of 0 divides by all.
  StoreLanes store_lanes(int64_t most) const;
  // "struct Result", which device/tile_product.h describes, and the text that makes one of a Store.
  std::string result_definition(std::string_view accumulator) const;
  bool is_split() const { return !split_.empty(); }
  std::string result_construction(const std::string& store) const;

 private:
  std::string leading_stride(char operand, int axis) const;
  const Request& request_;
  const std::vector<int64_t>& split_;
  Extents& extents_;
  int rank_, first_joined_;
};

// For an output with these dims, or the first of several; the depth does not follow from it, and is
// 0.
ProductSizes product_sizes(const Dims& y, int first_joined, const std::vector<int64_t>& split);

}  // namespace anneal::cuda
