#include "anneal/engine/builder/timing/plan_code.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {

namespace {

using Kernels = std::vector<std::unique_ptr<Kernel>>;  // their functions are the device's code

// Those of the plan and its bodies.
void make_kernels(const EngineFile& file, Plan& plan, Device& device, bool is_exact,
                  Kernels& kernels) {
  for (Plan& body : plan.bodies) make_kernels(file, body, device, is_exact, kernels);
  for (Step& step : plan.steps) {
    const KernelEntry* const entry = find_kernel(cuda_backend(), step.kernel);
    if (step.device != 0 || entry == nullptr) continue;
    if (entry->op != step.op.index())
      fail(ErrorCode::kIncompatiblePlan,
           fmt::format("step \"{}\" names the kernel {}, which runs no {}", step.name, step.kernel,
                       to_string(step.op)));
    const StepOperands operands = operands_of(file, plan, step);
    KernelResult made = entry->make(request_of(plan, step, operands, device));
    if (made) {
      const std::string why = know_alignments(**made, alignments_of(plan, step.inputs),
                                              alignments_of(plan, step.outputs));
      if (!why.empty()) made = refuse(why);
    }
    if (!made && !step.runner_up.empty()) {
      // The library is not here: the step keeps its kernel, and the file has the runner-up's code.
      KernelChoice runner_up = other_kernel(file, plan, step, device, is_exact);
      if (runner_up.kernel) kernels.push_back(std::move(runner_up.kernel));
      continue;
    }
    if (!made)
      fail(ErrorCode::kUnsupported,
           fmt::format("layer \"{}\" runs on {} in the engine, which refuses it here: {}. Build "
                       "the engine anew",
                       step.name, step.kernel, made.reason()));
    kernels.push_back(*std::move(made));
    step.tactic = kernels.back()->tactic();
  }
}

void make_fallbacks(const EngineFile& file, const Plan& plan, Device& device, bool is_exact,
                    Kernels& kernels) {
  for (const Plan& body : plan.bodies) make_fallbacks(file, body, device, is_exact, kernels);
  for (const Step& step : plan.steps) {
    if (step.device + size_t{1} == plan.devices.size() || step.tactic.empty()) continue;
    KernelChoice other = other_kernel(file, plan, step, device, is_exact);
    if (other.kernel) kernels.push_back(std::move(other.kernel));
  }
}

}  // namespace

std::vector<std::byte> code_of_steps(const EngineFile& file, Plan& plan, Device& device,
                                     std::span<const std::byte> recorded) {
  Kernels kernels;
  make_kernels(file, plan, device, plan.is_exact, kernels);
  return kernels.empty() ? std::vector<std::byte>() : device.prepare_code(recorded);
}

std::vector<std::byte> with_fallback_code(const EngineFile& file, const Plan& plan, Device& device,
                                          std::span<const std::byte> recorded) {
  if (plan.code.empty()) return {};
  Kernels kernels;
  make_fallbacks(file, plan, device, plan.is_exact, kernels);
  return kernels.empty() ? plan.code : joined_code(plan.code, device.prepare_code(recorded));
}

}  // namespace anneal
