#include "anneal/engine/builder/timing/choose_by_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "anneal/engine/builder/timing/sampled_times.h"
#include "anneal/graph/program/number_text.h"

namespace anneal {
namespace {

constexpr size_t kMostTold = 5;
constexpr std::string_view kUnit = " us";

// The kernels and times of a text, from the fastest on.
std::vector<std::pair<std::string_view, double>> times_in(std::string_view text) {
  std::vector<std::pair<std::string_view, double>> found;
  const size_t colon = text.find(": ");
  if (colon == std::string_view::npos) return found;
  text.remove_prefix(colon + 2);
  while (!text.empty()) {
    const size_t space = text.find(' '), brace = text.find('{');
    size_t end = space;
    if (brace < space)
      end = text.find('}', brace) == std::string_view::npos ? std::string_view::npos
                                                            : text.find('}', brace) + 1;
    if (end >= text.size()) break;
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(end + 1);
    const size_t unit = text.find(kUnit);
    if (unit == std::string_view::npos) break;
    const auto microseconds = parse_number<double>(text.substr(0, unit));
    if (!microseconds) break;
    found.emplace_back(name, *microseconds);
    text.remove_prefix(unit + kUnit.size());
    if (!text.starts_with(", ")) break;
    text.remove_prefix(2);
  }
  return found;
}

}  // namespace

std::optional<ChoiceByTimes> choose_by_times(std::span<const TimedCandidate> candidates,
                                             const KernelTimes& times) {
  struct Timed {
    double time;
    std::string_view name;
    size_t index;
  };
  std::vector<Timed> timed;
  std::optional<double> of_heuristic;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto found = times.find(candidates[i].name);
    if (found == times.end() || std::isinf(found->second)) continue;
    timed.push_back({found->second, candidates[i].name, i});
    if (i == 0) of_heuristic = found->second;
  }
  std::ranges::sort(timed, [](const Timed& a, const Timed& b) {
    return std::tie(a.time, a.name) < std::tie(b.time, b.name);
  });
  const auto fastest = [&](bool own) {
    return std::ranges::find_if(timed, [&](const Timed& each) {
      return (candidates[each.index].entry->source == KernelSource::kOwn) == own;
    });
  };
  if (timed.empty()) return std::nullopt;
  ChoiceByTimes choice;
  double limit = std::numeric_limits<double>::infinity();
  std::optional<size_t> own;  // the best of ours
  if (const auto found = fastest(true); found != timed.end()) {
    const bool is_heuristic_own = candidates[0].entry->source == KernelSource::kOwn && of_heuristic;
    const bool stays = is_heuristic_own && found->time >= (1 - kTimingNoise) * *of_heuristic;
    own = choice.chosen = stays ? 0 : found->index;
    limit = stays ? *of_heuristic : found->time;
  }
  if (const auto library = fastest(false);
      library != timed.end() && library->time < (1 - kTimingNoise) * limit)
    choice.chosen = library->index;
  if (candidates[choice.chosen].entry->source != KernelSource::kOwn) choice.runner_up = own;
  choice.text =
      choice.chosen == 0
          ? fmt::format("{} stays:", candidates[0].name)
          : fmt::format("{} instead of {}:", candidates[choice.chosen].name, candidates[0].name);
  size_t told = 0;
  for (const Timed& each : timed) {
    const bool is_needed = told < kMostTold || each.index == 0 || each.index == choice.chosen ||
                           choice.runner_up == each.index;
    if (!is_needed) continue;
    choice.text += fmt::format("{} {} {}{}", told++ == 0 ? "" : ",", each.name, each.time, kUnit);
  }
  if (timed.size() > told) choice.text += fmt::format(", and {} more", timed.size() - told);
  return choice;
}

std::optional<double> time_in(std::string_view text, std::string_view name) {
  for (const auto& [kernel, microseconds] : times_in(text))
    if (kernel == name) return microseconds;
  return std::nullopt;
}

std::string fastest_other_in(std::string_view text, std::string_view name) {
  for (const auto& [kernel, microseconds] : times_in(text))
    if (kernel != name) return fmt::format("{}", kernel);
  return {};
}

}  // namespace anneal
