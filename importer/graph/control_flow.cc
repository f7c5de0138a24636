// Loop and Scan, and what all control flow shares: bodies become graphs beside the graph, and what
// they use from outside becomes their inputs.
#include "anneal/importer/graph/control_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/importer/graph/graph_importer.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

constexpr int kMaxBodyDepth = 128;

void require_tensors(const Node& node, size_t from, size_t count) {
  for (size_t i = from; i < from + count; ++i) static_cast<void>(node.input(static_cast<int>(i)));
}

// The axes that a list of ONNX's gives to `count` tensors; 0 for all if there is no list.
std::vector<int64_t> per_tensor(Node& node, std::string_view name, size_t count) {
  auto values = node.find_integers(name).value_or(std::vector<int64_t>(count, 0));
  if (values.size() != count)
    node.invalid(
        fmt::format("attribute \"{}\" has {} values for {} tensors", name, values.size(), count));
  return values;
}

Shape without_axis(const Shape& shape, int64_t axis) {
  Shape rest;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) rest.push_back(shape[i]);
  return rest;
}

// Whether an integer or a condition of one element is surely at least, or surely less than, 1.
std::optional<bool> at_least_one(const Graph& graph, ValueId value) {
  const auto& elements = graph.value(value).fact.elements;
  if (!elements || elements->size() != 1 || !elements->front().known()) return std::nullopt;
  return elements->front().value() >= 1;
}

// Whether the conditions of a loop, which has a trip count, are true from the first to the last:
// the body gives back the one it got, or one that is known, its own or a captured one.
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

}  // namespace

const GraphProto& graph_attribute(const NodeProto& proto, Node& node, std::string_view name) {
  node.ignore(name);
  for (const auto& attribute : proto.attribute())
    if (attribute.name() == name && attribute.has_g()) return attribute.g();
  node.invalid(fmt::format("attribute \"{}\" is missing", name));
}

std::vector<std::string> names_of_outputs(const GraphProto& graph) {
  std::vector<std::string> names;
  for (const auto& output : graph.output()) names.push_back(output.name());
  return names;
}

std::vector<std::string> names_of_outputs(const Node& node, size_t count) {
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) names.push_back(node.output_name(static_cast<int>(k)));
  return names;
}

std::optional<Outputs> GraphImporter::import_control_flow(const NodeProto& proto, Node& node,
                                                          Scope& scope) {
  if (proto.op_type() == "If") return import_if(proto, node, scope);
  if (proto.op_type() == "Loop") return import_loop(proto, node, scope);
  return import_scan(proto, node, scope);
}

std::unique_ptr<GraphImporter::Body> GraphImporter::begin_body(const std::string& name,
                                                               Scope& scope) {
  if (scope.depth >= kMaxBodyDepth)
    fail(Code::kUnsupported, fmt::format("bodies nested more than {} deep", kMaxBodyDepth));
  auto body = std::make_unique<Body>(scope.model->graph.make_body(), scope.model->folder);
  body->graph.name = name;
  body->scope.prefix = name + "/";
  body->scope.opsets = scope.opsets;
  body->scope.model = &body->model;
  body->scope.outer = &scope;
  body->scope.attributes = scope.attributes;
  body->scope.depth = scope.depth + 1;
  return body;
}

void GraphImporter::add_body_input(const GraphProto& proto, int index, const Type& type,
                                   Body& body) {
  const std::string& name = proto.input(index).name();
  define(name, {State::kImported, body.graph.add_input(body.scope.prefix + name, type)},
         body.scope);
}

bool GraphImporter::import_body(const GraphProto& proto, Body& body) {
  for (const NodeProto& node : proto.node())
    for (const std::string& output : node.output())
      body.model.reserved_names.insert(body.scope.prefix + output);
  import_initializers(proto, body.scope);
  import_nodes(proto.node(), names_of_outputs(proto), body.scope);
  return import_outputs(proto, body.scope);
}

