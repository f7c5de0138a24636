// The samples of a region of RoiAlign.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/tensor.h"
#include "anneal/graph/op/ops.h"

namespace anneal::cpu {

// A place along an axis: two elements and their weights.
struct SamplePlace {
  int64_t low = 0, high = 0;
  double of_low = 0, of_high = 0;
};

// The samples of a region along one axis, in units of elements.
template <class T>
struct Samples {
  T begin = 0, bin = 0;  // of the region; length of a bin
  double count = 0;      // per bin, a whole number
  int64_t size = 0;      // of the axis

  T at(int64_t bin_index, int64_t i) const {
    return begin + static_cast<T>(bin_index) * bin +
           (static_cast<T>(i) + T(0.5)) * bin / static_cast<T>(count);
  }
  // False: the sample lies outside, and is 0.
  bool place(int64_t bin_index, int64_t i, SamplePlace& place) const {
    T position = at(bin_index, i);
    if (!(position >= -1 && position <= static_cast<T>(size))) return false;
    position = std::max(position, T(0));
    place.low = static_cast<int64_t>(position);
    if (place.low >= size - 1) {
      place = {size - 1, size - 1, 1, 0};
    } else {
      place.high = place.low + 1;
      place.of_high = static_cast<double>(position) - static_cast<double>(place.low);
      place.of_low = 1 - place.of_high;
    }
    return true;
  }
  // The samples [first, second) of a bin that may lie inside, so that a region far larger than the
  // image costs no more than the image.
  std::pair<int64_t, int64_t> inside(int64_t bin_index) const {
    const double start = static_cast<double>(begin) + double(bin_index) * double(bin);
    const double step = static_cast<double>(bin) / count;
    if (!(step > 0)) return {0, static_cast<int64_t>(count)};
    const auto bounded = [&](double i) { return static_cast<int64_t>(std::clamp(i, 0.0, count)); };
    return {bounded(std::floor((-1 - start) / step) - 2),
            bounded(std::ceil((static_cast<double>(size) - start) / step) + 2)};
  }
};

template <class T>
Samples<T> samples_of(const RoiAlign& op, T begin, T end, int64_t bins, int64_t size) {
  const T offset = op.half_pixel ? T(0.5) : T(0);
  Samples<T> samples{begin * T(op.spatial_scale) - offset, 0, 0, size};
  T length = end * T(op.spatial_scale) - offset - samples.begin;
  if (!op.half_pixel) length = std::max(length, T(1));
  if (!std::isfinite(length) || std::fabs(length) > T(0x1p48))
    fail(ErrorCode::kInvalidArgument, fmt::format("a region from {} to {}", begin, end));
  samples.bin = length / static_cast<T>(bins);
  samples.count = op.sampling_ratio > 0 ? static_cast<double>(op.sampling_ratio)
                                        : std::max(std::ceil(double(samples.bin)), 0.0);
  return samples;
}

// Which image a region is of. Fails if there is none.
inline int64_t image_of_region(const TensorView& images, int64_t region, int64_t count) {
  const int64_t n = images.as<const int64_t>()[region * images.strides[0]];
  if (n < 0 || n >= count)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("region {} is of image {} of {}", region, n, count));
  return n;
}

}  // namespace anneal::cpu
