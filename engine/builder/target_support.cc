#include "anneal/engine/builder/target_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

// The types of a layer's outputs as it would be; nullopt if its sizes depend on values.
std::optional<std::vector<Type>> output_types(const Graph& graph, const NewLayer& layer,
                                              int op_input_count) {
  std::vector<InferInput> inputs;
  std::vector<TensorView> values;
  values.reserve(layer.inputs.size());
  for (const ValueId id : layer.inputs) {
    if (id == ValueId::kNone) {
      inputs.push_back({});
      continue;
    }
    const Tensor* constant = graph.constant(id);
    if (constant) values.push_back(kernel_view(*constant));
    inputs.push_back({&graph.value(id).fact, constant ? &values.back() : nullptr});
  }
  std::vector<Type> types;
  for (const Fact& fact :
       infer_layer(layer.op, layer.epilogues, op_input_count, InferInputs(inputs, graph.sizes()))) {
    for (const Size size : fact.type.shape)
      if (size.is_unknown()) return std::nullopt;
    types.push_back(fact.type);
  }
  return types;
}

// Empty if the place has a kernel of its own in one of the layouts, else why not.
std::string refusal_of(const Place& place, const Graph& graph, const NewLayer& layer,
                       const std::vector<Type>& outputs, int op_input_count) {
  std::string why_not;
  for (const Layout layout : {Layout::kChannelsLast, Layout::kRowMajor}) {
    const LayerOperands operands = ideal_operands(graph, layer.inputs, outputs, layout);
    const LaidOutChoice chosen = choose_kernel(place,
                                               {.op = layer.op,
                                                .epilogues = layer.epilogues,
                                                .op_input_count = op_input_count,
                                                .inputs = operands.inputs,
                                                .outputs = operands.outputs,
                                                .sizes = graph.sizes(),
                                                .device = *place.device,
                                                .tactic = {}},
                                               FreeInputs::kAll);
    const bool is_own = chosen.entry && !is_reference(*place.backend, *chosen.entry);
    if (is_own && !chosen.entry->is_fallback) return {};
    why_not = is_own ? fmt::format("; {} is slow", chosen.entry->name) : refusals_text(chosen);
  }
  return place.device->target() + why_not;
}

}  // namespace

Target open_target(const std::string& name, const Backend& cpu, const KernelOptions& kernels) {
  Target target;
  target.name = name;
  target.is_cuda = is_cuda_target(name);
  if (!target.is_cuda && !name.starts_with("cpu"))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("\"{}\" is no target: use cpu, cpu:avx2 and the like, sm_80 and the like, or "
                     "emulated",
                     name));
  if (target.is_cuda) {
    target.devices.push_back(cuda_backend().open(name));
    target.places.push_back({&cuda_backend(), target.devices[0].get(), kernels});
  }
  target.devices.push_back(cpu.open(target.is_cuda ? "cpu" : name));
  Device& host = *target.devices.back();
  target.places.push_back({&cpu, &host, kernels});
  target.native = target.is_cuda ? NativeHalves{.f16 = true, .bf16 = true}
                                 : NativeHalves{.f16 = false, .bf16 = cpu_computes_bf16(host)};
  return target;
}

std::vector<Precision> fast_precisions(const std::string& name) {
  const Target target = open_target(name, cpu_backend());
  std::vector<Precision> precisions;
  if (target.native.f16) precisions.push_back(Precision::kF16);
  if (target.native.bf16) precisions.push_back(Precision::kBF16);
  if (target.is_cuda || cpu_has_vnni(*target.devices[0])) precisions.push_back(Precision::kI8);
  return precisions;
}

PrecisionOptions resolved_precision(const BuildOptions& options) {
  if (std::ranges::count(options.targets, kReferenceTarget) != 0) return {};
  PrecisionOptions precision = options.precision;
  if (!std::exchange(precision.best, false)) return precision;
  const auto is_fast = [&](Precision each) {
    return std::ranges::all_of(options.targets, [&](const std::string& target) {
      return std::ranges::count(fast_precisions(target), each) != 0;
    });
  };
  const bool has_ranges = precision.ranges || options.calibration.samples;
  if (has_ranges && is_fast(Precision::kI8)) precision.types.insert(Precision::kI8);
  if (precision.allows_half()) return precision;
  for (const Precision half : {Precision::kF16, Precision::kBF16})
    if (is_fast(half)) {
      precision.types.insert(half);
      break;
    }
  return precision;
}

AskTargets ask_targets(std::vector<const Target*> targets) {
  return [targets = std::move(targets)](const Graph& graph, const NewLayer& layer) -> std::string {
    const int op_input_count =
        layer.op_input_count < 0 ? static_cast<int>(layer.inputs.size()) : layer.op_input_count;
    const auto outputs = output_types(graph, layer, op_input_count);
    if (!outputs) return "its sizes depend on values";
    for (const Target* target : targets)
      if (std::string why_not =
              refusal_of(target->places[0], graph, layer, *outputs, op_input_count);
          !why_not.empty())
        return why_not;
    return {};
  };
}

}  // namespace anneal
