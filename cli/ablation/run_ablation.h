// Builds and measures a model with each family of optimizations added.
#pragma once
#include <functional>
#include <string_view>

#include "anneal/cli/ablation/ablation.h"
#include "anneal/cli/ablation/ablation_options.h"

namespace anneal {

// Fails with kInvalidArgument on an engine, a pipe and several profiles; else as building, loading
// and running do. REQUIRES: this process has one thread
Ablation run_ablation(const AblationOptions& options,
                      const std::function<void(std::string_view)>& progress);

}  // namespace anneal
