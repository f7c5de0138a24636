// A build of lower precision that compares itself with f32 before it is written, and takes back
// what loses too much. docs/quantization.md, "The self-check", has the rules.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "anneal/engine/builder/builder.h"

namespace anneal {

struct SelfCheckOptions {
  bool run = true;
  // Multiply-adds of all the runs that compare; what would need more is left out. Not a time, so
  // that the same model gives the same engine on a busy machine.
  double most_work = kSelfCheckWork;
  // Inputs to compare with, each one tensor per input of the model; of these the first
  // kMostCheckedSamples. Empty: drawn ones.
  std::vector<std::vector<Tensor>> samples = {};
  std::function<void()> before_rebuild = [] {};  // all passes run again
};
inline constexpr size_t kMostCheckedSamples = 4;
SelfCheckOptions self_check_options(const BuildOptions& options);

struct CheckedBuild {
  EngineFile file;
  SelfCheckReport check;
};

// build(), and then the check if a precision below f32 was asked for. The report and the plans'
// decisions, under kSelfCheck, record the findings. A check that cannot run is no error. Fails as
// build() does.
CheckedBuild build_checked(Graph graph, const GraphBuildOptions& options,
                           const SelfCheckOptions& check);

inline constexpr std::string_view kSelfCheck = "self_check";

}  // namespace anneal
