#include "anneal/engine/tune/calibration/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/calibration/equalization_exponents.h"
#include "anneal/engine/tune/calibration/layer_errors.h"
#include "anneal/engine/tune/calibration/measure_ranges.h"
#include "anneal/engine/tune/calibration/prepared_graph.h"
#include "anneal/engine/tune/samples/run_samples.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/optimizer/precision/fingerprint.h"
#include "anneal/optimizer/precision/quantizable.h"

namespace anneal {
namespace {

// Samples on which channels' magnitudes, and layers' errors, are measured.
constexpr int64_t kMostLookedAt = 32, kMostMeasured = 100;
// The least error by channel of a tensor's readers that makes equalizing worth trying, and the
// largest part of it that may be left.
constexpr double kWorthEqualizing = 5e-3, kWorthIt = 0.5;

bool has_values_to_calibrate(const Graph& graph) {
  return !values_to_calibrate(graph).empty() ||
         std::ranges::any_of(graph.bodies(), has_values_to_calibrate);
}

// Of the build that follows, but for the precision.
PassOptions passes_of(const BuildOptions& options) {
  PassOptions passes = graph_options(options).passes;
  passes.precision = {};
  return passes;
}

// The steps of calibrate().
class Calibrator {
 public:
  Calibrator(const std::shared_ptr<const Dataset>& samples, const BuildOptions& options)
      : samples_(samples),
        options_(options),
        passes_(passes_of(options)),
        range_{options.calibration.method, options.calibration.percentile,
               options.precision.symmetric},
        choices_{options.calibration.fit_weights, options.calibration.correct_bias,
                 options.calibration.equalize} {}

  const PassOptions& passes() const { return passes_; }

  MeasuredRanges ranges(const Graph& graph, int64_t most,
                        const std::function<void(int64_t done)>& progress) const {
    return measure_ranges(graph, range_, passes_, samples_, run_options(most), progress);
  }

  // The error of each layer when it is quantized by the table's ranges.
  std::map<std::string, LayerErrors> errors(const Graph& graph, const CalibrationTable& table,
                                            int64_t most) const {
    return measure_layer_errors(graph, table, range_.symmetric, passes_, samples_,
                                run_options(most));
  }

  // warnings: gets one sentence on channels that were always 0.
  void choose_for_layers(const Graph& graph, CalibrationTable& table,
                         std::vector<std::string>& warnings) const {
    struct DeadChannels {
      int64_t dead = 0, channels = 0;
    };
    std::map<std::string, DeadChannels> found;  // by tensor
    for (const auto& [name, layer] : errors(graph, table, kMostMeasured)) {
      const auto dead = std::ranges::count(layer.data_squares, 0);
      const auto channels = static_cast<int64_t>(layer.data_squares.size());
      if (dead > 0 && dead < channels) found[layer.data] = {dead, channels};
      ChosenQuantization chosen = choose_quantization(layer, choices_);
      table.layers[name] = chosen.layer;
      if (!chosen.bias.empty()) table.biases[name] = std::move(chosen.bias);
    }
    if (found.empty()) return;
    const auto most = std::ranges::max_element(found, {}, [](const auto& each) {
      return static_cast<double>(each.second.dead) / static_cast<double>(each.second.channels);
    });
    warnings.push_back(
        fmt::format("{} of {} tensors {} channels that were 0 in all samples that errors were "
                    "measured on, most "
                    "of all \"{}\" with {} of its {} channels. Errors of these channels are not "
                    "known: if other "
                    "inputs use them, calibrate on more varied samples",
                    found.size(), table.layers.size(), found.size() == 1 ? "has" : "have",
                    most->first, most->second.dead, most->second.channels));
  }

  // Chooses what channels are multiplied by, and does it. Automatically: of layers whose error is
  // large, where it gets less than half, both measured on some samples.
  void equalize(Graph& graph, CalibrationTable& table) const {
    const auto pass = std::ranges::find(default_pipeline(), kFirstOfPrecision, &Pass::name);
    const FitChoice use = choices_.equalized;
    if (use == FitChoice::kOff || !why_left_out(*pass, passes_).empty()) return;
    ExponentOptions exponents{use, range_.symmetric, fits_weights()};
    std::map<std::string, double> before;
    if (use == FitChoice::kAuto) {
      before = errors_by_channel(graph);
      exponents.may_equalize = [&](std::span<const std::string> readers) {
        return sum_of(before, readers) > kWorthEqualizing;
      };
    }
    auto chosen = choose_exponents(graph, exponents, passes_, samples_, run_options(kMostLookedAt));
    if (use == FitChoice::kAuto && !chosen.empty()) {
      const auto after = errors_by_channel(equalized(graph, chosen));
      std::erase_if(chosen, [&](const auto& each) {
        const auto& readers = each.second.readers;
        return sum_of(after, readers) > kWorthIt * sum_of(before, readers);
      });
    }
    for (const auto& [tensor, each] : chosen) table.exponents[tensor] = each.exponents;
    graph = equalized(graph, chosen);
  }

