#include "anneal/optimizer/precision/value_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/need_seeds.h"

namespace anneal {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// The allowed error of an angle; and of an exponent, which is the relative error of the power.
constexpr double kAngleError = 0x1p-8, kExponentError = 0x1p-6;
// Arguments of the inverses, which are steep at their ends.
constexpr double kCosineError = 0x1p-14;
// Where a picture is sampled, in pixels.
constexpr double kPixelError = 0x1p-5;

double with_slope(double most, double slope) {
  if (most == kNoLimit || slope == 0) return kNoLimit;
  return most / slope;
}

bool is_float_node(const FlowNode& node) { return is_float(node.dtype); }

void tighten(Limit& limit, double most, int seed) {
  if (most < limit.most) limit = {most, seed};
}

void merge(Needs& to, const Needs& other) {
  tighten(to.direct, other.direct.most, other.direct.seed);
  tighten(to.by_product, other.by_product.most, other.by_product.seed);
  if (to.decides < 0) to.decides = other.decides;
  if (to.cancels < 0) to.cancels = other.cancels;
}

// As an iteration needs it of the one before; whether it grew. Errors of all iterations add up
// where one passes them on undiminished: then, and where no end is near, the value must be exact.
bool tighten_carried(Limit& limit, const Limit& next, bool no_end) {
  const bool is_same = next.seed == limit.seed;
  if (limit.most == 0 || next.most == kNoLimit || next.most > limit.most ||
      (next.most == limit.most && !is_same))
    return false;
  limit = {is_same || no_end ? 0 : next.most, next.seed};
  return true;
}

// Passes needs from the results of a graph to its inputs.
class NeedFinder {
 public:
  NeedFinder(const ValueFlow& flow, const FlowFacts& facts, const PrecisionOptions& options,
             std::vector<std::string>& seeds)
      : flow_(flow),
        facts_(facts),
        options_(options),
        texts_(seeds),
        seeds_(flow, facts),
        needs_(flow.nodes().size()) {}

  // `outputs`: the needs of a body's outputs in its surroundings.
  std::vector<Needs> run(std::span<const Needs> outputs = {}) {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const int node = flow_.of(flow_.graph().outputs()[i].value); takes(node))
        merge(needs(node), outputs[i]);
    for (auto node = static_cast<int>(needs_.size()); node-- > 0;)
      if (flow_[node].kind == FlowNode::Kind::kInstruction)
        visit_instruction(node);
      else if (flow_[node].kind == FlowNode::Kind::kOp)
        visit_op(node);
    return std::move(needs_);
  }

  std::map<int64_t, std::vector<Needs>> take_body_outputs() { return std::move(body_outputs_); }

 private:
  const FlowNode& at(int node) const { return flow_[node]; }
  Needs& needs(int node) { return needs_[static_cast<size_t>(node)]; }
  double magnitude(int node) const { return facts_[node].range.magnitude(); }
  bool takes(int node) const { return node >= 0 && is_float_node(at(node)); }

  std::string name(int node) const {
    const ValueId value = at(node).value;
    return value == ValueId::kNone ? std::string("its result")
                                   : fmt::format("\"{}\"", flow_.graph().value(value).name);
  }
  // How the reader uses the operand, and the demand that follows.
  int seed(int reader, int operand, std::string_view does, std::string_view asks) {
    texts_.push_back(fmt::format("layer \"{}\" {} {}, which {}",
                                 flow_.graph().layer(at(reader).layer).name, does, name(operand),
                                 asks));
    return static_cast<int>(texts_.size()) - 1;
  }

  void limit(int reader, int operand, double most, std::string_view does) {
    if (!takes(operand)) return;
    const std::string asks =
        most == 0 ? "must be exact" : fmt::format("may be off by {:.2g} at most", most);
    tighten(needs(operand).direct, most, seed(reader, operand, does, asks));
  }
  void decide(int reader, int operand, std::string_view does) {
    if (takes(operand) && needs(operand).decides < 0)
      needs(operand).decides = seed(reader, operand, does, "must be exact");
  }
  void cancel(int reader, int operand, std::string_view does) {
    if (!takes(operand)) return;
    if (const auto sides = seeds_.difference(operand); sides.first >= 0)
      cancel(sides, seed(reader, operand, does, "is a difference that may lose its digits"));
  }
  void cancel(std::pair<int, int> sides, int from) {
    for (const int side : {sides.first, sides.second})
      if (takes(side) && needs(side).cancels < 0) needs(side).cancels = from;
  }
  void center(int node) {
    if (const auto sides = seeds_.centered(node); takes(node) && sides.first >= 0)
      cancel(sides,
             seed(node, sides.first, "takes the mean or a neighbour from", "may lose its digits"));
  }

