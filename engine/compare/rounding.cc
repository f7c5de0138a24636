#include "anneal/engine/compare/rounding.h"

#include <cmath>
#include <vector>

#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

constexpr double kFloatOrder = 1e-5;  // of the largest magnitude

std::vector<double> numbers_of(const ConstTensorView& view) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(count(view.dims)));
  for_each_element(view,
                   [&](const std::byte* at) { values.push_back(read_element(view.dtype, at)); });
  return values;
}

}  // namespace

Rounding rounding_of(const ConstTensorView& got, const ConstTensorView& expected,
                     const ConstTensorView* got_source, const ConstTensorView* expected_source) {
  const std::vector<double> a = numbers_of(got), b = numbers_of(expected);
  std::vector<double> from_a, from_b;
  double allowed = -1;
  if (got_source && expected_source) {
    from_a = numbers_of(*got_source), from_b = numbers_of(*expected_source);
    for (const double value : from_b)
      if (std::isfinite(value)) allowed = std::max(allowed, kFloatOrder * std::abs(value));
  }
  Rounding rounding{.elements = static_cast<int64_t>(a.size())};
  for (size_t i = 0; i < a.size(); ++i) {
    const double quanta = std::abs(a[i] - b[i]);
    if (quanta == 0) continue;
    ++rounding.differing;
    rounding.most_quanta = std::max(rounding.most_quanta, quanta);
    if (quanta != 1 || allowed < 0) continue;
    const double distance = std::abs(from_a[i] - from_b[i]);
    if (!(distance <= allowed)) continue;
    ++rounding.at_ties;
    rounding.widest_tie = std::max(rounding.widest_tie, distance);
  }
  return rounding;
}

}  // namespace anneal
