// Indices that name places of a tensor: what gathers and scatters share.
#pragma once
#include <cstdint>

#include "anneal/kernels/cpu/base/element.h"
#include "anneal/kernels/cpu/base/strided.h"

namespace anneal::cpu {

[[noreturn]] void fail_of_index(int64_t index, int64_t size);

// `index` from the front of an axis of `size` elements.
inline int64_t place_of_index(int64_t index, int64_t size) {
  const int64_t place = index < 0 ? index + size : index;
  if (place < 0 || place >= size) [[unlikely]]
    fail_of_index(index, size);
  return place;
}

// f(T()) for an unsigned integer T of the size.
template <class F>
void visit_size(size_t size, const F& f) {
  switch (size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// How the tuples of one tensor of indices name slices of another tensor.
struct Tuples {
  Tuples() = default;
  // of: the tensor that the indices are of, of which the first `batch` axes go with theirs. beside:
  // the tensor that has a slice for each tuple.
  Tuples(const TensorView& indices, const TensorView& of, const TensorView& beside, int batch)
      : walk(walk_of(indices, of, beside, batch)) {
    const int last = indices.dims.rank() - 1;
    step = indices.strides[last];
    for (int64_t i = 0; i < indices.dims[last]; ++i) {
      const int axis = batch + static_cast<int>(i);
      sizes.push_back(of.dims[axis]);
      strides.push_back(of.strides[axis]);
    }
  }

  int64_t offset(const TensorView& indices, int64_t at) const {
    int64_t offset = 0;
    for (int i = 0; i < sizes.rank(); ++i, at += step)
      offset += place_of_index(load_integer(indices, at), sizes[i]) * strides[i];
    return offset;
  }

  Walk<3> walk{{}, {}};  // over tuples: offsets in the indices, beside, and of batches
  Dims sizes, strides;   // of the axes that a tuple names
  int64_t step = 1;      // from index to index of a tuple

 private:
  static Walk<3> walk_of(const TensorView& indices, const TensorView& of, const TensorView& beside,
                         int batch) {
    const int grid = indices.dims.rank() - 1;
    Dims batches = Dims::filled(grid, 0);
    for (int axis = 0; axis < batch; ++axis) batches[axis] = of.strides[axis];
    return Walk<3>(part(indices.dims, 0, grid),
                   {part(indices.strides, 0, grid), part(beside.strides, 0, grid), batches});
  }
};

}  // namespace anneal::cpu
