// Positions that an input of indices names: of Gather, GatherElements, GatherND and the scatters.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "anneal/core/dims.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

// How an element of a gather's output, or of a scatter's updates, finds its place in the tensor
// that is indexed: along some axes it has the coordinates of the element, along the others the
// positions that a tuple of indices names, in the order of the axes.
struct IndexMapping {
  enum : int { kIndexed = -1 };
  PerAxis<int> shared;   // by axis of the tensor: the element's coordinate, or kIndexed
  PerAxis<int> indices;  // by axis of the indices: the same, or kIndexed: a tuple lies along it

  // Gather: each index of a tensor of `indices` axes is a position along `axis`.
  static IndexMapping along(int axis, int rank, int indices);
  // GatherElements, ScatterElements: each element has an index of its own.
  static IndexMapping by_element(int axis, int rank);
  // GatherND, ScatterND: tuples of `length` for the axes behind the first `batch`.
  static IndexMapping tuples(int batch, int length, int rank, int indices);

  std::vector<int> indexed_axes() const;  // of the tensor, ascending
  // Whether neighbours along the last of `rank` coordinates have the same indices, and are
  // neighbours along the tensor's last axis.
  bool keeps_rows(int rank) const;
};

// "x1[...]" of type i64: index number t of the element's tuple. The indices are input 1.
// coordinate(c): an expression of the element's coordinate c.
std::string index_text(const IndexMapping& mapping, const Request& request, Extents& extents, int t,
                       const std::function<std::string(int)>& coordinate);

// The offset of the element's place in an operand of the tensor's shape, where positions that
// indices name are k0, k1, ...
std::string place_text(const IndexMapping& mapping, const Request& request, Extents& extents,
                       OperandAt at, const std::function<std::string(int)>& coordinate);

}  // namespace anneal::cuda
