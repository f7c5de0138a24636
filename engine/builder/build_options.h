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

#include "anneal/core/application/hooks.h"
#include "anneal/core/dims.h"
#include "anneal/core/tensor.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// The progress of a call that takes long.
struct Progress {
  std::string what{};                    // "fuse_epilogue", "30 of 100 samples"
  double share = 0;                      // 0 to 1, estimated; never falls
  std::optional<double> seconds_left{};  // empty: not known
};
// Called on the caller's thread. false cancels: the call fails with kCancelled, writing nothing.
using ProgressCallback = std::function<bool(const Progress&)>;

// An optimization profile: by input name the smallest sizes, those to optimize for, and the
// largest. An input that is missing in `opt` is optimized for `max`, or else `min`; one that is
// missing in `min` or `max` has those of `opt`. min == max fixes a size. "" is the only input.
struct Profile {
  std::map<std::string, Dims> min{}, opt{}, max{};
};

// How the range of a tensor is computed from the histogram of its values.
enum class RangeMethod {
  kMinMax,      // the smallest and largest value
  kEntropy,     // least divergence of the quantized from the original distribution
  kPercentile,  // contains `percentile` percent of the elements
  kMse,         // least mean squared error
  kAuto,        // for each tensor the method with the least measured error
};
constexpr std::string_view to_string(RangeMethod method) {
  constexpr std::string_view kNames[] = {"minmax", "entropy", "percentile", "mse", "auto"};
  return kNames[static_cast<size_t>(method)];
}

// Whether calibration applies a correction. kAuto: where it reduces the measured error.
enum class FitChoice { kOff, kOn, kAuto };

// How calibration finds ranges for int8 (docs/quantization.md).
struct CalibrationOptions {
  // build_engine() calibrates with these samples if int8 is allowed and precision.ranges is null.
  std::shared_ptr<const Dataset> samples = {};
  RangeMethod method = RangeMethod::kAuto;
  double percentile = 99.99;  // for RangeMethod::kPercentile: elements inside the range
  // Weight scales of least error, biases against mean errors of channels, cross-layer equalization.
  FitChoice fit_weights = FitChoice::kAuto, correct_bias = FitChoice::kAuto,
            equalize = FitChoice::kAuto;
};

// How tune() searches (docs/tuning.md).
struct TuneOptions {
  // The largest drop against f32, in the metric's unit; for sqnr and max-error the minimum score.
  double budget = 0.5;
  // Sizes of the calibration and the search set; other samples confirm the result. 0: 20 %, 30 %.
  int64_t calibrate_samples = 0, search_samples = 0;
  double seconds = 0;           // time limit of the search; 0: none
  bool modelled_times = false;  // modelled instead of measured latencies: same on every machine
  size_t most_groups = 40;      // maximum number of layer groups; further ones are merged
  // A file from which an interrupted call resumes, unless its `journal_key` differs. Empty: none.
  std::string journal = {}, journal_key = {};
};

// With a precision below f32, the build compares the plan with f32 and gives layers back to f32
// that overflow or cause most of a difference (docs/quantization.md, "The self-check").
struct SelfCheckOptions {
  bool run = true;
  // Limit of all comparing runs, in multiply-adds, so that a busy machine builds the same engine.
  double most_work = 4e10;  // 1 to 2 s of two AVX-512 cores
  // Inputs to compare with, each one tensor per input in the model's order. Empty: the first
  // samples of the calibration, else random numbers.
  std::vector<std::vector<Tensor>> samples = {};
};

struct BuildOptions {
  // One plan each: "cpu" (the instruction sets of this CPU), "cpu:avx2", "sm_90" (no GPU is
  // needed), "emulated". "reference": no passes, simple kernels. tune() takes one.
  std::vector<std::string> targets = {"cpu"};
  // Each has plans of its own, with shared weights (ContextOptions::profile). tune() takes one.
  std::vector<Profile> profiles = {};
  // Initializers, listed as inputs in the model, that become inputs with a default value
  // (TensorInfo::default_value); "*": all. The others become constants.
  std::set<std::string> default_inputs = {};
  // State that contexts keep from run to run ("State" in docs/deployment.md): the output that an
  // input has as its value in the next run. One "*" stands for any text, the same in both names.
  std::map<std::string, std::string> states = {};
  // The precisions of layers. tune() chooses from precision.types (empty, or `best`: those that are
  // faster on the target, and int8) and takes no precision.layers.
  PrecisionOptions precision = {};
  CalibrationOptions calibration = {};
  TuneOptions tuning = {};
  SelfCheckOptions self_check = {};
  bool exact = false;  // skip passes and kernels that may change the last bits of results
  bool tf32 = false;   // a GPU library may round the operands of f32 products to TF32; not if exact
  // Names of passes: those to skip ("all": each one), and, if not empty, the only ones that run.
  std::vector<std::string> skip_passes = {}, only_passes = {};
  std::vector<std::string> skip_kernels = {};  // names of kernels to exclude: "cpu.conv.winograd"
  // false: fail with kUnsupported, naming the layers, if some of a GPU target would run on the CPU.
  bool allow_fallback = true;
  // Limit in bytes for weights, inputs, outputs and activations of a run at the sizes to optimize
  // for; 0: none. A model that needs more fails with kLimit, naming the tensor or step.
  uint64_t max_memory = 0;
  // Whether measured times choose between the kernels that can run a layer, and their tactics.
  // timing_cache: a file of times to use and to extend; it need not exist. Empty: none.
  bool time_kernels = false;
  std::string timing_cache = {};
  // 0: no times, 1 to 5: 1, 2, 4, 8, all tactics of a kernel. time_seconds: 0: no limit.
  int optimization_level = 3;
  double time_seconds = 0;
  // Also stores the weights as this machine's CPU kernels pack them, so that loading maps them.
  bool pack_weights = false;
  // Text files that build_engine() writes: the optimized graph, and the graph after each pass that
  // changes it, as FOLDER/TARGETS/03-fold_constants.txt. Empty: none.
  std::string dump_graph = {}, dump_passes = {};
  // A file for the weights, which the engine then does not hold. Calls in memory do not write it.
  std::string weights_path = {};
  // Threads of one inference while timing and calibrating, and to read samples; 0: one per core.
  int threads = 0, data_threads = 0;
  ProgressCallback progress = {};
  std::vector<std::string> libraries = {};  // as in EngineOptions
  LogSink log = {};                         // each step of the build, and warnings
};

}  // namespace anneal