 private:
  using KernelChoice = std::map<std::string, ChosenExponents, std::less<>>;

  SampleRunOptions run_options(int64_t most) const {
    return {options_.threads, options_.data_threads, most};
  }

  bool fits_weights() const { return choices_.fitted_weights != FitChoice::kOff; }

  // For each layer, by ranges of the few samples that it is measured on.
  std::map<std::string, double> errors_by_channel(const Graph& graph) const {
    CalibrationTable table;
    table.tensors = ranges(graph, kMostLookedAt, [](int64_t) {}).tensors;
    std::map<std::string, double> found;
    for (const auto& [name, layer] : errors(graph, table, kMostLookedAt))
      found[name] = error_by_channel(layer, fits_weights());
    return found;
  }

  static double sum_of(const std::map<std::string, double>& errors,
                       std::span<const std::string> layers) {
    double sum = 0;
    for (const std::string& layer : layers)
      if (const auto found = errors.find(layer); found != errors.end()) sum += found->second;
    return sum;
  }

  static Graph equalized(const Graph& graph, const KernelChoice& chosen) {
    CalibrationTable table;
    for (const auto& [tensor, each] : chosen) table.exponents[tensor] = each.exponents;
    PassOptions passes;
    passes.precision.ranges = std::make_shared<const CalibrationTable>(std::move(table));
    const auto pass = std::ranges::find(default_pipeline(), kFirstOfPrecision, &Pass::name);
    Graph made = graph.clone();
    run_pipeline(made, std::span(&*pass, 1), passes);
    return made;
  }

  const std::shared_ptr<const Dataset>& samples_;
  const BuildOptions& options_;
  const PassOptions passes_;
  const RangeOptions range_;
  const QuantizationChoices choices_;
};

}  // namespace

std::vector<DataInput> calibration_inputs(const Graph& model) {
  std::vector<DataInput> inputs;
  for (const ValueId input : model.inputs()) {
    const Value& value = model.value(input);
    Dims dims;
    for (const Size size : value.type().shape) dims.push_back(size.known() ? size.value() : -1);
    inputs.push_back({value.name, value.type().dtype, dims, value.default_value.has_value()});
  }
  return inputs;
}

Calibration calibrate(const Graph& model, const std::shared_ptr<const Dataset>& samples,
                      const BuildOptions& options) {
  if (samples->size() == 0)
    fail(ErrorCode::kInvalidArgument, "there are no samples to calibrate with");
  if (const double percent = options.calibration.percentile; !(percent >= 50 && percent <= 100))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("percentile is {}: 50 to 100 is expected", percent));
  const Calibrator calibrator(samples, options);
  Graph graph = prepared_for_precision(model, calibrator.passes());
  if (!has_values_to_calibrate(graph))
    fail(ErrorCode::kInvalidArgument,
         "the model has nothing to calibrate: no convolution or product of f32 by constant weights "
         "that is not quantized already; transposed convolutions have no form in 8 bits");
  Calibration result;
  CalibrationTable& table = result.table;
  calibrator.equalize(graph, table);
  MeasuredRanges ranges = calibrator.ranges(graph, 0, [&](int64_t done) {
    const Progress progress{fmt::format("calibrating: {} of {} samples", done, samples->size()),
                            static_cast<double>(done) / static_cast<double>(samples->size()),
                            std::nullopt};
    if (options.progress && !options.progress(progress))
      fail(ErrorCode::kCancelled, "the calibration was cancelled");
  });
  table.model = model.name;
  table.fingerprint = fingerprint(model, options.threads);
  table.samples = samples->size();
  table.symmetric = options.precision.symmetric;
  table.tensors = std::move(ranges.tensors);
  result.warnings = std::move(ranges.warnings);
  calibrator.choose_for_layers(graph, table, result.warnings);
  return result;
}

}  // namespace anneal
