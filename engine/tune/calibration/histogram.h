// Histogram of a tensor's elements over any number of samples, in bounded memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace anneal {

// Bins of one width on both sides of 0; bin 0 begins at 0. The width is a power of two and doubles
// when an element lies beyond the last bin, so that counts do not depend on the order of elements,
// and two histograms add up to the histogram of all elements. Exact zeros are counted apart.
class Histogram {
 public:
  static constexpr int kBinsPerSide = 4096;

  // Values that are not finite are counted, and nothing else.
  void add(std::span<const float> values);
  void add(const Histogram& other);

  int64_t count() const { return count_; }  // of finite values
  int64_t not_finite() const { return not_finite_; }
  int64_t zeros() const { return zeros_; }
  float min() const { return min_; }  // of all finite values; 0 if there are none
  float max() const { return max_; }
  double width() const { return width_; }  // of a bin; 0 before a value other than 0
  // The number of values in [i, i + 1) * width, without zeros. REQUIRES: -kBinsPerSide <= i <
  // kBinsPerSide
  int64_t bin(int i) const { return bins_.empty() ? 0 : bins_[place(i)]; }
  // The number of magnitudes in [i, i + 1) * width, without zeros. REQUIRES: 0 <= i < kBinsPerSide
  int64_t magnitudes(int i) const { return bin(i) + bin(-1 - i); }
  // Bins per side that reach the largest magnitude.
  int used_bins() const;

 private:
  static size_t place(int i) {
    const int at = i + kBinsPerSide;
    return static_cast<size_t>(at);
  }
  void count_finite(std::span<const float> values);  // REQUIRES: finite, inside the bins
  void widen_for(float magnitude);
  void double_width();

  std::vector<int64_t> bins_;
  double width_ = 0;
  int64_t count_ = 0, zeros_ = 0, not_finite_ = 0;
  float min_ = 0, max_ = 0;
};

}  // namespace anneal
