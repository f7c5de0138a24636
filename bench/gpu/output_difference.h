// Whether two kernels of one layer give the same output.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "anneal/core/dtype.h"

namespace anneal::bench {

struct OutputDifference {
  double largest = 0;     // of an element, over the largest magnitude of `wanted`
  std::string why_wrong;  // "element 3 is nan instead of 0.5"; empty: rounding explains it
};
// Elements of the same bits are equal, NaN too. Integers have to be: their sums are exact. Floats
// may differ by some units in the last place of the largest, since sums have another order.
// REQUIRES: equal sizes, of whole elements.
OutputDifference output_difference(DataType dtype, std::span<const std::byte> got,
                                   std::span<const std::byte> wanted);

}  // namespace anneal::bench
