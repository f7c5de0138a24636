#include "anneal/engine/compare/tensor_error.h"

#include <cmath>
#include <limits>
#include <vector>

#include "anneal/engine/data/elements.h"

namespace anneal {

TensorError tensor_error(const ConstTensorView& got, const ConstTensorView& expected) {
  std::vector<double> wanted;
  wanted.reserve(static_cast<size_t>(count(expected.dims)));
  for_each_element(
      expected, [&](const std::byte* at) { wanted.push_back(read_element(expected.dtype, at)); });

  TensorError error;
  double got_squared = 0, wanted_squared = 0, difference_squared = 0, product = 0;
  size_t i = 0, compared = 0;
  for_each_element(got, [&](const std::byte* at) {
    const double a = read_element(got.dtype, at), b = wanted[i++];
    if (std::isfinite(b)) error.scale = std::max(error.scale, std::abs(b));
    if (!std::isfinite(a) || !std::isfinite(b)) return;
    ++compared;
    got_squared += a * a;
    wanted_squared += b * b;
    difference_squared += (a - b) * (a - b);
    product += a * b;
  });
  if (compared == 0 && !wanted.empty()) {
    error.sqnr_db = error.cosine = std::numeric_limits<double>::quiet_NaN();
    return error;
  }
  error.sqnr_db = difference_squared == 0 ? std::numeric_limits<double>::infinity()
                                          : 10 * std::log10(wanted_squared / difference_squared);
  const double lengths = std::sqrt(got_squared) * std::sqrt(wanted_squared);
  error.cosine = lengths > 0 ? product / lengths : got_squared == wanted_squared ? 1 : 0;
  return error;
}

}  // namespace anneal