// Imports a body whose carried values may change their sizes from iteration to iteration: a size
// that the body does not give back as it got it becomes a symbol, until none is left.
// first_iteration: what a Loop's body calls the first time that it is run.
GraphImporter::LoopBody GraphImporter::import_iterated(const GraphProto& proto, const Node& node,
                                                       std::vector<Type> inputs,
                                                       size_t first_carried, size_t carried,
                                                       Scope& scope, int64_t first_iteration) {
  if (static_cast<size_t>(proto.input_size()) != inputs.size())
    node.invalid(
        fmt::format("the body has {} inputs, {} expected", proto.input_size(), inputs.size()));
  const size_t first_output = first_carried == 0 ? 0 : 1;  // behind a Loop's next condition
  if (static_cast<size_t>(proto.output_size()) < first_output + carried)
    node.invalid("the body has too few outputs");
  SizeTable& sizes = node.sizes();
  const auto vary = [&](size_t k, int axis) {
    const Size size =
        sizes.fresh(fmt::format("{}/{}.size{}", node.name(),
                                proto.input(static_cast<int>(first_carried + k)).name(), axis));
    inputs[first_carried + k].shape[axis] = size;
  };
  // Imported again because of an outer body, this one begins with what varied before.
  std::vector<std::vector<bool>>& varies = varying_[node.name()];
  varies.resize(carried);
  for (size_t k = 0; k < carried; ++k) {
    varies[k].resize(static_cast<size_t>(inputs[first_carried + k].shape.rank()));
    for (size_t axis = 0; axis < varies[k].size(); ++axis)
      if (varies[k][axis]) vary(k, static_cast<int>(axis));
  }
  const auto vary_all = [&] {
    bool any = false;
    for (size_t k = 0; k < carried; ++k)
      for (size_t axis = 0; axis < varies[k].size(); ++axis)
        if (!varies[k][axis]) {
          varies[k][axis] = any = true;
          vary(k, static_cast<int>(axis));
        }
    return any;
  };
  for (;;) {
    auto body = begin_body(node.name() + "/body", scope);
    const UnsupportedReport before = unsupported_;
    const int first_node = nodes_done_;
    for (size_t i = 0; i < inputs.size(); ++i)
      add_body_input(proto, static_cast<int>(i), inputs[i], *body);
    if (first_iteration != 0) count_iterations_from(first_iteration, proto.input(0).name(), *body);
    try {
      if (!import_body(proto, *body)) return {};
    } catch (const Error& error) {
      // The sizes of the first iteration may be none that the body can have in the others.
      if (error.code() != Code::kInvalidModel || !vary_all()) throw;
      unsupported_ = before;
      choices_.count_again(nodes_done_ - first_node);
      continue;
    }
    const auto& results = body->graph.outputs();
    for (size_t k = first_output; k < results.size(); ++k)
      if (refuse_open_rank(results[k].value, "result of a body", results[k].name, "", body->scope))
        return {};
    bool changed = false;
    for (size_t k = 0; k < carried; ++k) {
      const Type& given = inputs[first_carried + k];
      const Graph& graph = body->graph;
      const Type& next = graph.value(graph.outputs()[first_output + k].value).type();
      const std::string name =
          "carried value \"" + proto.input(static_cast<int>(first_carried + k)).name() + "\"";
      if (given.dtype != next.dtype)
        node.invalid(fmt::format("{} becomes {} from {}", name, anneal::to_string(next.dtype),
                                 anneal::to_string(given.dtype)));
      if (given.shape.rank() != next.shape.rank()) return {nullptr, name + " changes its rank"};
      for (int axis = 0; axis < given.shape.rank(); ++axis)
        if (!varies[k][static_cast<size_t>(axis)] && given.shape[axis] != next.shape[axis]) {
          varies[k][static_cast<size_t>(axis)] = changed = true;
          vary(k, axis);
        }
    }
    if (!changed) return {std::move(body), ""};
    unsupported_ = before;
    choices_.count_again(nodes_done_ - first_node);
  }
}

void GraphImporter::count_iterations_from(int64_t first, const std::string& name, Body& body) {
  NamedValue& iteration = body.scope.values.at(name);
  ProgramBuilder builder;
  const Reg counted = builder.input(0, DataType::kI64);
  const Program program = builder.finish(
      builder.apply(Opcode::kAdd, counted, builder.constant(RegisterType::kI64, first)),
      DataType::kI64);
  const LayerId layer = body.graph.add({.name = body.scope.prefix + name + "/counted",
                                        .op = Pointwise{program},
                                        .inputs = {iteration.value},
                                        .output_names = {}});
  iteration.value = body.graph.layer(layer).outputs[0];
}

