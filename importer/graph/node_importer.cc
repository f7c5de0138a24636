#include "anneal/importer/graph/node_importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/open_ranks.h"
#include "anneal/importer/graph/sequences.h"
#include "anneal/importer/graph/stack.h"
#include "anneal/importer/node/attempt.h"
#include "anneal/importer/onnx/minifloat.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_proto.h"

namespace anneal {
namespace {

// The layer of an operator from outside.
Outputs import_custom(const std::shared_ptr<const CustomOperator>& found, Node& node) {
  const CustomOperator::Description& description = found->description();
  Custom op{.domain = description.domain,
            .type = description.type,
            .library = description.library,
            .since = description.since,
            .version = description.version,
            .outputs = node.output_count(),
            .attributes = node.all_attributes(),
            .definition = found};
  std::vector<ValueId> inputs;
  for (int i = 0; i < node.input_count(); ++i)
    inputs.push_back(node.has_input(i) ? node.input(i) : ValueId::kNone);
  return node.results(std::move(op), std::move(inputs));
}

using anneal_onnx::FunctionProto;
using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;
using State = ScopedValue::State;

// FunctionTable may call functions: a short file can stand for a graph of any size.

std::vector<Node::Attribute> attributes_of(const NodeProto& proto, const Scope& scope) {
  std::vector<Node::Attribute> attributes;
  for (const auto& attribute : proto.attribute()) {
    for (const Node::Attribute& other : attributes)
      if (other.name == attribute.name())
        fail(ErrorCode::kInvalidModel,
             fmt::format("attribute \"{}\" is given twice", attribute.name()));
    if (attribute.ref_attr_name().empty()) {
      attributes.push_back({attribute.name(), &attribute});
      continue;
    }
    for (const Node::Attribute& bound : scope.attributes)
      if (bound.name == attribute.ref_attr_name())
        attributes.push_back({attribute.name(), bound.data});
  }
  return attributes;
}

// The attributes that the call gives to the function, and defaults.
std::vector<Node::Attribute> bound_attributes(const FunctionProto& function, const NodeProto& call,
                                              const Scope& scope) {
  std::vector<Node::Attribute> bound;
  for (const Node::Attribute& given : attributes_of(call, scope)) {
    const bool is_declared =
        std::ranges::find(function.attribute(), given.name) != function.attribute().end() ||
        std::ranges::any_of(function.attribute_proto(),
                            [&](const auto& each) { return each.name() == given.name; });
    if (!is_declared)
      fail(ErrorCode::kInvalidModel,
           fmt::format("the function has no attribute \"{}\"", given.name));
    bound.push_back(given);
  }
  for (const auto& attribute : function.attribute_proto())
    if (std::ranges::find(bound, attribute.name(), &Node::Attribute::name) == bound.end())
      bound.push_back({attribute.name(), &attribute});
  return bound;
}

void define_unsupported(const NodeProto& proto, Scope& scope) {
  for (const std::string& output : proto.output())
    if (!output.empty()) scope.define(output, {});
}

// Operators that read floats of 8 and 4 bits, and those that move elements of any type.
constexpr std::string_view kConverting[] = {"Cast", "CastLike", "DequantizeLinear",
                                            "QuantizeLinear", "TRT_FP8DequantizeLinear"};
constexpr std::string_view kMoving[] = {"Concat",   "Expand",  "Flatten",   "Gather",
                                        "Identity", "Reshape", "Slice",     "Split",
                                        "Squeeze",  "Tile",    "Transpose", "Unsqueeze"};

bool is_one_of(const NodeProto& proto, std::span<const std::string_view> names) {
  const std::string domain = canonical_domain(proto.domain());
  return (domain.empty() || domain == kMicrosoft || domain == kTensorRt) &&
         std::ranges::find(names, proto.op_type()) != names.end();
}

// ONNX's element type of such a float among the inputs that the node cannot read; 0 if none is.
int32_t unreadable_minifloat(const NodeProto& proto, std::span<const ValueId> inputs,
                             const Node::Model& model) {
  if (is_one_of(proto, kConverting) || is_one_of(proto, kMoving)) return 0;
  for (const ValueId input : inputs)
    if (const auto found = model.narrow_types.find(input);
        found != model.narrow_types.end() && minifloat(found->second))
      return found->second;
  return 0;
}

std::vector<std::string> graph_names(const NodeProto& proto, const Scope& scope) {
  std::vector<std::string> names;
  for (const std::string& output : proto.output())
    names.push_back(output.empty() ? "" : scope.graph_name(output));
  return names;
}

}  // namespace

void NodeImporter::import_initializers(const GraphProto& graph, Scope& scope,
                                       const std::set<std::string>& left_out) {
  Node::Model& model = *scope.model;
  for (const auto& proto : graph.initializer()) {
    if (proto.name().empty()) fail(ErrorCode::kInvalidModel, "an initializer without a name");
    if (left_out.contains(proto.name())) continue;
    const std::string name = scope.prefix + proto.name();
    const auto constant = attempt(
        [&] { return model.graph.add_constant(name, to_tensor(proto, model.folder, model.file)); });
    if (constant) {
      if (is_narrow(proto.data_type())) model.narrow_types.emplace(*constant, proto.data_type());
      scope.define(proto.name(), {State::kImported, *constant});
      continue;
    }
    if (constant.error().code() != ErrorCode::kUnsupported) {
      Error error = constant.error();
      add_context(error, fmt::format("tensor \"{}\"", proto.name()));
      throw error;
    }
    context_.unsupported.add("initializer", name, constant.error().what());
    scope.define(proto.name(), {});
  }
  for (const auto& proto : graph.sparse_initializer()) {
    context_.unsupported.add("initializer", scope.prefix + proto.values().name(),
                             "a sparse tensor");
    scope.define(proto.values().name(), {});
  }
}

void NodeImporter::import_nodes(const NodeList& nodes, std::span<const std::string> wanted,
                                Scope& scope) {
  scope.nodes = &nodes;
  scope.wanted = wanted;
  for (const int index : node_order(nodes, wanted)) {
    if (++context_.nodes_done > kMaxNodes)
      fail(ErrorCode::kUnsupported, fmt::format("more than {} nodes", kMaxNodes));
    if (context_.choices.is_retry()) context_.choices.count_again(1);
    const NodeProto& proto = nodes[index];
    const std::string name = scope.prefix + node_name(proto, index);
    with_context(
        [&] { return fmt::format("while importing node \"{}\" ({})", name, proto.op_type()); },
        [&] { import_node(proto, name, scope); });
  }
}

bool NodeImporter::import_outputs(const GraphProto& graph, Scope& scope) {
  bool complete = true;
  const bool is_main = &scope.model->graph == &context_.main_graph;
  std::unordered_set<std::string> names;
  for (const auto& output : graph.output()) {
    const ScopedValue& known = with_context(
        [] { return "graph output"; },
        [&]() -> const ScopedValue& { return scope.use(output.name(), context_.unsupported); });
    // Results of a body are taken by position. A caller of the main graph asks by name, which an
    // output that is listed twice has once.
    std::string name = output.name();
    if (is_main && names.contains(name)) continue;
    for (int n = 2; !names.insert(name).second; ++n) name = fmt::format("{}.{}", output.name(), n);
    if (known.value == ValueId::kNone) {
      complete = false;
      if (is_sequence(known))
        context_.unsupported.add("graph output", scope.prefix + output.name(), "a sequence");
    } else if (const auto narrow = scope.model->narrow_types.find(known.value);
               narrow != scope.model->narrow_types.end() && minifloat(narrow->second)) {
      complete = false;
      context_.unsupported.add(
          "graph output", scope.prefix + output.name(),
          fmt::format("the element type {}: add a Cast to float", onnx_type_name(narrow->second)));
    } else if (is_main &&
               refuse_open_rank(known.value, "graph output", output.name(), "", scope, context_)) {
      complete = false;
    } else {
      scope.model->graph.mark_output(known.value, scope.prefix + name);
    }
  }
  return complete;
}

bool NodeImporter::find_inputs(const NodeProto& proto, Scope& scope, std::vector<ValueId>* inputs) {
  bool complete = true;
  for (const std::string& input : proto.input()) {
    ValueId value = ValueId::kNone;
    if (!input.empty()) {
      const ScopedValue& known = scope.use(input, context_.unsupported);
      value = known.value;
      complete = complete && known.state == State::kImported;
    }
    inputs->push_back(value);
  }
  return complete;
}

// False if an input is a sequence where a tensor is wanted, which is reported, or comes from a node
// that is not supported.
bool NodeImporter::report_sequences(const NodeProto& proto, const std::string& name,
                                    SequenceInputs taken, Scope& scope) {
  bool complete = true;
  const auto is_taken = [&](int i) {
    return taken == SequenceInputs::kFirst ? i == 0 : taken == SequenceInputs::kCarried && i >= 2;
  };
  for (int i = 0; i < proto.input_size(); ++i) {
    if (proto.input(i).empty()) continue;
    const ScopedValue& known = scope.use(proto.input(i), context_.unsupported);
    if (is_sequence(known) && !is_taken(i)) {
      complete = false;
      context_.unsupported.add(describe(proto, scope.opsets), name,
                               fmt::format("input {} is a sequence", i));
    }
    complete &= known.state == State::kImported || is_sequence(known);
  }
  return complete;
}

NodeImporter::SequenceInputs NodeImporter::sequence_inputs(const NodeProto& proto, Scope& scope) {
  if (is_sequence_operator(proto)) return SequenceInputs::kFirst;
  if (is_loop_of_sequences(proto, scope)) return SequenceInputs::kCarried;
  const bool is_copy = proto.domain().empty() && proto.op_type() == "Identity" &&
                       proto.input_size() == 1 &&
                       is_sequence(scope.use(proto.input(0), context_.unsupported));
  return is_copy ? SequenceInputs::kFirst : SequenceInputs::kNone;
}

void NodeImporter::import_node(const NodeProto& proto, const std::string& name, Scope& scope) {
  UnsupportedReport& unsupported = context_.unsupported;
  std::vector<ValueId> inputs;
  const bool complete = find_inputs(proto, scope, &inputs);
  if (const FunctionProto* function = find_function(context_.functions, proto))
    return call_function(*function, proto, name, scope);

  const bool controls = is_control_flow(proto);
  const SequenceInputs taken = sequence_inputs(proto, scope);
  const bool sequences = taken != SequenceInputs::kNone;
  const auto custom = find_custom(context_.operators, proto, scope.opsets);
  const OpRow* row =
      controls || sequences || custom
          ? nullptr
          : row_of(proto, name, scope.opsets, context_.functions, context_.operators, unsupported);
  if (controls && !sequences && !complete)
    report_bodies(proto, name, scope.opsets, context_.functions, context_.operators, unsupported);
  const bool known = report_sequences(proto, name, taken, scope) && (complete || sequences);
  if ((!controls && !sequences && !custom && !row) || !known)
    return define_unsupported(proto, scope);

  const auto open_rank = find_open_rank(proto, row, name, inputs, scope, context_);
  if (!open_rank) return define_unsupported(proto, scope);
  if (const int32_t type = unreadable_minifloat(proto, inputs, *scope.model); type != 0) {
    unsupported.add(describe(proto, scope.opsets), name,
                    fmt::format("an input of {}", onnx_type_name(type)));
    return define_unsupported(proto, scope);
  }

  const auto results = attempt([&] {
    Node node(*scope.model, name, opset_of(proto, scope.opsets), attributes_of(proto, scope),
              std::move(inputs), graph_names(proto, scope));
    auto made = custom ? imported(import_custom(custom, node), proto, node, scope)
                       : import_operator(proto, row, node, scope);
    if (is_one_of(proto, kMoving) && node.narrow_type(0) != 0)
      for (const ScopedValue& value : made)
        if (value.value != ValueId::kNone) node.set_narrow_type(value.value, node.narrow_type(0));
    return made;
  });
  if (!results) {
    const Error& error = results.error();
    // Shapes and counts that do not fit are the model's fault, also if core finds out.
    if (error.code() == ErrorCode::kInvalidArgument) fail(ErrorCode::kInvalidModel, error.what());
    if (error.code() != ErrorCode::kUnsupported) throw error;
    unsupported.add(describe(proto, scope.opsets), name, error.what());
    return define_unsupported(proto, scope);
  }
  for (const ScopedValue& result : *results)
    if (!open_rank->empty() && result.value != ValueId::kNone &&
        scope.model->graph.value(result.value).type().shape.rank() == 0)
      scope.model->open_ranks.emplace(result.value, *open_rank);
  for (int i = 0; i < proto.output_size(); ++i)
    if (!proto.output(i).empty()) scope.define(proto.output(i), (*results)[static_cast<size_t>(i)]);
}

std::vector<ScopedValue> NodeImporter::import_operator(const NodeProto& proto, const OpRow* row,
                                                       Node& node, Scope& scope) {
  if (!row && !is_control_flow(proto)) {
    ScopedValue result = import_sequence(proto, node, scope, context_.unsupported);
    node.expect_all_read();
    if (proto.output_size() != 1) fail(ErrorCode::kInvalidModel, "one output is expected");
    return {std::move(result)};
  }
  if (!row && is_loop_of_sequences(proto, scope)) {
    auto results = import_sequence_loop(proto, node, scope, *this);
    node.expect_all_read();
    return results.value_or(std::vector<ScopedValue>(static_cast<size_t>(proto.output_size())));
  }
  const std::optional<Outputs> outputs =
      row ? row->import(node) : import_control_flow(proto, node, scope, *this);
  if (!outputs) {
    if (!context_.unsupported.any()) node.unsupported("a result that is a sequence");
    return std::vector<ScopedValue>(static_cast<size_t>(proto.output_size()));
  }
  return imported(*outputs, proto, node, scope);
}

std::vector<ScopedValue> NodeImporter::imported(const Outputs& outputs, const NodeProto& proto,
                                                const Node& node, const Scope& scope) {
  node.expect_all_read();
  std::vector<ScopedValue> results;
  for (size_t i = 0; i < static_cast<size_t>(proto.output_size()); ++i) {
    if (i < outputs.size() && outputs[i] != ValueId::kNone)
      results.push_back({State::kImported, outputs[i]});
    else
      results.push_back({State::kLeftOut, ValueId::kNone, describe(proto, scope.opsets),
                         node.name(), node.why_left_out(static_cast<int>(i))});
  }
  return results;
}

void NodeImporter::call_function(const FunctionProto& function, const NodeProto& call,
                                 const std::string& name, Scope& scope) {
  if (scope.depth >= kMaxCallDepth)
    fail(ErrorCode::kInvalidModel,
         fmt::format("functions call each other more than {} levels deep", kMaxCallDepth));
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
    fail(ErrorCode::kInvalidModel, "more inputs or outputs than the function has");
  Scope inner{.prefix = name + "/", .opsets = opsets_of(function), .model = scope.model};
  inner.opsets.insert(scope.opsets.begin(), scope.opsets.end());
  inner.depth = scope.depth + 1;
  inner.attributes = bound_attributes(function, call, scope);
  for (int i = 0; i < function.input_size(); ++i) {
    const bool absent = i >= call.input_size() || call.input(i).empty();
    inner.define(function.input(i), absent ? ScopedValue{State::kImported}
                                           : scope.use(call.input(i), context_.unsupported));
  }
  std::vector<std::string> wanted;
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    inner.outer_names.emplace(function.output(i), scope.graph_name(call.output(i)));
    wanted.push_back(function.output(i));
  }
  import_nodes(function.node(), wanted, inner);
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    const auto found = inner.values.find(function.output(i));
    if (found == inner.values.end())
      fail(ErrorCode::kInvalidModel, fmt::format("function \"{}\" does not produce its output {}",
                                                 function.name(), function.output(i)));
    scope.define(call.output(i), found->second);
  }
}

}  // namespace anneal
