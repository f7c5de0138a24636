#include <algorithm>
#include <string>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/engine/tune/search/tune.h"

namespace anneal {
namespace {

std::string escaped(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

PrecisionOptions mix_options(std::span<const PrecisionGroup> groups,
                             std::span<const Precision> precisions,
                             std::shared_ptr<const CalibrationTable> ranges, bool symmetric) {
  check(groups.size() == precisions.size(), "a precision for each group");
  PrecisionOptions options;
  options.symmetric = symmetric;
  options.bf16 = std::ranges::find(precisions, Precision::kBF16) != precisions.end();
  options.f16 = !options.bf16 && std::ranges::find(precisions, Precision::kF16) != precisions.end();
  bool is_low = options.bf16 || options.f16;
  for (const Precision precision :
       {Precision::kF32, Precision::kF16, Precision::kBF16, Precision::kI8}) {
    std::string pattern;
    for (size_t i = 0; i < groups.size(); ++i)
      for (const std::string& layer : groups[i].layers)
        if (precisions[i] == precision) pattern += (pattern.empty() ? "" : "|") + escaped(layer);
    if (pattern.empty()) continue;
    is_low = is_low || precision != Precision::kF32;
    options.layers.push_back({std::move(pattern), precision});
  }
  if (is_low) options.ranges = std::move(ranges);
  return options;
}

}  // namespace anneal
