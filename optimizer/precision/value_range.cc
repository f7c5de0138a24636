#include "anneal/optimizer/precision/value_range.h"

#include <algorithm>
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/packed_weights.h"

namespace anneal {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// The assumed magnitude of an input of the model, as in pictures, and of features.
constexpr double kOrdinary = 256;
// An iteration that adds less than this takes thousands of iterations to leave f16.
constexpr double kLittleGrowth = 16;
// Passes over a body until what it carries no longer grows, as sums with decay do.
constexpr int kMostPasses = 6;

// The largest size that an axis may have.
double most_at(const Graph& graph, const Shape& shape, int64_t axis) {
  if (axis < 0 || axis >= shape.rank()) return kInfinite;
  const int64_t most = graph.sizes().range(shape[static_cast<int>(axis)]).max;
  return most >= std::numeric_limits<int32_t>::max() ? kInfinite : static_cast<double>(most);
}

// Integers of 16 bits are pictures and sounds, which may use all of their range.
NodeFacts of_type(DataType dtype) {
  const NumberRange range = range_of_type(dtype);
  const bool has_16_bits = dtype == DataType::kU16 || dtype == DataType::kI16;
  return {.range = range,
          .expected = is_wide_integer(dtype) ? kInfinite
                      : has_16_bits          ? range.magnitude()
                                             : kOrdinary,
          .is_of_integers = is_wide_integer(dtype)};
}

bool bends(Opcode opcode) {
  switch (opcode) {
    case Opcode::kCast:
    case Opcode::kRound:
    case Opcode::kNeg:
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kDiv:
      return false;
    default:
      return true;
  }
}

NodeFacts either(const NodeFacts& a, const NodeFacts& b) {
  return {.range = hull(a.range, b.range),
          .expected = std::max(a.expected, b.expected),
          .is_of_product = a.is_of_product && b.is_of_product,
          .is_feature = a.is_feature && b.is_feature,
          .is_of_integers = a.is_of_integers || b.is_of_integers};
}

class FactFinder {
 public:
  // Of the operands of a sum the larger one counts, as is so for features of ordinary magnitude; in
  // a body that is run again both count.
  enum class Sums : uint8_t { kLarger, kAll };
  FactFinder(const ValueFlow& flow, const PrecisionOptions& options,
             std::span<const NodeFacts> inputs, Sums sums = Sums::kLarger, int threads = 1)
      : flow_(flow),
        graph_(flow.graph()),
        options_(options),
        inputs_(inputs),
        sums_(sums),
        threads_(threads) {}

  FlowFacts run() {
    for (const FlowNode& node : flow_.nodes()) {
      // A flow begins with the inputs.
      const size_t number = made_.nodes.size();
      NodeFacts facts = number < inputs_.size()                     ? inputs_[number]
                        : node.kind == FlowNode::Kind::kGiven       ? given(node)
                        : node.kind == FlowNode::Kind::kInstruction ? instruction(node)
                                                                    : op(node);
      finish(node, facts);
      made_.nodes.push_back(facts);
    }
    return std::move(made_);
  }

 private:
  const NodeFacts& at(int node) const { return made_[node]; }
  bool has(const FlowNode& node, size_t i) const {
    return i < node.operands.size() && node.operands[i] >= 0;
  }
  const NodeFacts& operand(const FlowNode& node, size_t i) const { return at(node.operands[i]); }
  bool is_constant(int node) const {
    const FlowNode& of = flow_[node];
    return (of.kind == FlowNode::Kind::kGiven && graph_.constant(of.value)) ||
           of.one.opcode == Opcode::kConstant;
  }

  void finish(const FlowNode& node, NodeFacts& facts) const {
    if (node.kind != FlowNode::Kind::kOp || !facts.is_of_product)
      facts.is_of_integers |= is_wide_integer(node.dtype) && !graph_constant(node);
    const float seen = node.value == ValueId::kNone || !node.is_f32()
                           ? -1.0F
                           : seen_in(options_, graph_.value(node.value).name);
    if (seen >= 0 && !facts.is_of_integers) {
      const double most = double{seen} * kSampleMargin;
      facts.range.least = std::max(facts.range.least, -most);
      facts.range.most = std::min(facts.range.most, most);
      facts.expected = seen;
    }
    facts.expected = std::min(facts.expected, facts.range.magnitude());
  }
  bool graph_constant(const FlowNode& node) const {
    return node.kind == FlowNode::Kind::kGiven && graph_.constant(node.value);
  }

