#include "anneal/bench/gpu/output_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/data/elements.h"

namespace anneal::bench {
namespace {

// Of the largest magnitude. 16-bit outputs: two units in the last place. f32: sums of thousands of
// products in another order.
double bound_of(DataType dtype) {
  switch (dtype) {
    case DataType::kF16:
      return 0x1p-9;
    case DataType::kBF16:
      return 0x1p-6;
    case DataType::kF32:
      return 1e-4;
    case DataType::kF64:
      return 1e-12;
    default:
      return 0;
  }
}

}  // namespace

OutputDifference output_difference(DataType dtype, std::span<const std::byte> got,
                                   std::span<const std::byte> wanted) {
  const size_t size = size_of(dtype), count = got.size() / size;
  const bool is_exact = bound_of(dtype) == 0;
  OutputDifference found;
  double scale = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = read_element(dtype, wanted.data() + i * size);
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  const double allowed = bound_of(dtype) * scale;
  for (size_t i = 0; i < count; ++i) {
    const std::byte *const a = got.data() + i * size, *const b = wanted.data() + i * size;
    if (std::memcmp(a, b, size) == 0) continue;
    const double is = read_element(dtype, a), should = read_element(dtype, b);
    const double difference = std::abs(is - should);
    const bool is_wrong = is_exact || !(difference <= allowed);
    if (is_wrong && found.why_wrong.empty())
      found.why_wrong = fmt::format("element {} is {:g} instead of {:g}; the largest is {:g}", i,
                                    is, should, scale);
    if (std::isfinite(difference)) largest = std::max(largest, difference);
  }
  found.largest = scale > 0 ? largest / scale : largest;
  return found;
}

}  // namespace anneal::bench
