#include "anneal/engine/builder/state_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/engine/rows_outermost.h"

namespace anneal {
namespace {

[[noreturn]] void refuse_state(std::string_view input, std::string_view output,
                               std::string_view why) {
  fail(ErrorCode::kInvalidArgument, fmt::format("the state \"{}={}\": {}", input, output, why));
}

// What the "*" of the pattern stands for in the name; of a pattern without it, nothing.
std::optional<std::string_view> matched(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos)
    return pattern == name ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view before = pattern.substr(0, star), behind = pattern.substr(star + 1);
  if (name.size() < before.size() + behind.size() || !name.starts_with(before) ||
      !name.ends_with(behind))
    return std::nullopt;
  return name.substr(before.size(), name.size() - before.size() - behind.size());
}

std::string filled(std::string pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  return star == std::string::npos ? pattern : pattern.replace(star, 1, text);
}

void check_types(const Graph& graph, const Graph::Output& output, ValueId input) {
  const std::string& name = graph.value(input).name;
  const Type &from = graph.value(output.value).type(), &to = graph.value(input).type();
  const SizeTable& sizes = graph.sizes();
  bool fits = from.container == Container::kTensor && to.container == Container::kTensor &&
              from.dtype == to.dtype && to.dtype != DataType::kString &&
              from.shape.rank() == to.shape.rank();
  for (int axis = 0; fits && axis < to.shape.rank(); ++axis)
    fits =
        !from.shape[axis].known() || !to.shape[axis].known() || from.shape[axis] == to.shape[axis];
  if (!fits)
    refuse_state(
        name, output.name,
        fmt::format("the output is {} {}, the input {} {}, so the one cannot be the other in the "
                    "next run",
                    to_string(from.dtype), sizes.text(from.shape), to_string(to.dtype),
                    sizes.text(to.shape)));
}

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

std::vector<PortPair> state_ports(const Graph& graph,
                                  const std::map<std::string, std::string>& states) {
  std::vector<PortPair> pairs;
  for (const auto& [input, output] : states) {
    if (std::ranges::count(input, '*') > 1 ||
        std::ranges::count(input, '*') != std::ranges::count(output, '*'))
      refuse_state(input, output, "both names have one *, or neither has any");
    bool is_found = false;
    for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
      const ValueId value = graph.inputs()[i];
      const auto text = matched(input, graph.value(value).name);
      if (!text) continue;
      is_found = true;
      const std::string wanted = filled(output, *text);
      const auto of_name = std::ranges::find(graph.outputs(), wanted, &Graph::Output::name);
      if (of_name == graph.outputs().end())
        refuse_state(graph.value(value).name, wanted, "the model has no such output");
      check_types(graph, *of_name, value);
      pairs.push_back({i, static_cast<uint32_t>(of_name - graph.outputs().begin())});
    }
    if (!is_found) refuse_state(input, output, "the model has no such input");
  }
  std::ranges::sort(pairs, {}, &PortPair::input);
  for (size_t i = 0; i < pairs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (pairs[k].input == pairs[i].input || pairs[k].output == pairs[i].output)
        refuse_state(graph.value(graph.inputs()[pairs[i].input]).name,
                     graph.outputs()[pairs[i].output].name,
                     "the input or the output is in another state");
  return pairs;
}

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
    const Shape of_input = rows_outermost_strides(
        shape, static_cast<int>(rows), [&](Size a, Size b) { return graph.sizes().mul(a, b); });
    strides[graph.inputs()[input]] = strides[graph.outputs()[output].value] = of_input;
  }
  return strides;
}

}  // namespace anneal
