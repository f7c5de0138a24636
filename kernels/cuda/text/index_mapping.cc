#include "anneal/kernels/cuda/text/index_mapping.h"

#include <fmt/format.h>

#include <algorithm>

namespace anneal::cuda {

IndexMapping IndexMapping::along(int axis, int rank, int indices) {
  IndexMapping mapping;
  for (int i = 0; i < rank; ++i)
    mapping.shared.push_back(i < axis ? i : i == axis ? kIndexed : i - 1 + indices);
  for (int i = 0; i < indices; ++i) mapping.indices.push_back(axis + i);
  return mapping;
}

IndexMapping IndexMapping::by_element(int axis, int rank) {
  IndexMapping mapping;
  for (int i = 0; i < rank; ++i) {
    mapping.shared.push_back(i == axis ? kIndexed : i);
    mapping.indices.push_back(i);
  }
  return mapping;
}

IndexMapping IndexMapping::tuples(int batch, int length, int rank, int indices) {
  IndexMapping mapping;
  const int tuples = indices - 1;
  for (int i = 0; i < rank; ++i)
    mapping.shared.push_back(i < batch            ? i
                             : i < batch + length ? kIndexed
                                                  : tuples + i - batch - length);
  for (int i = 0; i < tuples; ++i) mapping.indices.push_back(i);
  mapping.indices.push_back(kIndexed);
  return mapping;
}

std::vector<int> IndexMapping::indexed_axes() const {
  std::vector<int> axes;
  for (int axis = 0; axis < shared.rank(); ++axis)
    if (shared[axis] == kIndexed) axes.push_back(axis);
  return axes;
}

bool IndexMapping::keeps_rows(int rank) const {
  return rank > 0 && shared.rank() > 0 && shared[shared.rank() - 1] == rank - 1 &&
         std::ranges::find(indices, rank - 1) == indices.end();
}

std::string index_text(const IndexMapping& mapping, const Request& request, Extents& extents, int t,
                       const std::function<std::string(int)>& coordinate) {
  const auto at = [&](int axis) {
    const int from = mapping.indices[axis];
    return from == IndexMapping::kIndexed ? fmt::format("{}", t) : coordinate(from);
  };
  const Shape& shape = request.inputs[1].type.shape;
  return fmt::format("i64(x1[{}])", offset_text(request, extents, {false, 1}, shape, at));
}

std::string place_text(const IndexMapping& mapping, const Request& request, Extents& extents,
                       OperandAt at, const std::function<std::string(int)>& coordinate) {
  const std::vector<int> indexed = mapping.indexed_axes();
  const auto position = [&](int axis) {
    if (mapping.shared[axis] != IndexMapping::kIndexed) return coordinate(mapping.shared[axis]);
    int t = 0;
    while (indexed[static_cast<size_t>(t)] != axis) ++t;
    return fmt::format("k{}", t);
  };
  return offset_text(request, extents, at, request.inputs[0].type.shape, position);
}

}  // namespace anneal::cuda
