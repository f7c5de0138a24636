// If, Loop and Scan: bodies become graphs beside the graph, and what they use from outside becomes
// their inputs. A branch whose condition is known is imported as if it stood in the graph itself.
#include <utility>

#include "anneal/importer/graph_importer.h"
#include "anneal/importer/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

constexpr int kMaxBodyDepth = 32;
constexpr int kMaxTries = 64;  // of choices between branches
// A body inside others may be imported again for each way to see the outer ones.
constexpr int kMaxNodesAgain = 1'000'000;

const GraphProto& graph_attribute(const NodeProto& proto, Node& node, std::string_view name) {
  node.ignore(name);
  for (const auto& attribute : proto.attribute())
    if (attribute.name() == name && attribute.has_g()) return attribute.g();
  node.invalid("attribute \"" + std::string(name) + "\" is missing");
}

// The values that a layer of control flow has for each of its outputs.
std::vector<std::string> names_of_outputs(const Node& node, size_t count) {
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) names.push_back(node.output_name(static_cast<int>(k)));
  return names;
}

void require_tensors(const Node& node, size_t from, size_t count) {
  for (size_t i = from; i < from + count; ++i) static_cast<void>(node.input(static_cast<int>(i)));
}

// The axes that a list of ONNX's gives to `count` tensors; 0 for all if there is no list.
std::vector<int64_t> per_tensor(Node& node, std::string_view name, size_t count) {
  auto values = node.find_integers(name).value_or(std::vector<int64_t>(count, 0));
  if (values.size() != count)
    node.invalid("attribute \"" + std::string(name) + "\" has " + std::to_string(values.size()) +
                 " values for " + std::to_string(count) + " tensors");
  return values;
}

Shape without_axis(const Shape& shape, int64_t axis) {
  Shape rest;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) rest.push_back(shape[i]);
  return rest;
}

bool of_same_kinds(const Signature& a, const Signature& b) {
  if (a.outputs.size() != b.outputs.size()) return true;  // inference says what is wrong
  for (size_t k = 0; k < a.outputs.size(); ++k)
    if (a.outputs[k].shape.rank() != b.outputs[k].shape.rank()) return false;
  return true;
}

}  // namespace

bool BranchChoices::takes_then(const NodeProto& node) {
  for (const auto& [known, takes_then] : choices_)
    if (known == &node) return takes_then;
  choices_.emplace_back(&node, true);
  return true;
}

bool BranchChoices::next() {
  while (!choices_.empty() && !choices_.back().second) choices_.pop_back();
  if (choices_.empty() || ++tries_ > kMaxTries) return false;
  choices_.back().second = false;
  return true;
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
    fail(Code::kUnsupported, "bodies nested more than " + std::to_string(kMaxBodyDepth) + " deep");
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

// first_node: how many were done before what is about to be done again.
void GraphImporter::count_again(int first_node) {
  nodes_again_ += nodes_done_ - first_node;
  if (nodes_again_ > kMaxNodesAgain)
    fail(Code::kUnsupported, "nested bodies whose types depend on each other: more than " +
                                 std::to_string(kMaxNodesAgain) + " nodes imported again");
}

bool GraphImporter::import_body(const GraphProto& proto, Body& body) {
  for (const NodeProto& node : proto.node())
    for (const std::string& output : node.output())
      body.model.reserved_names.insert(body.scope.prefix + output);
  import_initializers(proto, body.scope);
  import_nodes(proto.node(), body.scope);
  return import_outputs(proto, body.scope);
}

std::optional<Outputs> GraphImporter::import_branch(const GraphProto& branch,
                                                    const NodeProto& proto, const std::string& name,
                                                    Scope& scope) {
  Scope inner{.prefix = name + "/", .opsets = scope.opsets, .model = scope.model, .outer = &scope};
  inner.attributes = scope.attributes;
  inner.depth = scope.depth + 1;
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty()) continue;
    const auto outer = scope.outer_names.find(proto.output(i));
    inner.outer_names.emplace(branch.output(i).name(), outer != scope.outer_names.end()
                                                           ? outer->second
                                                           : scope.prefix + proto.output(i));
  }
  import_initializers(branch, inner);
  import_nodes(branch.node(), inner);
  Outputs outputs;
  for (int i = 0; i < proto.output_size(); ++i) {
    const Known& known = use(branch.output(i).name(), inner);
    if (known.value == ValueId::kNone) return std::nullopt;
    outputs.push_back(known.value);
  }
  return outputs;
}

