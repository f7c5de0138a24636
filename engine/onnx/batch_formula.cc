#include "anneal/engine/onnx/batch_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

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

std::optional<Coefficients> exact(std::span<const BytesOfBatch> points) {
  // start + slope*k + square*k*(k - 1), where k is the batch beyond the least one.
  const int64_t least = points[0].batch, start = points[0].bytes, slope = points[1].bytes - start,
                twice = points[2].bytes - 2 * points[1].bytes + start;
  if (twice % 2 != 0) return std::nullopt;
  const int64_t square = twice / 2;
  for (const auto& [batch, bytes] : points) {
    const int64_t k = batch - least;
    if (start + slope * k + square * k * (k - 1) != bytes) return std::nullopt;
  }
  return Coefficients{start - slope * least + square * least * (least + 1),
                      slope - square * (2 * least + 1), square};
}

// The best line touches two of the points, but that its slope is rounded up.
Coefficients upper_line(std::span<const BytesOfBatch> points) {
  Coefficients best = {};
  double least_excess = std::numeric_limits<double>::infinity();
  const auto try_slope = [&](int64_t slope) {
    int64_t start = std::numeric_limits<int64_t>::min();
    for (const auto& [batch, bytes] : points) start = std::max(start, bytes - slope * batch);
    double excess = 0;
    for (const auto& [batch, bytes] : points)
      excess += static_cast<double>(start + slope * batch - bytes);
    if (excess >= least_excess) return;
    least_excess = excess;
    best = {start, slope, 0};
  };
  try_slope(0);
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t j = i + 1; j < points.size(); ++j)
      try_slope(ceil_div(points[j].bytes - points[i].bytes, points[j].batch - points[i].batch));
  return best;
}

}  // namespace

std::optional<BatchFormula> batch_formula(std::span<const BytesOfBatch> points,
                                          const std::string& name) {
  if (points.size() < 4) return std::nullopt;
  const std::optional<Coefficients> polynomial = exact(points);
  return BatchFormula{polynomial_text(polynomial ? *polynomial : upper_line(points), name),
                      points.front().batch, points.back().batch, polynomial.has_value()};
}

}  // namespace anneal
