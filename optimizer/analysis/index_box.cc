#include "anneal/optimizer/analysis/index_box.h"

#include <algorithm>

namespace anneal {
namespace {

using Integers = std::vector<int64_t>;

Integers integers_of(const Tensor& tensor) {
  if (tensor.dtype() == DataType::kI64)
    return Integers(tensor.as<int64_t>().begin(), tensor.as<int64_t>().end());
  const auto narrow = tensor.as<int32_t>();
  return Integers(narrow.begin(), narrow.end());
}

// Counts from the front; false if an index may be out of range.
bool resolve(Integers& indices, Size size, const SizeTable& sizes) {
  const int64_t least = size.known() ? size.value() : sizes.range(size).min;
  for (int64_t& index : indices) {
    if (index < 0 && size.known()) index += size.value();
    if (index < 0 || index >= least) return false;
  }
  return true;
}

// values[p] = start + sum of steps[axis] * p[axis], for all p in row-major order of dims.
struct AffineIndex {
  int64_t start = 0;
  Dims steps;
};

std::optional<AffineIndex> affine_of(const Integers& values, const Dims& dims) {
  const Dims strides = row_major_strides(dims);
  AffineIndex affine{values[0], Dims::filled(dims.rank(), 0)};
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] > 1)
      affine.steps[axis] = values[static_cast<size_t>(strides[axis])] - affine.start;
  for (size_t i = 0; i < values.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t expected = affine.start;
    for (int axis = 0; axis < dims.rank(); ++axis) {
      expected += rest / strides[axis] * affine.steps[axis];
      rest %= strides[axis];
    }
    if (values[i] != expected) return std::nullopt;
  }
  return affine;
}

}  // namespace

std::optional<IndexBox> box_of_list(const Tensor& indices, Size size, const SizeTable& sizes) {
  Integers values = integers_of(indices);
  if (values.empty() || !resolve(values, size, sizes)) return std::nullopt;
  const auto count = static_cast<int64_t>(values.size());
  const auto affine = affine_of(values, {count});
  if (!affine || (count > 1 && affine->steps[0] < 1)) return std::nullopt;
  IndexBox box;
  box.add(affine->start, count > 1 ? affine->steps[0] : 1, count);
  return box;
}

std::optional<IndexBox> box_of_tuples(const Tensor& indices, const Shape& shape,
                                      const SizeTable& sizes) {
  const int grid = indices.dims().rank() - 1;
  const int64_t length = indices.dims()[grid];
  if (indices.count() == 0) return std::nullopt;
  Dims dims;
  for (int axis = 0; axis < grid; ++axis) dims.push_back(indices.dims()[axis]);
  const Integers all = integers_of(indices);
  IndexBox box;
  int last = -1;
  int64_t covered = 1;
  for (int64_t i = 0; i < length; ++i) {
    Integers values;
    for (size_t at = static_cast<size_t>(i); at < all.size(); at += static_cast<size_t>(length))
      values.push_back(all[at]);
    if (!resolve(values, shape[static_cast<int>(i)], sizes)) return std::nullopt;
    const auto affine = affine_of(values, dims);
    if (!affine) return std::nullopt;
    int mover = -1;
    for (int axis = 0; axis < grid; ++axis) {
      if (affine->steps[axis] == 0) continue;
      if (mover >= 0 || axis <= last || affine->steps[axis] < 0) return std::nullopt;
      mover = axis;
    }
    if (mover < 0) {
      box.add(affine->start, 1, 1);
      continue;
    }
    last = mover;
    covered *= dims[mover];
    box.add(affine->start, affine->steps[mover], dims[mover]);
  }
  if (covered != count(dims)) return std::nullopt;  // some tuples are the same
  return box;
}

std::optional<IndexBox> box_of_elements(const Tensor& indices, int axis, const Shape& shape,
                                        const SizeTable& sizes) {
  const Dims& dims = indices.dims();
  Integers values = integers_of(indices);
  if (values.empty() || !resolve(values, shape[axis], sizes)) return std::nullopt;
  const auto affine = affine_of(values, dims);
  if (!affine) return std::nullopt;
  IndexBox box;
  for (int i = 0; i < dims.rank(); ++i) {
    if (i != axis) {
      if (affine->steps[i] != 0 || !shape[i].known()) return std::nullopt;
      box.add(0, 1, dims[i]);
    } else if (dims[i] == 1) {
      box.add(affine->start, 1, 1);
    } else {
      if (affine->steps[i] < 1) return std::nullopt;
      box.add(affine->start, affine->steps[i], dims[i]);
    }
  }
  return box;
}

}  // namespace anneal
