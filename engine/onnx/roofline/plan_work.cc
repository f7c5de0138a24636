#include "anneal/engine/onnx/roofline/plan_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/builder/work/body_runs.h"
#include "anneal/engine/builder/work/step_operations.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

StepRole role_of(const Op& op) {
  const OpTraits& traits = traits_of(op);
  if (traits.half == HalfRole::kProduct || std::holds_alternative<Recurrent>(op) ||
      std::holds_alternative<LinearAttention>(op))
    return StepRole::kProduct;
  if (std::holds_alternative<Pointwise>(op) || std::holds_alternative<Quantize>(op) ||
      std::holds_alternative<Dequantize>(op))
    return StepRole::kElementwise;
  if (traits.half == HalfRole::kMoves || traits.view != ViewRule::kNone) return StepRole::kMovement;
  return StepRole::kOther;
}

bool takes_some_elements(const Op& op) {
  return std::holds_alternative<Gather>(op) || std::holds_alternative<GatherElements>(op) ||
         std::holds_alternative<GatherND>(op);
}

bool is_byte(DataType type) { return type == DataType::kI8 || type == DataType::kU8; }

// The element types that the device multiplies.
struct DeviceTypes {
  bool is_cpu = true;
  bool has_bf16 = true;
  ProductType of(const Step& step, const Plan& plan) const {
    if (step.inputs.size() < 2 || step.inputs[0] == kNoSlot || step.inputs[1] == kNoSlot)
      return ProductType::kF32;
    const DataType a = plan.slots[step.inputs[0]].type.dtype;
    const DataType b = plan.slots[step.inputs[1]].type.dtype;
    if (is_byte(a) && is_byte(b)) return ProductType::kInt8;
    if (a != b) return ProductType::kF32;
    if (a == DataType::kF64) return ProductType::kF64;
    if (a == DataType::kF16) return is_cpu ? ProductType::kF32 : ProductType::kF16;
    if (a == DataType::kBF16) return has_bf16 ? ProductType::kBF16 : ProductType::kF32;
    return ProductType::kF32;
  }
};

class PlanWork {
 public:
  PlanWork(std::span<const Tensor> weights, const DeviceTypes& types, RooflinePlan& made)
      : weights_(weights), types_(types), made_(made) {}

  // bound: null if the sizes of the body are not known. runs: of the plan in one run of the engine.
  void add(const Plan& plan, const BoundPlan* bound, bool is_body, double runs) {
    const std::map<uint32_t, Writer> writers = writers_of(plan);
    std::vector<size_t> at;  // of each step of the plan among all
    for (const Step& step : plan.steps) {
      at.push_back(made_.steps.size());
      RooflineStep& work = made_.steps.emplace_back();
      work.name = step.name;
      work.kernel = step.kernel;
      work.role = role_of(step.op);
      work.in_body = is_body;
      work.runs = runs;
      const bool has_sizes = bound != nullptr && are_sizes_known(plan, step);
      work.is_known = has_sizes && step.device == 0 && step.kernel != kTransfer;
      if (has_sizes) count_bytes(plan, step, *bound, work);
      if (work.is_known) {
        count_operations(plan, step, *bound, work);
        find_producer(plan, step, *bound, writers, at, work);
      }
      add_bodies(plan, step, bound, runs);
    }
  }

 private:
  struct Writer {
    std::optional<size_t> step = {};
    size_t readers = 0;    // steps that read it
    bool is_kept = false;  // it is an output, or several steps write parts of it
  };

  static bool is_known_size(const Plan& plan, uint32_t slot) {
    return slot == kNoSlot || plan.slots[base_of(plan, slot)].storage != Storage::kDataDependent;
  }
  static bool are_sizes_known(const Plan& plan, const Step& step) {
    const auto known = [&](uint32_t slot) { return is_known_size(plan, slot); };
    return std::ranges::all_of(step.inputs, known) && std::ranges::all_of(step.outputs, known);
  }

  // By base slot.
  static std::map<uint32_t, Writer> writers_of(const Plan& plan) {
    std::map<uint32_t, Writer> writers;
    for (size_t i = 0; i < plan.steps.size(); ++i)
      for (const uint32_t slot : plan.steps[i].outputs)
        if (slot != kNoSlot) {
          Writer& writer = writers[base_of(plan, slot)];
          writer.is_kept |= writer.step.value_or(i) != i;
          writer.step = i;
        }
    for (const Step& step : plan.steps) {
      std::set<uint32_t> read;
      for (const uint32_t slot : step.inputs)
        if (slot != kNoSlot) read.insert(base_of(plan, slot));
      for (const uint32_t base : read)
        if (const auto found = writers.find(base); found != writers.end()) ++found->second.readers;
    }
    for (const uint32_t slot : plan.outputs)
      if (const auto found = writers.find(base_of(plan, slot)); found != writers.end())
        found->second.is_kept = true;
    return writers;
  }

