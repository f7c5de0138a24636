#include "anneal/engine/tune/search/mix_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "anneal/core/fail.h"

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
                             std::span<const Precision> precisions, SharedTable ranges,
                             bool symmetric) {
  check(groups.size() == precisions.size(), "a precision for each group");
  PrecisionOptions options;
  options.symmetric = symmetric;
  // Layers in no group take the one type.
  for (const Precision half : {Precision::kBF16, Precision::kF16})
    if (options.types.empty() && std::ranges::find(precisions, half) != precisions.end())
      options.types.insert(half);
  bool is_low = !options.types.empty();
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

PrecisionOptions precision_of(const Frontier& frontier, const FrontierPoint& point) {
  return at_entry([&] {
    if (point.precisions.size() != frontier.groups.size())
      fail(ErrorCode::kInvalidArgument,
           fmt::format(
               "the point \"{}\" has precisions for {} groups of layers, the frontier has {}: "
               "take a point of this frontier",
               point.name, point.precisions.size(), frontier.groups.size()));
    SharedTable ranges;
    if (!frontier.calibration.empty()) ranges = parse_calibration_table(frontier.calibration);
    return mix_options(frontier.groups, point.precisions, std::move(ranges), frontier.symmetric);
  });
}

}  // namespace anneal
