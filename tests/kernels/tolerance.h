// How far a kernel's results may be from the reference's.
#pragma once
#include <optional>
#include <string>

#include "anneal/tests/kernels/layer_run.h"

namespace anneal::testing {

// How many products are added for one element of the op's result, of a convolution, a matrix
// product or attention; 0 of other ops.
int64_t depth_of(const TestLayer& layer);

// The allowed error of a sum of `depth` products of 16-bit floats on tensor cores, by the largest
// magnitude of all sums. REQUIRES: depth <= kDeepest
double sum_tolerance(int64_t depth);
inline constexpr int64_t kDeepest = 10000;

// default_tolerance(), and that of the sums of the layer, if their operands are 16-bit floats.
double tolerance_of(const TestLayer& layer, DataType stored);

// Nothing if they agree as difference() says, with tolerance_of(). Of integers that an epilogue
// rounded from sums of 16-bit floats, a few may be the next ones.
std::optional<std::string> disagreement(const TestLayer& layer, const Tensor& got,
                                        const Tensor& wanted);

}  // namespace anneal::testing