  NodeFacts given(const FlowNode& node) const {
    NodeFacts facts;
    if (const Tensor* constant = graph_.constant(node.value)) {
      facts.range = range_of_tensor(*constant, threads_);
      facts.expected = std::isfinite(facts.range.magnitude()) ? facts.range.magnitude() : 0;
      return facts;
    }
    return of_type(node.dtype);
  }

  // The facts that hold for all operands, before the range is known.
  NodeFacts joined(const FlowNode& node) const {
    NodeFacts facts;
    for (const int each : node.operands) {
      if (each < 0) continue;
      facts.is_of_product |= at(each).is_of_product;
      facts.is_feature |= at(each).is_feature;
      facts.is_of_integers |= at(each).is_of_integers;
      facts.expected = std::max(facts.expected, at(each).expected);
    }
    return facts;
  }

  // Whether a product multiplies a value with itself, or with a power of itself.
  bool is_power_by(const FlowNode& node) const {
    const auto factor = [&](int of) {
      const FlowNode& from = flow_[of];
      return from.kind == FlowNode::Kind::kInstruction && from.one.opcode == Opcode::kMul &&
                     from.operands[0] == from.operands[1]
                 ? from.operands[0]
                 : of;
    };
    return factor(node.operands[0]) == factor(node.operands[1]);
  }

  NodeFacts instruction(const FlowNode& node) const {
    const Instruction& one = node.one;
    NodeFacts facts = joined(node);
    if (bends(one.opcode)) facts.is_feature |= facts.is_of_product;
    const bool two_computed = node.operands.size() == 2 && !is_constant(node.operands[0]) &&
                              !is_constant(node.operands[1]);
    if (one.opcode == Opcode::kMul && two_computed && operand(node, 0).is_of_product &&
        operand(node, 1).is_of_product)
      facts.is_feature = true;
    switch (one.opcode) {
      case Opcode::kConstant:
        facts.range = range_of_literal(one);
        facts.expected = std::isfinite(facts.range.magnitude()) ? facts.range.magnitude() : 0;
        return facts;
      case Opcode::kIndex:
        facts.range = index_range(node);
        facts.expected = kInfinite;
        return facts;
      case Opcode::kEqual:
      case Opcode::kLess:
      case Opcode::kLessEqual:
        return {.range = {0, 1, true}, .expected = 1};
      case Opcode::kAdd:
      case Opcode::kSub:
        if (sums_ == Sums::kAll)
          facts.expected = operand(node, 0).expected + operand(node, 1).expected;
        break;
      case Opcode::kMul:
        // If two values are computed, one is mostly a gate; a power has no gate.
        if (!two_computed || is_power_by(node))
          facts.expected = product_of_ends(operand(node, 0).expected, operand(node, 1).expected);
        break;
      case Opcode::kPow: {
        const double exponent = operand(node, 1).range.magnitude();
        facts.expected = std::isfinite(exponent)
                             ? std::pow(operand(node, 0).expected, std::max(exponent, 1.0))
                             : kInfinite;
        break;
      }
      case Opcode::kDiv: {
        // A norm grows with what it divides. Another divisor may be as small as its range allows,
        // as a gate or a distance plus an epsilon.
        if (!is_constant(node.operands[1]) && flow_.is_norm(node.operands[1])) {
          facts.expected = operand(node, 0).expected;
          break;
        }
        const double most_factor =
            quotient_range(symmetric_range(1), operand(node, 1).range).magnitude();
        facts.expected =
            std::min(product_of_ends(operand(node, 0).expected, std::min(most_factor, 1e30)), 1e30);
        break;
      }
      case Opcode::kSqrt:
        facts.expected = std::sqrt(facts.expected);
        break;
      case Opcode::kLog:
      case Opcode::kLog1p:
      case Opcode::kExp:
      case Opcode::kExpm1:
        facts.expected = kOrdinary;
        break;
      default:
        break;
    }
    facts.range = node.dtype == DataType::kBool ? NumberRange{0, 1, true} : range_of(node);
    if (is_integer(node.dtype)) facts.range.is_integer = true;
    return facts;
  }

