// The reports of building and calibrating.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/optimizer/calibration_table.h"

namespace anneal {

// The result of calibrate().
struct Calibration {
  CalibrationTable table;             // for PrecisionOptions::ranges
  std::vector<std::string> warnings;  // tensors and channels that are always 0, one sentence each
};

// A decision about a layer or value, with its reason: "fuse_epilogue", "conv1", "joined relu1".
struct BuildDecision {
  std::string stage, subject, text;
};
// A layer of a plan: its name, its op ("Conv"), the kernel that runs it and where.
struct BuildStep {
  std::string name, op, kernel, device;
};
// One run of a pass. Passes run once for CPUs and once for GPUs; targets: "sm_80,sm_90".
struct BuildPass {
  std::string name, targets;
  bool is_exact = false, has_changed = false;
  uint64_t rewrites = 0;
  double milliseconds = 0;
  size_t layers = 0, profile = 0;  // of the graph after the pass; the index of the profile
};
// One plan of the engine.
struct BuildPlan {
  std::string target;
  size_t profile = 0;                    // its index in BuildOptions::profiles
  std::vector<BuildStep> steps;          // in execution order, without the steps of bodies
  std::vector<BuildDecision> decisions;  // what `anneal inspect --decisions` shows
  // For a GPU plan: layers that fall back to the CPU; steps on the GPU, steps on the CPU without
  // those of sizes and conditions, and steps that copy, all with those of bodies.
  std::vector<BuildDecision> fallbacks;
  size_t gpu_steps = 0, cpu_steps = 0, copy_steps = 0;
  // Bytes of activations by device, the CPU last; empty if a size is open until inputs are set.
  std::vector<uint64_t> arena_bytes;
  uint64_t code_bytes = 0;  // of a GPU's machine code
  // Bytes of activations, inputs and outputs at the sizes to optimize for; 0: not known.
  uint64_t run_bytes = 0;
};
// The findings of the self-check.
struct SelfCheckReport {
  bool is_compared = false;
  std::string outcome = {};  // inputs compared, or why none; empty: no check was requested
  std::string warning = {};  // the loss that remains beyond the precision, with its layer; or empty
  struct Layer {
    std::string name, why;
  };
  std::vector<Layer> back_to_f32 = {};  // layers or ONNX nodes
  double milliseconds = 0;              // part of BuildReport::build_milliseconds
};
struct BuildReport {
  std::vector<BuildPlan> plans;  // one for each profile and target, in their order
  std::vector<BuildPass> passes;
  size_t imported_layers = 0;
  uint64_t weight_bytes = 0, engine_bytes = 0;
  double import_milliseconds = 0, build_milliseconds = 0;
  SelfCheckReport self_check = {};
  std::vector<std::string> warnings;  // one sentence each
  // Of refit_engine(): tensors of weights, how many changed, and literals of programs that did.
  size_t weights = 0, changed_weights = 0, changed_literals = 0;
};

struct BuiltEngine {
  std::vector<std::byte> bytes;  // an engine file, for Engine::load()
  BuildReport report;
  std::vector<std::byte> weights = {};  // with BuildOptions::weights_path: the file of weights
};

}  // namespace anneal
