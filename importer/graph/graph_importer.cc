#include "anneal/importer/graph/graph_importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/importer/graph/best_sizes.h"
#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/graph_inputs.h"
#include "anneal/importer/graph/required_sizes.h"
#include "anneal/importer/node/rows.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_proto.h"

namespace anneal {
namespace {

using anneal_onnx::FunctionProto;
using anneal_onnx::GraphProto;
using anneal_onnx::ModelProto;
using anneal_onnx::NodeProto;

// Functions may call functions: a short file can stand for a graph of any size.
constexpr int kMaxCallDepth = 32;
constexpr int kMaxNodes = 1'000'000;

std::string canonical_domain(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

std::map<std::string, int, std::less<>> opsets_of(const auto& imports) {
  std::map<std::string, int, std::less<>> opsets;
  for (const auto& import : imports) {
    if (import.version() < 1 || import.version() >= kLatest)
      fail(Code::kInvalidModel,
           fmt::format("opset {} of domain \"{}\"", import.version(), import.domain()));
    const std::string domain = canonical_domain(import.domain());
    if (domain.empty() && import.version() > kNewestOpset)
      fail(Code::kUnsupported, fmt::format("opset {} of ai.onnx: the newest known is {}",
                                           import.version(), kNewestOpset));
    int& version = opsets[domain];
    version = std::max(version, static_cast<int>(import.version()));
  }
  return opsets;
}

std::string describe(const NodeProto& node, int opset) {
  const std::string domain = canonical_domain(node.domain());
  return fmt::format("{} ({} {})", node.op_type(), (domain.empty() ? "ai.onnx" : domain), opset);
}

bool is_control_flow(std::string_view domain, std::string_view op) {
  return domain.empty() && (op == "If" || op == "Loop" || op == "Scan");
}

std::string node_context(const std::string& name, const NodeProto& node) {
  return "while importing node \"" + name + "\" (" + node.op_type() + ")";
}

}  // namespace

GraphImporter::GraphImporter(const ModelProto& model, std::string folder,
                             const ImportOptions& options, BranchChoices& choices)
    : model_(model),
      options_(options),
      choices_(choices),
      main_model_{graph_, std::move(folder), {}},
      main_{.model = &main_model_} {}

Graph GraphImporter::import() {
  const GraphProto& proto = model_.graph();
  graph_.name = proto.name();
  main_.opsets = opsets_of(model_.opset_import());
  // Files from before opsets were named in the file.
  if (model_.opset_import().empty() && model_.ir_version() < 3) main_.opsets[""] = 1;
  for (const FunctionProto& function : model_.functions()) {
    const FunctionKey key{canonical_domain(function.domain()), function.name(),
                          function.overload()};
    if (!functions_.emplace(key, &function).second)
      fail(Code::kInvalidModel, fmt::format("function \"{}\" is defined twice", function.name()));
  }
  auto& reserved = main_model_.reserved_names;
  for (const auto& input : proto.input()) reserved.insert(input.name());
  for (const auto& tensor : proto.initializer()) reserved.insert(tensor.name());
  for (const NodeProto& node : proto.node())
    reserved.insert(node.output().begin(), node.output().end());

  import_initializers(proto, main_);
  import_inputs(proto);
  import_nodes(proto.node(), names_of_outputs(proto), main_);
  if (proto.output().empty()) fail(Code::kInvalidModel, "the graph has no outputs");
  const bool complete = import_outputs(proto, main_);
  unsupported_.throw_if_any();
  check(complete, "outputs are incomplete only where something is not supported");
  check_declared_types(proto);
  graph_.erase_unused();
  fix_required_sizes(graph_);
  choose_best_sizes(graph_);
  return std::move(graph_);
}

void GraphImporter::define(const std::string& name, NamedValue known, Scope& scope) {
  if (!scope.values.emplace(name, std::move(known)).second)
    fail(Code::kInvalidModel, fmt::format("value \"{}\" is defined twice", name));
}

void GraphImporter::import_initializers(const GraphProto& graph, Scope& scope) {
  Node::Model& model = *scope.model;
  for (const auto& proto : graph.initializer()) {
    if (proto.name().empty()) fail(Code::kInvalidModel, "an initializer without a name");
    NamedValue known;
    try {
      known = {State::kImported, model.graph.add_constant(scope.prefix + proto.name(),
                                                          to_tensor(proto, model.folder))};
    } catch (Error& error) {
      if (error.code() != Code::kUnsupported) {
        error.add_context(fmt::format("tensor \"{}\"", proto.name()));
        throw;
      }
      unsupported_.add("initializer", scope.prefix + proto.name(), error.what());
    }
    define(proto.name(), std::move(known), scope);
  }
  for (const auto& proto : graph.sparse_initializer()) {
    unsupported_.add("initializer", scope.prefix + proto.values().name(), "a sparse tensor");
    define(proto.values().name(), {}, scope);
  }
}

void GraphImporter::import_inputs(const GraphProto& graph) {
  // Up to IR version 3 initializers are listed as inputs too; later such an input has a default
  // value. In both cases the value is taken as constant.
  std::vector<const anneal_onnx::ValueInfoProto*> fed;
  for (const auto& input : graph.input())
    if (!main_.values.contains(input.name())) fed.push_back(&input);
  GraphInputs inputs(graph_.sizes(), fed, options_);
  for (const auto* input : fed) {
    if (input->name().empty()) fail(Code::kInvalidModel, "a graph input without a name");
    NamedValue known;
    try {
      known = {State::kImported, graph_.add_input(input->name(), inputs.type_of(*input))};
    } catch (Error& error) {
      if (error.code() != Code::kUnsupported) {
        error.add_context(fmt::format("input \"{}\"", input->name()));
        throw;
      }
      unsupported_.add("graph input", input->name(), error.what());
    }
    define(input->name(), std::move(known), main_);
  }
}

bool GraphImporter::import_outputs(const GraphProto& graph, Scope& scope) {
  bool complete = true;
  std::unordered_set<std::string> names;
  for (const auto& output : graph.output()) {
    const NamedValue& known =
        with_context([] { return "graph output"; },
                     [&]() -> const NamedValue& { return use(output.name(), scope); });
    // What a body gives is taken by position; a caller of the main graph asks by name.
    std::string name = output.name();
    for (int n = 2; !names.insert(name).second; ++n) {
      if (&scope == &main_)
        fail(Code::kInvalidModel, fmt::format("graph output \"{}\" is listed twice", name));
      name = fmt::format("{}.{}", output.name(), n);
    }
    if (known.value == ValueId::kNone) {
      complete = false;
      if (known.state == State::kSequence)
        unsupported_.add("graph output", scope.prefix + output.name(), "a sequence");
    } else if (&scope == &main_ &&
               refuse_open_rank(known.value, "graph output", output.name(), "", scope)) {
      complete = false;
    } else {
      scope.model->graph.mark_output(known.value, scope.prefix + name);
    }
  }
  return complete;
}

void GraphImporter::import_nodes(const NodeList& nodes, std::span<const std::string> wanted,
                                 Scope& scope) {
  for (const int index : node_order(nodes, wanted)) {
    if (++nodes_done_ > kMaxNodes)
      fail(Code::kUnsupported, fmt::format("more than {} nodes", kMaxNodes));
    if (choices_.is_retry()) choices_.count_again(1);
    const NodeProto& proto = nodes[index];
    const std::string name = scope.prefix + node_name(proto, index);
    with_context([&] { return node_context(name, proto); },
                 [&] { import_node(proto, name, scope); });
  }
}

const GraphImporter::NamedValue& GraphImporter::use(const std::string& name, Scope& scope) {
  auto found = scope.values.find(name);
  if (found == scope.values.end() && scope.outer) {
    NamedValue known = use(name, *scope.outer);
    if (known.value != ValueId::kNone) known.value = capture(known.value, scope);
    for (ValueId& element : known.sequence) element = capture(element, scope);
    found = scope.values.emplace(name, std::move(known)).first;
  }
  if (found == scope.values.end())
    fail(Code::kInvalidModel, fmt::format("value \"{}\" is produced by no node", name));
  const NamedValue& known = found->second;
  if (known.state == State::kLeftOut) unsupported_.add(known.what, known.node, known.reason);
  return known;
}

// Whether every run knows these sizes before the body begins, whatever layers are left then.
bool GraphImporter::known_outside(const std::vector<Size>& elements, const Scope& scope) {
  const SizeTable& sizes = scope.model->graph.sizes();
  std::vector<bool> symbols(sizes.symbols().size());
  for (const Scope* outer = scope.outer; outer; outer = outer->outer) {
    const auto found = outer->model->graph.symbols_of_inputs();
    for (size_t i = 0; i < symbols.size(); ++i) symbols[i] = symbols[i] || found[i];
  }
  return std::ranges::all_of(
      elements, [&](Size one) { return !one.is_unknown() && sizes.is_made_of(one, symbols); });
}

// A value of the outer graph, as the body's graph sees it: constants and known sizes are its own,
// anything else is an input.
ValueId GraphImporter::capture(ValueId outer, Scope& scope) {
  Graph& body = scope.model->graph;
  const Graph& graph = scope.outer->model->graph;
  if (&body == &graph) return outer;
  const auto [captured, is_new] = scope.captured.try_emplace(outer);
  if (!is_new) return captured->second;
  const Value& value = graph.value(outer);
  const auto& elements = value.fact.elements;
  if (value.constant) return captured->second = body.add_constant(value.name, *value.constant);
  if (elements && value.type().dtype == DataType::kI64 && value.type().shape.rank() <= 1 &&
      known_outside(*elements, scope)) {
    const LayerId sizes =
        body.add({.name = value.name,
                  .op = SizeTensor{.elements = *elements, .scalar = value.type().shape.rank() == 0},
                  .inputs = {},
                  .output_names = {value.name}});
    return captured->second = body.layer(sizes).outputs[0];
  }
  scope.captures.push_back(outer);
  captured->second = body.add_input(value.name, value.type());
  const auto& open_ranks = scope.outer->model->open_ranks;
  if (const auto open = open_ranks.find(outer); open != open_ranks.end())
    scope.model->open_ranks.emplace(captured->second, open->second);
  return captured->second;
}

bool GraphImporter::find_inputs(const NodeProto& proto, Scope& scope,
                                std::vector<ValueId>* inputs) {
  bool complete = true;
  for (const std::string& input : proto.input()) {
    ValueId value = ValueId::kNone;
    if (!input.empty()) {
      const NamedValue& known = use(input, scope);
      value = known.value;
      complete = complete && known.state == State::kImported;
    }
    inputs->push_back(value);
  }
  return complete;
}

std::vector<Node::Attribute> GraphImporter::attributes_of(const NodeProto& proto,
                                                          Scope& scope) const {
  std::vector<Node::Attribute> attributes;
  for (const auto& attribute : proto.attribute()) {
    for (const Node::Attribute& other : attributes)
      if (other.name == attribute.name())
        fail(Code::kInvalidModel, fmt::format("attribute \"{}\" is given twice", attribute.name()));
    if (attribute.ref_attr_name().empty()) {
      attributes.push_back({attribute.name(), &attribute});
      continue;
    }
    for (Node::Attribute& bound : scope.attributes)
      if (bound.name == attribute.ref_attr_name())
        attributes.push_back({attribute.name(), bound.data});
  }
  return attributes;
}

void GraphImporter::define_unsupported(const NodeProto& proto, Scope& scope) {
  for (const std::string& output : proto.output())
    if (!output.empty()) define(output, {}, scope);
}

int GraphImporter::opset_of(const NodeProto& proto, const Scope& scope) const {
  const auto opset = scope.opsets.find(canonical_domain(proto.domain()));
  return opset == scope.opsets.end() ? 1 : opset->second;
}

const OpRow* GraphImporter::row_of(const NodeProto& proto, const std::string& name,
                                   const Scope& scope) {
  const std::string domain = canonical_domain(proto.domain());
  if (domain.empty() && !scope.opsets.contains(domain))
    fail(Code::kInvalidModel, "the model imports no opset of ai.onnx");
  const int opset = opset_of(proto, scope);
  const OpRow* row = find_row(domain, proto.op_type(), opset);
  if (row) return row;
  const bool other = find_row(domain, proto.op_type()) != nullptr;
  unsupported_.add(describe(proto, opset), name,
                   other ? "not implemented for this opset" : "not implemented");
  report_bodies(proto, name, scope);
  return nullptr;
}

void GraphImporter::report_bodies(const NodeProto& proto, const std::string& name,
                                  const Scope& scope) {
  const auto report = [&](const GraphProto& body) {
    for (int i = 0; i < body.node_size(); ++i) {
      const NodeProto& inner = body.node(i);
      const std::string domain = canonical_domain(inner.domain());
      const std::string inner_name = name + "/" + node_name(inner, i);
      if (is_control_flow(domain, inner.op_type())) {
        report_bodies(inner, inner_name, scope);
      } else if (!functions_.contains({domain, inner.op_type(), inner.overload()}) &&
                 !is_sequence_operator(inner)) {
        row_of(inner, inner_name, scope);
      }
    }
  };
  for (const auto& attribute : proto.attribute()) {
    if (attribute.has_g()) report(attribute.g());
    for (const GraphProto& body : attribute.graphs()) report(body);
  }
}

// False if an input is a sequence where a tensor is wanted, which is reported, or comes from a node
// that is not supported.
bool GraphImporter::report_sequences(const NodeProto& proto, const std::string& name,
                                     bool takes_one, Scope& scope) {
  bool complete = true;
  for (int i = 0; i < proto.input_size(); ++i) {
    if (proto.input(i).empty()) continue;
    const State state = use(proto.input(i), scope).state;
    if (state == State::kSequence && !(takes_one && i == 0)) {
      complete = false;
      unsupported_.add(describe(proto, opset_of(proto, scope)), name,
                       fmt::format("input {} is a sequence", i));
    }
    complete &= state == State::kImported || state == State::kSequence;
  }
  return complete;
}

void GraphImporter::import_node(const NodeProto& proto, const std::string& name, Scope& scope) {
  const std::string domain = canonical_domain(proto.domain());
  std::vector<ValueId> inputs;
  const bool complete = find_inputs(proto, scope, &inputs);
  const auto function = functions_.find({domain, proto.op_type(), proto.overload()});
  if (function != functions_.end()) return call_function(*function->second, proto, name, scope);

  const bool controls = is_control_flow(domain, proto.op_type());
  const bool sequences = is_of_sequences(proto, scope);
  const OpRow* row = controls || sequences ? nullptr : row_of(proto, name, scope);
  if (controls && !complete) report_bodies(proto, name, scope);
  const bool known = report_sequences(proto, name, sequences, scope) && (complete || sequences);
  if ((!controls && !sequences && !row) || !known) return define_unsupported(proto, scope);

  const auto open_rank = find_open_rank(proto, row, name, inputs, scope);
  if (!open_rank) return define_unsupported(proto, scope);

  std::vector<std::string> output_names;
  for (const std::string& output : proto.output()) {
    const auto outer = scope.outer_names.find(output);
    output_names.push_back(output.empty()                     ? ""
                           : outer != scope.outer_names.end() ? outer->second
                                                              : scope.prefix + output);
  }
  const int opset = opset_of(proto, scope);
  const std::string what = describe(proto, opset);
  Outputs outputs;
  try {
    Node node(*scope.model, name, opset, attributes_of(proto, scope), std::move(inputs),
              std::move(output_names));
    if (controls) {
      auto imported = import_control_flow(proto, node, scope);
      if (!imported) {
        if (!unsupported_.any()) unsupported_.add(what, name, "a result that is a sequence");
        return define_unsupported(proto, scope);
      }
      outputs = *std::move(imported);
    } else if (sequences) {
      NamedValue result = import_sequence(proto, node, scope);
      node.expect_all_read();
      if (proto.output_size() != 1) fail(Code::kInvalidModel, "one output is expected");
      return define(proto.output(0), std::move(result), scope);
    } else {
      outputs = row->import(node);
    }
    node.expect_all_read();
  } catch (const Error& error) {
    // Shapes and counts that do not fit are the model's fault, whoever notices.
    if (error.code() == Code::kInvalidArgument) fail(Code::kInvalidModel, error.what());
    if (error.code() != Code::kUnsupported) throw;
    unsupported_.add(what, name, error.what());
    return define_unsupported(proto, scope);
  }
  for (const ValueId output : outputs)
    if (!open_rank->empty() && output != ValueId::kNone &&
        scope.model->graph.value(output).type().shape.rank() == 0)
      scope.model->open_ranks.emplace(output, *open_rank);
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty()) continue;
    const bool computed = i < static_cast<int>(outputs.size()) && outputs[i] != ValueId::kNone;
    define(proto.output(i),
           computed ? NamedValue{State::kImported, outputs[i]}
                    : NamedValue{State::kLeftOut, ValueId::kNone, what, name,
                                 fmt::format("output {} is not computed", i)},
           scope);
  }
}