  NumberRange range_of(const FlowNode& node) const {
    const auto range = [&](size_t i) {
      return has(node, i) ? operand(node, i).range : NumberRange{};
    };
    if (node.one.opcode == Opcode::kMul && node.operands[0] == node.operands[1])
      return {0, product_of_ends(range(0).magnitude(), range(0).magnitude()), range(0).is_integer};
    return anneal::range_of(node.one, node.dtype, flow_[node.operands[0]].dtype, range(0), range(1),
                            range(2));
  }

  NumberRange index_range(const FlowNode& node) const {
    const Layer& layer = graph_.layer(node.layer);
    const bool is_of_output =
        std::holds_alternative<Pointwise>(layer.op) || program_of(layer.op) == nullptr;
    const double most = is_of_output ? most_at(graph_, shape_of(graph_, layer.outputs[0]),
                                               static_cast<int64_t>(node.one.immediate))
                                     : kInfinite;
    return {0, most, true};
  }

  NodeFacts op(const FlowNode& node) {
    const Layer& layer = graph_.layer(node.layer);
    NodeFacts facts = joined(node);
    const HalfRole role = *traits_of(layer.op).half;
    if (role == HalfRole::kMoves) return moved(node, layer);
    if (role == HalfRole::kProduct) return multiplied(node, layer, facts);
    const NumberRange x = has(node, 0) ? operand(node, 0).range : NumberRange{};
    facts.range = range_of_type(node.dtype);
    const auto is_now_feature = [&] { facts.is_feature |= facts.is_of_product; };
    if (const auto* softmax = std::get_if<Softmax>(&layer.op)) {
      facts.range = softmax->log ? NumberRange{-kInfinite, 0, false} : NumberRange{0, 1, false};
      facts.is_of_integers = false;
      facts.expected = softmax->log ? kOrdinary : 1;
      is_now_feature();
    } else if (const auto* normalize = std::get_if<Normalize>(&layer.op)) {
      double count = 1;
      for (const int64_t axis : normalize->axes)
        count *= most_at(graph_, shape_of(graph_, layer.inputs[0]), axis);
      facts.range = symmetric_range(std::sqrt(count));
      facts.is_of_integers = false;
      facts.expected = kOrdinary;
      is_now_feature();
    } else if (const auto* pool = std::get_if<Pool>(&layer.op)) {
      if (pool->kind == PoolKind::kMax && node.output == 0) facts.range = x;
      if (pool->kind == PoolKind::kAverage)
        facts.range = hull(x, kZeroRange), facts.range.is_integer = false;
      if (pool->kind != PoolKind::kAverage) is_now_feature();
    } else if (const auto* reduce = std::get_if<Reduce>(&layer.op)) {
      if (reduce->kind != ReduceKind::kSum && reduce->kind != ReduceKind::kProd) facts.range = x;
      if (reduce->kind == ReduceKind::kMean) facts.range.is_integer = false;
      if (reduce->kind == ReduceKind::kSum) facts.range.is_integer = x.is_integer;
      if (reduce->kind == ReduceKind::kSum && x.least >= 0) facts.range.least = 0;
    } else if (std::holds_alternative<Cumulative>(layer.op)) {
      facts.range.is_integer = x.is_integer;
      facts.expected = kInfinite;
    } else if (std::holds_alternative<TopK>(layer.op)) {
      if (node.output == 0) facts.range = x;
    } else if (const auto* resize = std::get_if<Resize>(&layer.op)) {
      if (resize->mode != ResizeMode::kCubic)
        facts.range = hull(x, range_of_number(resize->extrapolation_value));
      facts.range.is_integer = false;
    } else if (const auto* sample = std::get_if<GridSample>(&layer.op)) {
      if (sample->mode != ResizeMode::kCubic) facts.range = hull(x, kZeroRange);
      facts.range.is_integer = false;
      facts.is_of_product = operand(node, 0).is_of_product;
      facts.is_feature = operand(node, 0).is_feature;
      facts.expected = operand(node, 0).expected;
    } else if (const auto* recurrent = std::get_if<Recurrent>(&layer.op)) {
      if (recurrent->kind == RecurrentKind::kLstm && node.output < 2 &&
          recurrent->output == Activation::kTanh && recurrent->gate == Activation::kSigmoid)
        facts.range = symmetric_range(1);
      facts.is_of_product = facts.is_feature = true;
      facts.expected = kOrdinary;
    } else if (std::holds_alternative<LinearAttention>(layer.op)) {
      facts.is_of_product = facts.is_feature = true;
      facts.expected = kOrdinary;
    } else if (std::holds_alternative<Range>(layer.op)) {
      facts.range.is_integer = x.is_integer && operand(node, 2).range.is_integer;
      facts.is_of_integers = true;
      facts.expected = kInfinite;
    } else if (std::holds_alternative<Dequantize>(layer.op)) {
      const NumberRange scale = operand(node, 1).range;
      const double zero = has(node, 2) ? operand(node, 2).range.magnitude() : 0;
      const double code =
          largest_number(std::get<Dequantize>(layer.op).encoding, x.magnitude()) + zero;
      facts.range = symmetric_range(product_of_ends(code, scale.magnitude()));
      facts.is_of_product = facts.is_feature = true;
      facts.expected = kOrdinary;
    } else if (!bodies_of(layer.op).empty()) {
      return results_of(node, layer)[static_cast<size_t>(node.output)];
    }
    if (is_integer(node.dtype)) facts.range.is_integer = true;
    return facts;
  }

