#include "anneal/engine/builder/timing/retune_plans.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/timing/gpu_bench.h"
#include "anneal/engine/builder/timing/gpu_tuner.h"
#include "anneal/engine/builder/timing/kernel_timer.h"
#include "anneal/engine/builder/timing/plan_code.h"
#include "anneal/engine/builder/timing/timed_step.h"
#include "anneal/engine/builder/timing/timing_card.h"
#include "anneal/engine/plan_check.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/unfilled_constants.h"

namespace anneal {
namespace {

class Retuner {
 public:
  Retuner(EngineFile& file, const RetuneOptions& options)
      : file_(file),
        options_(options),
        known_(options.timing.cache.empty() ? TimingCache()
                                            : read_timing_cache(options.timing.cache)) {}

  RetunedPlan retune(Plan& plan) {
    RetunedPlan result{.target = plan.target, .profile = plan.profile};
    const Plan before = plan;
    try {
      kernels_ = {.exact = plan.is_exact, .skip = options_.skip_kernels};
      if (plan.devices.size() > 1) result.changed += retune_gpu(plan);
      const auto cpu = cpu_backend().open(plan.devices.back());
      KernelTimer timer(known_, {options_.timing.measure, timing_threads(options_.timing), kernels_,
                                 seconds_left()});
      result.changed += retune_cpu(plan, *cpu, timer);
      merge(timer.measured(), measured_);
      merge(timer.measured(), known_);
      result.steps = steps_with_kernels(plan);
      check_plan(plan, file_.weights);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice && error.code() != ErrorCode::kUnsupported) throw;
      plan = before;
      result.why_not = error.what();
      result.changed = 0;
    }
    return result;
  }

  const TimingCache& measured() const { return measured_; }

 private:
  static const KernelEntry* kernel_of(const Step& step) {
    const KernelEntry* const entry = find_kernel(cuda_backend(), step.kernel);
    return entry != nullptr ? entry : find_kernel(cpu_backend(), step.kernel);
  }
  // Those of bodies included.
  static size_t steps_with_kernels(const Plan& plan) {
    auto count = static_cast<size_t>(std::ranges::count_if(
        plan.steps, [](const Step& step) { return kernel_of(step) != nullptr; }));
    for (const Plan& body : plan.bodies) count += steps_with_kernels(body);
    return count;
  }
  // 0: no limit
  double seconds_left() const {
    if (options_.timing.seconds <= 0) return 0;
    return std::max(options_.timing.seconds - machine_.seconds(), 1e-9);
  }
  static void drop_decisions(Plan& plan, const std::string& subject) {
    std::erase_if(plan.decisions, [&](const Decision& each) {
      return each.stage == kTiming && each.subject == subject;
    });
  }

  size_t retune_gpu(Plan& plan) {
    auto device = cuda_backend().open(plan.target);
    const TimingCard card = open_timing_card(plan.target, *device);
    if (card.device == nullptr && options_.timing.measure) fail(ErrorCode::kDevice, card.why_not);
    if (card.device != nullptr) device = cuda_backend().open("cuda");
    drop_decisions(plan, plan.name);
    GpuTuner tuner(known_,
                   {options_.timing.measure, options_.timing.level, options_.timing.seconds,
                    kernels_, options_.progress},
                   machine_);
    const size_t changed =
        tuner.tune(file_, plan, {cuda_backend(), *device, card.device.get(), card.why_not});
    merge(tuner.measured(), measured_);
    merge(tuner.measured(), known_);
    if (changed == 0) return 0;
    const std::vector<std::byte> recorded = std::move(plan.code);
    plan.code = code_of_steps(file_, plan, *device, recorded);
    plan.code = with_fallback_code(file_, plan, *device, recorded);
    return changed;
  }

  // Steps on the CPU, with those of bodies.
  size_t retune_cpu(Plan& plan, Device& device, KernelTimer& timer) {
    size_t changed = 0;
    for (Step& step : plan.steps) {
      const KernelEntry* const entry = find_kernel(cpu_backend(), step.kernel);
      if (step.device + size_t{1} != plan.devices.size() || entry == nullptr ||
          entry->op != step.op.index() || !can_be_timed(plan, step))
        continue;
      const TimedStep timed(file_, plan, step);
      Request request = timed.request(device);
      UnfilledConstants unfilled;
      request.ignore_speed_heuristics = false;
      request.packed = &unfilled;
      KernelChoice chosen = choose_kernel(cpu_backend(), request, kernels_);
      if (chosen.entry == nullptr) continue;
      options_.progress(step.name);
      auto decision = timer.choose(cpu_backend(), request, step.name, chosen);
      if (!timer.has_chosen_by_times()) continue;
      drop_decisions(plan, step.name);
      if (decision) plan.decisions.push_back(*std::move(decision));
      if (step.kernel == chosen.entry->name) continue;
      step.kernel = chosen.entry->name;
      step.tactic = chosen.kernel->tactic();
      ++changed;
    }
    for (Plan& body : plan.bodies) changed += retune_cpu(body, device, timer);
    return changed;
  }

  EngineFile& file_;
  const RetuneOptions& options_;
  TimingCache known_, measured_;
  KernelOptions kernels_;
  GpuTimingMachine machine_;
};

}  // namespace

std::vector<RetunedPlan> retune_plans(EngineFile& file, const RetuneOptions& options,
                                      TimingCache& measured) {
  Retuner retuner(file, options);
  std::vector<RetunedPlan> results;
  for (Plan& plan : file.plans) {
    try {
      results.push_back(retuner.retune(plan));
    } catch (...) {
      merge(retuner.measured(), measured);  // of the plans before
      throw;
    }
  }
  merge(retuner.measured(), measured);
  return results;
}

}  // namespace anneal
