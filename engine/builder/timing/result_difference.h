// Whether two kernels of one layer gave the same result, as far as rounding goes.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "anneal/core/dtype.h"

namespace anneal {

// The largest difference as a sentence; empty if all elements agree. Floats may differ by some
// roundings of the largest element, and 8-bit integers by 1, since kernels add in other orders.
// REQUIRES: the same number of bytes
std::string result_difference(DataType dtype, std::span<const std::byte> result,
                              std::span<const std::byte> wanted);

}  // namespace anneal
