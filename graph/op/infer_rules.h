// Shared helpers of the shape rules in infer_*.cc: checks that fail with kInvalidModel, and facts.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/graph/op/infer.h"

namespace anneal::rules {

using Elements = std::optional<std::vector<Size>>;

[[noreturn]] void refuse(std::string why);  // kInvalidModel

// An axis that the importer resolved: 0 <= axis < rank.
int require_axis(int64_t axis, int rank);
// An axis that is an input's contents: negative ones count from the end.
int resolve_axis(int64_t axis, int rank);
std::vector<bool> resolve_axes(std::span<const int64_t> axes, int rank);  // refuses duplicates

bool is_numeric(DataType dtype);
void require_float(const InferInputs& inputs, int i);
void require_dtype(const InferInputs& inputs, int i, DataType dtype);
// Input i is an i64 list. Its length; kUnsupported if that is not known (it decides a rank).
int list_length(const InferInputs& inputs, int i, std::string_view what);
void require_list(const InferInputs& inputs, int i, std::string_view what);
// Its contents, all unknown where nothing is known. Empty only if the list is.
std::vector<Size> list(const InferInputs& inputs, int i, std::string_view what);
// Rank 0, or one element.
void require_scalar(const InferInputs& inputs, int i, std::string_view what);

// Two sizes that must be equal, as far as can be proved: canonical() of them. With inputs, every
// run of the layer demands it.
Size agree(Size a, Size b, const SizeTable& sizes, std::string_view what);
Size agree(Size a, Size b, const InferInputs& inputs, std::string_view what);
bool surely_differ(Size a, Size b, const SizeTable& sizes);
// The value that the bounds leave a size, if it is a single one, or the size that stands for it.
Size pinned(Size size, const SizeTable& sizes);
Shape pinned(const Shape& shape, const SizeTable& sizes);
Size at_least(Size size, int64_t low, SizeTable& sizes);  // max(size, low), where it is not proved
Size at_most(Size size, Size high, SizeTable& sizes);

// The fact of a type; elements are dropped where Fact does not hold them.
Fact make_fact(DataType dtype, Shape shape, Elements elements = std::nullopt);
// The register's value if it is a whole number that fits int64_t, else unknown().
Size whole_number(RegisterType type, Scalar scalar);

// Calls visit(coordinates) for every element, row-major.
template <class Visit>
void for_elements(const Dims& dims, Visit&& visit) {
  for (int64_t dim : dims)
    if (dim == 0) return;
  Dims at = Dims::filled(dims.rank(), 0);
  for (int axis = 0; axis >= 0;) {
    visit(static_cast<const Dims&>(at));
    for (axis = dims.rank() - 1; axis >= 0; --axis) {
      if (++at[axis] < dims[axis]) break;
      at[axis] = 0;
    }
  }
}

// Elements for a result of known shape, each taken from `source` at from(coordinates); nullopt if
// there is nothing to take or too much.
template <class From>
Elements move_elements(const Elements& source, const Shape& shape, From&& from) {
  if (!source || !known(shape)) return std::nullopt;
  const Dims dims = dims_of(shape);
  int64_t total = 1;
  for (int64_t dim : dims) {
    if (dim == 0) return std::vector<Size>{};
    if (dim > kMaxKnownElements || (total *= dim) > kMaxKnownElements) return std::nullopt;
  }
  std::vector<Size> moved;
  for_elements(dims,
               [&](const Dims& at) { moved.push_back((*source)[static_cast<size_t>(from(at))]); });
  return moved;
}
inline int64_t flat_index(const Dims& at, const Dims& strides) {
  int64_t flat = 0;
  for (int axis = 0; axis < at.rank(); ++axis) flat += at[axis] * strides[axis];
  return flat;
}

// The results of a program over elements of `shape`, to which every input broadcasts: checks the
// inputs' dtypes and shapes, and computes the contents that follow from theirs.
Facts apply_program(const Program& program, const Shape& shape, const InferInputs& inputs);
// The result of a map of input 0 and of the inputs from `further` on: the fact of input 0 if the
// map is empty.
Fact apply_map(const Program& map, const InferInputs& inputs, int further);

}  // namespace anneal::rules
