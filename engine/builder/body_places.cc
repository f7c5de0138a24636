#include "anneal/engine/builder/body_places.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "anneal/engine/body_operands.h"
#include "anneal/engine/builder/views.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

struct PlacedBody {
  const Graph& graph;
  std::vector<bool> solvable;
  std::shared_ptr<const Layouts> layouts;
};

// outside: the symbols that are solvable in the outer graph.
std::vector<bool> solvable_in_body(const Graph& body, const std::vector<bool>& outside) {
  Plan ports;
  for (const ValueId input : body.inputs()) {
    ports.inputs.push_back(static_cast<uint32_t>(ports.slots.size()));
    ports.slots.push_back({.name = body.value(input).name, .type = body.value(input).type()});
  }
  ports.sizes = std::make_shared<const SizeTable>(body.sizes());
  return solvable_symbols(ports, outside);
}

// A tensor of no more integers may be a counter, or sizes: one for each axis.
constexpr int64_t kMostCounters = 8;

bool may_be_counters(const Type& type) {
  const bool is_integer =
      type.dtype == DataType::kI64 || type.dtype == DataType::kI32 || type.dtype == DataType::kBool;
  return is_integer && known(type.shape) && count(dims_of(type.shape)) <= kMostCounters;
}

// The next condition, and counters that iterations hand on.
std::vector<bool> wanted_on_host(const Op& op, const BodyOperands& operands, const Graph& body) {
  std::vector<bool> on_host(body.outputs().size());
  if (std::holds_alternative<Loop>(op)) on_host[0] = true;
  for (size_t k = 0; k < operands.carried; ++k) {
    const auto port = static_cast<size_t>(operands.outputs[k].port);
    if (may_be_counters(body.value(body.outputs()[port].value).type())) on_host[port] = true;
  }
  return on_host;
}

bool is_plain_view(const Layer& layer) {
  return is_view_op(layer.op) && layer.epilogues.empty() && !layer.inputs.empty() &&
         layer.inputs[0] != ValueId::kNone;
}

bool uses_first_place(const PlacedBody& body) {
  return std::ranges::any_of(body.graph.order(), [&](LayerId id) {
    const Layer& layer = body.graph.layer(id);
    if (const ControlPlaces* control = body.layouts->control_of(id)) return control->uses_first();
    return body.layouts->of_layer[static_cast<size_t>(id)].place == 0 && !is_plain_view(layer);
  });
}

// Whether a layer on the first place reads the value, directly or through views.
bool is_read_on_first(const PlacedBody& body, ValueId value) {
  return std::ranges::any_of(body.graph.value(value).users, [&](LayerId id) {
    const Layer& layer = body.graph.layer(id);
    if (is_plain_view(layer) && layer.inputs[0] == value)
      return is_read_on_first(body, layer.outputs[0]);
    for (size_t i = 0; i < layer.inputs.size(); ++i)
      if (layer.inputs[i] == value && !is_host_value(layer, i) &&
          body.layouts->place_of_input(id, i) == 0)
        return true;
    return false;
  });
}

// What gives a value, seen through views: a place that computes it, or an input of the body.
struct ValueSource {
  std::optional<size_t> place, input;
};
ValueSource source_of(const PlacedBody& body, ValueId value) {
  for (;;) {
    const LayerId producer = body.graph.value(value).producer;
    if (producer == LayerId::kNone) break;
    const Layer& layer = body.graph.layer(producer);
    if (is_plain_view(layer)) {
      value = layer.inputs[0];
      continue;
    }
    const auto output =
        static_cast<size_t>(std::ranges::find(layer.outputs, value) - layer.outputs.begin());
    const ControlPlaces* const control = body.layouts->control_of(producer);
    return {control ? control->outputs[output]
                    : body.layouts->of_layer[static_cast<size_t>(producer)].place,
            std::nullopt};
  }
  const auto input = std::ranges::find(body.graph.inputs(), value);
  if (input == body.graph.inputs().end()) return {};
  return {std::nullopt, static_cast<size_t>(input - body.graph.inputs().begin())};
}

class ControlPlacer {
 public:
  ControlPlacer(const Graph& graph, const Layer& layer, std::span<const Place> places,
                const std::vector<bool>& solvable)
      : layer_(layer),
        host_(places.size() - 1),
        operands_(operands_of_bodies(layer.op, layer.inputs.size(), layer.outputs.size())) {
    for (const BodyUse& use : bodies_of(layer.op)) {
      const Graph& body = graph.bodies()[static_cast<size_t>(use.body)];
      std::vector<bool> in_body = solvable_in_body(body, solvable);
      auto layouts = std::make_shared<const Layouts>(choose_layouts_with_bodies(
          body, places, in_body, wanted_on_host(layer.op, operands_, body)));
      bodies_.push_back({body, std::move(in_body), std::move(layouts)});
    }
  }

