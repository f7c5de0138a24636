#include "anneal/engine/builder/self_check/table_misfit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/builder/self_check/value_error.h"

namespace anneal {
namespace {

// Numbers that are drawn give other magnitudes than samples, but seldom so far off.
constexpr double kFarOff = 8;

struct Reach {
  std::string value;
  double reached = 0, seen = 0;
  bool is_above() const { return reached > kFarOff * seen; }
  bool is_below() const { return reached * kFarOff < seen; }
};

double magnitude_seen(const TensorRange& range) {
  return std::max(std::abs(double{range.seen_min}), std::abs(double{range.seen_max}));
}

}  // namespace

std::optional<TableMisfit> table_misfit(WatchedEngine& exact, const std::vector<Tensor>& inputs,
                                        const CalibrationTable& table) {
  std::string input;
  for (const TensorInfo& port : exact.ports())
    if (input.empty() && is_float(port.dtype) && table.tensors.contains(port.name))
      input = port.name;
  if (input.empty()) return std::nullopt;
  std::vector<Reach> reaches;  // in the order of the run
  std::map<std::string, size_t> places;
  exact.set_inputs(inputs);
  exact.run([&](const ValueKey& key, const Observation& observed) {
    const auto range = table.tensors.find(key.first);
    if (range == table.tensors.end() || observed.step.empty() || !is_float(observed.value.dtype))
      return;
    const auto [place, is_new] = places.try_emplace(key.first, reaches.size());
    if (is_new) reaches.push_back({.value = key.first, .seen = magnitude_seen(range->second)});
    double& reached = reaches[place->second].reached;
    for (const float element : floats_of(observed.value))
      if (std::isfinite(element)) reached = std::max(reached, std::abs(double{element}));
  });
  const auto above = std::ranges::count_if(reaches, &Reach::is_above);
  const auto below = std::ranges::count_if(reaches, &Reach::is_below);
  const auto first = std::ranges::find_if(
      reaches, [](const Reach& reach) { return reach.is_above() || reach.is_below(); });
  if (first == reaches.end()) return std::nullopt;
  TableMisfit misfit;
  misfit.is_of_input = reaches.size() > 1 &&
                       2 * std::max(above, below) > static_cast<std::ptrdiff_t>(reaches.size());
  misfit.value = misfit.is_of_input ? input : first->value;
  misfit.text = fmt::format(
      "the calibration table does not fit the model: with inputs in its range of \"{}\", f32 makes "
      "at most {:.3g} of \"{}\", and the table saw {:.3g}",
      input, first->reached, first->value, first->seen);
  return misfit;
}

}  // namespace anneal
