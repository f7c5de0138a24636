// Graph -> engine file: optimize, choose kernels and layouts, place memory.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/timing/kernel_timing.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// Optimizations of the builder itself that a build leaves out, to measure what each gains.
struct BuilderParts {
  // The order of the kernels' table: each layer gets the most general fast kernel that accepts it.
  bool kernel_choice = false;
  // Channels-last values between layers whose kernels prefer it: all are row-major, and such
  // kernels convert them, or have copies before and behind them.
  bool layouts = false;
  // Operands that are written into the result of a Concat, and slices that are views: all copy.
  bool placement = false;

  bool operator==(const BuilderParts&) const = default;
};

// How a graph is built: BuildOptions, with options for the project's own code only.
struct GraphBuildOptions {
  std::vector<std::string> targets = {"cpu"};
  PassOptions passes;                          // exact: of kernels as well
  std::vector<std::string> skip_kernels = {};  // kernels not to choose, by name
  bool tf32 = false;                           // of BuildOptions
  bool allow_fallback = true;  // false: fail with kUnsupported, naming each layer that would run on
                               // the CPU though the target is another device
  // No passes, and of each op the reference kernel: what to compare with. The target "reference".
  bool reference = false;
  // All passes, but of each op the reference kernel of the CPU: to tell kernels and passes apart.
  // REQUIRES: CPU targets.
  bool reference_kernels = false;
  BuilderParts without = {};                       // what the builder leaves out
  uint64_t max_memory = 0;                         // of BuildOptions
  std::map<std::string, std::string> states = {};  // of BuildOptions
  bool weights_apart = false;  // other weights may take their place: EngineFile::weights_apart
  KernelTiming timing;         // else the table's order chooses
  // Plans of an engine, by target: their kernels are chosen again in place of timing, and compiled
  // code that fits is kept. REQUIRES: none, or one for each target; they outlive the call.
  std::span<const Plan> recorded = {};
  // After each pass, once for CPUs and once for GPUs if there are both; targets: "sm_80,sm_90".
  std::function<void(const PassEvent& event, std::string_view targets)> after_pass;
  std::function<void(std::string_view what)> progress = [](std::string_view) {};
  // The self-check found layers that go back to f32, and all passes run again.
  std::function<void()> before_rebuild = [] {};
};

// The same options for build(), without the progress.
GraphBuildOptions graph_options(const BuildOptions& options);

// The kernels that a build does not choose: those to skip, and those of TF32 (their names end in
// ".tf32") unless they are asked for. Fails with kInvalidArgument on an unknown name.
struct KernelOptions;  // kernels/kernel.h
KernelOptions kernel_options(const GraphBuildOptions& options);

// Same graph, options and target: the same bytes, unless kernels are timed whose times the cache
// lacks. Fails with kUnsupported naming each layer that no kernel accepts and why, with
// kInvalidArgument on an unknown target, pass or kernel, more threads than there are, or a damaged
// cache.
EngineFile build(Graph graph, const GraphBuildOptions& options = {});

}  // namespace anneal