  // Of the memory of a view, each place once.
  static double bytes_in(const TensorView& view) {
    auto bytes = static_cast<double>(size_of(view.dtype));
    for (int axis = 0; axis < view.dims.rank(); ++axis)
      if (view.dims[axis] == 0 || view.strides[axis] != 0)
        bytes *= static_cast<double>(view.dims[axis]);
    return bytes;
  }

  static void count_bytes(const Plan& plan, const Step& step, const BoundPlan& bound,
                          RooflineStep& work) {
    std::set<uint32_t> seen;
    double written = 0;
    for (const uint32_t slot : step.outputs)
      if (slot != kNoSlot) written += bytes_in(bound.slots[slot]);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const uint32_t slot = step.inputs[i];
      if (slot == kNoSlot || !seen.insert(slot).second) continue;
      const double bytes = bytes_in(bound.slots[slot]);
      if (i == 0 && takes_some_elements(step.op))
        work.activation_bytes += std::min(bytes, written);
      else if (plan.slots[base_of(plan, slot)].storage == Storage::kWeight)
        work.weight_bytes += bytes;
      else
        work.activation_bytes += bytes;
    }
    work.activation_bytes += written;
  }

  void count_operations(const Plan& plan, const Step& step, const BoundPlan& bound,
                        RooflineStep& work) const {
    std::vector<Dims> inputs, outputs;
    for (const uint32_t slot : step.inputs)
      inputs.push_back(slot == kNoSlot ? Dims() : bound.slots[slot].dims);
    for (const uint32_t slot : step.outputs)
      outputs.push_back(slot == kNoSlot ? Dims() : bound.slots[slot].dims);
    const StepOperations operations = operations_of(step, inputs, outputs);
    work.products = operations.products;
    work.others = operations.others;
    if (work.role == StepRole::kProduct) {
      work.type = types_.of(step, plan);
      find_channels(step, inputs, work);
    }
  }

  static void find_channels(const Step& step, const std::vector<Dims>& inputs, RooflineStep& work) {
    if (const auto* conv = std::get_if<Conv>(&step.op); conv && conv->groups == 1) {
      work.columns = inputs[1][0];
      work.depth = inputs[1][1];
    } else if (const auto* product = std::get_if<MatMul>(&step.op)) {
      const Dims &a = inputs[0], &b = inputs[1];
      work.depth = a[a.rank() - (product->transpose_a ? 2 : 1)];
      work.columns = b[b.rank() - (product->transpose_b ? 2 : 1)];
    }
  }

  // The producer of a step whose work could be done where its operand is computed.
  void find_producer(const Plan& plan, const Step& step, const BoundPlan& bound,
                     const std::map<uint32_t, Writer>& writers, const std::vector<size_t>& at,
                     RooflineStep& work) const {
    if (work.role != StepRole::kElementwise && work.role != StepRole::kMovement) return;
    for (const uint32_t slot : step.inputs) {
      if (slot == kNoSlot) continue;
      const auto found = writers.find(base_of(plan, slot));
      if (found == writers.end() || found->second.readers != 1 || found->second.is_kept) continue;
      const size_t producer = *found->second.step;
      const double bytes = bytes_in(bound.slots[slot]);
      if (producer >= at.size() || bytes <= work.producer_bytes) continue;
      work.producer = at[producer];
      work.producer_bytes = bytes;
      work.refusal = refusal_of(plan, plan.steps[producer], step);
    }
  }

  // The last one that a pass of fusion recorded about one of the two.
  static std::string refusal_of(const Plan& plan, const Step& producer, const Step& step) {
    const auto is_about = [](const Decision& decision, const Step& about) {
      return decision.subject == about.name ||
             std::ranges::find(about.origins, decision.subject) != about.origins.end();
    };
    for (const Step* const about : {&step, &producer})
      for (auto decision = plan.decisions.rbegin(); decision != plan.decisions.rend(); ++decision)
        if (decision->refused && decision->stage.starts_with("fuse") && is_about(*decision, *about))
          return decision->text;
    return {};
  }

  void add_bodies(const Plan& plan, const Step& step, const BoundPlan* bound, double runs) {
    for (const BodyUse& use : bodies_of(step.op)) {
      const Plan& body = plan.bodies.at(static_cast<size_t>(use.body));
      std::optional<BoundPlan> inner;
      try {
        if (bound != nullptr)
          inner = bind_shapes(body, weights_, dims_in_body(step, body.inputs.size(), *bound),
                              bound->symbols);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
      }
      const double trips = bound == nullptr ? 1 : body_trips(plan, weights_, step, *bound);
      add(body, inner ? &*inner : nullptr, true, runs * trips);
    }
  }

  std::span<const Tensor> weights_;
  DeviceTypes types_;
  RooflinePlan& made_;
};