// The body once, in the graph itself, where carried values begin with fewer or more axes than the
// body gives them: exporters begin with a number where nothing is read. Then a loop has the types
// of the second iteration; that there is a first is checked while running, unless it is known.
std::optional<Outputs> GraphImporter::import_first_iteration(const GraphProto& proto, Node& node,
                                                             LoopStart& start, Scope& scope) {
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

  Scope inner{.prefix = node.name() + "/first/",
              .opsets = scope.opsets,
              .model = scope.model,
              .outer = &scope};
  inner.attributes = scope.attributes;
  inner.depth = scope.depth + 1;
  const auto bind = [&](int index, ValueId value) {
    define(proto.input(index).name(), {State::kImported, value}, inner);
  };
  bind(0, node.constant_value(Tensor::of<int64_t>(DataType::kI64, {}, {{0}}), "first/iteration"));
  bind(1, node.constant_value(Tensor::of<uint8_t>(DataType::kBool, {}, {{1}}), "first/goes_on"));
  for (size_t k = 0; k < start.carried.size(); ++k) bind(static_cast<int>(2 + k), start.carried[k]);
  import_initializers(proto, inner);
  import_nodes(proto.node(), names_of_outputs(proto), inner);

  Outputs outputs;
  for (int i = 0; i < proto.output_size(); ++i) {
    const ValueId value = use(proto.output(i).name(), inner).value;
    if (value == ValueId::kNone) return std::nullopt;
    const std::string name = inner.prefix + proto.output(i).name();
    if (i > 0 && refuse_open_rank(value, "result of a body", name, "", inner)) return std::nullopt;
    outputs.push_back(value);
  }
  start.condition = outputs[0];
  for (size_t k = 0; k < start.carried.size(); ++k) start.carried[k] = outputs[1 + k];
  return Outputs(outputs.begin() + 1 + static_cast<ptrdiff_t>(start.carried.size()), outputs.end());
}

std::optional<Outputs> GraphImporter::import_loop(const NodeProto& proto, Node& node,
                                                  Scope& scope) {
  const GraphProto& body_proto = graph_attribute(proto, node, "body");
  if (proto.input_size() < 2) node.invalid("a Loop without its trip count and condition");
  const auto carried = static_cast<size_t>(std::max(node.input_count() - 2, 0));  // "" at the end
  require_tensors(node, 2, carried);
  LoopStart start{node.optional_input(0), node.optional_input(1), {}};
  for (size_t k = 0; k < carried; ++k) start.carried.push_back(node.input(static_cast<int>(2 + k)));
  const auto types = [&] {
    std::vector<Type> inputs = {{DataType::kI64, {}}, {DataType::kBool, {}}};
    for (const ValueId value : start.carried) inputs.push_back(node.graph().value(value).type());
    return inputs;
  };
  const int first_node = nodes_done_;
  LoopBody iterated = import_iterated(body_proto, node, types(), 2, carried, scope, 0);
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
    choices_.count_again(nodes_done_ - first_node);
    first = import_first_iteration(body_proto, node, start, scope);
    if (!first) return std::nullopt;
    iterated = import_iterated(body_proto, node, types(), 2, carried, scope, 1);
    if (!iterated.changes_rank.empty()) node.unsupported(iterated.changes_rank);
  }
  if (!iterated.body) return std::nullopt;

  Graph& graph = node.graph();
  Body& body = *iterated.body;
  const auto index = static_cast<int64_t>(graph.bodies().size());
  std::vector<ValueId> inputs = {start.trips, start.condition};
  inputs.insert(inputs.end(), start.carried.begin(), start.carried.end());
  inputs.insert(inputs.end(), body.scope.captures.begin(), body.scope.captures.end());
  const size_t count = body.graph.outputs().size() - 1;
  std::vector<std::string> names = names_of_outputs(node, count);
  if (first) std::fill(names.begin() + static_cast<ptrdiff_t>(carried), names.end(), "");
  const bool counted =
      inputs[0] != ValueId::kNone && stays_true(graph, inputs, body.graph, carried);
  graph.add_body(std::move(body.graph));
  const LayerId layer = graph.add(
      {.name = node.name(),
       .op = Loop{.body = index, .carried = static_cast<int64_t>(carried), .counted = counted},
       .inputs = std::move(inputs),
       .output_names = std::move(names)});
  Outputs outputs = graph.layer(layer).outputs;
  for (size_t k = carried; first && k < count; ++k) {
    const ValueId element = (*first)[k - carried];
    std::vector<Size> shape = {1};
    for (const Size size : graph.value(element).type().shape) shape.push_back(size);
    if (static_cast<int>(shape.size()) != graph.value(outputs[k]).type().shape.rank())
      node.unsupported(fmt::format("elements of stacked result {} change their rank", k - carried));
    const std::string suffix = fmt::format("stacked{}", k);
    const ValueId stack = reshape(node, element, shape, suffix + "/first");
    outputs[k] = node.result(Concat{}, {stack, outputs[k]}, suffix, static_cast<int>(k))[0];
  }
  return outputs;
}

