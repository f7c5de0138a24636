#include "anneal/engine/builder/appended_ports.h"

#include <algorithm>
#include <optional>

namespace anneal {
namespace {

std::optional<AppendedPorts> appended(const Graph& graph, const PortPair& state,
                                      const SlotTable& slots) {
  const ValueId input = graph.inputs()[state.input], output = graph.outputs()[state.output].value;
  const Value& whole = graph.value(output);
  if (whole.producer == LayerId::kNone || slots.direct_output(output) != state.output)
    return std::nullopt;
  const Layer& layer = graph.layer(whole.producer);
  const auto* concat = std::get_if<Concat>(&layer.op);
  if (!concat || !layer.epilogues.empty() || layer.inputs[0] != input ||
      std::ranges::count(layer.inputs, input) != 1 || whole.fact.elements)
    return std::nullopt;
  const auto axis = static_cast<uint32_t>(concat->axis);
  for (const ValueId operand : layer.inputs) {
    const Type& type = graph.value(operand).type();
    if (slots.is_data_dependent(type)) return std::nullopt;
    for (int i = 0; i < type.shape.rank(); ++i)
      if (i != static_cast<int>(axis) && type.shape[i] != whole.type().shape[i])
        return std::nullopt;
  }
  if (slots.is_data_dependent(whole.type())) return std::nullopt;
  return AppendedPorts{state.input, state.output, axis};
}

}  // namespace

std::vector<AppendedPorts> appended_ports(const Graph& graph, std::span<const PortPair> states,
                                          std::span<const Place> places, const SlotTable& slots) {
  std::vector<AppendedPorts> result;
  if (places.size() != 1 || places[0].device->kind() != DeviceKind::kCpu) return result;
  for (const PortPair& state : states)
    if (const auto ports = appended(graph, state, slots)) result.push_back(*ports);
  return result;
}

std::unordered_map<ValueId, Shape> strides_of_appended(const Graph& graph,
                                                       std::span<const AppendedPorts> appended) {
  std::unordered_map<ValueId, Shape> strides;
  for (const auto [input, output, rows] : appended) {
    const Shape& shape = graph.value(graph.inputs()[input]).type().shape;
    Shape of_input = Shape::filled(shape.rank(), Size(1));
    Size stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (axis == static_cast<int>(rows)) continue;
      of_input[axis] = stride;
      stride = graph.sizes().mul(stride, shape[axis]);
    }
    of_input[static_cast<int>(rows)] = stride;
    strides[graph.inputs()[input]] = strides[graph.outputs()[output].value] = of_input;
  }
  return strides;
}

}  // namespace anneal
