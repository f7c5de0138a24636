#include "anneal/optimizer/precision/value_flow.h"

#include <algorithm>

#include "anneal/graph/op/op_traits.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {

ValueFlow::ValueFlow(const Graph& graph) : graph_(graph) {
  for (const ValueId id : graph.inputs()) input(id);
  for (const LayerId id : graph.order()) add_layer(id);
}

int ValueFlow::of(ValueId value) const {
  const auto found = of_values_.find(value);
  return found == of_values_.end() ? -1 : found->second;
}

std::span<const int> ValueFlow::of_op(LayerId layer) const {
  const auto found = of_ops_.find(layer);
  return found == of_ops_.end() ? std::span<const int>() : found->second;
}

int ValueFlow::add(FlowNode node) {
  const auto number = static_cast<int>(nodes_.size());
  for (const int operand : node.operands)
    if (operand >= 0) nodes_[static_cast<size_t>(operand)].users.push_back(number);
  nodes_.push_back(std::move(node));
  return number;
}

// Constants are added where they are first read.
int ValueFlow::input(ValueId value) {
  if (value == ValueId::kNone) return -1;
  const auto [made, is_new] = of_values_.try_emplace(value, -1);
  if (is_new) made->second = add({.value = value, .dtype = graph_.value(value).type().dtype});
  return made->second;
}

void ValueFlow::store(int node, ValueId value) {
  of_values_[value] = node;
  FlowNode& stored = nodes_[static_cast<size_t>(node)];
  if (stored.value == ValueId::kNone) stored.value = value;
}

std::vector<int> ValueFlow::add_program(LayerId layer, const Program& program,
                                        std::span<const int> given) {
  std::vector<int> regs;
  for (const Instruction& one : program.code()) {
    if (one.opcode == Opcode::kInput) {
      regs.push_back(given[one.immediate]);
      continue;
    }
    FlowNode node{.kind = FlowNode::Kind::kInstruction,
                  .layer = layer,
                  .one = one,
                  .dtype = storage_type(one.type)};
    for (int i = 0; i < operand_count(one.opcode); ++i)
      node.operands.push_back(regs[one.operands[static_cast<size_t>(i)]]);
    regs.push_back(add(std::move(node)));
  }
  std::vector<int> results;
  for (const Program::Result& result : program.results()) results.push_back(regs[result.reg]);
  return results;
}

void ValueFlow::add_layer(LayerId id) {
  const Layer& layer = graph_.layer(id);
  const auto op_inputs = static_cast<size_t>(layer.op_input_count);
  std::vector<int> inputs;
  for (const ValueId value : layer.inputs) inputs.push_back(input(value));
  if (const auto* pointwise = std::get_if<Pointwise>(&layer.op)) {
    const std::vector<int> results = add_program(id, pointwise->program, inputs);
    for (size_t k = 0; k < results.size(); ++k) store(results[k], layer.outputs[k]);
    return;
  }
  std::vector<int> operands(inputs.begin(),
                            inputs.begin() + static_cast<std::ptrdiff_t>(op_inputs));
  // A program of scores is applied within Attention, which reads its operands without conversion.
  const Program* map = std::holds_alternative<Attention>(layer.op) ? nullptr : program_of(layer.op);
  if (map && !map->empty()) {
    std::vector<int> given;
    for (size_t i = 0; i < op_inputs; ++i)
      if (traits_of(layer.op).program->contains(i)) given.push_back(std::exchange(operands[i], -1));
    operands[0] = add_program(id, *map, given)[0];
  }
  const size_t count = layer.epilogues.empty() ? layer.outputs.size() : layer.epilogues.size();
  size_t next = op_inputs, output = 0;
  std::vector<int> made;
  for (size_t k = 0; k < count; ++k) {
    const Program* epilogue = layer.epilogues.empty() ? nullptr : &layer.epilogues[k];
    const bool is_bare = !epilogue || epilogue->empty();
    const DataType dtype =
        is_bare ? graph_.value(layer.outputs[output]).type().dtype : epilogue->inputs()[0];
    made.push_back(add({.kind = FlowNode::Kind::kOp,
                        .layer = id,
                        .output = static_cast<int>(k),
                        .dtype = dtype,
                        .operands = operands}));
    if (is_bare) {
      store(made.back(), layer.outputs[output++]);
      continue;
    }
    std::vector<int> given = {made.back()};
    for (size_t i = 1; i < epilogue->inputs().size(); ++i) given.push_back(inputs[next++]);
    for (const int result : add_program(id, *epilogue, given))
      store(result, layer.outputs[output++]);
  }
  of_ops_[id] = std::move(made);
}

bool ValueFlow::is_norm(int node) const {
  constexpr int kDepth = 8;  // an epsilon, a factor, a clamp, a reciprocal
  const auto find = [&](const auto& self, int number, int depth) -> bool {
    const FlowNode& of = (*this)[number];
    if (of.kind == FlowNode::Kind::kOp)
      return std::holds_alternative<Reduce>(graph_.layer(of.layer).op);
    if (of.kind != FlowNode::Kind::kInstruction || depth == 0) return false;
    return of.one.opcode == Opcode::kSqrt || std::ranges::any_of(of.operands, [&](int operand) {
             return operand >= 0 && self(self, operand, depth - 1);
           });
  };
  return find(find, node, kDepth);
}

}  // namespace anneal
