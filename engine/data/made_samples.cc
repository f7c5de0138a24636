#include "anneal/engine/data/made_samples.h"

#include <algorithm>
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Uniform in [0, 1).
double share(uint64_t& state) { return static_cast<double>(splitmix64(state) >> 11) * 0x1p-53; }

// Uniform in low..high; of a range of 2^40 numbers at most the bias is below 2^-24.
int64_t drawn_number(uint64_t& state, int64_t low, int64_t high) {
  const auto span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t bits = splitmix64(state);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (span == 0 ? bits : bits % span));
}

}  // namespace

Tensor random_sample(DataType dtype, const Dims& dims, uint64_t seed) {
  auto sample = allocate_tensor(dtype, dims);
  uint64_t state = seed;
  // As many bits as the type holds, so that no value rounds up to 1.
  const int digits = dtype == DataType::kBF16 ? 8 : dtype == DataType::kF16 ? 11 : 24;
  for_each_element(sample.view(), [&](std::byte* element) {
    const uint64_t bits = splitmix64(state);
    const double value = is_float(dtype)
                             ? std::ldexp(static_cast<double>(bits >> (64 - digits)), -digits)
                         : dtype == DataType::kBool ? static_cast<double>(bits >> 63)
                                                    : static_cast<double>(bits % 10);
    write_element(dtype, element, value);
  });
  return sample.tensor;
}

Tensor normal_sample(DataType dtype, const Dims& dims, double low, double high, uint64_t seed) {
  auto sample = allocate_tensor(dtype, dims);
  uint64_t state = seed;
  for_each_element(sample.view(), [&](std::byte* element) {
    // A sum of twelve is the same on every machine, which a logarithm is not.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += share(state);
    write_element(dtype, element, std::clamp((low + high) / 2 + (high - low) / 8 * sum, low, high));
  });
  return sample.tensor;
}

Tensor uniform_sample(DataType dtype, const Dims& dims, double low, double high, uint64_t seed) {
  auto sample = allocate_tensor(dtype, dims);
  uint64_t state = seed;
  for_each_element(sample.view(), [&](std::byte* element) {
    write_element(dtype, element, low + (high - low) * share(state));
  });
  return sample.tensor;
}

Tensor integer_sample(DataType dtype, const Dims& dims, int64_t low, int64_t high, uint64_t seed,
                      RangeEnds ends) {
  auto sample = allocate_tensor(dtype, dims);
  uint64_t state = seed;
  const int64_t n = count(dims);
  int64_t i = 0;
  for_each_element(sample.view(), [&](std::byte* element) {
    int64_t value = drawn_number(state, low, high);
    const bool is_both = ends == RangeEnds::kBoth && n > 1;
    if (i == n - 1 && (is_both || ends == RangeEnds::kHigh)) value = high;
    if (i == 0 && n > 1 && ends != RangeEnds::kNone) value = low;
    ++i;
    write_element(dtype, element, static_cast<double>(value));
  });
  return sample.tensor;
}

Tensor consecutive_sample(DataType dtype, const Dims& dims, int64_t low, int64_t high,
                          uint64_t seed) {
  auto sample = allocate_tensor(dtype, dims);
  uint64_t state = seed;
  const int64_t length = dims.empty() ? 1 : dims.back();
  int64_t i = 0, start = low;
  for_each_element(sample.view(), [&](std::byte* element) {
    if (i % length == 0) start = drawn_number(state, low, std::max(low, high - length + 1));
    const int64_t value = low + (start - low + i % length) % (high - low + 1);
    ++i;
    write_element(dtype, element, static_cast<double>(value));
  });
  return sample.tensor;
}

Tensor mask_sample(DataType dtype, const Dims& dims, uint64_t seed) {
  auto sample = allocate_tensor(dtype, dims);
  uint64_t state = seed;
  const int64_t length = dims.empty() ? 1 : dims.back();
  int64_t i = 0, ones = 0;
  for_each_element(sample.view(), [&](std::byte* element) {
    if (i % length == 0) ones = drawn_number(state, (length + 1) / 2, length);
    write_element(dtype, element, i % length < ones ? 1 : 0);
    ++i;
  });
  return sample.tensor;
}

Tensor alike_sample(DataType dtype, const Dims& dims, double value) {
  auto sample = allocate_tensor(dtype, dims);
  for_each_element(sample.view(),
                   [&](std::byte* element) { write_element(dtype, element, value); });
  return sample.tensor;
}

Tensor ramp_sample(DataType dtype, const Dims& dims) {
  auto sample = allocate_tensor(dtype, dims);
  const auto n = static_cast<double>(count(dims));
  double i = 0;
  for_each_element(sample.view(),
                   [&](std::byte* element) { write_element(dtype, element, i++ / n); });
  return sample.tensor;
}

}  // namespace anneal
