#include "anneal/optimizer/precision/need_seeds.h"

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/query.h"

namespace anneal {
namespace {

constexpr int kDepth = 12;

bool is_wide(DataType dtype) { return is_integer(dtype) && size_of(dtype) >= 4; }

}  // namespace

bool NeedSeeds::is_constant(int node) const {
  const FlowNode& of = flow_[node];
  return (of.kind == FlowNode::Kind::kGiven && flow_.graph().constant(of.value)) ||
         is_instruction(node, Opcode::kConstant);
}

bool NeedSeeds::is_instruction(int node, Opcode opcode) const {
  return flow_[node].kind == FlowNode::Kind::kInstruction && flow_[node].one.opcode == opcode;
}

bool NeedSeeds::is_output(int node) const {
  const ValueId value = flow_[node].value;
  return value != ValueId::kNone && flow_.graph().is_output(value);
}

bool NeedSeeds::is_made_of(int from, int target, int depth) const {
  if (from == target) return true;
  const FlowNode& node = flow_[from];
  if (depth == 0 || node.kind == FlowNode::Kind::kGiven) return false;
  return std::ranges::any_of(node.operands, [&](int operand) {
    return operand >= 0 && is_made_of(operand, target, depth - 1);
  });
}

bool NeedSeeds::is_quantization(int node) const {
  return ends_in_quantization(node, false, kDepth) && !is_index(node);
}

bool NeedSeeds::is_index(int node) const {
  std::unordered_set<int> seen;
  return indexes(node, Tables::kAll, seen);
}

bool NeedSeeds::is_code(int node) const {
  std::unordered_set<int> seen;
  return indexes(node, Tables::kConstant, seen);
}

// By way of casts, sums, products and movement.
bool NeedSeeds::indexes(int node, Tables tables, std::unordered_set<int>& seen) const {
  constexpr size_t kMost = 64;  // nodes; an index is made close to its reader
  return std::ranges::any_of(flow_[node].users, [&](int user) {
    const FlowNode& of = flow_[user];
    const auto follow = [&] {
      return seen.size() < kMost && seen.insert(user).second && indexes(user, tables, seen);
    };
    if (of.kind == FlowNode::Kind::kInstruction) {
      switch (of.one.opcode) {
        case Opcode::kCast:
        case Opcode::kSaturate:
        case Opcode::kRound:
        case Opcode::kMin:
        case Opcode::kMax:
        case Opcode::kAdd:
        case Opcode::kSub:
        case Opcode::kMul:
          return follow();
        default:
          return false;
      }
    }
    const Op& op = flow_.graph().layer(of.layer).op;
    if (std::holds_alternative<Reduce>(op)) return follow();
    if (*traits_of(op).half != HalfRole::kMoves) return false;
    const auto& data = *traits_of(op).data;
    const bool is_table =
        tables == Tables::kAll || (of.operands[0] >= 0 && is_constant(of.operands[0]));
    for (size_t i = 0; i < of.operands.size(); ++i) {
      if (of.operands[i] != node) continue;
      if (data.contains(i) ? follow() : is_table) return true;
    }
    return false;
  });
}

std::vector<int> NeedSeeds::squared(int node) const {
  std::vector<int> found;
  add_squared(node, kDepth, found);
  return found;
}

void NeedSeeds::add_squared(int node, int depth, std::vector<int>& found) const {
  const FlowNode& of = flow_[node];
  if (depth == 0 || of.kind == FlowNode::Kind::kGiven || of.operands.empty()) return;
  const auto add = [&](int base) {
    if (facts_[base].is_of_product && !facts_[base].is_feature) found.push_back(base);
  };
  if (of.kind == FlowNode::Kind::kOp) {
    const Op& op = flow_.graph().layer(of.layer).op;
    const bool is_sum = std::holds_alternative<Reduce>(op) || std::holds_alternative<Pool>(op);
    const HalfRole role = *traits_of(op).half;
    if (is_sum || role == HalfRole::kMoves || role == HalfRole::kProduct)
      for (size_t i = 0; i < of.operands.size(); ++i)
        if (of.operands[i] >= 0 && (is_sum || traits_of(op).data->contains(i)) &&
            !is_constant(of.operands[i]))
          add_squared(of.operands[i], depth - 1, found);
    return;
  }
  const int a = of.operands[0];
  switch (of.one.opcode) {
    case Opcode::kAbs:
      return add(a);
    case Opcode::kPow:
      return add(a);
    case Opcode::kMul:
      if (a == of.operands[1]) return add(a);
      [[fallthrough]];
    case Opcode::kAdd:
    case Opcode::kMin:
    case Opcode::kMax:
    case Opcode::kDiv:
    case Opcode::kCast:
    case Opcode::kRound:
    case Opcode::kSqrt:
      for (const int operand : of.operands)
        if (!is_constant(operand)) add_squared(operand, depth - 1, found);
      return;
    default:
      return;
  }
}

// Every user clamps the number to a range, after which it is no index.
bool NeedSeeds::ends_in_quantization(int node, bool clamped, int depth) const {
  if (depth == 0 || flow_[node].users.empty()) return false;
  return std::ranges::all_of(flow_[node].users, [&](int user) {
    const FlowNode& of = flow_[user];
    if (of.kind != FlowNode::Kind::kInstruction) return clamped && of.is_f32();
    switch (of.one.opcode) {
      case Opcode::kSaturate:
        return size_of(static_cast<DataType>(of.one.immediate)) <= 2;
      case Opcode::kRound:
        return !is_integer(of.dtype) || size_of(static_cast<DataType>(of.one.immediate)) <= 2;
      case Opcode::kMin:
      case Opcode::kMax: {
        // The other end follows, or came before.
        const bool is_first = !clamped;
        return ends_in_quantization(user, true, depth - 1) || (!is_first && is_output(user));
      }
      case Opcode::kCast:
        return is_wide(of.dtype) ? ends_in_quantization(user, false, depth - 1) : clamped;
      case Opcode::kAdd:
      case Opcode::kSub:
        return ends_in_quantization(user, clamped, depth - 1);
      default:
        return clamped;
    }
  });
}

bool NeedSeeds::is_branch(int node) const {
  const FlowNode& compare = flow_[node];
  return std::ranges::all_of(compare.operands, [&](int operand) {
    return is_constant(operand) || branches_by(node, operand, kDepth);
  });
}

bool NeedSeeds::branches_by(int node, int compared, int depth) const {
  const FlowNode& of = flow_[node];
  if (depth == 0 || of.users.empty() || is_output(node)) return false;
  const auto is_of_compared = [&](int branch) {
    if (is_made_of(branch, compared)) return true;
    const FlowNode& from = flow_[compared];
    return from.kind == FlowNode::Kind::kInstruction &&
           std::ranges::any_of(from.operands, [&](int operand) {
             return operand >= 0 && !is_constant(operand) && is_made_of(branch, operand);
           });
  };
  return std::ranges::all_of(of.users, [&](int user) {
    const FlowNode& reader = flow_[user];
    if (reader.kind != FlowNode::Kind::kInstruction) return false;
    switch (reader.one.opcode) {
      case Opcode::kSelect:
        return reader.operands[0] == node &&
               (is_of_compared(reader.operands[1]) || is_of_compared(reader.operands[2]));
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kNot:
        return branches_by(user, compared, depth - 1);
      default:
        return false;
    }
  });
}

bool NeedSeeds::is_tamed(int node) const { return tames(node, flow_[node].operands[0], kDepth); }

bool NeedSeeds::tames(int node, int argument, int depth) const {
  if (depth == 0 || flow_[node].users.empty() || is_output(node)) return false;
  return std::ranges::all_of(flow_[node].users, [&](int user) {
    const FlowNode& of = flow_[user];
    if (of.kind == FlowNode::Kind::kOp) {
      const Op& op = flow_.graph().layer(of.layer).op;
      return *traits_of(op).half == HalfRole::kMoves && tames(user, argument, depth - 1);
    }
    switch (of.one.opcode) {
      case Opcode::kLog:
      case Opcode::kLog1p:
      case Opcode::kTanh:
      case Opcode::kSigmoid:
      case Opcode::kErf:
      case Opcode::kAtan:
        return true;
      case Opcode::kDiv:
        return of.operands[1] == node || is_made_of(of.operands[1], argument);
      case Opcode::kMin:
        return facts_[user].range.most <= 16;
      case Opcode::kSelect:
        return of.operands[0] != node && is_made_of(of.operands[0], argument);
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kMul:
      case Opcode::kNeg:
      case Opcode::kMax:
      case Opcode::kAbs:
      case Opcode::kCast:
      case Opcode::kRound:
      case Opcode::kSqrt:
        return tames(user, argument, depth - 1);
      default:
        return false;
    }
  });
}

bool NeedSeeds::is_softmax(int node) const {
  return std::ranges::any_of(flow_[node].users,
                             [&](int user) { return is_divided_by_sum(user, node, kDepth); });
}

// `node` is, or leads to, a quotient by a sum of the exponential.
bool NeedSeeds::is_divided_by_sum(int node, int exponential, int depth) const {
  if (is_instruction(node, Opcode::kDiv)) {
    const int divisor = flow_[node].operands[1];
    return divisor != exponential && is_made_of(divisor, exponential);
  }
  const auto* reduce = op_as<Reduce>(flow_.graph(), flow_[node].layer);
  if (depth == 0 || (flow_[node].kind == FlowNode::Kind::kOp && !reduce)) return false;
  return std::ranges::any_of(
      flow_[node].users, [&](int user) { return is_divided_by_sum(user, exponential, depth - 1); });
}

bool NeedSeeds::is_snake(int node) const {
  const int argument = flow_[node].operands[0];
  return facts_[argument].is_of_product && joins(node, argument, kDepth);
}

bool NeedSeeds::joins(int node, int argument, int depth) const {
  if (depth == 0 || flow_[node].users.empty() || is_output(node)) return false;
  return std::ranges::all_of(flow_[node].users, [&](int user) {
    const FlowNode& of = flow_[user];
    if (of.kind != FlowNode::Kind::kInstruction) return false;
    switch (of.one.opcode) {
      case Opcode::kAdd: {
        const int other = of.operands[0] == node ? of.operands[1] : of.operands[0];
        return is_constant(other) ? joins(user, argument, depth - 1) : is_made_of(argument, other);
      }
      case Opcode::kMul:
      case Opcode::kDiv:
      case Opcode::kSub:
      case Opcode::kNeg:
      case Opcode::kPow:
        return joins(user, argument, depth - 1);
      default:
        return false;
    }
  });
}

bool NeedSeeds::is_negated(int node) const {
  const FlowNode& of = flow_[node];
  return is_instruction(node, Opcode::kNeg) ||
         (is_instruction(node, Opcode::kMul) && std::ranges::any_of(of.operands, [&](int factor) {
            return is_constant(factor) && facts_[factor].range.most < 0;
          }));
}

std::pair<int, int> NeedSeeds::difference(int node) const {
  for (int depth = kDepth; depth > 0; --depth) {
    const FlowNode& of = flow_[node];
    if (of.kind == FlowNode::Kind::kOp) {
      if (*traits_of(flow_.graph().layer(of.layer).op).half != HalfRole::kMoves) break;
      node = of.operands[0];
      continue;
    }
    if (of.kind != FlowNode::Kind::kInstruction || of.operands.empty()) break;
    const int a = of.operands[0], b = of.operands.size() > 1 ? of.operands[1] : -1;
    switch (of.one.opcode) {
      case Opcode::kSub:
        if (!is_constant(a) && !is_constant(b)) return {a, b};
        if (is_constant(a) && facts_[a].range.magnitude() > 0 && facts_[b].is_of_product)
          return {b, b};
        node = is_constant(a) ? b : a;
        continue;
      case Opcode::kAdd: {
        if (is_constant(a) || is_constant(b)) {
          node = is_constant(a) ? b : a;
          continue;
        }
        if (!is_negated(a) && !is_negated(b)) return {-1, -1};
        return {a, b};
      }
      case Opcode::kMin:
      case Opcode::kMax:
      case Opcode::kMul:
      case Opcode::kDiv:
        if (!is_constant(a) && !is_constant(b)) return {-1, -1};
        node = is_constant(a) ? b : a;
        continue;
      case Opcode::kNeg:
      case Opcode::kAbs:
      case Opcode::kCast:
      case Opcode::kRound:
      case Opcode::kSqrt:
        node = a;
        continue;
      default:
        return {-1, -1};
    }
  }
  return {-1, -1};
}

NeedSeeds::Origin NeedSeeds::origin_of(int node) const {
  Origin origin{node};
  for (int depth = kDepth; depth > 0; --depth) {
    const FlowNode& of = flow_[origin.node];
    if (of.operands.empty() || of.operands[0] < 0) break;
    if (of.kind == FlowNode::Kind::kOp) {
      const Op& op = flow_.graph().layer(of.layer).op;
      const auto* reduce = std::get_if<Reduce>(&op);
      const auto* pool = std::get_if<Pool>(&op);
      const bool is_mean =
          (reduce && (reduce->kind == ReduceKind::kMean || reduce->kind == ReduceKind::kSum)) ||
          (pool && pool->kind == PoolKind::kAverage);
      if (!is_mean && *traits_of(op).half != HalfRole::kMoves) break;
      origin.node = of.operands[0];
      origin.is_mean |= is_mean;
      continue;
    }
    const int a = of.operands[0], b = of.operands.size() > 1 ? of.operands[1] : a;
    const Opcode opcode = of.one.opcode;
    const bool is_product = opcode == Opcode::kMul;
    const bool keeps =
        opcode == Opcode::kNeg || opcode == Opcode::kCast || opcode == Opcode::kRound;
    if (!keeps && !(is_product && (a == b || is_constant(a) || is_constant(b))) &&
        !((opcode == Opcode::kDiv || opcode == Opcode::kPow) && is_constant(b)))
      break;
    origin.is_scaled |= !keeps;
    origin.node = is_product && is_constant(a) ? b : a;
  }
  return origin;
}

std::pair<int, int> NeedSeeds::centered(int node) const {
  const FlowNode& of = flow_[node];
  const int a = of.operands[0], b = of.operands[1];
  if (is_instruction(node, Opcode::kAdd) && !is_negated(a) && !is_negated(b)) return {-1, -1};
  const Origin left = origin_of(a), right = origin_of(b);
  const bool is_own = left.node == right.node && (left.is_mean || right.is_mean ||
                                                  (a != b && !left.is_scaled && !right.is_scaled));
  return is_own && !facts_[left.node].is_feature ? std::pair(a, b) : std::pair(-1, -1);
}

}  // namespace anneal