  // The facts of the results of a layer with bodies.
  const std::vector<NodeFacts>& results_of(const FlowNode& node, const Layer& layer) {
    const auto [made, is_new] = results_.try_emplace(node.layer);
    if (!is_new) return made->second;
    const BodyPorts ports = ports_of(layer.op);
    std::vector<NodeFacts> results;
    for (const BodyUse& use : bodies_of(layer.op)) {
      const Graph& body = graph_.bodies()[static_cast<size_t>(use.body)];
      const std::vector<NodeFacts> outputs = outputs_of(node, layer, body, use.body);
      for (size_t k = 0; k < layer.outputs.size(); ++k) {
        NodeFacts facts = outputs[static_cast<size_t>(ports.first_output) + k];
        const size_t initial = static_cast<size_t>(ports.first_carried + ports.input_shift) + k;
        if (k < static_cast<size_t>(ports.carried) && has(node, initial))
          facts = either(facts, operand(node, initial));
        if (k < results.size())
          results[k] = either(results[k], facts);
        else
          results.push_back(facts);
      }
    }
    return made->second = std::move(results);
  }

  std::vector<NodeFacts> outputs_of(const FlowNode& node, const Layer& layer, const Graph& body,
                                    int64_t number) {
    const BodyPorts ports = ports_of(layer.op);
    const ValueFlow flow(body);
    std::vector<NodeFacts>& inputs = made_.body_inputs[number];
    inputs = inputs_of(node, layer, body);
    for (;;) {
      const std::vector<NodeFacts> outputs = outputs_at(flow, inputs, sums_);
      // The integers that an iteration returns are the input of the next one.
      bool is_settled = true;
      for (int k = 0; k < ports.carried; ++k) {
        NodeFacts& to = inputs[static_cast<size_t>(ports.first_carried + k)];
        const NodeFacts& from = outputs[static_cast<size_t>(ports.first_output + k)];
        if (to.is_of_integers || !from.is_of_integers) continue;
        to.is_of_integers = true;
        to.expected = std::max(to.expected, from.expected);
        is_settled = false;
      }
      if (!is_settled) continue;
      if (ports.carried == 0 || !let_grow(ports, flow, most_returns(node, layer), inputs))
        return outputs;
      return outputs_at(flow, inputs, sums_);
    }
  }

  std::vector<NodeFacts> outputs_at(const ValueFlow& flow, std::span<const NodeFacts> inputs,
                                    Sums sums) const {
    const Graph& body = flow.graph();
    const FlowFacts facts = FactFinder(flow, options_, inputs, sums).run();
    std::vector<NodeFacts> outputs;
    for (const Graph::Output& output : body.outputs()) {
      const int found = flow.of(output.value);
      const Tensor* constant = body.constant(output.value);
      outputs.push_back(found >= 0 ? facts[found]
                        : constant ? NodeFacts{.range = range_of_tensor(*constant)}
                                   : of_type(body.value(output.value).type().dtype));
    }
    return outputs;
  }

