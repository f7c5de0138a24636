#include "anneal/engine/onnx/batch_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "anneal/core/integer.h"

namespace anneal {
namespace {

using Coefficients = std::array<int64_t, 3>;  // of ascending powers

std::string polynomial_text(const Coefficients& coefficients, const std::string& name) {
  std::string text;
  for (size_t power = 0; power < coefficients.size(); ++power) {
    const int64_t value = coefficients[power];
    if (value == 0) continue;
    text += text.empty() ? (value < 0 ? "-" : "") : value < 0 ? " - " : " + ";
    const int64_t size = value < 0 ? -value : value;
    text += power == 0 ? fmt::format("{}", size)
                       : fmt::format("{}*{}{}", size, name, power == 1 ? "" : "^2");
  }
  return text.empty() ? "0" : text;
}

// start + slope*k + square*k*(k - 1), where k is the number of batches after the first.
std::optional<Coefficients> exact(int64_t first, std::span<const int64_t> bytes) {
  const auto difference = [&](size_t i) {
    return i < bytes.size() ? bytes[i] - bytes[i - 1] : int64_t{0};
  };
  const int64_t start = bytes[0], slope = difference(1);
  const int64_t twice = bytes.size() < 3 ? 0 : difference(2) - slope;
  if (twice % 2 != 0) return std::nullopt;
  const int64_t square = twice / 2;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    if (start + slope * k + square * k * (k - 1) != bytes[i]) return std::nullopt;
  }
  return Coefficients{start - slope * first + square * first * (first + 1),
                      slope - square * (2 * first + 1), square};
}

// The best line touches two of the numbers, and its slope is rounded up or down.
Coefficients upper_line(int64_t first, std::span<const int64_t> bytes) {
  Coefficients best = {};
  double least_excess = std::numeric_limits<double>::infinity();
  const auto try_slope = [&](int64_t slope) {
    if (slope < 0) return;
    int64_t start = std::numeric_limits<int64_t>::min();
    for (size_t i = 0; i < bytes.size(); ++i)
      start = std::max(start, bytes[i] - slope * (first + static_cast<int64_t>(i)));
    double excess = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      excess += static_cast<double>(start + slope * (first + static_cast<int64_t>(i)) - bytes[i]);
    if (excess >= least_excess) return;
    least_excess = excess;
    best = {start, slope, 0};
  };
  try_slope(0);
  for (size_t i = 0; i < bytes.size(); ++i)
    for (size_t j = i + 1; j < bytes.size(); ++j) {
      const int64_t rounded = ceil_div(bytes[j] - bytes[i], static_cast<int64_t>(j - i));
      try_slope(rounded);
      try_slope(rounded - 1);
    }
  return best;
}

}  // namespace

BatchFormula batch_formula(int64_t first, std::span<const int64_t> bytes, const std::string& name) {
  const std::optional<Coefficients> polynomial = exact(first, bytes);
  return {polynomial_text(polynomial ? *polynomial : upper_line(first, bytes), name), first,
          first + static_cast<int64_t>(bytes.size()) - 1, polynomial.has_value()};
}

}  // namespace anneal
