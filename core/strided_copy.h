// Copies between views of the same dtype and dims, whatever their strides.
#pragma once
#include <cstdint>

#include "anneal/core/tensor.h"

namespace anneal {

class ThreadTeam;

// The addresses from the first to the last element of a view; none without memory or elements.
struct MemoryExtent {
  explicit MemoryExtent(const ConstTensorView& view = {});
  bool meets(const MemoryExtent& other) const { return begin < other.end && other.begin < end; }
  intptr_t begin = 0, end = 0;
};
// Whether an element of one view and one of the other share memory. The answer is exact, and takes
// constant time for dense views and for views whose extents do not meet.
bool views_overlap(const ConstTensorView& a, const ConstTensorView& b);

// REQUIRES: the views do not overlap
void strided_copy(const TensorView& to, const ConstTensorView& from);
// The same on the threads of a team, where the copy is large enough to gain by it.
void strided_copy(const TensorView& to, const ConstTensorView& from, ThreadTeam& team);

}  // namespace anneal
