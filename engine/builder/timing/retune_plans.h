// Other kernels for the plans of an engine, by times on this machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/timing/kernel_timing.h"
#include "anneal/engine/builder/timing/timing_cache.h"
#include "anneal/engine/plan.h"

namespace anneal {

struct RetuneOptions {
  KernelTiming timing = {.measure = true};
  std::vector<std::string> skip_kernels = {};
  std::function<void(std::string_view what)> progress = [](std::string_view) {};
};
struct RetunedPlan {
  std::string target;
  uint32_t profile = 0;
  size_t steps = 0, changed = 0;  // with kernels; that have another kernel or tactic now
  std::string why_not = {};       // not empty: the plan is unchanged, and why
};

// Chooses the kernels of all plans again whose devices are here; operands, their strides and memory
// stay. measured: gets the times that the cache did not have. Packed constants belong to kernels:
// the caller packs them again. Fails with kInvalidArgument on a damaged cache.
std::vector<RetunedPlan> retune_plans(EngineFile& file, const RetuneOptions& options,
                                      TimingCache& measured);

}  // namespace anneal
