#include "anneal/engine/builder/replay/gpu_choices.h"

#include <map>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

bool is_of_gpu(const Plan& plan, const Step& step) {
  return step.device + size_t{1} < plan.devices.size() &&
         find_kernel(cuda_backend(), step.kernel) != nullptr;
}

using StepsByName = std::map<std::string_view, std::vector<const Step*>>;  // the last is met last

void add_steps(const Plan& recorded, StepsByName& by_name) {
  for (const Step& step : recorded.steps)
    if (is_of_gpu(recorded, step)) by_name[step.name].push_back(&step);
  for (const Plan& body : recorded.bodies) add_steps(body, by_name);
}

void take_kernels(const StepsByName& by_name, std::map<std::string_view, size_t>& taken,
                  Plan& plan) {
  for (Step& step : plan.steps) {
    const auto found = by_name.find(step.name);
    if (found == by_name.end() || !is_of_gpu(plan, step)) continue;
    size_t& next = taken[step.name];
    if (next == found->second.size()) continue;
    const Step& same = *found->second[next++];
    const KernelEntry& entry = *find_kernel(cuda_backend(), same.kernel);
    if (entry.op != step.op.index()) continue;
    const bool has_choice = entry.tactics != nullptr || entry.source != KernelSource::kOwn;
    if (has_choice)
      step.tactic = same.tactic;
    else if (step.kernel != same.kernel)
      step.tactic.clear();
    step.kernel = same.kernel;
    step.runner_up = same.runner_up;
    step.runner_up_tactic = same.runner_up_tactic;
  }
  for (Plan& body : plan.bodies) take_kernels(by_name, taken, body);
}

}  // namespace

void take_gpu_choices(const Plan& recorded, Plan& plan) {
  StepsByName by_name;
  add_steps(recorded, by_name);
  std::map<std::string_view, size_t> taken;
  take_kernels(by_name, taken, plan);
  for (const Decision& decision : recorded.decisions)
    if (decision.stage == kTiming &&
        (decision.subject == recorded.name || by_name.contains(decision.subject))) {
      plan.decisions.push_back(decision);
      if (decision.subject == recorded.name) plan.decisions.back().subject = plan.name;
    }
}

}  // namespace anneal