  ControlPlaces run() {
    places_.inputs.assign(layer_.inputs.size(), host_);
    places_.outputs.assign(layer_.outputs.size(), host_);
    if (std::ranges::none_of(bodies_, uses_first_place)) return std::move(places_);
    for (size_t i = 0; i < places_.inputs.size(); ++i)
      if (is_wanted_on_first(i)) places_.inputs[i] = 0;
    while (place_outputs()) {
    }
    for (const PlacedBody& body : bodies_) places_.bodies.push_back(ports_of(body));
    return std::move(places_);
  }

 private:
  bool may_be_on_first(const BodyOperand& operand) const {
    return operand.port >= 0 && !operand.is_read && operand.axis == 0;
  }
  std::optional<size_t> carried_output(size_t input) const {
    if (input < operands_.first_carried || input >= operands_.first_carried + operands_.carried)
      return std::nullopt;
    return input - operands_.first_carried;
  }

  // A carried value lies where the bodies compute it, others where they are read.
  bool is_wanted_on_first(size_t input) const {
    const BodyOperand& operand = operands_.inputs[input];
    if (!may_be_on_first(operand) || layer_.inputs[input] == ValueId::kNone) return false;
    return std::ranges::any_of(bodies_, [&](const PlacedBody& body) {
      if (const auto k = carried_output(input))
        if (const auto place = output_source(body, *k).place) return *place == 0;
      return is_read_on_first(body, body.graph.inputs()[static_cast<size_t>(operand.port)]);
    });
  }

  ValueSource output_source(const PlacedBody& body, size_t k) const {
    const auto port = static_cast<size_t>(operands_.outputs[k].port);
    return source_of(body, body.graph.outputs()[port].value);
  }

  // Whether a place changed. What a body passes on stays where it was given.
  bool place_outputs() {
    bool has_changed = false;
    const auto put_on_first = [&](size_t& place) {
      has_changed |= place != 0;
      place = 0;
    };
    const size_t first_input = std::holds_alternative<If>(layer_.op) ? 1 : 0;  // of the bodies
    for (size_t k = 0; k < places_.outputs.size(); ++k) {
      if (!may_be_on_first(operands_.outputs[k])) continue;
      for (const PlacedBody& body : bodies_) {
        const ValueSource source = output_source(body, k);
        if (source.place == size_t{0} ||
            (source.input && places_.inputs[*source.input + first_input] == 0))
          put_on_first(places_.outputs[k]);
        if (source.input && k < operands_.carried && places_.outputs[k] == 0)
          put_on_first(places_.inputs[operands_.first_carried + k]);
      }
    }
    return has_changed;
  }

  BodyPlaces ports_of(const PlacedBody& body) const {
    BodyPlaces ports{.inputs = std::vector<size_t>(body.graph.inputs().size(), host_),
                     .outputs = std::vector<size_t>(body.graph.outputs().size(), host_),
                     .layouts = body.layouts};
    for (size_t i = 0; i < places_.inputs.size(); ++i)
      if (operands_.inputs[i].port >= 0)
        ports.inputs[static_cast<size_t>(operands_.inputs[i].port)] = places_.inputs[i];
    for (size_t k = 0; k < places_.outputs.size(); ++k) {
      const auto port = static_cast<size_t>(operands_.outputs[k].port);
      const Type& type = body.graph.value(body.graph.outputs()[port].value).type();
      // The context allocates what values decide the size of, on the host.
      if (!depends_on_values(type.shape, body.graph.sizes(), body.solvable))
        ports.outputs[port] = places_.outputs[k];
    }
    return ports;
  }

  const Layer& layer_;
  size_t host_;
  BodyOperands operands_;
  std::vector<PlacedBody> bodies_;
  ControlPlaces places_;
};

}  // namespace

Layouts choose_layouts_with_bodies(const Graph& graph, std::span<const Place> places,
                                   const std::vector<bool>& solvable,
                                   const std::vector<bool>& on_host) {
  return choose_layouts({.graph = graph,
                         .places = places,
                         .late =
                             [&](ValueId value) {
                               return depends_on_values(graph.value(value).type().shape,
                                                        graph.sizes(), solvable);
                             },
                         .control = [&](const Layer& layer) -> ControlPlaces {
                           return ControlPlacer(graph, layer, places, solvable).run();
                         },
                         .on_host = on_host});
}

}  // namespace anneal