  // How often the body may get what it gave; infinite if nothing bounds it.
  double most_returns(const FlowNode& node, const Layer& layer) const {
    return std::holds_alternative<Loop>(layer.op) && has(node, 0)
               ? std::max(operand(node, 0).range.magnitude() - 1, 0.0)
               : kInfinite;
  }

  // Nothing is expected of carried floats that still grow after some iterations. Whether any does.
  bool let_grow(const BodyPorts& ports, const ValueFlow& flow, double most_returns,
                std::vector<NodeFacts>& inputs) const {
    const std::vector<NodeFacts> first = inputs;
    std::vector<NodeFacts> now = inputs;
    std::vector<bool> grows(static_cast<size_t>(ports.carried));
    const auto carried = [&](int k) { return static_cast<size_t>(ports.first_carried + k); };
    bool any = true;
    for (int pass = 0; any && pass < std::min<double>(kMostPasses, most_returns); ++pass) {
      const std::vector<NodeFacts> outputs = outputs_at(flow, now, Sums::kAll);
      any = false;
      for (int k = 0; k < ports.carried; ++k) {
        const NodeFacts& from = outputs[static_cast<size_t>(ports.first_output + k)];
        NodeFacts& to = now[carried(k)];
        const bool is_f32 =
            flow.graph().value(flow.graph().inputs()[carried(k)]).type().dtype == DataType::kF32;
        grows[static_cast<size_t>(k)] = is_f32 && from.expected > to.expected + kLittleGrowth;
        if (!grows[static_cast<size_t>(k)]) continue;
        to.expected = from.expected;
        any = true;
      }
    }
    // With few iterations the growth is known.
    const bool is_over = most_returns <= kMostPasses;
    bool changes = false;
    for (int k = 0; k < ports.carried; ++k) {
      NodeFacts& to = inputs[carried(k)];
      to.expected =
          grows[static_cast<size_t>(k)] && !is_over ? kInfinite : now[carried(k)].expected;
      changes = changes || to.expected != first[carried(k)].expected;
    }
    return changes;
  }

  std::vector<NodeFacts> inputs_of(const FlowNode& node, const Layer& layer,
                                   const Graph& body) const {
    const BodyPorts ports = ports_of(layer.op);
    std::vector<NodeFacts> inputs;
    for (size_t i = 0; i < body.inputs().size(); ++i) {
      const DataType dtype = body.value(body.inputs()[i]).type().dtype;
      NodeFacts facts = of_type(dtype);
      const size_t outer = i + static_cast<size_t>(ports.input_shift);
      const auto carried = static_cast<int>(i) - ports.first_carried;
      if (std::holds_alternative<Loop>(layer.op) && i == 0) {
        if (has(node, outer)) facts.range = hull(kZeroRange, operand(node, outer).range);
      } else if (has(node, outer) && carried >= 0 && carried < ports.carried) {
        facts.is_of_integers |= operand(node, outer).is_of_integers;
        facts.expected = std::max(facts.expected, operand(node, outer).expected);
      } else if (has(node, outer)) {
        facts = operand(node, outer);
      }
      inputs.push_back(facts);
    }
    return inputs;
  }

  NodeFacts moved(const FlowNode& node, const Layer& layer) const {
    NodeFacts facts;
    bool is_first = true;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (!traits_of(layer.op).data->contains(i) || !has(node, i)) continue;
      const NodeFacts& of = operand(node, i);
      const NumberRange range = is_first ? of.range : hull(facts.range, of.range);
      facts = {.range = range,
               .expected = std::max(facts.expected, of.expected),
               .is_of_product = facts.is_of_product || of.is_of_product,
               .is_feature = facts.is_feature || of.is_feature,
               .is_of_integers = facts.is_of_integers || of.is_of_integers};
      is_first = false;
    }
    if (std::holds_alternative<Pad>(layer.op) && !has(node, 2))
      facts.range = hull(facts.range, kZeroRange);
    return facts;
  }

  // Whether the left operand's rows are softmaxes, so that results are means of the right operand.
  bool is_mean(const FlowNode& node, const MatMul& matmul) const {
    const FlowNode& left = flow_[node.operands[0]];
    if (left.kind != FlowNode::Kind::kOp || matmul.transpose_a) return false;
    const auto* softmax = op_as<Softmax>(graph_, left.layer);
    return softmax && !softmax->log &&
           softmax->axis == shape_of(graph_, graph_.layer(node.layer).inputs[0]).rank() - 1;
  }

