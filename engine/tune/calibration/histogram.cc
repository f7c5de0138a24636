#include "anneal/engine/tune/calibration/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>

#include "anneal/engine/tune/calibration/finite_range.h"

namespace anneal {
namespace {

constexpr float kLeastMagnitude = 0x1p-100F;  // the inverse of its width is an f32

// The least width, a power of two, of which kBinsPerSide hold the magnitude inside them. Smaller
// magnitudes than kLeastMagnitude have its width.
double width_for(float magnitude) {
  const double most = std::max(magnitude, kLeastMagnitude);
  int exponent = 0;
  std::frexp(most, &exponent);  // most < 2^exponent
  return std::ldexp(1.0, exponent) / Histogram::kBinsPerSide;
}

// Elements are counted in groups of this size, by loops of known length, which the compiler makes
// vectors of.
constexpr size_t kLanes = 16, kBlock = 256;
// Bins of both sides, and a counter for zeros beside them.
constexpr size_t kPlaces = size_t{2} * Histogram::kBinsPerSide + kLanes;

// The place of each value among the bins; zeros go behind the last bin, each lane to a place of its
// own, so that no two additions in a row wait for each other. How many those are. REQUIRES: finite,
// inside the bins
int64_t find_places(std::span<const float, kBlock> values, float per_width,
                    std::array<int32_t, kBlock>& places) {
  int32_t zeros = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    // Exact: a product with a power of two, cut off towards minus infinity.
    const float scaled = values[i] * per_width;
    const auto cut = static_cast<int32_t>(scaled);
    const int32_t below = scaled < static_cast<float>(cut) ? 1 : 0;
    const int32_t zero = values[i] == 0 ? 1 : 0;
    zeros += zero;
    const auto lane = static_cast<int32_t>(i % kLanes);
    const int32_t place = cut - below + Histogram::kBinsPerSide;
    places[i] = place + (-zero & (Histogram::kBinsPerSide + lane));
  }
  return zeros;
}

}  // namespace

void Histogram::add(std::span<const float> values) {
  const FiniteRange range = finite_range(values);
  not_finite_ += static_cast<int64_t>(values.size()) - range.count;
  if (range.count == 0) return;
  min_ = count_ == 0 ? range.min : std::min(min_, range.min);
  max_ = count_ == 0 ? range.max : std::max(max_, range.max);
  count_ += range.count;
  const float magnitude = std::max(std::abs(range.min), std::abs(range.max));
  if (magnitude == 0) {
    zeros_ += range.count;
    return;
  }
  widen_for(magnitude);
  if (range.count == static_cast<int64_t>(values.size())) {
    count_finite(values);
    return;
  }
  std::vector<float> finite;
  std::ranges::copy_if(values, std::back_inserter(finite),
                       [](float value) { return std::isfinite(value); });
  count_finite(finite);
}

void Histogram::count_finite(std::span<const float> values) {
  const auto per_width = static_cast<float>(1 / width_);
  size_t done = 0;
  std::array<int32_t, kBlock> places;
  for (; done + kBlock <= values.size(); done += kBlock) {
    zeros_ += find_places(values.subspan(done).first<kBlock>(), per_width, places);
    for (const int32_t place : places) ++bins_[static_cast<size_t>(place)];
  }
  std::array<float, kBlock> rest{};
  const std::span<const float> left = values.subspan(done);
  std::ranges::copy(left, rest.begin());
  zeros_ += find_places(rest, per_width, places) - static_cast<int64_t>(kBlock - left.size());
  for (size_t i = 0; i < left.size(); ++i) ++bins_[static_cast<size_t>(places[i])];
}

void Histogram::add(const Histogram& other) {
  not_finite_ += other.not_finite_;
  if (other.count_ == 0) return;
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  count_ += other.count_;
  zeros_ += other.zeros_;
  if (other.bins_.empty()) return;
  Histogram same = other;
  if (bins_.empty()) {
    bins_.resize(kPlaces);
    width_ = other.width_;
  }
  while (width_ < same.width_) double_width();
  while (same.width_ < width_) same.double_width();
  for (size_t i = 0; i < bins_.size(); ++i) bins_[i] += same.bins_[i];
}

int Histogram::used_bins() const {
  int used = kBinsPerSide;
  while (used > 0 && magnitudes(used - 1) == 0) --used;
  return used;
}

void Histogram::widen_for(float magnitude) {
  const double wanted = width_for(magnitude);
  if (bins_.empty()) {
    bins_.resize(kPlaces);
    width_ = wanted;
  }
  while (width_ < wanted) double_width();
}

void Histogram::double_width() {
  std::vector<int64_t> wider(bins_.size());
  for (int i = -kBinsPerSide; i < kBinsPerSide; ++i) {
    // Rounds down, so that -1 and -2 become -1.
    const int at = i >= 0 ? i / 2 : -((1 - i) / 2);
    wider[place(at)] += bins_[place(i)];
  }
  bins_ = std::move(wider);
  width_ *= 2;
}

}  // namespace anneal
