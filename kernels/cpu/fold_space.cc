#include "anneal/kernels/cpu/fold_space.h"

namespace anneal::cpu {

FoldSpace::FoldSpace(const TensorView& x, const Axes& folded) {
  const int rank = x.dims.rank();
  for (int axis = 0; axis < rank; ++axis)
    if (!folded[axis] && x.dims[axis] > 1 && x.strides[axis] == 1) column_axis_ = axis;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis == column_axis_) {
      columns_ = x.dims[axis];
    } else if (folded[axis]) {
      folded_axes_.push_back(axis);
      folded_.dims.push_back(x.dims[axis]);
      folded_.strides.push_back(x.strides[axis]);
      group_size_ *= x.dims[axis];
    } else {
      kept_axes_.push_back(axis);
      kept_.dims.push_back(x.dims[axis]);
      kept_.strides.push_back(x.strides[axis]);
      groups_ *= x.dims[axis];
    }
  }
}

}  // namespace anneal::cpu
