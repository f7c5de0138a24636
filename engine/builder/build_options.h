// The options of build_engine(), calibrate() and tune().
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/dims.h"
#include "anneal/core/tensor.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// The progress of a call that takes long.
struct Progress {
  std::string what{};                    // "fuse_epilogue", "30 of 100 samples"
  double share = 0;                      // of the call that is done; an estimate, never falls
  std::optional<double> seconds_left{};  // empty: not known
};
// Called on the thread of the caller. false cancels: the call fails with kCancelled and writes
// nothing.
using ProgressCallback = std::function<bool(const Progress&)>;

// The sizes that inputs have together, by the inputs' names: the smallest, those to optimize for,
// and the largest. An input that is missing in `opt` is optimized for `max`, or else `min`; one
// that is missing in `min` or `max` has the sizes of `opt` there. min == max fixes a size. The name
// "" stands for the only input.
struct Profile {
  std::map<std::string, Dims> min{}, opt{}, max{};
};

// How the range of a tensor follows from the histogram of its values.
enum class RangeMethod {
  kMinMax,      // the extremes
  kEntropy,     // where the distribution of the integers diverges least from that of the values
  kPercentile,  // the extremes without the elements that lie farthest out
  kMse,         // where the mean of the squared errors is least
  kAuto,        // for each tensor the one of the above with the least measured error
};
constexpr std::string_view to_string(RangeMethod method) {
  constexpr std::string_view kNames[] = {"minmax", "entropy", "percentile", "mse", "auto"};
  return kNames[static_cast<size_t>(method)];
}

// Whether calibration fits something to the samples. kAuto: where the measured error falls.
enum class FitChoice { kOff, kOn, kAuto };

// How ranges are found for int8 (docs/quantization.md).
struct CalibrationOptions {
  // build_engine() calibrates with these samples if int8 is allowed and precision.ranges is null.
  std::shared_ptr<const Dataset> samples = {};
  RangeMethod method = RangeMethod::kAuto;
  double percentile = 99.99;  // of RangeMethod::kPercentile: of the elements lie inside
  // Scales of weights with the least error; biases that take back errors of means; channels scaled
  // by powers of two.
  FitChoice fit_weights = FitChoice::kAuto, correct_bias = FitChoice::kAuto,
            equalize = FitChoice::kAuto;
};

// How tune() searches (docs/tuning.md).
struct TuneOptions {
  // The largest drop against f32, in the metric's unit; of a metric without drops the least score.
  double budget = 0.5;
  // Sizes of the calibration set and of the search set; the other samples confirm. 0: 20 % and
  // 30 %.
  int64_t calibrate_samples = 0, search_samples = 0;
  double seconds = 0;           // when to stop trying; 0: no limit
  bool modelled_times = false;  // latencies from published figures, the same on every machine
  size_t most_groups = 40;      // of layers that choose together
  // A file from which an interrupted call resumes; empty: none. `journal_key` is further text that
  // its results depend on, such as the version of a metric.
  std::string journal = {}, journal_key = {};
};

// Multiply-adds that a self-check may take; a second or two on two cores with AVX-512.
inline constexpr double kSelfCheckWork = 4e10;

// With a precision below f32, the build compares the plan with f32 before the engine is written,
// and gives layers back to f32 that overflow or that cause most of a difference
// (docs/quantization.md, "The self-check").
struct SelfCheckOptions {
  bool run = true;
  // Multiply-adds of all the runs that compare; sizes that would need more are left out. It is no
  // time, so that the same model gives the same engine on a busy machine.
  double most_work = kSelfCheckWork;
  // Inputs to compare with, each one tensor per input in the model's order. Empty: the first
  // samples of the calibration, else random numbers.
  std::vector<std::vector<Tensor>> samples = {};
};

struct BuildOptions {
  // One plan each: "cpu" (what this CPU has), "cpu:avx2", "sm_90" (no card is needed), "emulated".
  // tune() takes one.
  std::vector<std::string> targets = {"cpu"};
  // One entry at most; several are refused with kUnsupported.
  std::vector<Profile> profiles = {};
  // Initializers that the model lists as inputs, too, and that become inputs with a default value
  // (TensorInfo::default_value); "*": all. Others are constants.
  std::set<std::string> default_inputs = {};
  // What layers may be computed in. tune() chooses from precision.types (empty: those that are
  // faster on the target, and int8) and takes no precision.layers.
  PrecisionOptions precision = {};
  CalibrationOptions calibration = {};
  TuneOptions tuning = {};
  SelfCheckOptions self_check = {};
  bool exact = false;  // leave out the passes and kernels that may change the last bits of results
  // Passes by name, as `anneal passes` lists them: not to run ("all": no pass runs); if not empty,
  // the only ones to run.
  std::vector<std::string> skip_passes = {}, only_passes = {};
  std::vector<std::string> skip_kernels = {};  // kernels not to choose: "cpu.conv.winograd"
  // false: fail with kUnsupported, naming each layer that would run on the CPU though the target is
  // a GPU.
  bool allow_fallback = true;
  // The most bytes that weights, inputs, outputs and activations may take together in a run at the
  // sizes to optimize for; 0: no limit. A model that needs more is refused, naming the tensor or
  // step, before memory is allocated for it.
  uint64_t max_memory = 0;
  // Whether to time the CPU's kernels where several can run a layer. timing_cache: a file of times
  // to use and to add to; it need not exist. Empty: none.
  bool time_kernels = false;
  std::string timing_cache = {};
  // Stores weights as this machine's CPU kernels read them, too, to be mapped at load.
  bool pack_weights = false;
  // Threads of an inference: of the engine, when kernels or mixes are timed, and of the runs of
  // calibration. Threads that read samples. 0: one per core.
  int threads = 0, data_threads = 0;
  ProgressCallback progress = {};
};

}  // namespace anneal
