// The taps of a position of a grid of GridSample: a few positions of x with weights, the same for
// all channels.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "anneal/core/dims.h"
#include "anneal/graph/op/ops.h"

namespace anneal::cpu {

inline constexpr int kMaxSpatial = kMaxRank - 2;
inline constexpr int kMostTaps = 1 << (2 * kMaxSpatial);  // four per axis

struct GridTaps {
  int count = 0;
  std::array<int64_t, kMostTaps> offset;
  std::array<double, kMostTaps> weight;
};

// One axis of x at one position of the grid.
struct GridAxisTaps {
  int count = 0;
  std::array<int64_t, 4> position;  // -1: outside, where x is taken as 0
  std::array<double, 4> weight;
  void add(int64_t at, double by) {
    position[static_cast<size_t>(count)] = at;
    weight[static_cast<size_t>(count++)] = by;
  }
};

// Mirrors a position at the borders until it lies between them.
template <class T>
T reflected(T position, T low, T high) {
  const T range = high - low;
  const T beyond = position < low ? low - position : position - high;
  if (!(beyond > 0)) return position;
  T rest = std::fmod(beyond, 2 * range);
  if (!(rest >= 0)) return low;  // an infinite position, or one element
  if (rest > range) rest = 2 * range - rest;
  return position < low ? low + rest : high - rest;
}

template <class T>
class GridSampler {
 public:
  GridSampler(const GridSample& op, int64_t size)
      : mode_(op.mode),
        padding_(op.padding),
        corners_(op.align_corners),
        size_(size),
        low_(op.align_corners ? T(0) : T(-0.5)),
        high_(op.align_corners ? T(size - 1) : T(size) - T(0.5)) {}

  // coordinate: -1..1, which are the middles of the first and last element, or the outer edges of
  // both. NaN is taken as -1.
  void find_taps(T coordinate, GridAxisTaps& taps) const {
    taps.count = 0;
    if (std::isnan(coordinate)) coordinate = -1;
    T at = corners_ ? (coordinate + 1) / 2 * T(size_ - 1) : ((coordinate + 1) * T(size_) - 1) / 2;
    if (std::isnan(at)) at = low_;  // infinitely far in no length at all
    if (mode_ == ResizeMode::kNearest) at = std::nearbyint(at);
    if (at < low_ || at > high_) {
      if (padding_ == GridPadding::kReflection) {
        at = reflected(at, low_, high_);
      } else {
        // Farther out is outside, too. At the border each tap is the element there, as in PyTorch
        // and ONNX Runtime; ONNX's reference moves the position to the border instead.
        at = std::clamp(at, T(-4), T(size_) + 4);
      }
    }
    if (mode_ == ResizeMode::kNearest) return taps.add(element(static_cast<int64_t>(at)), 1);
    const T base = std::floor(at);
    const double x = static_cast<double>(at - base);
    const auto first = static_cast<int64_t>(base);
    const bool is_cubic = mode_ == ResizeMode::kCubic;
    if (is_cubic) taps.add(element(first - 1), far(x + 1));
    taps.add(element(first), is_cubic ? near(x) : 1 - x);
    taps.add(element(first + 1), is_cubic ? near(1 - x) : x);
    if (is_cubic) taps.add(element(first + 2), far(2 - x));
  }

 private:
  static constexpr double kA = -0.75;
  static double near(double d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; }
  static double far(double d) { return ((d - 5) * d + 8) * d * kA - 4 * kA; }

  int64_t element(int64_t position) const {
    if (padding_ == GridPadding::kBorder) return std::clamp<int64_t>(position, 0, size_ - 1);
    if (padding_ == GridPadding::kReflection) {
      const T mirrored = reflected(T(position), low_, high_);
      return std::clamp<int64_t>(static_cast<int64_t>(mirrored), 0, size_ - 1);
    }
    return position >= 0 && position < size_ ? position : -1;
  }

  ResizeMode mode_;
  GridPadding padding_;
  bool corners_;
  int64_t size_;
  T low_, high_;  // where reflection mirrors
};

// All combinations of the axes' taps.
inline void combine_taps(std::span<const GridAxisTaps> axes, std::span<const int64_t> strides,
                         GridTaps& taps) {
  taps.count = 1;
  taps.offset[0] = 0;
  taps.weight[0] = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int before = taps.count;
    int count = before;
    // From the back: the first of an axis's taps is written over what is combined with it.
    for (int tap = axes[axis].count - 1; tap >= 0; --tap) {
      const auto t = static_cast<size_t>(tap);
      const size_t start = tap == 0 ? 0 : static_cast<size_t>(count);
      for (size_t i = 0; i < static_cast<size_t>(before); ++i) {
        const bool outside = axes[axis].position[t] < 0;
        taps.offset[start + i] =
            taps.offset[i] + (outside ? 0 : axes[axis].position[t] * strides[axis]);
        taps.weight[start + i] = outside ? 0 : taps.weight[i] * axes[axis].weight[t];
      }
      if (tap > 0) count += before;
    }
    taps.count = count;
  }
}

}  // namespace anneal::cpu
