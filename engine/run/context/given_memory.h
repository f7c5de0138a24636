// GivenMemory: memory of the application for an input or output.
#pragma once
#include "anneal/core/strided_copy.h"
#include "anneal/core/tensor_view.h"

namespace anneal {

struct GivenMemory {
  GivenMemory() = default;
  explicit GivenMemory(const ConstTensorView& memory) : view(memory), extent(memory) {}
  bool overlaps(const GivenMemory& other) const {
    return extent.meets(other.extent) && views_overlap(view, other.view);
  }
  bool is_same(const GivenMemory& other) const {
    return view.data == other.view.data && view.dtype == other.view.dtype &&
           view.dims == other.view.dims && view.strides == other.view.strides;
  }
  ConstTensorView view;
  MemoryExtent extent;
};

}  // namespace anneal
