// Tensors that tests of metrics judge.
#pragma once
#include <limits>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Tensor floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::of<float>(DataType::kF32, dims, values);
}
inline Tensor integers(const Dims& dims, const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(DataType::kI64, dims, values);
}

}  // namespace anneal
