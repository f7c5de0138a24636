// The invariants of every graph after every pass. One function per rule; each names the violation.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "anneal/core/fail.h"
#include "anneal/graph/graph.h"

namespace anneal {
namespace {

using Order = std::vector<LayerId>;

[[noreturn]] void broken(std::string what) { fail(ErrorCode::kInternal, std::move(what)); }

bool is_input(const Graph& graph, ValueId id) {
  return std::ranges::find(graph.inputs(), id) != graph.inputs().end();
}

// Runs rule(layer) for every layer, and names the layer in its errors.
template <class Rule>
void for_layers(const Graph& graph, const Order& order, Rule&& rule) {
  for (LayerId id : order) {
    const Layer& layer = graph.layer(id);
    with_context([&] { return fmt::format("layer \"{}\" ({})", layer.name, to_string(layer.op)); },
                 [&] { rule(id, layer); });
  }
}

Order require_order(const Graph& graph) {
  try {
    return graph.order();
  } catch (const Error& error) {
    broken(error.what());
  }
}

// An op has the inputs it takes, and only they may be absent.
void require_inputs(const Graph& graph, const Order& order) {
  for_layers(graph, order, [](LayerId, const Layer& layer) {
    const Arity arity = input_arity(layer.op);
    const int count = layer.op_input_count;
    if (count < arity.min || count > arity.max || count > static_cast<int>(layer.inputs.size()))
      broken(fmt::format("{} of {} inputs are the op's, which takes {} to {}", count,
                         layer.inputs.size(), arity.min, arity.max));
    if (count > 0 && layer.inputs[0] == ValueId::kNone) broken("the first input is absent");
    const auto further = layer.inputs.begin() + count;
    if (std::find(further, layer.inputs.end(), ValueId::kNone) != layer.inputs.end())
      broken("an input of an epilogue is absent");
  });
}

// A used value has a producer, is an input or a constant; its producer lists it as an output.
void require_producers(const Graph& graph, const Order& order) {
  const auto require = [&](ValueId id) {
    const Value& value = graph.value(id);
    if (value.producer == LayerId::kNone) {
      if (!value.constant && !is_input(graph, id))
        broken(fmt::format("nothing produces value \"{}\"", value.name));
      return;
    }
    const auto& outputs = graph.layer(value.producer).outputs;
    if (value.constant || is_input(graph, id) || std::ranges::count(outputs, id) != 1)
      broken(fmt::format("value \"{}\" is not what its producer gives", value.name));
  };
  for_layers(graph, order, [&](LayerId id, const Layer& layer) {
    for (ValueId input : layer.inputs)
      if (input != ValueId::kNone) require(input);
    for (ValueId output : layer.outputs) {
      require(output);
      if (graph.value(output).producer != id)
        broken(fmt::format("value \"{}\" has another producer", graph.value(output).name));
    }
  });
  for (const Graph::Output& output : graph.outputs()) require(output.value);
}

// A value's users are the layers that read it, one entry per use.
void require_users(const Graph& graph, const Order& order) {
  std::unordered_map<ValueId, std::vector<LayerId>> uses;
  for (ValueId input : graph.inputs()) uses[input];
  for (LayerId id : order) {
    for (ValueId output : graph.layer(id).outputs) uses[output];
    for (ValueId input : graph.layer(id).inputs)
      if (input != ValueId::kNone) uses[input].push_back(id);
  }
  for (auto& [id, expected] : uses) {
    std::vector<LayerId> users = graph.value(id).users;
    std::ranges::sort(users);
    std::ranges::sort(expected);
    if (users != expected)
      broken(fmt::format("value \"{}\" lists {} uses of {}", graph.value(id).name, users.size(),
                         expected.size()));
  }
}

void require_names(const Graph& graph, const Order& order) {
  std::unordered_set<std::string_view> layers, outputs;
  const auto require = [&](ValueId id) {
    const std::string& name = graph.value(id).name;
    if (name.empty() || graph.find_value(name) != id)
      broken(fmt::format("value name \"{}\" is not unique", name));
  };
  for (ValueId input : graph.inputs()) require(input);
  for_layers(graph, order, [&](LayerId, const Layer& layer) {
    if (layer.name.empty() || !layers.insert(layer.name).second)
      broken("the layer's name is not unique");
    for (ValueId input : layer.inputs)
      if (input != ValueId::kNone) require(input);
    for (ValueId output : layer.outputs) require(output);
  });
  for (const Graph::Output& output : graph.outputs())
    if (!outputs.insert(output.name).second)
      broken(fmt::format("two outputs are named \"{}\"", output.name));
}

// Inference accepts the layer, and would change no type.
void require_types(const Graph& graph, const Order& order) {
  for (LayerId id : order) {
    const Layer& layer = graph.layer(id);
    Facts facts;
    try {
      facts = graph.infer_outputs(id);
    } catch (const Error& error) {
      broken(error.what());
    }
    for_layers(graph, {id}, [&](LayerId, const Layer&) {
      if (facts.size() != layer.outputs.size())
        broken(
            fmt::format("{} outputs where inference gives {}", layer.outputs.size(), facts.size()));
      for (size_t k = 0; k < facts.size(); ++k) {
        const Value& value = graph.value(layer.outputs[k]);
        bool same = false;
        try {
          const Type now = graph.narrowed(value.fact, facts[k]).type;
          same = now.dtype == value.type().dtype && now.container == value.type().container;
          for (int axis = 0; same && axis < now.shape.rank(); ++axis)
            same = allows(now.shape[axis], value.type().shape[axis], graph.sizes());
        } catch (const Error&) {
          // They contradict each other: not the same.
        }
        const SizeTable& sizes = graph.sizes();
        if (!same)
          broken(fmt::format("value \"{}\" is {}{}, inference says {}{}", value.name,
                             to_string(value.type().dtype), sizes.text(value.type().shape),
                             to_string(facts[k].type.dtype), sizes.text(facts[k].type.shape)));
      }
    });
  }
}

// Every symbol of a layer is a size of an input of the graph, known outside of a body, or alone a
// size of the layer or of one before it: the run finds its value there. known: by index.
void require_symbols(const Graph& graph, const Order& order, std::vector<bool> known) {
  const SizeTable& sizes = graph.sizes();
  known.resize(sizes.symbols().size());
  const auto require = [&](Size size, std::string_view where) {
    if (size.is_unknown()) broken(fmt::format("a size of {} is unknown", where));
    for (const uint32_t symbol : sizes.symbols_in(size))
      if (!known[symbol])
        broken(fmt::format("no layer before it finds the size {} of {}",
                           sizes.symbols()[symbol].name, where));
  };
  const auto find = [&](ValueId id) {
    for (const Size size : graph.value(id).type().shape)
      if (const auto symbol = sizes.symbol_index(size)) known[*symbol] = true;
  };
  for (const ValueId input : graph.inputs()) find(input);
  for_layers(graph, order, [&](LayerId, const Layer& layer) {
    if (const auto* tensor = std::get_if<SizeTensor>(&layer.op))
      for (const Size size : tensor->elements) require(size, "its elements");
    for (const BodyUse& use : bodies_of(layer.op)) {
      const Graph& body = graph.bodies()[static_cast<size_t>(use.body)];
      with_context([&] { return fmt::format("body \"{}\"", body.name); },
                   [&] { require_symbols(body, require_order(body), known); });
    }
    for (const ValueId output : layer.outputs) find(output);
    for (const ValueId output : layer.outputs)
      for (const Size size : graph.value(output).type().shape)
        require(size, fmt::format("output \"{}\"", graph.value(output).name));
  });
}

void verify_structure(const Graph& graph) {
  const Order order = require_order(graph);
  require_inputs(graph, order);
  require_producers(graph, order);
  require_users(graph, order);
  require_names(graph, order);
  require_types(graph, order);
  for (const Graph& body : graph.bodies())
    with_context([&] { return fmt::format("body \"{}\"", body.name); },
                 [&] { verify_structure(body); });
}

}  // namespace

void verify(const Graph& graph) {
  verify_structure(graph);
  require_symbols(graph, graph.order(), {});
}

}  // namespace anneal