  // For a spectrum, whose smallest numbers are sums that cancel.
  void keep_digits(int reader, int base) {
    if (takes(base) && needs(base).cancels < 0)
      needs(base).cancels =
          seed(reader, base, "takes the logarithm of squares of", "must keep its digits");
  }

  // To an operand whose error is multiplied by at most `slope`.
  void pass(const Needs& of, int operand, double slope) {
    pass(of, operand, [slope](double most) { return with_slope(most, slope); });
  }
  template <class F>
  void pass(const Needs& of, int operand, F&& allowed) requires std::invocable<F, double> {
    if (!takes(operand)) return;
    Needs& to = needs(operand);
    tighten(to.direct, allowed(of.direct.most), of.direct.seed);
    if (to.decides < 0) to.decides = of.decides;
    if (facts_[operand].is_feature) return;
    tighten(to.by_product, allowed(of.by_product.most), of.by_product.seed);
    if (to.cancels < 0) to.cancels = of.cancels;
  }
  void pass_decision(const Needs& of, int operand) {
    if (takes(operand) && needs(operand).decides < 0) needs(operand).decides = of.decides;
  }

  void visit_instruction(int node) {
    const FlowNode& here = at(node);
    const Needs of = needs(node);
    const int a = here.operands.empty() ? -1 : here.operands[0];
    const int b = here.operands.size() > 1 ? here.operands[1] : -1;
    const auto slope_of_quotient = [&] {
      const NumberRange& by = facts_[b].range;
      if (by.least <= 0 && by.most >= 0) return kNoLimit;
      return 1 / std::min(std::abs(by.least), std::abs(by.most));
    };
    switch (here.one.opcode) {
      case Opcode::kCast:
        if (is_float_node(here)) return pass(of, a, 1);
        if (here.dtype == DataType::kBool) return decide(node, a, "tests");
        if (seeds_.is_quantization(node)) return;
        return limit(node, a, 0, "makes integers of");
      case Opcode::kSaturate:
        if (size_of(static_cast<DataType>(here.one.immediate)) > 2 || seeds_.is_index(node))
          limit(node, a, 0, "makes integers of");
        return;
      case Opcode::kCeil:
      case Opcode::kFloor:
      case Opcode::kRoundEven:
      case Opcode::kTrunc:
        if (!seeds_.is_quantization(node)) limit(node, a, 0, "rounds");
        return;
      case Opcode::kMod:
      case Opcode::kRem:
        limit(node, a, 0, "takes the remainder of");
        return limit(node, b, 0, "takes the remainder by");
      case Opcode::kSign:
        return decide(node, a, "takes the sign of");
      case Opcode::kEqual:
      case Opcode::kLess:
      case Opcode::kLessEqual:
        if (seeds_.is_branch(node)) return;
        for (const int operand : {a, b})
          if (here.one.opcode == Opcode::kEqual)
            limit(node, operand, 0, "looks for an equal number in");
          else if (seeds_.is_index(node))
            limit(node, operand, 0, "makes an index of a comparison of");
          else
            decide(node, operand, "compares");
        return;
      case Opcode::kSin:
      case Opcode::kCos:
      case Opcode::kTan:
        if (!seeds_.is_snake(node))
          limit(node, a, kAngleError,
                here.one.opcode == Opcode::kSin   ? "takes the sine of"
                : here.one.opcode == Opcode::kCos ? "takes the cosine of"
                                                  : "takes the tangent of");
        return pass(of, a, here.one.opcode == Opcode::kTan ? kNoLimit : 1);
      case Opcode::kAsin:
      case Opcode::kAcos:
      case Opcode::kAtanh:
        return limit(node, a, kCosineError, "takes an inverse function of");
      case Opcode::kExp:
      case Opcode::kExpm1:
      case Opcode::kSinh:
      case Opcode::kCosh:
        return visit_exponential(node, of);
      case Opcode::kPow:
        return visit_power(node, of);
      case Opcode::kSqrt:
        cancel(node, a, "takes the root of");
        return pass(of, a, [](double most) { return most == kNoLimit ? most : most * most; });
      case Opcode::kLog:
      case Opcode::kLog1p: {
        cancel(node, a, "takes the logarithm of");
        for (const int base : seeds_.squared(a)) keep_digits(node, base);
        const double least = facts_[a].range.least + (here.one.opcode == Opcode::kLog1p ? 1 : 0);
        return pass(of, a, least > 0 ? 1 / least : kNoLimit);
      }
      case Opcode::kTanh:
      case Opcode::kErf:
      case Opcode::kSigmoid:
      case Opcode::kAtan:
        if (!facts_[a].is_of_product) return pass(of, a, 1.2);
        if (of.direct.most == 0) tighten(needs(a).direct, 0, of.direct.seed);
        return pass_decision(of, a);
      case Opcode::kMul:
        if (a == b) return pass(of, a, 2 * magnitude(a));
        pass(of, a, magnitude(b));
        return pass(of, b, magnitude(a));
      case Opcode::kDiv:
        pass(of, a, slope_of_quotient());
        cancel(node, b, "divides by");
        return pass(of, b, kNoLimit);
      case Opcode::kAdd:
      case Opcode::kSub:
        center(node);
        pass(of, a, 1);
        return pass(of, b, 1);
      case Opcode::kSelect:
        pass(of, here.operands[1], 1);
        return pass(of, here.operands[2], 1);
      default:
        for (const int operand : here.operands) pass(of, operand, 1);
    }
  }

