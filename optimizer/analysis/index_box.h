// The part of a tensor that constant indices select, if it is a box.
#pragma once
#include <optional>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// Along axis i of a tensor, counts[i] positions from starts[i] on, steps[i] > 0 apart.
struct IndexBox {
  std::vector<int64_t> starts = {}, steps = {}, counts = {};
  void add(int64_t start, int64_t step, int64_t count) {
    starts.push_back(start), steps.push_back(step), counts.push_back(count);
  }
};

// All indices, in row-major order, are an arithmetic progression within an axis of this size.
std::optional<IndexBox> box_of_list(const Tensor& indices, Size size, const SizeTable& sizes);
// Tuples for the first axes of a shape (as of GatherND without batches): each axis of the indices
// longer than 1 moves along one axis of the shape, and in the same order.
std::optional<IndexBox> box_of_tuples(const Tensor& indices, const Shape& shape,
                                      const SizeTable& sizes);
// As of GatherElements: only the position along `axis` decides the index, so it names a corner of
// the other axes.
std::optional<IndexBox> box_of_elements(const Tensor& indices, int axis, const Shape& shape,
                                        const SizeTable& sizes);

}  // namespace anneal
