#include "anneal/engine/tune/calibration/choose_quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr std::array<std::pair<FitChoice, std::string_view>, 3> kNames = {
    {{FitChoice::kOff, "off"}, {FitChoice::kOn, "on"}, {FitChoice::kAuto, "auto"}}};

// Infinite where a channel has no number, so that any way that was measured is better.
double mean_of_channels(const ChannelErrors& errors, const auto& of_channel) {
  double sum = 0;
  for (size_t i = 0; i < errors.squares.size(); ++i) sum += of_channel(i);
  const double mean = sum / static_cast<double>(errors.squares.size());
  return std::isfinite(mean) ? mean : std::numeric_limits<double>::infinity();
}

// An error as a share of a mean square: 1 if one of the two is not finite.
double share_of(double square, double error) {
  if (error == 0) return 0;
  const double share = error / square;
  return std::isfinite(square) && share <= double{std::numeric_limits<float>::max()} ? share : 1;
}

// One way to quantize a layer.
struct Candidate {
  const ChannelErrors* errors = nullptr;
  bool is_fitted = false, has_bias = false;
  double error = 0;
};

// The better of the two, bias or none, of these scales.
Candidate best(const LayerErrors& layer, bool is_fitted, FitChoice bias) {
  const ChannelErrors& errors = is_fitted ? layer.fitted : layer.largest;
  Candidate found{&errors, is_fitted, false, error_of(errors)};
  if (bias == FitChoice::kOff || !layer.takes_bias || !layer.has_two_batches) return found;
  const double without = error_without_bias(errors);
  if (!std::isfinite(without) || (bias == FitChoice::kAuto && without >= found.error)) return found;
  return {&errors, is_fitted, true, without};
}

}  // namespace

FitChoice parse_fit_choice(std::string_view option, std::string_view text) {
  for (const auto& [use, name] : kNames)
    if (text == name) return use;
  fail(ErrorCode::kInvalidArgument, fmt::format("{} {}: there are on, off and auto", option, text));
}

double error_of(const ChannelErrors& errors) {
  return mean_of_channels(errors, [&](size_t i) { return errors.squares[i]; });
}

double error_without_bias(const ChannelErrors& errors) {
  return mean_of_channels(errors, [&](size_t i) {
    const double a = errors.means[0][i], b = errors.means[1][i];
    return errors.squares[i] - 2 * a * b + (a * a + b * b) / 2;
  });
}

double error_by_channel(const LayerErrors& errors, bool fitted) {
  const ChannelErrors& of = fitted ? errors.fitted : errors.largest;
  return mean_of_channels(of, [&](size_t i) {
    return std::min(share_of(errors.result_squares[i], of.squares[i]), 1.0);
  });
}

ChosenQuantization choose_quantization(const LayerErrors& errors,
                                       const QuantizationChoices& choices) {
  Candidate chosen = best(errors, choices.fitted_weights == FitChoice::kOn, choices.bias);
  if (choices.fitted_weights == FitChoice::kAuto)
    if (const Candidate fitted = best(errors, true, choices.bias); fitted.error < chosen.error)
      chosen = fitted;
  const auto relative = [&](double error) {
    return static_cast<float>(share_of(errors.result_square, error));
  };
  ChosenQuantization result;
  result.layer = {chosen.is_fitted, relative(error_of(errors.largest)), relative(chosen.error)};
  if (!chosen.has_bias) return result;
  const auto& [first, second] = chosen.errors->means;
  for (size_t i = 0; i < first.size(); ++i)
    result.bias.push_back(static_cast<float>(-(first[i] + second[i]) / 2));
  return result;
}

}  // namespace anneal
