// The choice of powers of two that equalize the magnitudes of channels.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/calibration/choose_quantization.h"
#include "anneal/engine/tune/samples/run_samples.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

struct ExponentOptions {
  FitChoice use =
      FitChoice::kAuto;      // kAuto: where the error becomes less than half; kOn: where it is less
  bool symmetric = false;    // zero points will be 0
  bool fits_weights = true;  // scales of weights will be fitted
  // Whether to equalize a tensor, by the names of the layers that read it; empty: each tensor.
  std::function<bool(std::span<const std::string> readers)> may_equalize{};
};

struct ChosenExponents {
  std::vector<int> exponents;
  std::vector<std::string> readers;  // the layers whose error that is about
};

// As CalibrationTable::exponents, for a graph that equalize_channels would get. Magnitudes are
// measured on the samples; of each way to share the spread of a channel between data and weights
// the one is taken by which the products that read it lose least: for each of their results, what
// rounding the data (a step^2 / 12) and the weights adds to it, over its mean square. Fails as
// building and run_samples() do.
std::map<std::string, ChosenExponents, std::less<>> choose_exponents(
    const Graph& graph, const ExponentOptions& exponents, const PassOptions& passes,
    const std::shared_ptr<const Dataset>& samples, const SampleRunOptions& options);

}  // namespace anneal
