#include "anneal/engine/builder/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/engine/builder/views.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/kernel.h"
#include "anneal/kernels/unfilled_constants.h"

namespace anneal {

Shape strides_of(const Type& type, Layout layout, SizeTable& sizes) {
  return layout == Layout::kChannelsLast && type.shape.rank() >= 3
             ? channels_last_strides(type.shape, sizes)
             : row_major_strides(type.shape, sizes);
}

LayerOperands ideal_operands(const Graph& graph, std::span<const ValueId> inputs,
                             std::span<const Type> outputs, Layout layout) {
  LayerOperands operands;
  for (const ValueId id : inputs) {
    if (id == ValueId::kNone) {
      operands.inputs.push_back({.present = false});
      continue;
    }
    const Type& type = graph.value(id).type();
    const Tensor* constant = graph.constant(id);
    operands.inputs.push_back(
        {.type = type,
         .strides = strides_of(type, constant ? Layout::kRowMajor : layout, graph.sizes()),
         .constant = constant});
  }
  for (const Type& type : outputs)
    operands.outputs.push_back({.type = type, .strides = strides_of(type, layout, graph.sizes())});
  return operands;
}

LayerOperands ideal_operands(const Graph& graph, const Layer& layer, Layout layout) {
  std::vector<Type> outputs;
  for (const ValueId id : layer.outputs) outputs.push_back(graph.value(id).type());
  return ideal_operands(graph, layer.inputs, outputs, layout);
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

namespace {

// As first_accepting(), with the fast kernels in reverse order, and then the CPU's reference.
const KernelEntry* most_general_accepting(
    const Place& place, size_t op, const std::function<std::string(const KernelEntry&)>& refusal,
    std::vector<std::pair<std::string_view, std::string>>& refused) {
  std::vector<const KernelEntry*> order;
  for (const KernelFamily family : place.backend->families)
    for (const KernelEntry& entry : family())
      if (entry.op == op && entry.source == KernelSource::kOwn) order.push_back(&entry);
  const bool has_reference = !order.empty() && is_reference(*place.backend, *order.back());
  std::reverse(order.begin(), order.end() - (has_reference ? 1 : 0));
  for (const KernelEntry* entry : order) {
    const std::string_view left_out = why_left_out(*entry, place.kernels);
    std::string reason = left_out.empty() ? refusal(*entry) : std::string(left_out);
    if (reason.empty()) return entry;
    refused.emplace_back(entry->name, std::move(reason));
  }
  return nullptr;
}

}  // namespace

LaidOutChoice choose_kernel(const Place& place, const Request& request, FreeInputs free) {
  UnfilledConstants unfilled;
  LaidOutChoice choice;
  Request asked = request;
  asked.packed = &unfilled;
  const auto make = [&](const KernelEntry& entry) {
    LaidOutKernel laid_out = make_laid_out(entry, asked, free);
    if (laid_out.made) {
      choice.kernel = *std::move(laid_out.made);
      choice.laid_out = std::move(laid_out.laid_out);
    }
    return laid_out.made.reason();
  };
  const size_t op = request.op.index();
  choice.entry = place.general_first
                     ? most_general_accepting(place, op, make, choice.refused)
                     : first_accepting(*place.backend, op, place.kernels, make, choice.refused);
  return choice;
}

LaidOutChoice choose_kernel(const Place& place, const Graph& graph, const Layer& layer,
                            const LayerOperands& operands, FreeInputs free) {
  return choose_kernel(place, request_of(graph, layer, operands, *place.device), free);
}

LayerOperands nearest_operands(const Place& place, const Graph& graph, const Layer& layer,
                               const LaidOutChoice& best, LayerOperands ideal,
                               const LayerOperands& actual) {
  // Starts with ideal layouts, and reverts each operand that the kernel accepts without a copy.
  LayerOperands operands = std::move(ideal);
  for (const auto& [i, strides] : best.laid_out)
    if (operands.inputs[i].constant == nullptr) operands.inputs[i].strides = strides;
  UnfilledConstants unfilled;
  const auto accepts = [&] {
    Request request = request_of(graph, layer, operands, *place.device);
    request.packed = &unfilled;
    return make_laid_out(*best.entry, request, FreeInputs::kConstants).made.has_value();
  };
  const auto give_back = [&](std::vector<Operand>& mine, const std::vector<Operand>& theirs) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i].strides == theirs[i].strides) continue;
      const Shape kept = mine[i].strides;
      mine[i].strides = theirs[i].strides;
      if (!accepts()) mine[i].strides = kept;
    }
  };
  give_back(operands.outputs, actual.outputs);
  give_back(operands.inputs, actual.inputs);
  return operands;
}

bool is_host_work(const Op& op) {
  return std::holds_alternative<SizeTensor>(op) || std::holds_alternative<ShapeOf>(op) ||
         std::holds_alternative<Require>(op);
}

