// The least and the largest of a tensor's finite elements.
#pragma once
#include <cstdint>
#include <limits>
#include <span>

namespace anneal {

struct FiniteRange {
  int64_t count = 0;                                               // of finite elements
  float min = std::numeric_limits<float>::infinity(), max = -min;  // if there are any
};
FiniteRange finite_range(std::span<const float> values);

}  // namespace anneal
