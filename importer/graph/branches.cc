// If. A branch whose condition is known is imported as if it stood in the graph itself; so is one
// of two that cannot both be bodies of one layer.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/importer/graph/body.h"
#include "anneal/importer/graph/condition_at_opt.h"
#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

bool is_number(const Shape& shape) { return shape.rank() == 0 || shape == Shape{1}; }

// Makes every [1] a number where the other graph has one: exporters mix them up, and most
// layers after them treat both alike.
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

class IfImporter {
 public:
  IfImporter(const NodeProto& proto, Node& node, Scope& scope, NodeImporter& nodes)
      : proto_(proto),
        node_(node),
        scope_(scope),
        context_(nodes.context()),
        bodies_(nodes),
        then_branch_(graph_attribute(proto, node, "then_branch")),
        else_branch_(graph_attribute(proto, node, "else_branch")),
        first_node_(context_.nodes_done) {}

  std::optional<Outputs> import();

 private:
  // The branch in place of the If.
  std::optional<Outputs> import_branch(bool takes_then);
  // The same behind a check that the condition wants the branch, after both were imported.
  std::optional<Outputs> assume_branch(bool takes_then);
  // Makes the ranks of the results equal; or says which branch to assume.
  std::optional<RankChoices::Choice> choose_branch();
  RankChoices::Choice choice_of_ranks(bool can_align);
  Outputs add_layer();

  const NodeProto& proto_;
  Node& node_;
  Scope& scope_;
  ImportContext& context_;
  BodyImporter bodies_;
  const GraphProto &then_branch_, &else_branch_;
  const int first_node_;
  std::unique_ptr<Body> then_body_, else_body_;
  std::vector<std::string> open_ranks_;  // by output: the If that leaves it open
};

std::optional<Outputs> IfImporter::import() {
  for (const GraphProto* branch : {&then_branch_, &else_branch_})
    if (branch->output_size() != proto_.output_size())
      node_.invalid(fmt::format("a branch of {} outputs for {} of the node", branch->output_size(),
                                proto_.output_size()));
  if (const auto condition = node_.known_integers(0); condition && condition->size() == 1)
    return import_branch(condition->front() != 0);

  // Both branches take the captures of both, in the same order: first the captures of "then".
  const UnsupportedReport before = context_.unsupported;
  then_body_ = bodies_.begin(node_.name() + "/then", scope_);
  else_body_ = bodies_.begin(node_.name() + "/else", scope_);
  const Result<bool> then_imported = bodies_.import(then_branch_, *then_body_);
  if (then_imported)
    for (const ValueId value : then_body_->scope.captures) else_body_->scope.capture(value);
  const Result<bool> else_imported = bodies_.import(else_branch_, *else_body_);
  if (!then_imported && !else_imported) fail(ErrorCode::kInvalidModel, then_imported.reason());
  if (!then_imported || !else_imported) {
    context_.unsupported = before;
    return assume_branch(then_imported.has_value());
  }
  if (!*then_imported || !*else_imported) return std::nullopt;
  for (const ValueId value : else_body_->scope.captures) then_body_->scope.capture(value);
  if (const auto branch = choose_branch())
    return assume_branch(branch != RankChoices::Choice::kElse);
  return add_layer();
}

std::optional<Outputs> IfImporter::import_branch(bool takes_then) {
  const GraphProto& branch = takes_then ? then_branch_ : else_branch_;
  Scope inner = scope_.body_scope(node_.name() + "/");
  for (int i = 0; i < proto_.output_size(); ++i)
    if (!proto_.output(i).empty())
      inner.outer_names.emplace(branch.output(i).name(), scope_.graph_name(proto_.output(i)));
  return bodies_.import_inline(branch, inner);
}

std::optional<Outputs> IfImporter::assume_branch(bool takes_then) {
  context_.choices.count_again(context_.nodes_done - first_node_);
  ValueId holds = node_.input(0);
  if (!takes_then) {
    ProgramBuilder builder;
    const Reg input = builder.input(0, DataType::kBool);
    const Program negation = builder.finish(builder.apply(Opcode::kNot, input), DataType::kBool);
    holds = node_.layer(Pointwise{negation}, {holds}, "else");
  }
  node_.layer(Require{}, {holds}, takes_then ? "then_branch_only" : "else_branch_only");
  return import_branch(takes_then);
}

std::optional<RankChoices::Choice> IfImporter::choose_branch() {
  Graph &then_graph = then_body_->graph, &else_graph = else_body_->graph;
  const Signature of_then = then_graph.signature(), of_else = else_graph.signature();
  bool is_same = true, can_align = true;
  for (size_t k = 0; k < of_then.outputs.size(); ++k) {
    std::string& open_rank = open_ranks_.emplace_back();
    for (const Body* body : {then_body_.get(), else_body_.get()}) {
      const auto open = body->model.open_ranks.find(body->graph.outputs()[k].value);
      if (open != body->model.open_ranks.end()) open_rank = open->second;
    }
    const Shape &a = of_then.outputs[k].shape, &b = of_else.outputs[k].shape;
    if (a.rank() == b.rank()) continue;
    is_same = false;
    can_align &= is_number(a) && is_number(b);
    open_rank = node_.name();
  }
  if (is_same) return std::nullopt;
  const RankChoices::Choice choice = choice_of_ranks(can_align);
  if (choice != RankChoices::Choice::kAlign) return choice;
  align_numbers(then_graph, else_graph);
  align_numbers(else_graph, then_graph);
  return std::nullopt;
}

RankChoices::Choice IfImporter::choice_of_ranks(bool can_align) {
  RankChoices& choices = context_.choices;
  auto choice = choices.find(node_.name());
  if (!choice) {
    const auto at_opt =
        condition_at_opt(node_.graph(), node_.input(0), context_.main_graph.symbols_of_inputs());
    choice = choices.add(node_.name(), can_align, at_opt.value_or(true));
  }
  if (can_align || choice != RankChoices::Choice::kAlign) return *choice;
  choices.refuse_alignment(node_.name());  // a choice made before changed the results
  return *choices.find(node_.name());
}

Outputs IfImporter::add_layer() {
  Graph& graph = node_.graph();
  const auto index = static_cast<int64_t>(graph.bodies().size());
  const std::vector<ValueId>& captures = then_body_->scope.captures;
  const size_t count = then_body_->graph.outputs().size();
  std::vector<ValueId> inputs = {node_.input(0)};
  inputs.insert(inputs.end(), captures.begin(), captures.end());
  graph.add_body(std::move(then_body_->graph));
  graph.add_body(std::move(else_body_->graph));
  const LayerId layer = graph.add({.name = node_.name(),
                                   .op = If{.then_body = index, .else_body = index + 1},
                                   .inputs = std::move(inputs),
                                   .output_names = names_of_outputs(node_, count)});
  Outputs outputs = graph.layer(layer).outputs;
  for (size_t k = 0; k < count; ++k)
    if (!open_ranks_[k].empty()) scope_.model->open_ranks.emplace(outputs[k], open_ranks_[k]);
  return outputs;
}

}  // namespace

std::optional<Outputs> import_if(const NodeProto& proto, Node& node, Scope& scope,
                                 NodeImporter& nodes) {
  node.expect_inputs(1, 1);
  return IfImporter(proto, node, scope, nodes).import();
}

}  // namespace anneal
