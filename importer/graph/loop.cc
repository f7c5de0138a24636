// Loop.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/loop_body.h"
#include "anneal/importer/graph/open_ranks.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

// Whether an integer or a condition of one element is surely at least, or surely less than, 1.
std::optional<bool> at_least_one(const Graph& graph, ValueId value) {
  const auto& elements = graph.value(value).fact.elements;
  if (!elements || elements->size() != 1 || !elements->front().known()) return std::nullopt;
  return elements->front().value() >= 1;
}

// Whether the conditions of a loop, which has a trip count, are true from the first to the last:
// the body returns the condition that it got, or a known one, which it computes or captures.
bool stays_true(const Graph& graph, const std::vector<ValueId>& layer_inputs, const Graph& body,
                size_t carried) {
  const auto is_true = [](const Graph& of, ValueId id) {
    const auto& elements = of.value(id).fact.elements;
    return elements && elements->size() == 1 && elements->front() == Size(1);
  };
  if (layer_inputs[1] != ValueId::kNone && !is_true(graph, layer_inputs[1])) return false;
  const ValueId next = body.outputs()[0].value;
  if (next == body.inputs()[1] || is_true(body, next)) return true;
  for (size_t i = 2 + carried; i < layer_inputs.size(); ++i)
    if (body.inputs()[i] == next) return is_true(graph, layer_inputs[i]);
  return false;
}

// The values before the first iteration.
struct LoopStart {
  ValueId trips, condition;  // kNone: absent
  std::vector<ValueId> carried;
};

// The body once, in the graph itself, where carried values begin with fewer or more axes than the
// body gives them: exporters begin with a number where nothing is read. Then a loop has the types
// of the second iteration; that there is a first is checked while running, unless it is known.
// Gives the elements that the iteration adds to stacked results, and moves the start behind it;
// none if something is not supported, which has been reported.
std::optional<Outputs> import_first_iteration(const GraphProto& proto, Node& node, LoopStart& start,
                                              Scope& scope, NodeImporter& nodes) {
  const auto require = [&](ValueId holds) { node.layer(Require{}, {holds}, "runs_at_least_once"); };
  const auto known = [&](ValueId value) { return at_least_one(node.graph(), value) == true; };
  if (start.trips != ValueId::kNone) {
    if (!known(start.trips))
      require(pointwise(node, "first/is_counted", {start.trips}, DataType::kBool,
                        [](Expressions in) { return !(in[0] < 1); }));
    start.trips = pointwise(node, "trips_left", {start.trips}, DataType::kI64,
                            [](Expressions in) { return in[0] - 1; });
  }
  if (start.condition != ValueId::kNone && !known(start.condition)) require(start.condition);

  Scope inner = scope.body_scope(node.name() + "/first/");
  const auto bind = [&](int index, ValueId value) {
    inner.define(proto.input(index).name(), {ScopedValue::State::kImported, value});
  };
  const Dims dims = counts_with_axis(proto) ? Dims{1} : Dims{};
  bind(0, node.constant_value(Tensor::of<int64_t>(DataType::kI64, dims, {{0}}), "first/iteration"));
  bind(1, node.constant_value(Tensor::of<uint8_t>(DataType::kBool, {}, {{1}}), "first/goes_on"));
  for (size_t k = 0; k < start.carried.size(); ++k) bind(static_cast<int>(2 + k), start.carried[k]);

  const auto outputs = BodyImporter(nodes).import_inline(proto, inner);
  if (!outputs) return std::nullopt;
  for (int i = 1; i < proto.output_size(); ++i)
    if (refuse_open_rank((*outputs)[static_cast<size_t>(i)], "result of a body",
                         inner.prefix + proto.output(i).name(), "", inner, nodes.context()))
      return std::nullopt;
  start.condition = outputs->front();
  const auto carried = outputs->begin() + 1;
  const auto elements = carried + static_cast<ptrdiff_t>(start.carried.size());
  start.carried.assign(carried, elements);
  return Outputs(elements, outputs->end());
}

// The stacked results with the elements of an iteration before the loop.
void prepend_first(Node& node, const Outputs& first, size_t carried, Outputs& outputs) {
  const Graph& graph = node.graph();
  for (size_t k = carried; k < outputs.size(); ++k) {
    const ValueId element = first[k - carried];
    std::vector<Size> shape = {1};
    for (const Size size : graph.value(element).type().shape) shape.push_back(size);
    if (static_cast<int>(shape.size()) != graph.value(outputs[k]).type().shape.rank())
      node.unsupported(fmt::format("elements of stacked result {} change their rank", k - carried));
    const std::string suffix = fmt::format("stacked{}", k);
    const ValueId stack = reshape(node, element, shape, suffix + "/first");
    outputs[k] = node.result(Concat{}, {stack, outputs[k]}, suffix, static_cast<int>(k))[0];
  }
}