  void visit_exponential(int node, const Needs& of) {
    const int a = at(node).operands[0];
    const double most = facts_[a].range.most;
    const bool is_even =
        at(node).one.opcode == Opcode::kSinh || at(node).one.opcode == Opcode::kCosh;
    const bool may_be_large = is_even ? magnitude(a) > 4 : most > 4;
    if (may_be_large && !seeds_.is_tamed(node)) {
      if (seeds_.is_softmax(node))
        decide(node, a, "takes a softmax of");
      else
        limit(node, a, kExponentError, "takes the exponential of");
    }
    pass(of, a, is_even ? std::cosh(magnitude(a)) : std::exp(most));
  }

  void visit_power(int node, const Needs& of) {
    const int base = at(node).operands[0], exponent = at(node).operands[1];
    const NumberRange &x = facts_[base].range, &y = facts_[exponent].range;
    if (y.least == y.most) {
      if (y.least < 1) cancel(node, base, "takes a power of");
      return pass(of, base,
                  y.least >= 1 ? y.least * std::pow(x.magnitude(), y.least - 1) : kNoLimit);
    }
    // b^y is e^(y ln b).
    const double rate = x.least > 0 && x.most < kNoLimit
                            ? std::max(std::abs(std::log(x.least)), std::abs(std::log(x.most)))
                            : 8;
    if (rate > 0) limit(node, exponent, kExponentError / rate, "takes a power by");
    pass(of, base, kNoLimit);
    pass(of, exponent, kNoLimit);
  }

