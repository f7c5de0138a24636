// fuse_normalize: a normalization written out in sums and elementwise layers becomes Normalize.
//
//   m = Reduce(x) kind=mean; d = x - m; v = Reduce(d*d) kind=mean; y = d / sqrt(v + e) * g + b
//     =>   y = Normalize(x; g, b) epsilon=e epilogue=add(mul($0,$1),$2)
//
// LayerNorm, InstanceNorm and GroupNorm (between their Reshapes) so, RMSNorm without m, also by way
// of the mean of x*x less m*m, of sums, and of reductions that drop their axes. How the elementwise
// part is spelled and cut into layers does not matter: v and y are composed as programs of x, m and
// v, and asked at many points whether v is the mean of (x - m)^2 or x^2, and whether y depends on
// x, m and v through (x - m) / sqrt(variance + e) alone. Then y is its program where m is 0 and the
// root 1. Layers that replace NaN or infinities are no part of it, neither before nor after it.
// Changes numerics: statistics are summed in f32 in another order, squares that overflow need not
// make an infinity of them, and 16-bit roundings in between are removed. Runs before
// fuse_pointwise, which would join y with later layers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/compose.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/probe.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr int kProbes = 24;
constexpr double kMaxEpsilon = 0.5;
constexpr double kStepOfF16 = 0x1p-24;  // the least
constexpr double kLeastVariance = 1e-30;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The mean over axes that stay with size 1, times `count`.
struct Mean {
  ValueId value = ValueId::kNone, of = ValueId::kNone;
  double count = 1;
  std::vector<int64_t> axes;
};

std::optional<Mean> mean_at(const Graph& graph, ValueId value) {
  LayerId id = producer(graph, value);
  if (op_as<Reshape>(graph, id) && graph.layer(id).epilogues.empty())
    id = producer(graph, graph.layer(id).inputs[0]);
  const auto* reduce = op_as<Reduce>(graph, id);
  if (!reduce || !graph.layer(id).epilogues.empty()) return std::nullopt;
  if (reduce->kind != ReduceKind::kMean && reduce->kind != ReduceKind::kSum) return std::nullopt;
  const ValueId of = graph.layer(id).inputs[0];
  const Tensor* axes = graph.constant(graph.layer(id).inputs[1]);
  if (!axes || axes->count() == 0 || !is_float(graph.value(of).type().dtype)) return std::nullopt;
  Mean mean{value, of, 1, {}};
  Shape kept = graph.value(of).type().shape;
  for (const int64_t axis : axes->as<int64_t>())
    mean.axes.push_back(axis < 0 ? axis + kept.rank() : axis);
  std::sort(mean.axes.begin(), mean.axes.end());
  for (const int64_t axis : mean.axes) {
    Size& size = kept[static_cast<int>(axis)];
    if (reduce->kind == ReduceKind::kSum && !size.known()) return std::nullopt;
    if (reduce->kind == ReduceKind::kSum) mean.count *= static_cast<double>(size.value());
    size = 1;
  }
  if (graph.value(value).type().shape != kept) return std::nullopt;
  return mean;
}

std::vector<Mean> means_above(const Graph& graph, ValueId value) {
  std::vector<Mean> means;
  for (const ValueId each : elementwise_ancestors(graph, value))
    if (auto mean = mean_at(graph, each)) means.push_back(std::move(*mean));
  return means;
}