// Carried values that the body gives back as it got them become values of the graph around it, and
// constants of the body where they are constant: Keras writes the weights of recurrent layers so.
// Gives them by their places among the carried values; kNone for those that vary.
std::vector<ValueId> take_invariants(const Graph& graph, LoopStart& start, Body& body) {
  const std::vector<ValueId> old_inputs = body.graph.inputs();
  const std::vector<Graph::Output> old_outputs = body.graph.outputs();
  const size_t carried = start.carried.size();
  std::vector<ValueId> invariants(carried, ValueId::kNone), varying, captured, moved;
  std::vector<ValueId> inputs(old_inputs.begin(), old_inputs.begin() + 2);
  for (size_t k = 0; k < carried; ++k) {
    const ValueId inside = old_inputs[2 + k], outside = start.carried[k];
    if (old_outputs[1 + k].value != inside) {
      varying.push_back(outside);
      inputs.push_back(inside);
      continue;
    }
    invariants[k] = outside;
    if (const Tensor* constant = graph.constant(outside)) {
      const std::string name = graph.value(outside).name;
      body.graph.replace_uses(inside, body.graph.add_constant(name, *constant));
    } else {
      moved.push_back(inside);
      captured.push_back(outside);
    }
  }
  if (varying.size() == carried) return invariants;
  inputs.insert(inputs.end(), old_inputs.begin() + static_cast<ptrdiff_t>(2 + carried),
                old_inputs.end());
  inputs.insert(inputs.end(), moved.begin(), moved.end());
  std::vector<Graph::Output> outputs;
  for (size_t k = 0; k < old_outputs.size(); ++k)
    if (k < 1 || k > carried || invariants[k - 1] == ValueId::kNone)
      outputs.push_back(body.graph.outputs()[k]);
  body.graph.keep_ports(std::move(inputs), std::move(outputs));
  body.scope.captures.insert(body.scope.captures.end(), captured.begin(), captured.end());
  start.carried = std::move(varying);
  return invariants;
}

// first: elements of an iteration before the loop, if there is one.
Outputs add_loop(Node& node, LoopStart start, Body& body, const std::optional<Outputs>& first) {
  Graph& graph = node.graph();
  const size_t all_carried = start.carried.size();
  std::vector<std::string> names = names_of_outputs(node, body.graph.outputs().size() - 1);
  if (first) std::fill(names.begin() + static_cast<ptrdiff_t>(all_carried), names.end(), "");
  const std::vector<ValueId> invariants = take_invariants(graph, start, body);
  for (size_t k = all_carried; k-- > 0;)
    if (invariants[k] != ValueId::kNone) names.erase(names.begin() + static_cast<ptrdiff_t>(k));
  const size_t carried = start.carried.size();
  const auto index = static_cast<int64_t>(graph.bodies().size());
  std::vector<ValueId> inputs = {start.trips, start.condition};
  inputs.insert(inputs.end(), start.carried.begin(), start.carried.end());
  inputs.insert(inputs.end(), body.scope.captures.begin(), body.scope.captures.end());
  const bool counted =
      inputs[0] != ValueId::kNone && stays_true(graph, inputs, body.graph, carried);
  // A Loop of the graph has both.
  if (inputs[0] == ValueId::kNone)
    inputs[0] = node.constant_value(
        Tensor::of<int64_t>(DataType::kI64, {}, {{std::numeric_limits<int64_t>::max()}}), "trips");
  if (inputs[1] == ValueId::kNone)
    inputs[1] = node.constant_value(Tensor::of<uint8_t>(DataType::kBool, {}, {{1}}), "goes_on");
  graph.add_body(std::move(body.graph));
  const LayerId layer = graph.add(
      {.name = node.name(),
       .op = Loop{.body = index, .carried = static_cast<int64_t>(carried), .counted = counted},
       .inputs = std::move(inputs),
       .output_names = std::move(names)});
  Outputs outputs = graph.layer(layer).outputs;
  for (size_t k = 0; k < all_carried; ++k)
    if (invariants[k] != ValueId::kNone)
      outputs.insert(outputs.begin() + static_cast<ptrdiff_t>(k), invariants[k]);
  if (first) prepend_first(node, *first, all_carried, outputs);
  return outputs;
}

}  // namespace

std::optional<Outputs> import_loop(const NodeProto& proto, Node& node, Scope& scope,
                                   NodeImporter& nodes) {
  const GraphProto& body_proto = graph_attribute(proto, node, "body");
  if (proto.input_size() < 2) node.invalid("a Loop without its trip count and condition");
  const auto carried = static_cast<size_t>(std::max(node.input_count() - 2, 0));  // "" at the end
  LoopStart start{};
  for (size_t k = 0; k < carried; ++k) start.carried.push_back(node.input(static_cast<int>(2 + k)));
  start.trips = node.optional_input(0);
  start.condition = node.optional_input(1);
  const auto import_from = [&](int64_t first_iteration) {
    std::vector<Type> inputs = {{DataType::kI64, {}}, {DataType::kBool, {}}};
    for (const ValueId value : start.carried) inputs.push_back(node.graph().value(value).type());
    return import_loop_body(body_proto, node, {std::move(inputs), 2, carried, first_iteration},
                            scope, nodes);
  };
  ImportContext& context = nodes.context();
  const int first_node = context.nodes_done;
  LoopBody iterated = import_from(0);
  std::optional<Outputs> first;  // elements of an iteration before the loop
  if (!iterated.changes_rank.empty()) {
    const auto is_none = [&](ValueId value) {
      return value != ValueId::kNone && at_least_one(node.graph(), value) == false;
    };
    if (is_none(start.trips) || is_none(start.condition)) {
      if (static_cast<size_t>(proto.output_size()) > carried)
        node.unsupported(
            fmt::format("stacked results of no iteration, where {}", iterated.changes_rank));
      return Outputs(start.carried.begin(), start.carried.end());
    }
    context.choices.count_again(context.nodes_done - first_node);
    first = import_first_iteration(body_proto, node, start, scope, nodes);
    if (!first) return std::nullopt;
    iterated = import_from(1);
    if (!iterated.changes_rank.empty()) node.unsupported(iterated.changes_rank);
  }
  if (!iterated.body) return std::nullopt;
  return add_loop(node, start, *iterated.body, first);
}

}  // namespace anneal