  void visit_op(int node) {
    const FlowNode& here = at(node);
    const Layer& layer = flow_.graph().layer(here.layer);
    const Needs of = needs(node);
    const HalfRole role = *traits_of(layer.op).half;
    const int x = here.operands.empty() ? -1 : here.operands[0];
    if (role == HalfRole::kMoves) {
      for (size_t i = 0; i < here.operands.size(); ++i)
        if (traits_of(layer.op).data->contains(i)) pass(of, here.operands[i], 1);
    } else if (role == HalfRole::kProduct) {
      visit_product(here, layer, of);
    } else if (std::holds_alternative<Softmax>(layer.op)) {
      if (of.direct.most == 0 && takes(x)) tighten(needs(x).direct, 0, of.direct.seed);
      pass_decision(of, x);
    } else if (std::holds_alternative<Pool>(layer.op) || std::holds_alternative<Resize>(layer.op)) {
      pass(of, x, 1);
    } else if (const auto* reduce = std::get_if<Reduce>(&layer.op)) {
      visit_reduce(*reduce, layer, of, x);
    } else if (std::holds_alternative<Cumulative>(layer.op)) {
      pass(of, x, kNoLimit);
    } else if (const auto* top = std::get_if<TopK>(&layer.op)) {
      decide(node, x, top->largest ? "selects the largest of" : "selects the smallest of");
      if (here.output == 0 && top->of == TopKOf::kValues) pass(of, x, 1);
    } else if (std::holds_alternative<ArgReduce>(layer.op) && seeds_.is_code(node)) {
      limit(node, x, 0, "makes an index of a table of the place of the largest or smallest of");
    } else if (std::holds_alternative<ArgReduce>(layer.op) ||
               std::holds_alternative<NonZero>(layer.op) ||
               std::holds_alternative<Unique>(layer.op)) {
      decide(node, x, "selects by");
    } else if (std::holds_alternative<DecisionTrees>(layer.op)) {
      limit(node, x, 0, "makes an index of comparisons of");
    } else if (std::holds_alternative<LinearAttention>(layer.op)) {
      constexpr size_t kDecay = 4;
      if (here.operands.size() > kDecay)
        limit(node, here.operands[kDecay], kExponentError, "takes the exponential of");
    } else if (std::holds_alternative<NonMaxSuppression>(layer.op)) {
      decide(node, x, "selects by");
      decide(node, here.operands[1], "selects by");
    } else if (std::holds_alternative<Range>(layer.op)) {
      for (const int operand : here.operands) limit(node, operand, 0, "counts by");
    } else if (std::holds_alternative<GridSample>(layer.op)) {
      pass(of, x, 1);
      limit(node, here.operands[1], grid_error(layer), "samples at positions given by");
    } else if (const auto* align = std::get_if<RoiAlign>(&layer.op)) {
      pass(of, x, 1);
      limit(node, here.operands[1], kPixelError / std::max(align->spatial_scale, 1e-6F),
            "samples at positions given by");
    } else if (std::holds_alternative<ScatterElements>(layer.op) ||
               std::holds_alternative<ScatterND>(layer.op)) {
      pass(of, x, 1);
      pass(of, here.operands[2], 1);
    } else if (std::holds_alternative<BitCast>(layer.op)) {
      limit(node, x, 0, "takes the bits of");
    } else if (const auto* custom = std::get_if<Custom>(&layer.op)) {
      if (custom->definition && custom->definition->description().takes_rounded) return;
      for (const int operand : here.operands) decide(node, operand, "is of a library and reads");
    } else if (here.output == 0) {
      visit_bodies(here, layer);
    }
  }

  void visit_reduce(const Reduce& reduce, const Layer& layer, const Needs& of, int x) {
    if (reduce.kind == ReduceKind::kMax || reduce.kind == ReduceKind::kMin) return pass(of, x, 1);
    // Sums are taken in f32, of numbers that are rounded alike.
    Needs summed = of;
    summed.decides = summed.cancels = -1;
    double slope = kNoLimit;
    if (reduce.kind == ReduceKind::kMean) slope = 1;
    if (reduce.kind == ReduceKind::kSum) slope = summed_count(layer);
    pass(summed, x, slope);
  }

