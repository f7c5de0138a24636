#include "anneal/engine/tune/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

}  // namespace

void Histogram::add(std::span<const float> values) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  int64_t finite = 0;
  for (const float value : values) {
    const bool is_finite = std::abs(value) <= std::numeric_limits<float>::max();
    finite += is_finite ? 1 : 0;
    low = is_finite && value < low ? value : low;
    high = is_finite && value > high ? value : high;
  }
  not_finite_ += static_cast<int64_t>(values.size()) - finite;
  if (finite == 0) return;
  min_ = count_ == 0 ? low : std::min(min_, low);
  max_ = count_ == 0 ? high : std::max(max_, high);
  count_ += finite;
  const float magnitude = std::max(std::abs(low), std::abs(high));
  if (magnitude == 0) {
    zeros_ += finite;
    return;
  }
  widen_for(magnitude);
  const auto per_width = static_cast<float>(1 / width_);
  const bool all_finite = finite == static_cast<int64_t>(values.size());
  int64_t* const middle = bins_.data() + kBinsPerSide;
  for (const float value : values) {
    if (!all_finite && !(std::abs(value) <= std::numeric_limits<float>::max())) continue;
    if (value == 0) {
      ++zeros_;
      continue;
    }
    // Exact: a product with a power of two, cut off towards minus infinity.
    const float scaled = value * per_width;
    const auto at = static_cast<int>(scaled);
    ++middle[at - (scaled < static_cast<float>(at) ? 1 : 0)];
  }
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
    bins_.resize(size_t{2} * kBinsPerSide);
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
    bins_.resize(size_t{2} * kBinsPerSide);
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