bool is_host_value(const Layer& layer, size_t input) {
  return static_cast<int>(input) < layer.op_input_count &&
         is_host_value(layer.op, static_cast<int>(input));
}

std::string refusals_text(const KernelChoice& chosen) {
  std::string text;
  for (const auto& [kernel, why] : chosen.refused) text += fmt::format("; {}: {}", kernel, why);
  return text.empty() ? "; no kernel implements it" : text;
}

namespace {

constexpr int64_t kMostShapeElements = kMaxKnownElements;

// Layers whose results only decide shapes, control flow or whether a Require holds, directly or
// through others like them. They are small and wanted on the host.
std::vector<bool> shape_arithmetic(const LayoutQuestion& question, const Layouts& layouts) {
  const Graph& graph = question.graph;
  std::vector<bool> is_shape, is_data;  // by value: how it is used
  const auto mark = [](std::vector<bool>& marks, ValueId id) {
    if (id == ValueId::kNone) return;
    if (static_cast<size_t>(id) >= marks.size()) marks.resize(static_cast<size_t>(id) + 1);
    marks[static_cast<size_t>(id)] = true;
  };
  const auto marked = [](const std::vector<bool>& marks, ValueId id) {
    return static_cast<size_t>(id) < marks.size() && marks[static_cast<size_t>(id)];
  };
  const auto is_small = [&](ValueId id) {
    const Shape& shape = graph.value(id).type().shape;
    return known(shape) && count(dims_of(shape)) <= kMostShapeElements;
  };
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    mark(i < question.on_host.size() && question.on_host[i] ? is_shape : is_data,
         graph.outputs()[i].value);
  std::vector<bool> result;
  const auto& order = graph.order();
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Layer& layer = graph.layer(*id);
    bool for_shapes = !layer.outputs.empty();
    for (const ValueId output : layer.outputs)
      for_shapes = for_shapes && marked(is_shape, output) && !marked(is_data, output);
    for (const ValueId input : layer.inputs)
      for_shapes = for_shapes && (input == ValueId::kNone || is_small(input));
    if (for_shapes) {
      if (static_cast<size_t>(*id) >= result.size()) result.resize(static_cast<size_t>(*id) + 1);
      result[static_cast<size_t>(*id)] = true;
    }
    const ControlPlaces* const control = layouts.control_of(*id);
    const bool is_on_host = for_shapes || std::holds_alternative<Require>(layer.op);
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      const bool is_host_input = control ? control->inputs[i] != 0 : is_host_value(layer, i);
      mark(is_on_host || is_host_input ? is_shape : is_data, layer.inputs[i]);
    }
  }
  return result;
}

// The layout that the place's best kernel prefers, if it has one. Values whose sizes depend on
// values are not copied to another layout.
struct Preference {
  bool accepts = false;
  Layout layout = Layout::kAny;
  std::string why_not;
};
Preference preference_of(const Graph& graph, const Layer& layer, const Place& place,
                         bool accepts_all, bool is_late) {
  const auto choose = [&](Layout layout) {
    const LayerOperands operands = ideal_operands(graph, layer, layout);
    return choose_kernel(place, graph, layer, operands,
                         is_late ? FreeInputs::kConstants : FreeInputs::kAll);
  };
  const KernelChoice best =
      is_late && !accepts_all ? KernelChoice{} : choose(Layout::kChannelsLast);
  if (best.entry && (accepts_all || best.entry->prefers == Layout::kChannelsLast))
    return {true, best.entry->prefers, {}};
  const KernelChoice row_major = choose(Layout::kRowMajor);
  if (row_major.entry) {
    const Layout layout = best.entry ? best.entry->prefers : Layout::kRowMajor;
    return {true, layout, {}};
  }
  if (best.entry) return {true, Layout::kChannelsLast, {}};
  return {false, Layout::kAny, refusals_text(row_major)};
}

// The strides of a Reshape's output if its elements stay in the input's memory; empty if they do
// not.
std::optional<Shape> strides_behind(const Graph& graph, LayerId id, const Shape& strides) {
  if (id == LayerId::kNone) return std::nullopt;
  const Layer& layer = graph.layer(id);
  if (!std::holds_alternative<Reshape>(layer.op) || !layer.epilogues.empty()) return std::nullopt;
  return reshaped_strides(graph.value(layer.inputs[0]).type().shape, strides,
                          graph.value(layer.outputs[0]).type().shape, graph.sizes());
}