  NodeFacts multiplied(const FlowNode& node, const Layer& layer, NodeFacts facts) {
    facts.is_of_product = true;
    facts.is_feature = false;
    if (std::holds_alternative<Attention>(layer.op)) {
      facts.is_feature = true;
      facts.is_of_integers = false;
      facts.range = hull(operand(node, 2).range, kZeroRange);
      facts.range.is_integer = false;
      facts.expected = operand(node, 2).expected;
      return facts;
    }
    facts.expected = kOrdinary;
    facts.range = {};
    if (!node.is_f32()) {  // of 8-bit integers, which have scales behind them
      facts.is_feature = true;
      facts.is_of_integers = false;
      facts.range.is_integer = is_integer(node.dtype);
      return facts;
    }
    for (const size_t i : {size_t{1}, size_t{0}}) {
      const Tensor* weights = graph_.constant(layer.inputs[i]);
      const bool are_packed = i == 1 && has_constant_codes(graph_, node.layer);
      if (!weights || (weights->dtype() != DataType::kF32 && !are_packed)) continue;
      const auto [made, is_new] = made_.norms.try_emplace(node.layer);
      if (is_new)
        made->second = are_packed ? norms_of_packed(graph_, node.layer)
                                  : norms_of_floats(graph_, node.layer, i, threads_);
      const ProductNorms& norms = made->second;
      const NodeFacts& data = operand(node, 1 - i);
      facts.range = symmetric_range(product_of_ends(data.range.magnitude(), norms.sum),
                                    data.range.is_integer && norms.is_integer);
      facts.expected = product_of_ends(as_read(data), std::max(norms.root, norms.mean));
      return facts;
    }
    const NodeFacts &a = operand(node, 0), &b = operand(node, 1);
    const auto* matmul = std::get_if<MatMul>(&layer.op);
    if (matmul && is_mean(node, *matmul)) {
      facts.range = hull(b.range, kZeroRange);
      facts.range.is_integer = false;
      facts.expected = b.expected;
      return facts;
    }
    const double each =
        product_of_ends(a.range.magnitude(), has(node, 4) ? kInfinite : b.range.magnitude());
    facts.range =
        symmetric_range(matmul ? product_of_ends(each, summands(graph_, node.layer)) : kInfinite,
                        a.range.is_integer && b.range.is_integer);
    facts.expected = kInfinite;
    return facts;
  }

  static double as_read(const NodeFacts& data) {
    return data.is_feature && std::isfinite(data.expected) ? std::min(data.expected, kOrdinary)
                                                           : data.expected;
  }

  const ValueFlow& flow_;
  const Graph& graph_;
  const PrecisionOptions& options_;
  const std::span<const NodeFacts> inputs_;
  const Sums sums_;
  const int threads_;
  FlowFacts made_;
  std::unordered_map<LayerId, std::vector<NodeFacts>> results_;  // of layers with bodies
};

}  // namespace

float seen_in(const PrecisionOptions& options, const std::string& value) {
  if (!options.ranges) return -1;
  const auto found = options.ranges->tensors.find(value);
  if (found == options.ranges->tensors.end()) return -1;
  return std::max(std::abs(found->second.seen_min), std::abs(found->second.seen_max));
}

double summands(const Graph& graph, LayerId product) {
  const auto* matmul = op_as<MatMul>(graph, product);
  if (!matmul) return kInfinite;
  const Shape& a = shape_of(graph, graph.layer(product).inputs[0]);
  return most_at(graph, a, a.rank() - (matmul->transpose_a ? 2 : 1));
}

FlowFacts facts_of(const ValueFlow& flow, const PrecisionOptions& options,
                   std::span<const NodeFacts> inputs, int threads) {
  return FactFinder(flow, options, inputs, FactFinder::Sums::kLarger, threads).run();
}

BodyPorts ports_of(const Op& op) {
  if (std::holds_alternative<If>(op)) return {.input_shift = 1};
  if (const auto* loop = std::get_if<Loop>(&op))
    return {.first_output = 1, .first_carried = 2, .carried = static_cast<int>(loop->carried)};
  if (const auto* scan = std::get_if<Scan>(&op))
    return {.carried = static_cast<int>(scan->carried)};
  return {};
}

}  // namespace anneal
