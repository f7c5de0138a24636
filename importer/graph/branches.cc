// If. A branch whose condition is known is imported as if it stood in the graph itself; so is one
// of two that cannot both be bodies of one layer.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "anneal/importer/graph/condition_at_opt.h"
#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/graph_importer.h"
#include "anneal/importer/node/rows.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

constexpr int kMaxTries = 64;
// A body inside others may be imported again for each way to see the outer ones, and everything for
// each choice between branches.
constexpr int kMaxNodesAgain = 1'000'000;

bool of_same_ranks(const Graph& a, const Graph& b) {
  const Signature of_a = a.signature(), of_b = b.signature();
  for (size_t k = 0; k < of_a.outputs.size(); ++k)
    if (of_a.outputs[k].shape.rank() != of_b.outputs[k].shape.rank()) return false;
  return true;
}

bool is_number(const Shape& shape) { return shape.rank() == 0 || shape == Shape{1}; }

// Makes every [1] a number where the other graph has one: exporters mix them up, and to most of
// what comes next they are the same.
void align_numbers(Graph& graph, const Graph& other) {
  const Signature wanted = other.signature();
  for (size_t k = 0; k < wanted.outputs.size(); ++k) {
    const Graph::Output output = graph.outputs()[k];
    if (wanted.outputs[k].shape.rank() >= graph.value(output.value).type().shape.rank()) continue;
    const ValueId shape =
        graph.add_constant(output.name + "/shape", Tensor::of<int64_t>(DataType::kI64, {0}, {}));
    const LayerId reshape = graph.add({.name = output.name + "/number",
                                       .op = Reshape{.allow_zero = true},
                                       .inputs = {output.value, shape}});
    graph.replace_output(k, graph.layer(reshape).outputs[0]);
  }
}

bool has_attribute(const NodeProto& node, std::string_view name) {
  return std::ranges::any_of(node.attribute(), [&](const auto& it) { return it.name() == name; });
}

bool keeps_reduced_axes(const NodeProto& node) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == "keepdims") return attribute.i() != 0;
  return true;
}

// Whether the results, with their shapes, are the same for a number and a tensor of one element.
bool ignores_rank(const NodeProto& node, size_t input) {
  const std::string& op = node.op_type();
  const bool all_axes = node.input_size() == 1 && !has_attribute(node, "axes");
  if (op == "Size" || op == "Range") return true;
  if (op == "Squeeze") return all_axes;
  if (op.starts_with("Reduce")) return all_axes && !keeps_reduced_axes(node);
  if (op == "CumSum" || op == "OneHot" || op == "Trilu") return input == 1;
  if (op == "Reshape" || op == "If") return input == 0;
  return op == "Loop" && input < 2;
}

}  // namespace

std::optional<BranchChoices::Choice> BranchChoices::find(const std::string& name) const {
  const auto found = std::ranges::find(choices_, name, &RankChoice::name);
  return found == choices_.end() ? std::nullopt : std::optional(found->now);
}

BranchChoices::Choice BranchChoices::add(const std::string& name, bool can_align, bool then_first) {
  RankChoice added{name, then_first, Choice::kAlign};
  if (!can_align) added.now = added.branch(true);
  return choices_.emplace_back(std::move(added)).now;
}

void BranchChoices::refuse_alignment(const std::string& name) {
  const auto found = std::ranges::find(choices_, name, &RankChoice::name);
  if (found == choices_.end() || found->now != Choice::kAlign) return;
  found->now = found->branch(true);
  has_refused_ = true;
}

bool BranchChoices::next() {
  if (nodes_again_ > kMaxNodesAgain) return false;
  is_retry_ = true;
  if (std::exchange(has_refused_, false)) return true;
  while (!choices_.empty() && choices_.back().now == choices_.back().branch(false))
    choices_.pop_back();
  if (choices_.empty() || ++tries_ > kMaxTries) return false;
  RankChoice& last = choices_.back();
  last.now = last.branch(last.now == Choice::kAlign);
  return true;
}

void BranchChoices::count_again(int nodes) {
  nodes_again_ += nodes;
  if (nodes_again_ > kMaxNodesAgain)
    fail(Code::kUnsupported,
         fmt::format(
             "control flow whose types depend on each other: more than {} nodes imported again",
             kMaxNodesAgain));
}

bool GraphImporter::refuse_open_rank(ValueId value, const std::string& what,
                                     const std::string& name, const std::string& where,
                                     Scope& scope) {
  const auto open = scope.model->open_ranks.find(value);
  if (open == scope.model->open_ranks.end()) return false;
  choices_.refuse_alignment(open->second);
  unsupported_.add(
      what, name,
      where + "a number or a tensor of one element, as If \"" + open->second + "\" decides");
  return true;
}

