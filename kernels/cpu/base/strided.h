// Walking strided arrays: several views of the same dims visited together, in row-major order.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "anneal/core/parallel.h"
#include "anneal/core/tensor.h"

namespace anneal::cpu {

// Strides per array, in any unit. Axes that are contiguous with each other in all arrays are
// joined, so that runs are long.
template <size_t N>
class Walk {
 public:
  using Offsets = std::array<int64_t, N>;

  Walk(const Dims& dims, const std::array<Dims, N>& strides) {
    for (int axis = dims.rank() - 1; axis >= 0; --axis) {
      count_ *= dims[axis];
      if (dims[axis] == 1) continue;
      Offsets step;
      for (size_t n = 0; n < N; ++n) step[n] = strides[n][axis];
      if (rank_ > 0 && follows(step)) {
        size_[rank_ - 1] *= dims[axis];
      } else {
        size_[rank_] = dims[axis];
        step_[rank_++] = step;
      }
    }
    if (rank_ == 0) size_[rank_++] = 1;
  }

  int64_t count() const { return count_; }
  int64_t step(size_t n) const { return step_[0][n]; }  // from element to element of a run

  // f(offsets, length) for runs that together are the elements [begin, end).
  template <class F>
  void for_runs(int64_t begin, int64_t end, F f) const {
    if (begin >= end) return;
    std::array<int64_t, kMaxRank> index{};
    Offsets offsets{};
    for (int64_t axis = 0, rest = begin; axis < rank_; ++axis) {
      index[axis] = rest % size_[axis];
      rest /= size_[axis];
      move(offsets, axis, index[axis]);
    }
    while (begin < end) {
      const int64_t length = std::min(end - begin, size_[0] - index[0]);
      f(offsets, length);
      begin += length;
      index[0] += length;
      move(offsets, 0, length);
      for (int axis = 0; axis + 1 < rank_ && index[axis] == size_[axis]; ++axis) {
        move(offsets, axis, -size_[axis]);
        index[axis] = 0;
        move(offsets, axis + 1, 1);
        ++index[axis + 1];
      }
    }
  }

  // f(offsets) for each of the elements [begin, end).
  template <class F>
  void for_elements(int64_t begin, int64_t end, F f) const {
    for_runs(begin, end, [&](Offsets offsets, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        f(static_cast<const Offsets&>(offsets));
        for (size_t n = 0; n < N; ++n) offsets[n] += step_[0][n];
      }
    });
  }
  template <class F>
  void for_elements(F f) const {
    for_elements(0, count_, f);
  }

 private:
  bool follows(const Offsets& step) const {
    for (size_t n = 0; n < N; ++n)
      if (step[n] != step_[rank_ - 1][n] * size_[rank_ - 1]) return false;
    return true;
  }
  void move(Offsets& offsets, int axis, int64_t by) const {
    for (size_t n = 0; n < N; ++n) offsets[n] += step_[axis][n] * by;
  }

  int rank_ = 0;
  int64_t count_ = 1;
  std::array<int64_t, kMaxRank> size_{};  // innermost axis first
  std::array<Offsets, kMaxRank> step_{};
};

// Elements worth a thread of their own.
inline constexpr int64_t kGrain = 4096;

// Row-major coordinates of an element.
inline Dims coordinates(const Dims& dims, int64_t element) {
  Dims result = Dims::filled(dims.rank(), 0);
  for (int axis = dims.rank() - 1; axis >= 0; --axis) {
    result[axis] = element % dims[axis];
    element /= dims[axis];
  }
  return result;
}
inline void advance(Dims& coordinates, const Dims& dims) {
  for (int axis = dims.rank() - 1; axis >= 0 && ++coordinates[axis] == dims[axis]; --axis)
    coordinates[axis] = 0;
}
inline int64_t dot(const Dims& coordinates, const Dims& strides) {
  int64_t offset = 0;
  for (int axis = 0; axis < strides.rank(); ++axis) offset += coordinates[axis] * strides[axis];
  return offset;
}

// The axes [begin, end) of dims or strides.
inline Dims part(const Dims& dims, int begin, int end) {
  return Dims(dims.span().subspan(begin, end - begin));
}
inline TensorView with_offset(TensorView view, int64_t elements) {
  view.data += elements * static_cast<int64_t>(size_of(view.dtype));
  return view;
}
// The view without one axis, at a position along it.
TensorView at(const TensorView& view, int axis, int64_t position);
// `view` seen with `dims`, to which it broadcasts. REQUIRES: it does.
TensorView broadcast(const TensorView& view, const Dims& dims);

// One element; the dtypes as for copy_elements.
void copy_element(const TensorView& from, int64_t from_offset, const TensorView& to,
                  int64_t to_offset);
// Copies elements between views of equal dims and dtypes, or from f16, bf16 and i8 to f32.
void copy_elements(const TensorView& from, const TensorView& to);
void copy_elements(const TensorView& from, const TensorView& to, ThreadTeam& team);

// A walk over some axes of a tensor, and one over the rest: what reductions are made of.
template <size_t N>
struct AxisSplit {
  Walk<N> kept, reduced;
};
// reduced[i]: whether axis i is in the inner walk. REQUIRES: views of equal rank; dims are the
// first's, and each view has them or, on axes it does not use, a stride of 0.
template <size_t N>
AxisSplit<N> split_axes(const Dims& dims, const std::array<Dims, N>& strides,
                        const std::array<bool, kMaxRank>& reduced) {
  Dims size[2];
  std::array<Dims, N> step[2];
  for (int axis = 0; axis < dims.rank(); ++axis) {
    const int side = reduced[axis] ? 1 : 0;
    size[side].push_back(dims[axis]);
    for (size_t n = 0; n < N; ++n) step[side][n].push_back(strides[n][axis]);
  }
  return {Walk<N>(size[0], step[0]), Walk<N>(size[1], step[1])};
}

}  // namespace anneal::cpu