// The branch in place of the If, with results that are refused where the condition differs.
std::optional<Outputs> GraphImporter::assume_branch(bool condition, const GraphProto& branch,
                                                    const NodeProto& proto, Node& node,
                                                    Scope& scope) {
  auto outputs = import_branch(branch, proto, node.name(), scope);
  if (!outputs) return std::nullopt;
  ValueId holds = node.input(0);
  if (!condition) {
    ProgramBuilder builder;
    const Reg input = builder.input(0, DataType::kBool);
    const Program negation = builder.finish(builder.apply(Opcode::kNot, input), DataType::kBool);
    holds = node.layer(Pointwise{negation}, {holds}, "else");
  }
  for (size_t k = 0; k < outputs->size(); ++k)
    (*outputs)[k] = node.layer(Require{}, {(*outputs)[k], holds}, "branch" + std::to_string(k));
  return outputs;
}

bool GraphImporter::import_if_valid(const GraphProto& proto, Body& body,
                                    std::exception_ptr& error) {
  try {
    return import_body(proto, body);
  } catch (const Error& invalid) {
    if (invalid.code() != Code::kInvalidModel) throw;
    error = std::current_exception();
    return false;
  }
}

std::optional<Outputs> GraphImporter::import_if(const NodeProto& proto, Node& node, Scope& scope) {
  node.expect_inputs(1, 1);
  const GraphProto& then_branch = graph_attribute(proto, node, "then_branch");
  const GraphProto& else_branch = graph_attribute(proto, node, "else_branch");
  for (const GraphProto* branch : {&then_branch, &else_branch})
    if (branch->output_size() != proto.output_size())
      node.invalid("a branch of " + std::to_string(branch->output_size()) + " outputs for " +
                   std::to_string(proto.output_size()) + " of the node");
  if (const auto condition = node.known_integers(0); condition && condition->size() == 1)
    return import_branch(condition->front() != 0 ? then_branch : else_branch, proto, node.name(),
                         scope);

  // Both branches take the captures of both: those of the first come first in the second too.
  const Unsupported before = unsupported_;
  const int first_node = nodes_done_;
  const auto then_body = begin_body(node.name() + "/then", scope);
  const auto else_body = begin_body(node.name() + "/else", scope);
  std::exception_ptr then_error, else_error;
  bool complete = import_if_valid(then_branch, *then_body, then_error);
  if (!then_error)
    for (const ValueId value : then_body->scope.captures) capture(value, else_body->scope);
  complete &= import_if_valid(else_branch, *else_body, else_error);
  if (then_error && else_error) std::rethrow_exception(then_error);
  if (then_error || else_error) {
    unsupported_ = before;
    count_again(first_node);
    return assume_branch(!then_error, then_error ? else_branch : then_branch, proto, node, scope);
  }
  if (!complete) return std::nullopt;
  for (const ValueId value : else_body->scope.captures) capture(value, then_body->scope);
  if (!of_same_kinds(then_body->graph.signature(), else_body->graph.signature())) {
    count_again(first_node);
    const bool takes_then = choices_.takes_then(proto);
    return assume_branch(takes_then, takes_then ? then_branch : else_branch, proto, node, scope);
  }

  Graph& graph = node.graph();
  const auto index = static_cast<int64_t>(graph.bodies().size());
  const size_t count = then_body->graph.outputs().size();
  std::vector<ValueId> inputs = {node.input(0)};
  inputs.insert(inputs.end(), then_body->scope.captures.begin(), then_body->scope.captures.end());
  graph.add_body(std::move(then_body->graph));
  graph.add_body(std::move(else_body->graph));
  const LayerId layer = graph.add({.name = node.name(),
                                   .op = If{.then_body = index, .else_body = index + 1},
                                   .inputs = std::move(inputs),
                                   .output_names = names_of_outputs(node, count)});
  return graph.layer(layer).outputs;
}

