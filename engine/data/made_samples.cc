#include "anneal/engine/data/made_samples.h"

#include <cmath>

#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Tensor random_sample(DataType dtype, const Dims& dims, uint64_t seed) {
  auto sample = Tensor::allocate(dtype, dims);
  uint64_t state = seed;
  // As many bits as the type holds, so that no value rounds up to 1.
  const int digits = dtype == DataType::kBF16 ? 8 : dtype == DataType::kF16 ? 11 : 24;
  for_each_element(sample.tensor.view(), [&](std::byte* element) {
    const uint64_t bits = splitmix64(state);
    const double value = is_float(dtype)
                             ? std::ldexp(static_cast<double>(bits >> (64 - digits)), -digits)
                         : dtype == DataType::kBool ? static_cast<double>(bits >> 63)
                                                    : static_cast<double>(bits % 10);
    write_element(dtype, element, value);
  });
  return sample.tensor;
}

Tensor ramp_sample(DataType dtype, const Dims& dims) {
  auto sample = Tensor::allocate(dtype, dims);
  const auto n = static_cast<double>(count(dims));
  double i = 0;
  for_each_element(sample.tensor.view(),
                   [&](std::byte* element) { write_element(dtype, element, i++ / n); });
  return sample.tensor;
}

}  // namespace anneal
