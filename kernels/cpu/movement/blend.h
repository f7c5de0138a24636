// Weighted sums of pixels, channels beside each other.
#pragma once
#include <cstdint>

#include "anneal/core/isa.h"

namespace anneal::cpu {

// out[i] (+)= the sum of weights[k] * sources[k][i], for n elements.
using Blend = void (*)(const float* const* sources, const float* weights, int64_t count,
                       bool accumulate, int64_t n, float* out);
Blend blend_of(Isa isa);

// Adds up any number of pixels, up to kMost in one pass.
class BlendSum {
 public:
  BlendSum(Blend blend, int64_t n, float* out) : blend_(blend), n_(n), out_(out) {}
  void add(const float* source, float weight) {
    sources_[count_] = source;
    weights_[count_++] = weight;
    if (count_ == kMost) flush();
  }
  // Of no pixels the sum is 0.
  void finish() {
    if (count_ > 0 || !has_some_) flush();
  }

 private:
  static constexpr int64_t kMost = 64;
  void flush() {
    blend_(sources_, weights_, count_, has_some_, n_, out_);
    has_some_ = true;
    count_ = 0;
  }
  Blend blend_;
  int64_t n_, count_ = 0;
  float* out_;
  bool has_some_ = false;
  const float* sources_[kMost];
  float weights_[kMost];
};

// For n <= kMost channels: a vector would be mostly empty.
class FewChannelsSum {
 public:
  static constexpr int64_t kMost = 4;
  FewChannelsSum(int64_t n, float* out) : n_(n), out_(out) {}
  void add(const float* source, float weight) {
    for (int64_t i = 0; i < n_; ++i) sums_[i] += source[i] * weight;
  }
  void finish() {
    for (int64_t i = 0; i < n_; ++i) out_[i] = sums_[i];
  }

 private:
  int64_t n_;
  float* out_;
  float sums_[kMost] = {};
};

}  // namespace anneal::cpu
