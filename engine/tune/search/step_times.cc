#include "anneal/engine/tune/search/step_times.h"
#include "anneal/engine/run/make_engine.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/milliseconds.h"
#include "anneal/engine/symbols.h"
#include "anneal/engine/tune/samples/batches.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/cost_model.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProfiles = 15, kFewestRounds = 5;
constexpr double kRoundSeconds = 0.04;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void feed(const Engine& engine, ExecutionContext& context,
          const std::vector<SampleTensor>& inputs) {
  for (const TensorInfo& port : engine.inputs())
    for (const SampleTensor& each : inputs)
      if (each.input == port.name) context.set_input(each.input, each.tensor.view());
}

// The bytes that a step reads and writes, and its operations.
struct StepWork {
  double bytes, multiplications;
  DataType operands;  // of the multiplications
};

double seconds_on_gpu(const cuda::DeviceSpec& spec, const StepWork& work) {
  const size_t size = size_of(work.operands);
  const double flops = 2 * work.multiplications;
  // Tensor cores multiply bytes twice as fast.
  return cuda::floor_of(spec, {.bytes = work.bytes,
                               .f32_flops = size > 2 ? flops : 0,
                               .f16_tensor_flops = size > 2    ? 0
                                                   : size == 2 ? flops
                                                               : flops / 2,
                               .blocks = spec.multiprocessors})
      .seconds;
}

// One core of a server with AVX-512, VNNI and BF16, at 3 GHz and three quarters of its peak.
double seconds_on_cpu(const StepWork& work) {
  constexpr double kBytes = 2e10, kLaunchSeconds = 3e-7;
  const size_t size = size_of(work.operands);
  const double rate = size == 1 ? 2.8e11 : size == 2 ? 1.4e11 : 7e10;
  return std::max(work.bytes / kBytes, work.multiplications / rate) + kLaunchSeconds;
}

// Null: the target is a CPU, or the emulated device.
const cuda::DeviceSpec* spec_of_target(const std::string& target) {
  if (!target.starts_with("sm_")) return nullptr;
  int architecture = 0;
  std::from_chars(target.data() + 3, target.data() + target.size(), architecture);
  const cuda::DeviceSpec* const spec = cuda::find_spec(architecture);
  check(spec != nullptr, "plans are built for known architectures");
  return spec;
}

class ModelledTimes {
 public:
  explicit ModelledTimes(const Plan& plan)
      : plan_(plan), spec_(spec_of_target(plan.devices.front())) {
    for (const SizeSymbol& symbol : plan.sizes->symbols()) best_.emplace_back(symbol.bounds.opt);
  }

  double milliseconds(const Step& step) const {
    double bytes = 0;
    for (const uint32_t slot : step.inputs) bytes += bytes_of(slot);
    for (const uint32_t slot : step.outputs) bytes += bytes_of(slot);
    const StepWork work{bytes, multiplications(step), operands_of(step)};
    return 1e3 * (spec_ != nullptr ? seconds_on_gpu(*spec_, work) : seconds_on_cpu(work));
  }

 private:
  double elements(uint32_t slot) const {
    if (slot == kNoSlot) return 0;
    double count = 1;
    for (const Size size : plan_.slots[slot].type.shape)
      count *= static_cast<double>(std::max<int64_t>(plan_.sizes->evaluate(size, best_), 0));
    return count;
  }
  double bytes_of(uint32_t slot) const {
    return slot == kNoSlot
               ? 0
               : elements(slot) * static_cast<double>(size_of(plan_.slots[slot].type.dtype));
  }

  double multiplications(const Step& step) const {
    if (std::holds_alternative<Attention>(step.op))
      return 2 * elements(step.inputs[0]) * elements(step.inputs[1]) /
             std::max(1.0, last_size(step.inputs[1]));
    if (step.inputs.size() < 2 || step.outputs.empty()) return 0;
    const double results = elements(step.outputs[0]), weights = elements(step.inputs[1]);
    if (const auto* product = std::get_if<MatMul>(&step.op))
      return results * size_at(step.inputs[0], product->transpose_a ? -2 : -1);
    if (std::holds_alternative<Conv>(step.op))
      return results * weights / std::max(1.0, size_at(step.inputs[1], 0));
    if (std::holds_alternative<ConvTranspose>(step.op))
      return elements(step.inputs[0]) * weights / std::max(1.0, size_at(step.inputs[1], 0));
    return 0;
  }
  DataType operands_of(const Step& step) const {
    return step.inputs.empty() ? DataType::kF32 : plan_.slots[step.inputs[0]].type.dtype;
  }
  double last_size(uint32_t slot) const { return size_at(slot, -1); }
  double size_at(uint32_t slot, int axis) const {
    const Shape& shape = plan_.slots[slot].type.shape;
    if (axis < 0) axis += shape.rank();
    return axis < 0 ? 1 : static_cast<double>(plan_.sizes->evaluate(shape[axis], best_));
  }

  const Plan& plan_;
  const cuda::DeviceSpec* const spec_;
  std::vector<std::optional<int64_t>> best_;
};

}  // namespace