  double summed_count(const Layer& layer) const {
    const Shape& shape = shape_of(flow_.graph(), layer.inputs[0]);
    double count = 1;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int64_t most = flow_.graph().sizes().range(shape[axis]).max;
      if (most >= std::numeric_limits<int32_t>::max()) return kNoLimit;
      count *= static_cast<double>(std::max<int64_t>(most, 1));
    }
    return count;
  }

  double grid_error(const Layer& layer) const {
    const Shape& shape = shape_of(flow_.graph(), layer.inputs[0]);
    double most = 1;
    for (int axis = 2; axis < shape.rank(); ++axis)
      most = std::max(most, static_cast<double>(flow_.graph().sizes().range(shape[axis]).max));
    return kPixelError / (most / 2);
  }

  void visit_product(const FlowNode& here, const Layer& layer, const Needs& of) {
    if (std::holds_alternative<Attention>(layer.op) || !here.is_f32()) return;
    Needs all;
    all.by_product = of.direct.most < of.by_product.most ? of.direct : of.by_product;
    const auto found = facts_.norms.find(here.layer);
    const double count = summands(flow_.graph(), here.layer);
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const double slope = found != facts_.norms.end() ? found->second.of_errors()
                                                       : count * magnitude(here.operands[1 - i]);
      pass(all, here.operands[i], slope);
    }
  }

  // The outputs of a layer's bodies have the needs of its outputs; its inputs have the needs of the
  // bodies' inputs.
  void visit_bodies(const FlowNode& here, const Layer& layer) {
    const BodyPorts ports = ports_of(layer.op);
    const std::span<const int> results = flow_.of_op(here.layer);
    for (const BodyUse& use : bodies_of(layer.op)) {
      const Graph& body = flow_.graph().bodies()[static_cast<size_t>(use.body)];
      const ValueFlow flow(body);
      const FlowFacts facts = facts_of(flow, options_, facts_.body_inputs.at(use.body));
      std::vector<Needs>& outputs = body_outputs_[use.body];
      outputs.resize(body.outputs().size());
      for (size_t k = 0; k < results.size(); ++k)
        merge(outputs[static_cast<size_t>(ports.first_output) + k], needs(results[k]));
      std::vector<Needs> inner;
      int round = 0;
      do {
        inner = NeedFinder(flow, facts, options_, texts_).run(outputs);
      } while (feed_back(ports, inner, outputs, ++round));
      for (size_t i = 0; i < body.inputs().size(); ++i) {
        const size_t outer = i + static_cast<size_t>(ports.input_shift);
        if (outer < here.operands.size()) pass(inner[i], here.operands[outer], 1);
      }
    }
  }

  // The needs of an iteration's carried values are needs of the iteration before. Returns whether
  // any need grew.
  static bool feed_back(const BodyPorts& ports, std::span<const Needs> inputs,
                        std::span<Needs> outputs, int round) {
    constexpr int kMostRounds = 4;
    const bool no_end = round >= kMostRounds;
    bool any = false;
    for (int k = 0; k < ports.carried; ++k) {
      const Needs& next = inputs[static_cast<size_t>(ports.first_carried + k)];
      Needs& of = outputs[static_cast<size_t>(ports.first_output + k)];
      any |= tighten_carried(of.direct, next.direct, no_end);
      any |= tighten_carried(of.by_product, next.by_product, no_end);
      if (of.decides < 0 && next.decides >= 0) of.decides = next.decides, any = true;
      if (of.cancels < 0 && next.cancels >= 0) of.cancels = next.cancels, any = true;
    }
    return any;
  }

  const ValueFlow& flow_;
  const FlowFacts& facts_;
  const PrecisionOptions& options_;
  std::vector<std::string>& texts_;
  NeedSeeds seeds_;
  std::vector<Needs> needs_;
  std::map<int64_t, std::vector<Needs>> body_outputs_;  // by the body's index
};

// The largest error of a number in the range.
double error_in(const NumberRange& range, NumberRounding rounding) {
  const double most = range.magnitude();
  if (rounding.keeps_integers && range.is_integer && most <= std::ldexp(1.0, rounding.digits))
    return 0;
  return most * std::ldexp(1.0, -rounding.digits);
}

// 0 where either is, also times infinity.
double times_error(double factor, double error) {
  return factor == 0 || error == 0 ? 0 : factor * error;
}

// The seed of a need that the error does not meet; -1: it meets all.
int broken_by(const Needs& needs, double error) {
  if (error > needs.direct.most) return needs.direct.seed;
  if (error > needs.by_product.most) return needs.by_product.seed;
  return error > 0 ? needs.cancels : -1;
}

}  // namespace

NumberRounding rounding_of(DataType half) { return {half == DataType::kF16 ? 11 : 8, true}; }