size_t place(const std::vector<ValueId>& values, ValueId value) {
  return static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

// Whether a Cast of the model rounds to 16 bits what follows from x alone: it comes before the
// normalization, which would not see its result.
bool rounds_before(const Composition& composed, ValueId x) {
  const auto code = composed.program.code();
  std::vector<bool> is_of_x(code.size(), true);
  for (size_t reg = 0; reg < code.size(); ++reg) {
    const Instruction& one = code[reg];
    if (one.opcode == Opcode::kInput) is_of_x[reg] = composed.leaves[one.immediate] == x;
    for (int i = 0; i < operand_count(one.opcode); ++i)
      if (!is_of_x[one.operands[static_cast<size_t>(i)]]) is_of_x[reg] = false;
    const bool is_half_round =
        one.opcode == Opcode::kRound && is_half(static_cast<DataType>(one.immediate & ~kByCast));
    const bool is_direct = is_half_round && code[one.operands[0]].opcode == Opcode::kInput;
    if (is_half_round && is_of_x[reg] && (is_direct || (one.immediate & kByCast) != 0)) return true;
  }
  return false;
}

// Whether the value is `wanted(x, m)` at every probe, of nothing but x and m (which may be absent).
template <class F>
bool computes(const Graph& graph, ValueId value, ValueId x, ValueId m, F wanted) {
  std::vector<ValueId> stops = {x};
  if (m != ValueId::kNone) stops.push_back(m);
  const auto composed = compose(graph, value, stops);
  if (!composed || rounds_before(*composed, x)) return false;
  for (const ValueId leaf : composed->leaves)
    if (leaf != x && leaf != m) return false;
  if (m != ValueId::kNone && place(composed->leaves, m) == composed->leaves.size()) return false;
  const Program program = without_half_rounding(composed->program);
  if (compares_inputs(program, std::vector<bool>(composed->leaves.size(), true))) return false;
  const bool rounds =
      program.results()[0].dtype != DataType::kF32 && program.results()[0].dtype != DataType::kF64;
  const auto is_wanted = [&](double at_x, double at_m, double absolute) {
    std::vector<double> inputs;
    for (const ValueId leaf : composed->leaves) inputs.push_back(leaf == x ? at_x : at_m);
    return is_near(wanted(at_x, at_m), run_at(program, inputs)[0], rounds ? 1e-2 : 1e-5, absolute);
  };
  // Layers that drop or replace such values come before the normalization.
  for (const double strange : {kNan, kInfinity, -kInfinity})
    if (!is_wanted(strange, 1, 0) || !is_wanted(strange, strange, 0)) return false;
  Probes probes;
  for (int i = 0; i < 2 * kProbes; ++i) {
    // Far out as well, as far as f16 holds squares: what clamps is a square only near 0. And near
    // 0, where a small number that is added shows.
    const double scale = std::pow(
        10, i % 2 == 0 ? probes.next(-1, rounds ? 1.5 : 4) : probes.next(rounds ? -3 : -12, -1));
    const double at_x = probes.next(-3, 3) * scale, at_m = probes.next(-2, 2) * scale;
    const double absolute = 1e-5 * std::min(1.0, scale * scale);
    if (!is_wanted(at_x, at_m, rounds ? std::max(absolute, kStepOfF16) : absolute)) return false;
  }
  return true;
}

enum class Variance : uint8_t { kOfSquares, kCentered, kSquaresLessMean };

// y as a program of x, v, perhaps m, and others.
struct NormalizeMatch {
  ValueId x = ValueId::kNone;
  Mean variance, mean;  // mean.value is kNone if there is none
  Variance kind = Variance::kOfSquares;
  Composition y;
  double epsilon = 0;
  Program epilogue;  // with x normalized, as f32 or f64, in place of x; inputs as y's
};

bool is_number(ProgramBuilder& builder, Reg reg, double value) {
  return (reg.type == RegisterType::kF32 || reg.type == RegisterType::kF64) &&
         reg.index == builder.constant(reg.type, value).index;
}

// y where the mean is 0 and the variance such that the root is 1.
Program normalized_program(const NormalizeMatch& match, double variance) {
  const Program& y = match.y.program;
  const auto code = y.code();
  const auto leaf = [&](size_t reg) {
    return code[reg].opcode == Opcode::kInput ? match.y.leaves[code[reg].immediate]
                                              : ValueId::kNone;
  };
  return rewrite_program(
      y, [&](ProgramBuilder& builder, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
        const Instruction& one = code[reg];
        const ValueId read = leaf(reg);
        if (read != ValueId::kNone && read == match.variance.value)
          return builder.constant(one.type, variance * match.variance.count);
        if (read != ValueId::kNone && read == match.mean.value)
          return builder.constant(one.type, 0.0);
        if (operand_count(one.opcode) != 2) return std::nullopt;
        const Reg a = regs[one.operands[0]], b = regs[one.operands[1]];
        switch (one.opcode) {
          case Opcode::kAdd:
            if (is_number(builder, a, 0)) return b;
            if (is_number(builder, b, 0)) return a;
            return std::nullopt;
          case Opcode::kSub:
            return is_number(builder, b, 0) ? std::optional(a) : std::nullopt;
          case Opcode::kMul:
            if (is_number(builder, a, 1) || is_number(builder, b, 0)) return b;
            if (is_number(builder, b, 1) || is_number(builder, a, 0)) return a;
            return std::nullopt;
          case Opcode::kDiv:
            return is_number(builder, b, 1) ? std::optional(a) : std::nullopt;
          default:
            return std::nullopt;
        }
      });
}

// The positive numbers in a program that may be an epsilon.
std::vector<double> small_numbers(const Program& program) {
  std::vector<double> found;
  for (const Instruction& one : program.code()) {
    if (one.opcode != Opcode::kConstant) continue;
    double value = -1;
    if (one.type == RegisterType::kF32) value = Scalar{one.immediate}.as<float>();
    if (one.type == RegisterType::kF64) value = Scalar{one.immediate}.as<double>();
    if (value > 0 && value < kMaxEpsilon) found.push_back(value);
  }
  return found;
}

// Whether y is the epilogue of (x - m) / sqrt(variance + epsilon).
bool depends_on_normal_alone(const NormalizeMatch& match) {
  const Program y = without_half_rounding(match.y.program);
  const Program epilogue = without_half_rounding(match.epilogue);
  const DataType stored = y.results()[0].dtype;
  const bool rounds = stored != DataType::kF32 && stored != DataType::kF64;
  const bool has_mean = match.mean.value != ValueId::kNone;
  std::vector<bool> is_replaced;
  for (const ValueId leaf : match.y.leaves)
    is_replaced.push_back(leaf == match.x || leaf == match.variance.value ||
                          (has_mean && leaf == match.mean.value));
  if (compares_inputs(y, is_replaced)) return false;
  Probes probes;
  int finite = 0;
  // statistic: the mean of squares, less the mean or not, as y reads it.
  const auto is_wanted = [&](double x, double m, double statistic, double normal) {
    std::vector<double> at, at_normal;
    for (size_t i = 0; i < match.y.leaves.size(); ++i) {
      const ValueId leaf = match.y.leaves[i];
      double value = probes.next(-2, 2);
      // A condition takes both ways, or it may hide the normalization.
      if (y.inputs()[i] == DataType::kBool) value = value < 0 ? 0 : 1;
      if (leaf == match.x) value = x;
      if (leaf == match.mean.value) value = m * match.mean.count;
      if (leaf == match.variance.value) value = statistic * match.variance.count;
      at.push_back(value);
      at_normal.push_back(leaf == match.x ? normal : value);
    }
    const double want = run_at(y, at)[0];
    finite += std::isfinite(want);
    return is_near(want, run_at(epilogue, at_normal)[0], rounds ? 1e-2 : 1e-4, 1e-4);
  };
  // An element that is NaN or infinite, and another one of its row.
  for (const double strange : {kNan, kInfinity, -kInfinity}) {
    const double statistic = match.kind == Variance::kCentered ? kNan : strange * strange;
    const double beside = has_mean || std::isnan(strange) ? kNan : 0;
    if (!is_wanted(strange, strange, statistic, kNan) || !is_wanted(1, strange, statistic, beside))
      return false;
  }
  // Also where all elements are equal: without an epsilon that is 0 / 0, which y may catch.
  std::vector<double> variances = {0};
  for (int i = 1; i < 2 * kProbes; ++i)
    variances.push_back(std::pow(10, i % 2 == 0 ? probes.next(-7, 1) : probes.next(0, 6)));
  // A number that is added to the root, or to a sum, counts near its square, or near itself.
  const bool reads_halves = std::ranges::any_of(y.inputs(), is_half);
  for (const double number : reads_halves ? std::vector<double>() : small_numbers(y))
    for (const double near : {number, number * number})
      for (const double times : {0.02, 0.3, 1.0, 5.0, 60.0})
        if (near * times > kLeastVariance) variances.push_back(near * times);
  for (const double variance : variances) {
    const double root = std::sqrt(variance);
    const double m = has_mean ? probes.next(-1, 1) * root : 0;
    const double x = m + probes.next(-3, 3) * root;
    const double squares = match.kind == Variance::kSquaresLessMean ? variance + m * m : variance;
    if (!is_wanted(x, m, squares, (x - m) / std::sqrt(variance + match.epsilon))) return false;
  }
  return finite >= kProbes;
}

// A variance that is kept from being too small is not one that has something added.
bool is_clamped(const Program& program) {
  const auto code = program.code();
  return std::any_of(code.begin(), code.end(), [&](const Instruction& one) {
    if (one.opcode != Opcode::kMin && one.opcode != Opcode::kMax) return false;
    return std::any_of(one.operands.begin(), one.operands.begin() + 2, [&](uint16_t reg) {
      const Instruction& operand = code[reg];
      if (operand.opcode != Opcode::kConstant) return false;
      const double value = operand.type == RegisterType::kF64
                               ? Scalar{operand.immediate}.as<double>()
                               : Scalar{operand.immediate}.as<float>();
      return value > 0 && value < kMaxEpsilon;
    });
  });
}

bool settle_epsilon(NormalizeMatch& match) {
  if (is_clamped(match.y.program)) return false;
  std::vector<double> epsilons = small_numbers(match.y.program);
  // Of a sum of squares: less in its mean.
  if (match.variance.count != 1)
    for (const double number : small_numbers(match.y.program))
      epsilons.push_back(number / match.variance.count);
  epsilons.push_back(0);
  for (const double epsilon : epsilons) {
    match.epsilon = epsilon;
    // The one near 1 - epsilon for which the root is 1 exactly leaves the shortest program.
    const auto one = static_cast<float>(1 - epsilon);
    match.epilogue = normalized_program(match, one);
    for (const float other : {std::nextafter(one, 0.0F), std::nextafter(one, 2.0F)}) {
      Program shorter = normalized_program(match, other);
      if (shorter.code().size() < match.epilogue.code().size()) match.epilogue = std::move(shorter);
    }
    if (depends_on_normal_alone(match)) return true;
  }
  return false;
}

bool settle_x(const Graph& graph, ValueId y, const std::vector<Mean>& means,
              NormalizeMatch& match) {
  const ValueId x = match.x, argument = match.variance.of;
  const auto is_mean_of_x = [&](const Mean& mean) {
    return mean.value != match.variance.value && mean.axes == match.variance.axes &&
           (mean.of == x ||
            computes(graph, mean.of, x, ValueId::kNone, [](double at, double) { return at; }));
  };
  match.mean = {};
  const bool of_squares =
      computes(graph, argument, x, ValueId::kNone, [](double at, double) { return at * at; });
  match.kind = Variance::kOfSquares;
  for (const Mean& mean : means) {
    if (match.mean.value != ValueId::kNone || !is_mean_of_x(mean)) continue;
    const auto square = [&](double at, double m) {
      return (at - m / mean.count) * (at - m / mean.count);
    };
    if (of_squares) {
      match.kind = Variance::kSquaresLessMean;
      match.mean = mean;
    } else if (computes(graph, argument, x, mean.value, square)) {
      match.kind = Variance::kCentered;
      match.mean = mean;
    }
  }
  if (!of_squares && match.kind != Variance::kCentered) return false;
  std::vector<ValueId> stops = {x, match.variance.value};
  if (match.mean.value != ValueId::kNone) stops.push_back(match.mean.value);
  auto composed = compose(graph, y, stops);
  if (!composed || rounds_before(*composed, x)) return false;
  match.y = std::move(*composed);
  const auto reads = [&](ValueId value) {
    return place(match.y.leaves, value) < match.y.leaves.size();
  };
  if (!reads(x) || !reads(match.variance.value)) return false;
  // A mean that y does not read is no part of it, unless it went into the variance.
  if (match.kind == Variance::kSquaresLessMean && !reads(match.mean.value)) {
    match.kind = Variance::kOfSquares;
    match.mean = {};
  }
  return settle_epsilon(match);
}

std::optional<NormalizeMatch> find_normalize(const Graph& graph, ValueId y) {
  const std::vector<Mean> means = means_above(graph, y);
  for (const Mean& variance : means) {
    std::vector<Mean> all = means;
    for (Mean& mean : means_above(graph, variance.of)) all.push_back(std::move(mean));
    std::vector<ValueId> candidates = elementwise_ancestors(graph, variance.of);
    std::reverse(candidates.begin(), candidates.end());
    for (const ValueId x : candidates) {
      const Type& type = graph.value(x).type();
      if (!is_float(type.dtype) || type.shape != graph.value(y).type().shape) continue;
      NormalizeMatch match{.x = x, .variance = variance, .mean = {}, .y = {}, .epilogue = {}};
      if (settle_x(graph, y, all, match)) return match;
    }
  }
  return std::nullopt;
}

// The epilogue with the accumulator, unrounded, as input 0, and the other leaves that it reads.
Program as_epilogue(const NormalizeMatch& match, DataType stored, std::vector<ValueId>& inputs) {
  const Program& from = match.epilogue;
  const size_t x = place(match.y.leaves, match.x);
  ProgramBuilder builder;
  builder.input(0, accumulator(stored));
  inputs = {ValueId::kNone};
  std::vector<Reg> regs;
  for (Instruction one : from.code()) {
    DataType dtype = accumulator(stored);
    if (one.opcode == Opcode::kInput) {
      const size_t leaf = std::exchange(one.immediate, 0);
      if (leaf != x) {
        dtype = from.inputs()[leaf];
        one.immediate = inputs.size();
        inputs.push_back(match.y.leaves[leaf]);
      }
    }
    regs.push_back(copy_instruction(builder, one, regs, dtype));
  }
  return builder.finish(regs[from.results()[0].reg], from.results()[0].dtype);
}

bool fuse_normalize_at(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  if (!op_as<Pointwise>(graph, id) || !layer.epilogues.empty() || layer.outputs.size() != 1)
    return false;
  const ValueId y = layer.outputs[0];
  if (!is_float(graph.value(y).type().dtype)) return false;
  const auto match = find_normalize(graph, y);
  if (!match) return false;

  std::vector<std::pair<LayerId, Saving>> written_out;
  const auto note = [&](ValueId from) {
    for (const ValueId each : elementwise_ancestors(graph, from))
      if (const LayerId by = producer(graph, each); by != LayerId::kNone && each != match->x)
        written_out.emplace_back(by, saving_of(graph, each));
  };
  note(y);
  note(match->variance.of);
  const DataType stored = graph.value(match->x).type().dtype;
  std::vector<ValueId> further;
  Program epilogue = as_epilogue(*match, stored, further);
  NewLayer added{.name = layer.name,
                 .op = Normalize{.axes = match->variance.axes,
                                 .epsilon = static_cast<float>(match->epsilon),
                                 .subtract_mean = match->kind != Variance::kOfSquares},
                 .inputs = {match->x},
                 .op_input_count = 1,
                 .origins = layer.origins};
  added.inputs.insert(added.inputs.end(), further.begin() + 1, further.end());
  if (!(epilogue.is_identity() && epilogue.inputs()[0] == stored))
    added.epilogues = {std::move(epilogue)};
  const std::string name = layer.name;
  graph.replace_layer(id, graph.add(std::move(added)));
  graph.erase_unused();
  Saving saved{-1, 0};
  std::sort(written_out.begin(), written_out.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < written_out.size(); ++i) {
    const auto& [by, saving] = written_out[i];
    if ((i > 0 && written_out[i - 1].first == by) || !graph.layer(by).outputs.empty()) continue;
    saved.launches += saving.launches;
    saved.bytes += saving.bytes;
  }
  saved.bytes -= saving_of(graph, match->x).bytes;
  run.did(name,
          fmt::format("became {} over axes [{}], epsilon {}",
                      match->kind == Variance::kOfSquares ? "a division by the root mean square"
                                                          : "a normalization",
                      fmt::join(match->variance.axes, ","), static_cast<float>(match->epsilon)),
          saved);
  return true;
}

}  // namespace

bool fuse_normalize(Graph& graph, PassRun& run) { return sweep(graph, run, fuse_normalize_at); }

}  // namespace anneal