double touched_bytes(const Plan& plan, const BoundPlan& bound, std::span<const Tensor> weights) {
  double bytes = 0;
  std::set<uint64_t> seen;
  for (const Slot& slot : plan.slots)
    if (slot.storage == Storage::kWeight && seen.insert(slot.offset).second)
      bytes += static_cast<double>(weights[slot.offset].count()) *
               static_cast<double>(size_of(weights[slot.offset].dtype()));
  for (const uint64_t arena : bound.arena_bytes) bytes += static_cast<double>(arena);
  return bytes;
}

// isa: of a CPU; nullopt: not known, or a GPU.
RooflinePlan counted_plan(const Plan& plan, std::span<const Tensor> weights,
                          std::span<const Dims> dims, std::optional<Isa> isa) {
  RooflinePlan made;
  made.target = plan.target;
  made.profile = plan.profile;
  made.is_cpu = !is_cuda_target(plan.target);
  if (isa) made.isa = to_string(*isa);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Slot& slot = plan.slots[plan.inputs[i]];
    made.inputs.push_back(
        fmt::format("{}: {}{}", slot.name, to_string(slot.type.dtype), to_string(dims[i])));
  }
  const BoundPlan bound = bind_shapes(plan, weights, dims);
  if (plan.batch_split) made.batch = bound.symbols[plan.batch_split->symbol].value_or(0);
  made.touched_bytes = touched_bytes(plan, bound, weights);
  const DeviceTypes types{made.is_cpu, !isa || cpu::computes_bf16(*isa)};
  PlanWork(weights, types, made).add(plan, &bound, false, 1);
  return made;
}

// nullopt: a GPU, or more than this CPU has.
std::optional<Isa> isa_of_target(const std::string& target) {
  if (is_cuda_target(target)) return std::nullopt;
  try {
    return cpu::isa_of(*cpu_backend().open(target));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string_view to_string(ProductType type) {
  switch (type) {
    case ProductType::kF32:
      return "f32";
    case ProductType::kF64:
      return "f64";
    case ProductType::kF16:
      return "f16";
    case ProductType::kBF16:
      return "bf16";
    case ProductType::kInt8:
      return "int8";
  }
  return "?";
}

double RooflinePlan::moved_bytes() const {
  double bytes = 0;
  for (const RooflineStep& step : steps) bytes += step.runs * step.bytes();
  return bytes;
}

RooflinePlan roofline_plan(const Plan& plan, std::span<const Tensor> weights,
                           std::span<const Dims> dims) {
  return counted_plan(plan, weights, dims, std::nullopt);
}

RooflinePlan roofline_plan(const Engine& engine, const ExecutionContext& context,
                           std::span<const Dims> dims) {
  const Device& device = EngineInternals::device(engine);
  const bool is_cpu = device.kind() == DeviceKind::kCpu;
  RooflinePlan made = counted_plan(plan_of(context), weights_of(engine), dims,
                                   is_cpu ? std::optional(cpu::isa_of(device)) : std::nullopt);
  made.is_cpu = is_cpu;
  made.is_emulated = device.target().starts_with("emulated");
  return made;
}

std::vector<RooflinePlan> roofline_plans(const std::string& path, bool map,
                                         const std::vector<std::string>& libraries,
                                         const std::string& weights) {
  const EngineFile file = read_engine_file(
      path, {.map = map, .operators = load_kernel_libraries(libraries), .weights = weights});
  std::vector<RooflinePlan> plans;
  for (const Plan& plan : file.plans) {
    const auto dims =
        with_context([&] { return fmt::format("{}: the plan for {}", path, plan.target); },
                     [&] { return choose_input_dims(plan, file.weights); });
    plans.push_back(counted_plan(plan, file.weights, dims, isa_of_target(plan.target)));
  }
  return plans;
}

}  // namespace anneal