std::optional<Outputs> GraphImporter::import_scan(const NodeProto& proto, Node& node,
                                                  Scope& scope) {
  const GraphProto& body_proto = graph_attribute(proto, node, "body");
  if (node.opset() < 9) return import_batched_scan(body_proto, node, scope);
  const int64_t scanned = node.integer("num_scan_inputs");
  if (scanned < 1 || scanned > node.input_count())
    node.invalid(fmt::format("{} of {} inputs are scanned", scanned, node.input_count()));
  const auto sequences = static_cast<size_t>(scanned);
  const size_t carried = static_cast<size_t>(node.input_count()) - sequences;
  const auto elements = static_cast<size_t>(body_proto.output_size()) - carried;
  if (static_cast<size_t>(body_proto.output_size()) < carried)
    node.invalid("the body has too few outputs");
  require_tensors(node, 0, carried + sequences);
  Scan scan{.carried = static_cast<int64_t>(carried),
            .axes = per_tensor(node, "scan_input_axes", sequences),
            .reverse = per_tensor(node, "scan_input_directions", sequences),
            .output_axes = per_tensor(node, "scan_output_axes", elements),
            .output_reverse = per_tensor(node, "scan_output_directions", elements)};

  std::vector<ValueId> layer_inputs;
  std::vector<Type> inputs;
  for (size_t i = 0; i < carried + sequences; ++i) {
    layer_inputs.push_back(node.input(static_cast<int>(i)));
    inputs.push_back(node.graph().value(layer_inputs.back()).type());
    if (i < carried) continue;
    int64_t& axis = scan.axes[i - carried];
    axis = node.resolve_axis(axis, inputs.back().shape.rank());
    inputs.back().shape = without_axis(inputs.back().shape, axis);
  }
  const LoopBody iterated = import_iterated(body_proto, node, inputs, 0, carried, scope, 0);
  if (!iterated.changes_rank.empty()) node.unsupported(iterated.changes_rank);
  Body* const body = iterated.body.get();
  if (!body) return std::nullopt;
  for (size_t k = 0; k < elements; ++k) {
    const Type& type = body->graph.value(body->graph.outputs()[carried + k].value).type();
    scan.output_axes[k] = node.resolve_axis(scan.output_axes[k], type.shape.rank() + 1);
  }

  Graph& graph = node.graph();
  scan.body = static_cast<int64_t>(graph.bodies().size());
  layer_inputs.insert(layer_inputs.end(), body->scope.captures.begin(), body->scope.captures.end());
  const size_t count = body->graph.outputs().size();
  graph.add_body(std::move(body->graph));
  const LayerId layer = graph.add({.name = node.name(),
                                   .op = std::move(scan),
                                   .inputs = std::move(layer_inputs),
                                   .output_names = names_of_outputs(node, count)});
  return graph.layer(layer).outputs;
}

}  // namespace anneal
