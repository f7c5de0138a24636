// A build of lower precision that compares itself with f32 before it is written, and takes back
// what loses too much. docs/quantization.md, "The self-check", has the rules.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/builder/builder.h"

namespace anneal {

// Of SelfCheckOptions::samples the first are compared.
inline constexpr size_t kMostCheckedSamples = 4;

struct CheckedBuild {
  EngineFile file;
  SelfCheckReport check;
  PrecisionOptions precision;  // of the file: with the layers that went back to f32
};

// build(), and then the check if a precision below f32 was asked for. The report and the plans'
// decisions, under kSelfCheck, record the findings. A check that cannot run is no error. Fails as
// build() does.
CheckedBuild build_checked(Graph graph, const GraphBuildOptions& options,
                           const SelfCheckOptions& check);

inline constexpr std::string_view kSelfCheck = "self_check";

}  // namespace anneal
