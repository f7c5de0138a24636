// From an ONNX model to an engine in one call:
//
//   anneal::BuildOptions options;
//   options.precision.f16 = true;
//   const anneal::BuildReport report = anneal::build_engine("m.onnx", "m.engine", options);
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/input_bounds.h"
#include "anneal/core/tensor.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// Choosing between the CPU's kernels by their times on this machine, where several can run a layer.
struct KernelTiming {
  bool measure = false;  // the times that the cache does not have
  // A file of times to use, and to add to what is measured; it need not exist. Empty: none.
  std::string cache = {};
  int threads = 0;  // that the engine will run with; 0: one per core
};

// Multiply-adds that a self-check may take; a second or two on two cores with AVX-512.
inline constexpr double kSelfCheckWork = 4e10;

// How a model is built. Building, calibrating and tuning take the same options.
struct BuildOptions {
  // One plan each: "cpu" (what this CPU has), "cpu:avx2", "sm_90" (no card is needed), "emulated".
  std::vector<std::string> targets = {"cpu"};
  InputBoundsByName input_bounds = {};  // of inputs of unknown size
  // Initializers that the model lists as inputs, too, and that become inputs with a default value
  // (TensorInfo::default_value); "*": all. Others are constants.
  std::set<std::string> default_inputs = {};
  // int8 needs ranges: calibrate_onnx() in engine/tune/calibration/onnx_calibration.h makes them.
  PrecisionOptions precision = {};
  bool exact = false;  // leave out the passes and kernels that may change the last bits of results
  // Passes by name, as `anneal passes` lists them: not to run ("all": no pass runs); if not empty,
  // the only ones to run.
  std::vector<std::string> skip_passes = {}, only_passes = {};
  std::vector<std::string> skip_kernels = {};  // kernels not to choose: "cpu.conv.winograd"
  // false: fail with kUnsupported, naming each layer that would run on the CPU though the target is
  // a GPU.
  bool allow_fallback = true;
  // The most bytes that weights, inputs, outputs and activations may take together in a run at the
  // sizes to optimize for; 0: no limit. A model that needs more is refused with kInvalidArgument,
  // naming the tensor or step, before memory is allocated for it.
  uint64_t max_memory = 0;
  KernelTiming timing = {};
  // With a precision below f32: compares the plan with f32 before the engine is written, and gives
  // layers back to f32 that overflow or that most of a difference comes from (docs/quantization.md,
  // "The self-check"). The work is in multiply-adds; sizes that would need more are left out.
  bool self_check = true;
  double self_check_work = kSelfCheckWork;
  // What to compare with, each a tensor per input in the model's order; empty: drawn inputs.
  std::vector<std::vector<Tensor>> self_check_samples = {};
  // Called with what the build does next ("fuse_epilogue"), on the caller's thread. false cancels
  // the build, which then fails with kCancelled and writes nothing.
  std::function<bool(std::string_view what)> progress = {};
};

// What became of a layer or value, and why: "fuse_epilogue", "conv1", "joined relu1".
struct BuildDecision {
  std::string stage, subject, text;
};
// A layer of a plan: its name, its op ("Conv"), the kernel that runs it and where.
struct BuildStep {
  std::string name, op, kernel, device;
};
// One plan of the engine.
struct BuildPlan {
  std::string target;
  std::vector<BuildStep> steps;          // in the order in which they run, without bodies' steps
  std::vector<BuildDecision> decisions;  // what `anneal inspect --decisions` shows
  // Bytes of activations by device, the CPU last; empty if a size is open until inputs are set.
  std::vector<uint64_t> arena_bytes;
  uint64_t code_bytes = 0;  // of a GPU's machine code
};
// What the self-check found.
struct SelfCheckReport {
  bool is_compared = false;
  std::string outcome = {};  // inputs compared, or why none; empty: no check was requested
  // What the result still loses beyond its precision, and in which layer; empty: nothing.
  std::string warning = {};
  struct Layer {
    std::string name, why;
  };
  std::vector<Layer> back_to_f32 = {};  // layers or ONNX nodes
  double milliseconds = 0;              // part of BuildReport::build_milliseconds
};
struct BuildReport {
  std::vector<BuildPlan> plans;  // one for each target, in their order
  uint64_t weight_bytes = 0, engine_bytes = 0;
  double import_milliseconds = 0, build_milliseconds = 0;
  SelfCheckReport self_check = {};
};

// Writes the engine file, whole or not at all. Same model, options and targets: the same bytes,
// unless kernels are timed whose times the cache lacks. Fails with Error: kIo, kInvalidModel,
// kUnsupported (naming everything the model needs and Anneal lacks), kInvalidArgument, kCancelled.
// Safe to call from several threads.
BuildReport build_engine(const std::string& onnx_path, const std::string& engine_path,
                         const BuildOptions& options = {});

// The same from an ONNX model in memory to an engine file in memory, for Engine::load(). A model
// with external data is refused with kInvalidModel.
std::vector<std::byte> build_engine(std::span<const std::byte> onnx_model,
                                    const BuildOptions& options = {},
                                    BuildReport* report = nullptr);

}  // namespace anneal
