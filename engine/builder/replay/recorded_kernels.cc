#include "anneal/engine/builder/replay/recorded_kernels.h"

#include <fmt/format.h>

#include <utility>

#include "anneal/core/fail.h"
#include "anneal/kernels/unfilled_constants.h"

namespace anneal {

RecordedKernels::RecordedKernels(const Plan& plan) { add(plan); }

void RecordedKernels::add(const Plan& plan) {
  for (const Step& step : plan.steps) layers_[step.name].steps.push_back(&step);
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kTiming) layers_[decision.subject].timings.push_back(&decision);
  for (const Plan& body : plan.bodies) add(body);
}

std::optional<Decision> RecordedKernels::choose(const Backend& backend, const Request& request,
                                                const std::string& layer, KernelChoice& chosen) {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return std::nullopt;
  Layer& recorded = found->second;
  if (recorded.next_step < recorded.steps.size()) {
    const Step& step = *recorded.steps[recorded.next_step++];
    const KernelEntry* entry = find_kernel(backend, step.kernel);
    const bool is_other = chosen.entry == nullptr || chosen.entry->name != step.kernel;
    if (is_other && entry != nullptr && entry->op == request.op.index()) {
      // Kernels that were timed were asked so.
      UnfilledConstants unfilled;
      Request as_timed = request;
      as_timed.packed = &unfilled;
      as_timed.ignore_speed_heuristics = true;
      KernelResult made = entry->make(as_timed);
      if (!made)
        fail(ErrorCode::kUnsupported,
             fmt::format("layer \"{}\" runs on {} in the engine, which refuses it here: {}. Build "
                         "the engine anew",
                         layer, step.kernel, made.reason()));
      chosen.entry = entry;
      chosen.kernel = *std::move(made);
    }
  }
  if (recorded.next_timing == recorded.timings.size()) return std::nullopt;
  return *recorded.timings[recorded.next_timing++];
}

}  // namespace anneal
