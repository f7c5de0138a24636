// Generated samples, for a model without data. They are the same on every machine.
#pragma once
#include <cstdint>

#include "anneal/core/tensor.h"

namespace anneal {

// Floats uniform in [0, 1); integers uniform in 0..9, so that they fit any index or token table of
// ten entries; booleans.
Tensor random_sample(DataType dtype, const Dims& dims, uint64_t seed);
// arange(n).reshape(dims) / n, rounded to the type.
Tensor ramp_sample(DataType dtype, const Dims& dims);

}  // namespace anneal
