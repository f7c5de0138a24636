// Generated samples, for a model without data. They are the same on every machine.
#pragma once
#include <cstdint>

#include "anneal/core/tensor.h"

namespace anneal {

// Floats uniform in [0, 1); integers uniform in 0..9, so that they fit any index or token table of
// ten entries; booleans.
Tensor random_sample(DataType dtype, const Dims& dims, uint64_t seed);

// Floats, nearly normal around the middle of low..high; each end is four deviations away, and
// nothing is beyond.
Tensor normal_sample(DataType dtype, const Dims& dims, double low, double high, uint64_t seed);
// Floats uniform in [low, high).
Tensor uniform_sample(DataType dtype, const Dims& dims, double low, double high, uint64_t seed);

// Which ends of their range are surely among random integers. A single element can only be kHigh.
enum class RangeEnds : uint8_t { kNone, kBoth, kHigh };
// Integers uniform in low..high, both included. REQUIRES: an integer type that holds both.
Tensor integer_sample(DataType dtype, const Dims& dims, int64_t low, int64_t high, uint64_t seed,
                      RangeEnds ends = RangeEnds::kNone);
// Each row, along the last axis, counts up by 1 from a random number on, so that it ends at `high`
// at most; from `low` again where it is longer. REQUIRES: an integer type that holds both.
Tensor consecutive_sample(DataType dtype, const Dims& dims, int64_t low, int64_t high,
                          uint64_t seed);
// Each row, along the last axis, is 1 in its first half at least, and 0 behind a random place.
Tensor mask_sample(DataType dtype, const Dims& dims, uint64_t seed);
// All elements are the value, rounded to the type.
Tensor alike_sample(DataType dtype, const Dims& dims, double value);
// arange(n).reshape(dims) / n, rounded to the type.
Tensor ramp_sample(DataType dtype, const Dims& dims);

}  // namespace anneal
