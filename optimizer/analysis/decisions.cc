#include "anneal/optimizer/analysis/decisions.h"

#include <algorithm>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/programs/probe.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr size_t kMostValues = 64;  // that are followed; more count as decided
constexpr int kProbes = 4;

bool is_float_type(RegisterType type) {
  return type == RegisterType::kF32 || type == RegisterType::kF64;
}

// Whether two registers are near each other where register `compared` is the constant.
bool meet(const Program& program, size_t compared, size_t constant, size_t a, size_t b) {
  const auto code = program.code();
  if (program.uses_index() || !is_float_type(code[a].type) || !is_float_type(code[b].type))
    return false;
  ProgramBuilder builder;
  std::vector<Reg> regs;
  const auto inputs = program.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) builder.input(static_cast<int>(i), inputs[i]);
  for (size_t reg = 0; reg < code.size(); ++reg) {
    const Instruction& one = reg == compared ? code[constant] : code[reg];
    const DataType storage = one.opcode == Opcode::kInput ? inputs[one.immediate] : DataType::kF32;
    regs.push_back(copy_instruction(builder, one, regs, storage));
  }
  const auto stored = [&](size_t reg) {
    return std::pair(regs[reg],
                     code[reg].type == RegisterType::kF64 ? DataType::kF64 : DataType::kF32);
  };
  const Program both = builder.finish(std::vector{stored(a), stored(b)});
  Probes probes;
  for (int i = 0; i < kProbes; ++i) {
    std::vector<double> at;
    for (size_t k = 0; k < inputs.size(); ++k) at.push_back(probes.next(-2, 2));
    const std::vector<double> results = run_at(both, at);
    if (!is_near(results[0], results[1], 1e-5, 1e-5)) return false;
  }
  return true;
}

// By register: whether it is a comparison that only selects the branch of a function without a step
// there.
std::vector<bool> branch_registers(const Program& program) {
  const auto code = program.code();
  std::vector<bool> branches(code.size());
  for (size_t reg = 0; reg < code.size(); ++reg)
    branches[reg] = code[reg].opcode == Opcode::kLess || code[reg].opcode == Opcode::kLessEqual;
  for (const Program::Result& result : program.results()) branches[result.reg] = false;
  for (const Instruction& one : code)
    for (int i = 0; i < operand_count(one.opcode); ++i) {
      const size_t condition = one.operands[static_cast<size_t>(i)];
      if (!branches[condition]) continue;
      const size_t left = code[condition].operands[0], right = code[condition].operands[1];
      const bool of_right = code[right].opcode == Opcode::kConstant;
      branches[condition] = one.opcode == Opcode::kSelect && i == 0 &&
                            (of_right || code[left].opcode == Opcode::kConstant) &&
                            meet(program, of_right ? left : right, of_right ? right : left,
                                 one.operands[1], one.operands[2]);
    }
  return branches;
}

// (x + c) - c, which rounds to a multiple of a power of two where c is large.
bool rounds_by_a_sum(std::span<const Instruction> code, const Instruction& difference) {
  const Instruction& sum = code[difference.operands[0]];
  const auto is_taken_away = [&](uint16_t operand) { return operand == difference.operands[1]; };
  return is_float_type(sum.type) && sum.opcode == Opcode::kAdd &&
         (is_taken_away(sum.operands[0]) || is_taken_away(sum.operands[1]));
}

bool is_decision(std::span<const Instruction> code, const Instruction& one) {
  switch (one.opcode) {
    case Opcode::kSub:
      return rounds_by_a_sum(code, one);
    case Opcode::kCast:
      return !is_float_type(one.type) && is_float_type(code[one.operands[0]].type);
    case Opcode::kFloor:
    case Opcode::kCeil:
    case Opcode::kTrunc:
    case Opcode::kRoundEven:
    case Opcode::kSaturate:
    case Opcode::kSign:
    case Opcode::kMod:
    case Opcode::kRem:
    case Opcode::kIsNan:
    case Opcode::kIsInf:
    case Opcode::kEqual:
    case Opcode::kLess:
    case Opcode::kLessEqual:
      return true;
    default:
      return false;
  }
}

// By register: a saturation to 8 or 16 bits, the rounding before it, and what lies between.
std::vector<bool> quantizing_registers(std::span<const Instruction> code) {
  std::vector<bool> quantizing(code.size());
  for (size_t reg = code.size(); reg-- > 0;) {
    const Instruction& one = code[reg];
    const bool saturates = one.opcode == Opcode::kSaturate;
    if (saturates && size_of(static_cast<DataType>(one.immediate)) <= 2) quantizing[reg] = true;
    if (!quantizing[reg] || one.opcode == Opcode::kRoundEven) continue;
    if (is_decision(code, one) && !saturates) {
      quantizing[reg] = false;
      continue;
    }
    for (int i = 0; i < operand_count(one.opcode); ++i)
      quantizing[one.operands[static_cast<size_t>(i)]] = true;
  }
  return quantizing;
}

bool decides_input(const Program& program, size_t input) {
  const std::vector<bool> decided = decided_registers(program, {});
  const auto code = program.code();
  for (size_t reg = 0; reg < code.size(); ++reg)
    if (decided[reg] && code[reg].opcode == Opcode::kInput && code[reg].immediate == input)
      return true;
  return false;
}