// Imports a body whose carried values may change their sizes from iteration to iteration: a size
// that the body does not give back as it got it becomes a symbol, until none is left.
std::unique_ptr<GraphImporter::Body> GraphImporter::import_iterated(const GraphProto& proto,
                                                                    const Node& node,
                                                                    std::vector<Type>& inputs,
                                                                    size_t first_carried,
                                                                    size_t carried, Scope& scope) {
  if (static_cast<size_t>(proto.input_size()) != inputs.size())
    node.invalid("the body has " + std::to_string(proto.input_size()) + " inputs, " +
                 std::to_string(inputs.size()) + " expected");
  const size_t first_output = first_carried == 0 ? 0 : 1;  // behind a Loop's next condition
  if (static_cast<size_t>(proto.output_size()) < first_output + carried)
    node.invalid("the body has too few outputs");
  SizeTable& sizes = node.sizes();
  const auto vary = [&](size_t k, int axis) {
    const Size size =
        sizes.fresh(node.name() + "/" + proto.input(static_cast<int>(first_carried + k)).name() +
                    ".size" + std::to_string(axis));
    sizes.set_varies(size);
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
    const Unsupported before = unsupported_;
    const int first_node = nodes_done_;
    for (size_t i = 0; i < inputs.size(); ++i)
      add_body_input(proto, static_cast<int>(i), inputs[i], *body);
    try {
      if (!import_body(proto, *body)) return nullptr;
    } catch (const Error& error) {
      // The sizes of the first iteration may be none that the body can have in the others.
      if (error.code() != Code::kInvalidModel || !vary_all()) throw;
      unsupported_ = before;
      count_again(first_node);
      continue;
    }
    bool changed = false;
    for (size_t k = 0; k < carried; ++k) {
      const Type& given = inputs[first_carried + k];
      const Graph& graph = body->graph;
      const Type& next = graph.value(graph.outputs()[first_output + k].value).type();
      const std::string name =
          "carried value \"" + proto.input(static_cast<int>(first_carried + k)).name() + "\"";
      if (given.dtype != next.dtype)
        node.invalid(name + " becomes " + std::string(anneal::name(next.dtype)) + " from " +
                     std::string(anneal::name(given.dtype)));
      if (given.shape.rank() != next.shape.rank()) node.unsupported(name + " changes its rank");
      for (int axis = 0; axis < given.shape.rank(); ++axis)
        if (!varies[k][static_cast<size_t>(axis)] && given.shape[axis] != next.shape[axis]) {
          varies[k][static_cast<size_t>(axis)] = changed = true;
          vary(k, axis);
        }
    }
    if (!changed) return body;
    unsupported_ = before;
    count_again(first_node);
  }
}

std::optional<Outputs> GraphImporter::import_loop(const NodeProto& proto, Node& node,
                                                  Scope& scope) {
  const GraphProto& body_proto = graph_attribute(proto, node, "body");
  if (proto.input_size() < 2) node.invalid("a Loop without its trip count and condition");
  const auto carried = static_cast<size_t>(std::max(node.input_count() - 2, 0));  // "" at the end
  require_tensors(node, 2, carried);
  std::vector<Type> inputs = {{DataType::kI64, {}}, {DataType::kBool, {}}};
  for (size_t k = 0; k < carried; ++k)
    inputs.push_back(node.graph().value(node.input(static_cast<int>(2 + k))).type());
  const auto body = import_iterated(body_proto, node, inputs, 2, carried, scope);
  if (!body) return std::nullopt;

  Graph& graph = node.graph();
  const auto index = static_cast<int64_t>(graph.bodies().size());
  std::vector<ValueId> layer_inputs = {node.optional_input(0), node.optional_input(1)};
  for (size_t k = 0; k < carried; ++k) layer_inputs.push_back(node.input(static_cast<int>(2 + k)));
  layer_inputs.insert(layer_inputs.end(), body->scope.captures.begin(), body->scope.captures.end());
  const size_t count = body->graph.outputs().size() - 1;
  graph.add_body(std::move(body->graph));
  const LayerId layer =
      graph.add({.name = node.name(),
                 .op = Loop{.body = index, .carried = static_cast<int64_t>(carried)},
                 .inputs = std::move(layer_inputs),
                 .output_names = names_of_outputs(node, count)});
  return graph.layer(layer).outputs;
}

std::optional<Outputs> GraphImporter::import_scan(const NodeProto& proto, Node& node,
                                                  Scope& scope) {
  const GraphProto& body_proto = graph_attribute(proto, node, "body");
  if (node.opset() < 9) return import_batched_scan(body_proto, node, scope);
  const int64_t scanned = node.integer("num_scan_inputs");
  if (scanned < 1 || scanned > node.input_count())
    node.invalid(std::to_string(scanned) + " of " + std::to_string(node.input_count()) +
                 " inputs are scanned");
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
  const auto body = import_iterated(body_proto, node, inputs, 0, carried, scope);
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