bool can_be_timed(const std::string& target) {
  if (target == "emulated") return false;
  try {
    if (is_cuda_target(target)) return cuda_backend().open("cuda:0")->target() == target;
    cpu_backend().open(target);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<double> modelled_step_times(const Plan& plan) {
  const ModelledTimes model(plan);
  std::vector<double> times;
  for (const Step& step : plan.steps) times.push_back(model.milliseconds(step));
  return times;
}

std::vector<double> measured_step_times(const std::shared_ptr<const Engine>& engine,
                                        const std::vector<SampleTensor>& inputs, int threads) {
  const Plan& plan = plan_of(*engine);
  const int64_t batch = batch_size(*engine, inputs, 0);
  const auto fed_inputs = fed(*engine, inputs, 1, batch);
  ExecutionContext context(engine, {.threads = threads});
  feed(*engine, context, fed_inputs);
  for (int i = 0; i < 3; ++i) context.run();
  std::vector<std::vector<double>> found(plan.steps.size());
  for (int i = 0; i < kProfiles; ++i) {
    const std::vector<StepTime> times = context.profile();
    // Steps of the plan come in order, each followed by those of its bodies.
    size_t at = 0;
    for (size_t step = 0; step < plan.steps.size(); ++step) {
      double sum = 0;
      if (at < times.size()) sum = times[at++].microseconds;
      while (at < times.size() &&
             (step + 1 == plan.steps.size() || times[at].step != plan.steps[step + 1].name))
        sum += times[at++].microseconds;
      found[step].push_back(sum / 1e3);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& each : found) medians.push_back(median_of(std::move(each)));
  return medians;
}

std::vector<TimedEngine> timed_in_turn(std::span<const std::shared_ptr<const Engine>> engines,
                                       const std::vector<SampleTensor>& inputs, int threads,
                                       double seconds) {
  std::vector<ExecutionContext> contexts;
  std::vector<std::vector<SampleTensor>> kept;
  for (const auto& engine : engines) {
    contexts.emplace_back(engine, ContextOptions{.threads = threads});
    kept.push_back(fed(*engine, inputs, 1, batch_size(*engine, inputs, 0)));
    feed(*engine, contexts.back(), kept.back());
    contexts.back().run();
  }
  std::vector<std::vector<double>> all(engines.size()), of_rounds(engines.size());
  const int rounds = std::max(kFewestRounds, static_cast<int>(seconds / kRoundSeconds));
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < engines.size(); ++i) {
      contexts[i].run();  // back into the caches
      std::vector<double> times;
      const auto start = Clock::now();
      do {
        const auto begin = Clock::now();
        contexts[i].run();
        times.push_back(milliseconds_since(begin));
      } while (milliseconds_since(start) < 1e3 * kRoundSeconds);
      all[i].insert(all[i].end(), times.begin(), times.end());
      of_rounds[i].push_back(median_of(std::move(times)));
    }
  std::vector<TimedEngine> timed;
  for (size_t i = 0; i < engines.size(); ++i) {
    std::ranges::sort(all[i]);
    timed.push_back({.milliseconds = median_of(of_rounds[i]),
                     .milliseconds_p99 = all[i][(all[i].size() - 1) * 99 / 100],
                     .memory_bytes = contexts[i].memory_bytes()});
  }
  return timed;
}

std::vector<size_t> groups_of_steps(const Plan& plan, std::span<const PrecisionGroup> groups) {
  std::map<std::string_view, size_t> by_layer;
  for (size_t i = 0; i < groups.size(); ++i)
    for (const std::string& layer : groups[i].layers) by_layer[layer] = i;
  const size_t none = groups.size();
  std::vector<size_t> of_step(plan.steps.size(), none);
  std::map<uint32_t, size_t> of_slot;
  const auto group_of = [&](const Step& step) {
    const auto find = [&](const std::string& name) {
      const auto found = by_layer.find(name);
      return found == by_layer.end() ? none : found->second;
    };
    if (const size_t group = find(step.name); group != none) return group;
    for (const std::string& origin : step.origins)
      if (const size_t group = find(origin); group != none) return group;
    for (const uint32_t slot : step.inputs)
      if (const auto found = of_slot.find(slot); found != of_slot.end() && found->second != none)
        return found->second;
    return none;
  };
  const auto base = [&](uint32_t slot) {
    return slot != kNoSlot && plan.slots[slot].base != kNoSlot ? plan.slots[slot].base : slot;
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    of_step[i] = group_of(plan.steps[i]);
    for (const uint32_t slot : plan.steps[i].outputs) {
      of_slot[slot] = of_step[i];
      of_slot[base(slot)] = of_step[i];
    }
    // Views are read by slots of their own.
    for (uint32_t slot = 0; slot < plan.slots.size(); ++slot)
      if (plan.slots[slot].base != kNoSlot && of_slot.contains(plan.slots[slot].base))
        of_slot.try_emplace(slot, of_slot[plan.slots[slot].base]);
  }
  // A layer before all products, like the cast of an input, belongs to the first group.
  size_t next = none;
  for (size_t i = of_step.size(); i-- > 0;) {
    if (of_step[i] == none) of_step[i] = next;
    next = of_step[i];
  }
  return of_step;
}

}  // namespace anneal
