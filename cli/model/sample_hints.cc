#include "anneal/cli/model/sample_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "anneal/cli/output/printable.h"

namespace anneal {
namespace {

constexpr int64_t kFewestSamples = 20;  // fewer say nothing about chance

struct Shares {
  int64_t labelled = 0, largest_label = 0;
  double right = 0;
};

// Of the predictions, if `shift` is added to each label.
Shares shares_of(const ClassificationRun& run, int64_t shift) {
  Shares shares;
  int64_t right = 0;
  for (const Prediction& one : run.predictions) {
    if (!one.label || one.best.empty()) continue;
    ++shares.labelled;
    shares.largest_label = std::max(shares.largest_label, *one.label);
    right += *one.label + shift == one.best[0].index ? 1 : 0;
  }
  if (shares.labelled > 0)
    shares.right = static_cast<double>(right) / static_cast<double>(shares.labelled);
  return shares;
}

}  // namespace

std::vector<std::string> scale_hints(const Dataset& samples) {
  std::vector<std::string> hints;
  for (const SampleTensor& sample : samples.read(0)) {
    if (sample.tensor.dtype() != DataType::kF32 || sample.tensor.dims().rank() < 3) continue;
    const auto values = sample.tensor.as<float>();
    const auto is_pixel = [](float x) { return x >= 0 && x <= 255 && x == std::floor(x); };
    if (values.empty() || !std::ranges::all_of(values, is_pixel)) continue;
    if (const float largest = *std::ranges::max_element(values); largest > 32)
      hints.push_back(fmt::format(
          "input \"{}\" gets whole numbers up to {:.0f}: pixels as they are stored. Most networks "
          "are trained on scaled pixels: see --scale 1/255, --mean and --std",
          sample.input, largest));
  }
  return hints;
}

std::vector<std::string> label_hints(const ClassificationRun& run, int64_t label_offset) {
  std::vector<std::string> hints;
  const Shares as_given = shares_of(run, 0);
  if (as_given.labelled < kFewestSamples || run.classes < 2) return hints;
  for (const int64_t shift : {1, -1}) {
    const double right = shares_of(run, shift).right;
    if (right > 0.1 && right > 4 * as_given.right)
      hints.push_back(fmt::format(
          "top-1 is {:.2f} % with these labels and would be {:.2f} % with --label-offset {}",
          100 * as_given.right, 100 * right, label_offset + shift));
  }
  if (!hints.empty()) return hints;
  const double chance = 1 / static_cast<double>(run.classes);
  const double noise = std::sqrt(chance * (1 - chance) / static_cast<double>(as_given.labelled));
  if (as_given.right > chance + 3 * noise) return hints;
  std::string causes = "scaling (--scale, --mean, --std), the order of channels or of axes";
  if (run.classes == as_given.largest_label + 2)
    causes = fmt::format("the network has {} classes and labels end at {} (--label-offset 1); ",
                         run.classes, as_given.largest_label) +
             causes;
  hints.push_back(
      fmt::format("top-1 of {:.2f} % is no better than chance among {} classes. Likely "
                  "causes: {}",
                  100 * as_given.right, run.classes, causes));
  return hints;
}

void print_hints(std::span<const std::string> hints) {
  std::fflush(stdout);
  for (const std::string& hint : hints) fmt::print(stderr, "anneal: hint: {}\n", printable(hint));
}

}  // namespace anneal