std::optional<std::string> GraphImporter::find_open_rank(const NodeProto& proto, const OpRow* row,
                                                         const std::string& name,
                                                         const std::vector<ValueId>& inputs,
                                                         Scope& scope) {
  std::string passed_on;
  const std::string& op = proto.op_type();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto open = scope.model->open_ranks.find(inputs[i]);
    if (open == scope.model->open_ranks.end()) continue;
    const bool is_onnx = proto.domain().empty() || proto.domain() == "ai.onnx";
    if ((row && is_elementwise(*row)) ||
        (is_onnx && (op == "Identity" || (op == "Expand" && i == 0)))) {
      passed_on = open->second;
      continue;
    }
    if (!is_onnx || !ignores_rank(proto, i)) {
      refuse_open_rank(inputs[i], op, name, fmt::format("input {} is ", i), scope);
      return std::nullopt;
    }
  }
  return passed_on;
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
  import_nodes(branch.node(), names_of_outputs(branch), inner);
  Outputs outputs;
  for (int i = 0; i < proto.output_size(); ++i) {
    const NamedValue& known = use(branch.output(i).name(), inner);
    if (known.value == ValueId::kNone) return std::nullopt;
    outputs.push_back(known.value);
  }
  return outputs;
}

// The branch in place of the If, behind a check that the condition wants it.
std::optional<Outputs> GraphImporter::assume_branch(bool condition, const GraphProto& branch,
                                                    const NodeProto& proto, Node& node,
                                                    Scope& scope) {
  ValueId holds = node.input(0);
  if (!condition) {
    ProgramBuilder builder;
    const Reg input = builder.input(0, DataType::kBool);
    const Program negation = builder.finish(builder.apply(Opcode::kNot, input), DataType::kBool);
    holds = node.layer(Pointwise{negation}, {holds}, "else");
  }
  node.layer(Require{}, {holds}, condition ? "then_branch_only" : "else_branch_only");
  return import_branch(branch, proto, node.name(), scope);
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
      node.invalid(fmt::format("a branch of {} outputs for {} of the node", branch->output_size(),
                               proto.output_size()));
  if (const auto condition = node.known_integers(0); condition && condition->size() == 1)
    return import_branch(condition->front() != 0 ? then_branch : else_branch, proto, node.name(),
                         scope);

  // Both branches take the captures of both: those of the first come first in the second too.
  const UnsupportedReport before = unsupported_;
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
    choices_.count_again(nodes_done_ - first_node);
    return assume_branch(!then_error, then_error ? else_branch : then_branch, proto, node, scope);
  }
  if (!complete) return std::nullopt;
  for (const ValueId value : else_body->scope.captures) capture(value, then_body->scope);
  std::vector<std::string> open_ranks;  // by output: the If that leaves it open
  for (size_t k = 0; k < then_body->graph.outputs().size(); ++k) {
    open_ranks.emplace_back();
    for (const Body* body : {then_body.get(), else_body.get()}) {
      const auto open = body->model.open_ranks.find(body->graph.outputs()[k].value);
      if (open != body->model.open_ranks.end()) open_ranks[k] = open->second;
    }
  }
  if (!of_same_ranks(then_body->graph, else_body->graph)) {
    using Choice = BranchChoices::Choice;
    const Signature of_then = then_body->graph.signature(), of_else = else_body->graph.signature();
    bool alike = true;
    for (size_t k = 0; k < open_ranks.size(); ++k) {
      const Shape &a = of_then.outputs[k].shape, &b = of_else.outputs[k].shape;
      if (a.rank() == b.rank()) continue;
      alike &= is_number(a) && is_number(b);
      open_ranks[k] = node.name();
    }
    auto choice = choices_.find(node.name());
    if (!choice)
      choice = choices_.add(
          node.name(), alike,
          condition_at_opt(node.graph(), node.input(0), graph_.symbols_of_inputs()).value_or(true));
    if (!alike && choice == Choice::kAlign) {  // a choice made before changed the results
      choices_.refuse_alignment(node.name());
      choice = choices_.find(node.name());
    }
    if (choice != Choice::kAlign) {
      choices_.count_again(nodes_done_ - first_node);
      const bool takes_then = choice != Choice::kElse;
      return assume_branch(takes_then, takes_then ? then_branch : else_branch, proto, node, scope);
    }
    align_numbers(then_body->graph, else_body->graph);
    align_numbers(else_body->graph, then_body->graph);
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
  const Outputs outputs = graph.layer(layer).outputs;
  for (size_t k = 0; k < count; ++k)
    if (!open_ranks[k].empty()) scope.model->open_ranks.emplace(outputs[k], open_ranks[k]);
  return outputs;
}

}  // namespace anneal