// Whether the op's own program decides by the value.
bool decides_in_op(const Layer& layer, ValueId value) {
  if (std::holds_alternative<DecisionTrees>(layer.op)) return true;
  const Program* const program = program_of(layer.op);
  if (program == nullptr || program->empty()) return false;
  const InputSet read = *traits_of(layer.op).program;
  size_t next = read.contains(0) ? 0 : 1;
  for (size_t i = 0; i < static_cast<size_t>(layer.op_input_count); ++i)
    if (read.contains(i) && decides_input(*program, next++) && layer.inputs[i] == value)
      return true;
  return false;
}

// Whether results of the op are elements of this input, or selected from its elements.
bool passes_through_op(const Layer& layer, ValueId value) {
  if (std::holds_alternative<Pointwise>(layer.op)) return true;
  const auto is_input = [&](size_t input) { return layer.inputs[input] == value; };
  const auto* reduce = std::get_if<Reduce>(&layer.op);
  if (reduce != nullptr)
    return is_input(0) && (reduce->kind == ReduceKind::kMax || reduce->kind == ReduceKind::kMin);
  const auto* pool = std::get_if<Pool>(&layer.op);
  if (std::holds_alternative<TopK>(layer.op) || (pool != nullptr && pool->kind == PoolKind::kMax))
    return is_input(0);
  if (traits_of(layer.op).half != HalfRole::kMoves) return false;
  for (size_t i = 0; i < static_cast<size_t>(layer.op_input_count); ++i)
    if (is_input(i) && !is_host_value(layer.op, static_cast<int>(i))) return true;
  return false;
}

// What a layer does with a value that it reads.
struct Use {
  bool decides = false, passes_on = false;
};
Use use_of(const Layer& layer, ValueId value) {
  if (!bodies_of(layer.op).empty()) return {.decides = true};
  Use use{.decides = decides_in_op(layer, value), .passes_on = passes_through_op(layer, value)};
  // The op's result is input 0 of its epilogues; their further inputs follow the op's.
  size_t next = static_cast<size_t>(layer.op_input_count);
  const bool is_in_result = use.passes_on;
  for (const Program& epilogue : layer.epilogues) {
    if (is_in_result && !epilogue.empty() && decides_input(epilogue, 0)) use.decides = true;
    for (size_t i = 1; i < epilogue.inputs().size(); ++i, ++next) {
      if (layer.inputs[next] != value) continue;
      use.passes_on = true;
      if (decides_input(epilogue, i)) use.decides = true;
    }
  }
  return use;
}

}  // namespace

std::vector<bool> decided_registers(const Program& program, const DecisionOptions& options) {
  const auto code = program.code();
  const std::vector<bool> branches = branch_registers(program);
  const std::vector<bool> noise =
      options.quantizes_too ? std::vector<bool>(code.size()) : quantizing_registers(code);
  std::vector<bool> decided(code.size());
  if (options.by_readers)
    for (const Program::Result& result : program.results()) decided[result.reg] = true;
  for (size_t reg = code.size(); reg-- > 0;) {
    const bool decides = is_decision(code, code[reg]) && !branches[reg] && !noise[reg];
    if (!decided[reg] && !decides) continue;
    for (int i = 0; i < operand_count(code[reg].opcode); ++i)
      decided[code[reg].operands[static_cast<size_t>(i)]] = true;
  }
  return decided;
}

bool is_decided(const Graph& graph, ValueId value) {
  if (!is_float(graph.value(value).type().dtype)) return false;
  std::unordered_set<ValueId> seen = {value};
  std::vector<ValueId> left = {value};
  while (!left.empty()) {
    if (seen.size() > kMostValues) return true;
    const ValueId read = left.back();
    left.pop_back();
    for (const LayerId id : users_of(graph, read)) {
      const Layer& layer = graph.layer(id);
      const Use use = use_of(layer, read);
      if (use.decides) return true;
      if (!use.passes_on) continue;
      for (const ValueId output : layer.outputs)
        if (is_float(graph.value(output).type().dtype) && seen.insert(output).second)
          left.push_back(output);
    }
  }
  return false;
}

bool has_decided_output(const Graph& graph, const Layer& layer) {
  return std::ranges::any_of(layer.outputs,
                             [&](ValueId output) { return is_decided(graph, output); });
}

DecidedValues::DecidedValues(const Graph& graph)
    : DecidedValues(graph, [](const Layer&, ValueId) { return false; }) {}

DecidedValues::DecidedValues(const Graph& graph, Carries carries) {
  // Readers come before what they read.
  const std::vector<LayerId> order = graph.order();
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const Layer& layer = graph.layer(*at);
    const bool of_outputs = contains_output(layer), of_result = contains_result(layer);
    for (const ValueId input : layer.inputs) {
      if (input == ValueId::kNone || values_.contains(input) ||
          !is_float(graph.value(input).type().dtype))
        continue;
      const Use use = use_of(layer, input);
      if (use.decides || (use.passes_on && of_outputs) || (of_result && carries(layer, input)))
        values_.insert(input);
    }
  }
}

bool DecidedValues::contains_output(const Layer& layer) const {
  return std::ranges::any_of(layer.outputs, [&](ValueId output) { return contains(output); });
}

bool DecidedValues::contains_result(const Layer& layer) const {
  return contains_output(layer) || std::ranges::any_of(layer.epilogues, [](const Program& program) {
           return !program.empty() && decides_input(program, 0);
         });
}

}  // namespace anneal
