// Graph -> engine file: optimize, choose kernels and layouts, place memory.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// Choosing between the CPU's kernels by their times on this machine.
struct KernelTiming {
  bool measure = false;    // the times that the cache does not have
  std::string cache = {};  // the file; empty: none
  int threads = 0;         // that the engine will run with; 0: one per core
};

// How a graph is built: BuildOptions, with options for the project's own code only.
struct GraphBuildOptions {
  std::vector<std::string> targets = {"cpu"};
  PassOptions passes;                          // exact: of kernels as well
  std::vector<std::string> skip_kernels = {};  // kernels not to choose, by name
  bool allow_fallback = true;  // false: fail with kUnsupported, naming each layer that would run on
                               // the CPU though the target is another device
  bool reference = false;  // no passes, and of each op the reference kernel: what to compare with
  // All passes, but of each op the reference kernel of the CPU: to tell kernels and passes apart.
  // REQUIRES: CPU targets.
  bool reference_kernels = false;
  uint64_t max_memory = 0;  // of BuildOptions
  KernelTiming timing;      // else the table's order chooses
  // After each pass, once for CPUs and once for GPUs if there are both; targets: "sm_80,sm_90".
  std::function<void(const PassEvent& event, std::string_view targets)> after_pass;
  std::function<void(std::string_view what)> progress = [](std::string_view) {};
  // The self-check found layers that go back to f32, and all passes run again.
  std::function<void()> before_rebuild = [] {};
};

// The same options for build(), without the progress.
GraphBuildOptions graph_options(const BuildOptions& options);

// Same graph, options and target: the same bytes, unless kernels are timed whose times the cache
// lacks. Fails with kUnsupported naming each layer that no kernel accepts and why, with
// kInvalidArgument on an unknown target, pass or kernel, more threads than there are, or a damaged
// cache.
EngineFile build(Graph graph, const GraphBuildOptions& options = {});

}  // namespace anneal
