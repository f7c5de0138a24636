#include "anneal/kernels/cpu/reduce/reduction_blocks.h"

#include <cstdlib>
#include <limits>
#include <vector>

namespace anneal::cpu {
namespace {

// By falling stride, so that those adjacent in memory are visited after each other.
std::vector<int> memory_order(const TensorView& x) {
  std::vector<int> axes;
  for (int axis = 0; axis < x.dims.rank(); ++axis) axes.push_back(axis);
  const auto distance = [&](int axis) {
    return x.dims[axis] == 1 ? std::numeric_limits<int64_t>::max() : std::abs(x.strides[axis]);
  };
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return distance(a) > distance(b); });
  return axes;
}

// The kept axis along which rows of few elements follow each other most closely; -1 if there is
// none or rows are long. How many rows there are must not decide, so that a row is summed in the
// same order in any batch.
int axis_beside_short_rows(const TensorView& x, const ReductionSpace::Axes& folded) {
  int64_t elements = 1;
  int nearest = -1;
  for (int axis = 0; axis < x.dims.rank(); ++axis) {
    if (folded[axis]) {
      elements *= x.dims[axis];
    } else if (nearest < 0 || x.dims[nearest] == 1 ||
               (x.dims[axis] > 1 && std::abs(x.strides[axis]) < std::abs(x.strides[nearest]))) {
      nearest = axis;
    }
  }
  return elements <= ReductionSpace::kShortRow ? nearest : -1;
}

}  // namespace

ReductionSpace::ReductionSpace(const TensorView& x, const Axes& folded, bool wide) {
  const int rank = x.dims.rank();
  for (int axis = 0; axis < rank; ++axis)
    if (!folded[axis] && x.dims[axis] > 1 && x.strides[axis] == 1) column_axis_ = axis;
  int long_axes = 0;
  for (int axis = 0; axis < rank; ++axis) long_axes += folded[axis] && x.dims[axis] > 1;
  wide = wide && column_axis_ < 0 && long_axes > 1;  // of one axis, a row has all
  for (int axis = 1; wide && axis < rank; ++axis) {
    const int64_t size = x.dims[axis];
    if (folded[axis] && !folded[axis - 1] && size > 1 && size <= kColumns && x.dims[axis - 1] > 1 &&
        x.strides[axis] == 1 && x.strides[axis - 1] == size) {
      column_axis_ = axis;
      columns_per_group_ = size;
    }
  }
  if (column_axis_ < 0) column_axis_ = axis_beside_short_rows(x, folded);
  if (column_axis_ >= 0) {
    columns_ = x.dims[column_axis_];
    column_stride_ = x.strides[column_axis_];
  }
  if (columns_per_group_ > 1) columns_ *= x.dims[column_axis_ - 1];
  for (int axis = 0; axis < rank; ++axis) {
    const bool is_column =
        axis == column_axis_ || (columns_per_group_ > 1 && axis == column_axis_ - 1);
    if (is_column || folded[axis]) continue;
    kept_axes_.push_back(axis);
    kept_.dims.push_back(x.dims[axis]);
    kept_.strides.push_back(x.strides[axis]);
    groups_ *= x.dims[axis];
  }
  for (const int axis : memory_order(x)) {
    if (axis == column_axis_ || !folded[axis]) continue;
    reduced_axes_.push_back(axis);
    folded_.dims.push_back(x.dims[axis]);
    folded_.strides.push_back(x.strides[axis]);
    group_size_ *= x.dims[axis];
  }
}

std::optional<int64_t> ReductionSpace::row_stride(const TensorView& view) const {
  if (column_axis_ >= 0 || reduced_axes_.rank() != 1) return std::nullopt;
  const auto reduced = static_cast<int>(reduced_axes_[0]);
  if (view.dims[reduced] > 1 && view.strides[reduced] != 1) return std::nullopt;
  std::optional<int64_t> result;
  int64_t next = 0;  // behind the groups of the axes so far
  for (int i = kept_axes_.rank(); i-- > 0;) {
    const auto axis = static_cast<int>(kept_axes_[i]);
    if (view.dims[axis] == 1) continue;
    if (result && view.strides[axis] != next) return std::nullopt;
    if (!result) result = view.strides[axis];
    next = view.strides[axis] * view.dims[axis];
  }
  return result.value_or(0);
}

std::optional<int64_t> ReductionSpace::group_stride(const TensorView* x) const {
  if (column_axis_ >= 0 || group_size_ == 0 || group_size_ > kBlock) return std::nullopt;
  return x == nullptr ? group_size_ : row_stride(*x);
}

}  // namespace anneal::cpu
