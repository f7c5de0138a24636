// Samples of normal numbers, made when they are read.
#pragma once
#include <fmt/format.h>

#include <limits>
#include <random>

#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/dataset.h"

namespace anneal {

// Normal numbers for the input "x"; sample `bad` holds a NaN.
class NormalSamples : public Dataset {
 public:
  NormalSamples(int64_t size, Dims dims, int64_t bad = -1) : size_(size), dims_(dims), bad_(bad) {}
  int64_t size() const override { return size_; }
  std::string name(int64_t i) const override { return fmt::format("sample {}", i); }
  std::optional<int64_t> label(int64_t) const override { return std::nullopt; }
  std::vector<SampleTensor> read(int64_t i) const override {
    NewTensor fresh = allocate_tensor(DataType::kF32, dims_);
    std::mt19937 random(static_cast<unsigned>(i));
    std::normal_distribution<float> normal;
    auto* values = reinterpret_cast<float*>(fresh.data.data());
    for (int64_t k = 0; k < count(dims_); ++k) values[k] = normal(random);
    if (i == bad_) values[0] = std::numeric_limits<float>::quiet_NaN();
    return {{"x", fresh.tensor}};
  }

 private:
  int64_t size_;
  Dims dims_;
  int64_t bad_;
};

}  // namespace anneal
