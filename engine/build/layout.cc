#include "anneal/engine/build/layout.h"

namespace anneal {

Shape strides_of(const Type& type, Layout layout, SizeTable& sizes) {
  return layout == Layout::kChannelsLast && type.shape.rank() >= 3
             ? sizes.channels_last_strides(type.shape)
             : sizes.row_major_strides(type.shape);
}

LayerOperands ideal_operands(const Graph& graph, const Layer& layer, Layout layout) {
  const auto operand = [&](ValueId id) -> Operand {
    if (id == ValueId::kNone) return {.present = false};
    const Type& type = graph.value(id).type();
    const Tensor* constant = graph.constant(id);
    return {.type = type,
            .strides = strides_of(type, constant ? Layout::kRowMajor : layout, graph.sizes()),
            .constant = constant};
  };
  LayerOperands operands;
  for (const ValueId id : layer.inputs) operands.inputs.push_back(operand(id));
  for (const ValueId id : layer.outputs) operands.outputs.push_back(operand(id));
  return operands;
}

Request request_of(const Graph& graph, const Layer& layer, const LayerOperands& operands,
                   Device& device) {
  return {.op = layer.op,
          .epilogues = layer.epilogues,
          .op_input_count = layer.op_input_count,
          .inputs = operands.inputs,
          .outputs = operands.outputs,
          .sizes = graph.sizes(),
          .device = device,
          .tactic = {}};
}

Layouts choose_layouts(const Graph& graph, const Backend& backend, Device& device) {
  Layouts layouts;
  const auto of_value = [&](ValueId id) -> Layout& {
    const auto index = static_cast<size_t>(id);
    if (index >= layouts.of_value.size()) layouts.of_value.resize(index + 1, Layout::kRowMajor);
    return layouts.of_value[index];
  };
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    const LayerOperands operands = ideal_operands(graph, layer, Layout::kChannelsLast);
    const Chosen chosen = choose_kernel(backend, request_of(graph, layer, operands, device));
    Layout preferred = chosen.entry ? chosen.entry->prefers : Layout::kAny;
    if (!bodies_of(layer.op).empty()) preferred = Layout::kRowMajor;  // that of ports
    if (static_cast<size_t>(id) >= layouts.of_layer.size())
      layouts.of_layer.resize(static_cast<size_t>(id) + 1, Layout::kAny);
    layouts.of_layer[static_cast<size_t>(id)] = preferred;
    for (const ValueId output : layer.outputs) {
      Layout layout = preferred;
      for (const ValueId input : layer.inputs) {
        if (layout != Layout::kAny) break;
        if (input != ValueId::kNone && !graph.constant(input) &&
            graph.value(input).type().shape.rank() == graph.value(output).type().shape.rank())
          layout = of_value(input);
      }
      of_value(output) = layout == Layout::kChannelsLast ? layout : Layout::kRowMajor;
    }
  }
  for (const Graph::Output& output : graph.outputs()) of_value(output.value);
  for (const ValueId input : graph.inputs()) of_value(input);
  return layouts;
}

}  // namespace anneal
