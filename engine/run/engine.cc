// Engine: choosing a plan for the device at hand and making its kernels.
#include "anneal/engine/run/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

constexpr std::string_view kCpu = "cpu";

// Whether a plan for `target` can run on `device`: it is for this kind of device and asks for no
// more than it has.
bool runs_on(const std::string& target, const Device& device) {
  if (target == device.target() || target == kCpu) return true;
  try {
    return cpu_backend().open(target) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

const Plan& choose_plan(const EngineFile& file, const Device& device) {
  const Plan* chosen = nullptr;
  std::string targets;
  for (const Plan& plan : file.plans) {
    targets += (targets.empty() ? "" : ", ") + plan.target;
    if (plan.target == device.target()) return plan;
    if (!chosen && runs_on(plan.target, device)) chosen = &plan;
  }
  if (!chosen)
    fail(Code::kIncompatiblePlan,
         fmt::format(
             "the engine holds plans for {}, none of which runs on this device ({}): build it "
             "for target {}",
             targets, device.description(), device.target()));
  return *chosen;
}

Port port_of(const Plan& plan, uint32_t index) {
  const Slot& slot = plan.slots[index];
  Port port{.name = slot.name, .dtype = slot.type.dtype};
  for (const Size size : slot.type.shape) {
    port.dims.push_back(size.known() ? size.value() : -1);
    port.dim_names.push_back(plan.sizes->text(size));
    const Bounds bounds = plan.sizes->range(size);
    port.min_dims.push_back(bounds.min);
    port.max_dims.push_back(bounds.max);
  }
  return port;
}

std::vector<Operand> operands_of(const EngineFile& file, const Plan& plan,
                                 const std::vector<uint32_t>& slots) {
  std::vector<Operand> operands;
  operands.reserve(slots.size());
  for (const uint32_t index : slots) {
    if (index == kNoSlot) {
      operands.push_back({.present = false});
      continue;
    }
    const Slot& slot = plan.slots[index];
    operands.push_back(
        {.type = slot.type,
         .strides = slot.strides,
         .constant = slot.storage == Storage::kWeight ? &file.weights[slot.offset] : nullptr});
  }
  return operands;
}

// The planned kernel, or the next best one that takes the same views.
std::unique_ptr<Kernel> make_kernel(const EngineFile& file, const Plan& plan, const Step& step,
                                    Device& device, std::vector<std::string>& remarks) {
  const auto inputs = operands_of(file, plan, step.inputs);
  const auto outputs = operands_of(file, plan, step.outputs);
  Request request{.op = step.op,
                  .epilogues = step.epilogues,
                  .op_input_count = static_cast<int>(step.op_input_count),
                  .inputs = inputs,
                  .outputs = outputs,
                  .sizes = *plan.sizes,
                  .device = device,
                  .tactic = step.tactic};
  std::string why = "this library has no such kernel";
  const KernelEntry* entry = find_kernel(cpu_backend(), step.kernel);
  if (entry && entry->op == step.op.index()) {
    Made made = entry->make(request);
    if (made.kernel) return std::move(made.kernel);
    why = made.why_not;
  }
  request.tactic = {};
  Chosen chosen = choose_kernel(cpu_backend(), request);
  if (!chosen.kernel)
    fail(Code::kIncompatiblePlan,
         fmt::format("no kernel runs step \"{}\" ({}): {}", step.name, name(step.op), why));
  remarks.push_back(fmt::format("step \"{}\" runs on {} instead of {}: {}", step.name,
                                chosen.entry->name, step.kernel, why));
  return std::move(chosen.kernel);
}

// Ascending.
std::vector<uint32_t> symbols_used(const Plan& plan) {
  std::vector<bool> seen(plan.sizes->expression_count()), used(plan.sizes->symbols().size());
  const auto add = [&](Size size) {
    if (size.known() || size.is_unknown() || seen[size.expression()]) return;
    seen[size.expression()] = true;
    for (const uint32_t symbol : plan.sizes->symbols_in(size)) used[symbol] = true;
  };
  for (const Slot& slot : plan.slots) {
    for (const Size size : slot.type.shape) add(size);
    for (const Size stride : slot.strides) add(stride);
    add(slot.base_offset);
  }
  for (const Step& step : plan.steps)
    if (const auto* tensor = std::get_if<SizeTensor>(&step.op))
      for (const Size size : tensor->elements) add(size);
  for (const Plan& body : plan.bodies)
    for (const uint32_t symbol : symbols_used(body)) used[symbol] = true;
  std::vector<uint32_t> symbols;
  for (uint32_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol]) symbols.push_back(symbol);
  return symbols;
}

LoadedPlan load_plan(const EngineFile& file, const Plan& plan, Device& device,
                     std::vector<std::string>& remarks) {
  LoadedPlan loaded;
  loaded.plan = &plan;
  loaded.kernels.reserve(plan.steps.size());
  for (const Step& step : plan.steps) {
    const auto late = [&](uint32_t slot) {
      return slot != kNoSlot && plan.slots[slot].storage == Storage::kLate;
    };
    loaded.deferred.push_back(std::any_of(step.inputs.begin(), step.inputs.end(), late) ||
                              std::any_of(step.outputs.begin(), step.outputs.end(), late));
    const bool no_kernel = !bodies_of(step.op).empty() ||
                           (std::holds_alternative<SizeTensor>(step.op) && step.epilogues.empty());
    loaded.kernels.push_back(no_kernel ? nullptr : make_kernel(file, plan, step, device, remarks));
  }
  for (const Plan& body : plan.bodies) {
    loaded.bodies.push_back(load_plan(file, body, device, remarks));
    loaded.bodies.back().outer_symbols = symbols_used(body);
  }
  return loaded;
}

}  // namespace

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

std::shared_ptr<const Engine> Engine::load(const std::string& path, const EngineOptions& options) {
  EngineFile file = read_engine_file(path, {.map = options.map});
  return with_context([&] { return fmt::format("while loading engine {}", path); },
                      [&] { return make(std::move(file), options); });
}

std::shared_ptr<const Engine> Engine::make(EngineFile file, const EngineOptions& options) {
  auto state = std::make_unique<State>();
  state->file = std::move(file);
  state->device = cpu_backend().open(options.device);
  const Plan& plan = choose_plan(state->file, *state->device);
  state->plan = load_plan(state->file, plan, *state->device, state->remarks);
  for (const uint32_t input : plan.inputs) state->inputs.push_back(port_of(plan, input));
  for (const uint32_t output : plan.outputs) state->outputs.push_back(port_of(plan, output));
  return std::shared_ptr<const Engine>(new Engine(std::move(state)));
}

std::span<const Port> Engine::inputs() const { return state_->inputs; }
std::span<const Port> Engine::outputs() const { return state_->outputs; }
const Plan& Engine::plan() const { return *state_->plan.plan; }
std::span<const std::string> Engine::remarks() const { return state_->remarks; }

}  // namespace anneal