void GraphImporter::call_function(const FunctionProto& function, const NodeProto& call,
                                  const std::string& name, Scope& scope) {
  if (scope.depth >= kMaxCallDepth)
    fail(Code::kInvalidModel,
         fmt::format("functions call each other more than {} levels deep", kMaxCallDepth));
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
    fail(Code::kInvalidModel, "more inputs or outputs than the function has");
  Scope inner{
      .prefix = name + "/", .opsets = opsets_of(function.opset_import()), .model = scope.model};
  inner.opsets.insert(scope.opsets.begin(), scope.opsets.end());
  inner.depth = scope.depth + 1;

  for (const Node::Attribute& given : attributes_of(call, scope)) {
    bool declared = false;
    for (const std::string& attribute : function.attribute())
      declared = declared || attribute == given.name;
    for (const auto& attribute : function.attribute_proto())
      declared = declared || attribute.name() == given.name;
    if (!declared)
      fail(Code::kInvalidModel, fmt::format("the function has no attribute \"{}\"", given.name));
    inner.attributes.push_back(given);
  }
  for (const auto& attribute : function.attribute_proto()) {
    bool given = false;
    for (const Node::Attribute& other : inner.attributes)
      given = given || other.name == attribute.name();
    if (!given) inner.attributes.push_back({attribute.name(), &attribute});
  }
  for (int i = 0; i < function.input_size(); ++i) {
    const bool absent = i >= call.input_size() || call.input(i).empty();
    define(function.input(i), absent ? NamedValue{State::kImported} : use(call.input(i), scope),
           inner);
  }
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    const auto outer = scope.outer_names.find(call.output(i));
    inner.outer_names.emplace(function.output(i), outer != scope.outer_names.end()
                                                      ? outer->second
                                                      : scope.prefix + call.output(i));
  }
  std::vector<std::string> wanted;
  for (int i = 0; i < call.output_size(); ++i)
    if (!call.output(i).empty()) wanted.push_back(function.output(i));
  import_nodes(function.node(), wanted, inner);
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    const auto found = inner.values.find(function.output(i));
    if (found == inner.values.end())
      fail(Code::kInvalidModel, fmt::format("function \"{}\" does not produce its output {}",
                                            function.name(), function.output(i)));
    define(call.output(i), found->second, scope);
  }
}

void GraphImporter::check_declared_types(const GraphProto& graph) {
  const auto check_type = [&](const anneal_onnx::ValueInfoProto& declared) {
    const auto found = main_.values.find(declared.name());
    if (found == main_.values.end() || found->second.value == ValueId::kNone) return;
    if (!declared.type().has_tensor_type()) return;
    const int32_t element_type = declared.type().tensor_type().elem_type();
    if (element_type == anneal_onnx::TensorProto::UNDEFINED) return;
    const DataType dtype = graph_.value(found->second.value).type().dtype;
    if (dtype_from_onnx(element_type) != dtype)
      fail(Code::kInvalidModel,
           fmt::format("value \"{}\" is declared as {} but is {}", declared.name(),
                       onnx_type_name(element_type), to_string(dtype)));
  };
  for (const auto& value : graph.value_info()) check_type(value);
  for (const auto& value : graph.output()) check_type(value);
}

}  // namespace anneal