NeedAnalysis::NeedAnalysis(const Graph& graph, const PrecisionOptions& options,
                           const BodyContext* around, int threads) {
  if (around && around->outputs.size() != graph.outputs().size()) around = nullptr;
  const ValueFlow flow(graph);
  const FlowFacts facts =
      facts_of(flow, options, around ? around->inputs : std::span<const NodeFacts>(), threads);
  if (around) seeds_ = *around->seeds;
  NeedFinder finder(flow, facts, options, seeds_);
  const std::vector<Needs> needs = finder.run(around ? around->outputs : std::span<const Needs>());
  const auto seeds = std::make_shared<const std::vector<std::string>>(seeds_);
  for (auto& [body, outputs] : finder.take_body_outputs())
    bodies_[body] = std::make_shared<const BodyContext>(
        BodyContext{facts.body_inputs.at(body), std::move(outputs), seeds});
  const auto add = [&](ValueId id) {
    const int node = flow.of(id);
    if (node < 0) return;
    values_[id] = {facts[node].range, needs[static_cast<size_t>(node)]};
    expected_[id] = facts[node].expected;
  };
  for (const ValueId id : graph.inputs()) add(id);
  for (const LayerId id : graph.order()) {
    for (const ValueId output : graph.layer(id).outputs) add(output);
    const Layer& layer = graph.layer(id);
    if (*traits_of(layer.op).half != HalfRole::kProduct ||
        std::holds_alternative<Attention>(layer.op))
      continue;
    Product& product = products_[id];
    for (const int node : flow.of_op(id)) {
      const Needs& of = needs[static_cast<size_t>(node)];
      tighten(product.needs.direct, of.direct.most, of.direct.seed);
      tighten(product.needs.by_product, of.by_product.most, of.by_product.seed);
      product.needs.cancels = std::max(product.needs.cancels, of.cancels);
      const FlowNode& here = flow[node];
      const NodeFacts &a = facts[here.operands[0]], &b = facts[here.operands[1]];
      product.data = a.range;
      product.weights = b.range;
      const auto found = facts.norms.find(id);
      if (found != facts.norms.end()) {
        const bool is_left = graph.constant(layer.inputs[0]) && !graph.constant(layer.inputs[1]);
        if (is_left) std::swap(product.data, product.weights);
        if (is_left || !graph.constant(layer.inputs[0])) product.norms = found->second;
        const double norm = found->second.of_errors();
        product.weights_factor = norm;
        const double most = product.weights.magnitude();
        // Errors of weights are relative to the largest one of each sum at most.
        product.data_factor = most == 0 ? 0 : times_error(product.data.magnitude(), norm / most);
      } else {
        const double count = summands(graph, id);
        product.weights_factor = times_error(count, b.range.magnitude());
        product.data_factor = times_error(count, a.range.magnitude());
      }
    }
  }
}

const ProductNorms* NeedAnalysis::norms_of(LayerId product) const {
  const auto found = products_.find(product);
  return found == products_.end() || !found->second.norms ? nullptr : &*found->second.norms;
}

double NeedAnalysis::error_of(LayerId product, NumberRounding rounding) const {
  const auto found = products_.find(product);
  if (found == products_.end()) return 0;
  const Product& of = found->second;
  return times_error(of.weights_factor, error_in(of.data, rounding)) +
         times_error(of.data_factor, error_in(of.weights, rounding));
}

double NeedAnalysis::expected(ValueId value) const {
  const auto found = expected_.find(value);
  return found == expected_.end() ? 0 : found->second;
}

std::string NeedAnalysis::text(int seed, double error, std::string_view subject) const {
  const std::string& of = seeds_[static_cast<size_t>(seed)];
  return std::isfinite(error) ? fmt::format("{}; {} may be off by {:.2g}", of, subject, error)
                              : fmt::format("{}; the magnitude of {} is unknown", of, subject);
}

std::string NeedAnalysis::why_not_stored(ValueId value, NumberRounding rounding,
                                         std::string_view what) const {
  const auto found = values_.find(value);
  if (found == values_.end()) return {};
  const auto& [range, needs] = found->second;
  const double error = error_in(range, rounding);
  int seed = broken_by(needs, error);
  if (seed < 0 && error > 0) seed = needs.decides;
  return seed < 0 ? std::string() : text(seed, error, fmt::format("this in {}", what));
}

std::string NeedAnalysis::why_not_multiplied(LayerId product, NumberRounding rounding,
                                             std::string_view what) const {
  const auto found = products_.find(product);
  if (found == products_.end()) return {};
  const double error = error_of(product, rounding);
  const int seed = broken_by(found->second.needs, error);
  return seed < 0 ? std::string()
                  : text(seed, error, fmt::format("the product of operands of {}", what));
}

NeedAnalysis find_needs(const Graph& graph, PassRun& run) {
  NeedAnalysis needs(graph, run.options.precision, run.noted(graph), run.options.threads);
  for (const auto& [body, context] : needs.bodies())
    run.note(graph.bodies()[static_cast<size_t>(body)], context);
  return needs;
}

}  // namespace anneal