// Where the layer's first input has its elements, if that is channels-last memory with axes cut,
// and all that read the output join them again.
std::optional<Shape> strides_between(const Graph& graph, const Layer& layer, ValueId output,
                                     const Layouts& layouts) {
  if (layer.inputs.empty() || layer.inputs[0] == ValueId::kNone || graph.is_output(output))
    return std::nullopt;
  const Value& input = graph.value(layer.inputs[0]);
  const Type& type = graph.value(output).type();
  const auto& users = graph.value(output).users;
  if (input.producer == LayerId::kNone || input.type().shape != type.shape || users.empty())
    return std::nullopt;
  const Layer& before = graph.layer(input.producer);
  const auto strides = before.inputs.empty() || before.inputs[0] == ValueId::kNone
                           ? std::nullopt
                           : strides_behind(graph, input.producer,
                                            layouts.strides_of_value(graph, before.inputs[0]));
  if (!strides || *strides == row_major_strides(type.shape, graph.sizes())) return std::nullopt;
  for (const LayerId user : users) {
    const auto behind = strides_behind(graph, user, *strides);
    if (!behind || *behind != strides_of(graph.value(graph.layer(user).outputs[0]).type(),
                                         Layout::kChannelsLast, graph.sizes()))
      return std::nullopt;
  }
  return strides;
}

}  // namespace

Shape Layouts::strides_of_value(const Graph& graph, ValueId id) const {
  for (const auto* known : {&ports, &between})
    if (const auto strides = known->find(id); strides != known->end()) return strides->second;
  const auto index = static_cast<size_t>(id);
  return strides_of(graph.value(id).type(),
                    index < of_value.size() ? of_value[index] : Layout::kRowMajor, graph.sizes());
}

const ControlPlaces* Layouts::control_of(LayerId id) const {
  const auto found = control.find(id);
  return found == control.end() ? nullptr : &found->second;
}

size_t Layouts::place_of_input(LayerId id, size_t input) const {
  const ControlPlaces* const places = control_of(id);
  return places ? places->inputs[input] : of_layer[static_cast<size_t>(id)].place;
}

Layouts choose_layouts(const LayoutQuestion& question) {
  const Graph& graph = question.graph;
  const std::span<const Place> places = question.places;
  Layouts layouts;
  if (places.size() > 1)
    for (const LayerId id : graph.order())
      if (!bodies_of(graph.layer(id).op).empty())
        layouts.control.emplace(id, question.control(graph.layer(id)));
  const auto of_value = [&](ValueId id) -> Layout& {
    const auto index = static_cast<size_t>(id);
    if (index >= layouts.of_value.size()) layouts.of_value.resize(index + 1, Layout::kRowMajor);
    return layouts.of_value[index];
  };
  const std::vector<bool> for_shapes =
      places.size() > 1 ? shape_arithmetic(question, layouts) : std::vector<bool>();
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    const auto index = static_cast<size_t>(id);
    if (index >= layouts.of_layer.size()) layouts.of_layer.resize(index + 1);
    Layouts::OfLayer& mine = layouts.of_layer[index];
    const bool has_bodies = !bodies_of(layer.op).empty();
    const auto is_late = [&](ValueId value) {
      return value != ValueId::kNone && question.late(value);
    };
    if (has_bodies)
      mine.why_not_first = "; no layer of its bodies runs on " + places[0].device->target();
    else if (index < for_shapes.size() && for_shapes[index])
      mine.decides_shapes = true, mine.why_not_first = "; it only decides shapes";
    const bool has_late =
        std::ranges::any_of(layer.inputs, is_late) || std::ranges::any_of(layer.outputs, is_late);
    Preference preference;
    mine.place = mine.why_not_first.empty() ? 0 : places.size() - 1;
    for (; mine.place < places.size(); ++mine.place) {
      const bool is_last = mine.place + 1 == places.size();
      preference = preference_of(graph, layer, places[mine.place], is_last, has_late);
      if (preference.accepts) break;
      if (mine.place + 1 < places.size()) mine.why_not_first = std::move(preference.why_not);
    }
    mine.place = std::min(mine.place, places.size() - 1);
    const ControlPlaces* const control = layouts.control_of(id);
    if (mine.place == 0 || (control && control->uses_first())) mine.why_not_first.clear();
    mine.layout = has_bodies ? Layout::kRowMajor : preference.layout;  // bodies: that of ports
    for (const ValueId output : layer.outputs) {
      Layout layout = mine.layout;
      for (const ValueId input : layer.inputs) {
        if (layout != Layout::kAny) break;
        if (input != ValueId::kNone && !graph.constant(input) &&
            graph.value(input).type().shape.rank() == graph.value(output).type().shape.rank())
          layout = of_value(input);
      }
      if (!layer.inputs.empty() && layouts.between.contains(layer.inputs[0])) {
        layout = Layout::kChannelsLast;
      } else if (places[mine.place].row_major) {
        layout = Layout::kRowMajor;
      } else if (mine.layout == Layout::kAny && !is_view_op(layer.op) && !is_late(output)) {
        if (auto strides = strides_between(graph, layer, output, layouts)) {
          layouts.between.emplace(output, *strides);
          layout = Layout::kRowMajor;
        }
      }
      of_value(output) = layout == Layout::kChannelsLast ? layout : Layout::kRowMajor;
    }
  }
  for (const Graph::Output& output : graph.outputs()) of_value(output.value);
  for (const ValueId input : graph.inputs()) of_value(input);
  return layouts;
}

}  // namespace anneal
