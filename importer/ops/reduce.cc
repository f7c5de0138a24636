// Reductions over axes. Other reductions than sum, mean, product, minimum and maximum become one of
// these between Pointwise layers, which keep 16-bit floats in f32 so that the node rounds once.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include "anneal/core/dtype_kinds.h"

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

struct Axes {
  ValueId value = ValueId::kNone;
  bool none = false;  // nothing is reduced
};

Axes all_axes(Node& node) {
  std::vector<int64_t> axes(static_cast<size_t>(node.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  return {node.integers_value(axes, "axes")};
}

Axes axes_attribute(Node& node) {
  node.expect_inputs(1, 1);
  const auto axes = node.find_integers("axes");
  if (!axes || axes->empty()) return all_axes(node);
  return {node.integers_value(node.resolve_axes(*axes, node.rank(0)), "axes")};
}

Axes axes_input(Node& node) {
  node.expect_inputs(1, 2);
  const bool noop = node.flag("noop_with_empty_axes", false);
  const bool given = node.has_input(1);
  if (given) node.dtype(1, kIndices);
  const bool empty = !given || (node.rank(1) == 1 && node.shape(1)[0] == Size(0));
  if (empty) return noop ? Axes{ValueId::kNone, true} : all_axes(node);
  if (const auto axes = node.known_integers(1))
    return {node.integers_value(node.resolve_axes(*axes, node.rank(0)), "axes")};
  return {as_i64(node, node.input(1), "axes")};
}

using ReadAxes = Axes (*)(Node&);

// f32 for 16-bit floats, else the type itself.
DataType wide(DataType dtype) {
  return size_of(dtype) == 2 && is_float(dtype) ? DataType::kF32 : dtype;
}

ValueId reduce(Node& node, ReduceKind kind, ValueId x, const Axes& axes, bool keepdims,
               std::string_view suffix) {
  if (axes.none) return x;
  return node.layer(Reduce{.kind = kind, .keepdims = keepdims}, {x, axes.value}, suffix);
}

template <ReduceKind kind, const TypeSet& types, ReadAxes read_axes>
Outputs import_reduce(Node& node) {
  node.dtype(0, types);
  const bool keepdims = node.flag("keepdims", true);
  const Axes axes = read_axes(node);
  if (axes.none) return same_value(node.input(0));
  return node.result(Reduce{.kind = kind, .keepdims = keepdims}, {node.input(0), axes.value});
}

// before(x) is summed, and after(sum) is the result.
Outputs sum_between(Node& node, ReadAxes read_axes, Formula before, Formula after) {
  const DataType dtype = node.dtype(0, kNumbers);
  const bool keepdims = node.flag("keepdims", true);
  const Axes axes = read_axes(node);
  const ValueId terms = pointwise(node, "terms", {node.input(0)}, wide(dtype), before);
  const ValueId sum = reduce(node, ReduceKind::kSum, terms, axes, keepdims, "sum");
  return pointwise_result(node, {sum}, dtype, after);
}

constexpr auto same = [](Expressions in) { return in[0]; };
constexpr auto absolute = [](Expressions in) { return in[0].apply(Opcode::kAbs); };
constexpr auto square = [](Expressions in) { return in[0] * in[0]; };

// Functions of reals: on integers they are taken in f64 and cut.
Expression in_float(Expression x, Opcode opcode) {
  const bool integer = x.reg.type != RegisterType::kF32 && x.reg.type != RegisterType::kF64;
  return (integer ? x.cast(RegisterType::kF64) : x).apply(opcode).cast(x.reg.type);
}

template <ReadAxes read_axes>
Outputs import_reduce_l1(Node& node) {
  return sum_between(node, read_axes, absolute, same);
}
template <ReadAxes read_axes>
Outputs import_reduce_l2(Node& node) {
  return sum_between(node, read_axes, square,
                     [](Expressions in) { return in_float(in[0], Opcode::kSqrt); });
}
template <ReadAxes read_axes>
Outputs import_reduce_sum_square(Node& node) {
  return sum_between(node, read_axes, square, same);
}
template <ReadAxes read_axes>
Outputs import_reduce_log_sum(Node& node) {
  return sum_between(node, read_axes, same,
                     [](Expressions in) { return in_float(in[0], Opcode::kLog); });
}

// log(sum(exp(x - m))) + m with m the maximum, or 0 where that is infinite.
template <ReadAxes read_axes>
Outputs import_reduce_log_sum_exp(Node& node) {
  const DataType dtype = node.dtype(0, kNumbers);
  const bool keepdims = node.flag("keepdims", true);
  const Axes axes = read_axes(node);
  const DataType real = is_float(dtype) ? wide(dtype) : DataType::kF64;
  const auto finite = [](Expression m) { return select(m.apply(Opcode::kIsInf), m.number(0), m); };
  ValueId x = node.input(0);
  if (real != dtype) x = pointwise(node, "wide", {x}, real, same);
  const ValueId peak = reduce(node, ReduceKind::kMax, x, axes, true, "max");
  const ValueId terms = pointwise(node, "terms", {x, peak}, real, [&](Expressions in) {
    return (in[0] - finite(in[1])).apply(Opcode::kExp);
  });
  const ValueId sum = reduce(node, ReduceKind::kSum, terms, axes, keepdims, "sum");
  const ValueId shift = keepdims ? peak : reduce(node, ReduceKind::kMax, x, axes, false, "shift");
  return pointwise_result(node, {sum, shift}, dtype, [&](Expressions in) {
    return in[0].apply(Opcode::kLog) + finite(in[1]);
  });
}

template <bool largest>
Outputs import_arg(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kNumbers);
  ArgReduce op{.largest = largest};
  op.axis = node.resolve_axis(node.integer("axis", 0), node.rank(0));
  op.keepdims = node.flag("keepdims", true);
  op.select_last = node.flag("select_last_index", false);
  return node.result(op, {node.input(0)});
}

template <CumulativeKind kind>
Outputs import_cumulative(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(0, kNumbers);
  node.dtype(1, kIndices);
  Cumulative op{.kind = kind};
  op.exclusive = node.flag("exclusive", false);
  op.reverse = node.flag("reverse", false);
  ValueId axis = as_i64(node, node.input(1), "axis");
  if (node.rank(1) != 0) axis = reshape(node, axis, {}, "axis_scalar");
  return node.result(op, {node.input(0), axis});
}

ValueId top_k_count(Node& node) {
  const ValueId k = as_i64(node, node.input(1), "k");
  return node.rank(1) == 0 ? reshape(node, k, {Size(1)}, "k_vector") : k;
}

Outputs top_k(Node& node, ValueId k, bool largest, bool sorted) {
  node.dtype(0, kNumbers);
  const TopK op{.axis = node.resolve_axis(node.integer("axis", -1), node.rank(0)),
                .largest = largest,
                .sorted = sorted};
  return node.results(op, {node.input(0), k});
}
Outputs import_top_k_attribute(Node& node) {
  node.expect_inputs(1, 1);
  return top_k(node, node.integers_value({node.integer("k")}, "k"), true, true);
}
Outputs import_top_k_largest(Node& node) {
  node.expect_inputs(2, 2);
  return top_k(node, top_k_count(node), true, true);
}
Outputs import_top_k(Node& node) {
  node.expect_inputs(2, 2);
  return top_k(node, top_k_count(node), node.flag("largest", true), node.flag("sorted", true));
}

// Before opset 13 the axes from `axis` on are one: the last of two.
struct FlattenedInput {
  ValueId x = ValueId::kNone;
  int64_t axis = 0;
  bool reshaped = false;
};
FlattenedInput flatten_from_axis(Node& node) {
  const Shape shape = node.shape(0);
  const int64_t axis = node.resolve_axis(node.integer("axis", 1), node.rank(0));
  const auto tail = shape.span().subspan(static_cast<size_t>(axis) + 1);
  const bool last = std::ranges::all_of(tail, [](Size s) { return s == Size(1); });
  if (last) return {node.input(0), axis, false};
  const auto count = [&](std::span<const Size> sizes) {
    return product(Shape(sizes), node.sizes());
  };
  const auto split = static_cast<size_t>(axis);
  const std::vector<Size> two = {count(shape.span().first(split)),
                                 count(shape.span().subspan(split))};
  return {reshape(node, node.input(0), two, "flattened"), 1, true};
}
// The layer that makes `y` of the flattened x gives it the shape of the node's input again.
Outputs unflatten(Node& node, ValueId y) {
  const Shape& shape = node.shape(0);
  return reshape_result(node, y, {shape.begin(), shape.end()}, "unflattened");
}

template <bool log>
Outputs import_softmax(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats);
  const int64_t axis = node.resolve_axis(node.integer("axis", -1), node.rank(0));
  return node.result(Softmax{.axis = axis, .log = log}, {node.input(0)});
}
template <bool log>
Outputs import_flattened_softmax(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats);
  const FlattenedInput flat = flatten_from_axis(node);
  const Softmax op{.axis = flat.axis, .log = log};
  if (!flat.reshaped) return node.result(op, {flat.x});
  return unflatten(node, node.layer(op, {flat.x}, ""));
}

// Of x + bias, over all axes from `axis` on. The sum is not rounded.
Outputs import_bias_softmax(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  const DataType dtype = node.dtype(0, kFloats);
  const DataType real = dtype == DataType::kF64 ? dtype : DataType::kF32;
  const Shape shape = node.shape(0);
  const int64_t axis = node.resolve_axis(node.integer("axis", 1), shape.rank());
  // Of fewer axes, an inner bias would lack some that are not the first.
  if (node.flag("is_inner_broadcast", false) ? node.rank(1) != shape.rank()
                                             : node.rank(1) > shape.rank())
    node.unsupported(fmt::format("a bias of {} axes", node.rank(1)));
  const ValueId sum = pointwise(node, "sum", {node.input(0), node.input(1)}, real,
                                [](Expressions in) { return in[0] + in[1]; });
  const auto first = static_cast<size_t>(axis);
  const ValueId rows = reshape(node, sum,
                               {product(Shape(shape.span().first(first)), node.sizes()),
                                product(Shape(shape.span().subspan(first)), node.sizes())},
                               "rows");
  const ValueId y = node.layer(Softmax{.axis = 1}, {rows}, "softmax");
  return pointwise_result(node, {reshape(node, y, {shape.begin(), shape.end()}, "unflattened")},
                          dtype, [](Expressions in) { return in[0]; });
}

// 1 at the first maximum along the axis, 0 elsewhere.
Outputs hardmax(Node& node, ValueId x, int64_t axis, bool last) {
  const ValueId winner = node.layer(ArgReduce{.largest = true, .axis = axis}, {x}, "argmax");
  const auto formula = [&](Expressions in) {
    const Expression wins = in[1].index(static_cast<int>(axis)) == in[1];
    return select(wins, in[0].number(1), in[0].number(0));
  };
  const DataType dtype = node.dtype(0, kFloats);
  if (last) return pointwise_result(node, {x, winner}, dtype, formula);
  return {pointwise(node, "", {x, winner}, dtype, formula)};
}
Outputs import_hardmax(Node& node) {
  node.expect_inputs(1, 1);
  const int64_t axis = node.resolve_axis(node.integer("axis", -1), node.rank(0));
  return hardmax(node, node.input(0), axis, true);
}
Outputs import_flattened_hardmax(Node& node) {
  node.expect_inputs(1, 1);
  const FlattenedInput flat = flatten_from_axis(node);
  const Outputs y = hardmax(node, flat.x, flat.axis, !flat.reshaped);
  return flat.reshaped ? unflatten(node, y[0]) : y;
}

constexpr TypeSet kReducible = kNumbersAndBooleans;

constexpr OpRow kReduceRows[] = {
    {"", "ArgMax", 1, kLatest, import_arg<true>},
    {"", "ArgMin", 1, kLatest, import_arg<false>},
    {"", "CumProd", 26, kLatest, import_cumulative<CumulativeKind::kProd>},
    {"", "CumSum", 11, kLatest, import_cumulative<CumulativeKind::kSum>},
    {"", "Hardmax", 1, 12, import_flattened_hardmax},
    {"", "Hardmax", 13, kLatest, import_hardmax},
    {"", "LogSoftmax", 1, 12, import_flattened_softmax<true>},
    {"", "LogSoftmax", 13, kLatest, import_softmax<true>},
    {"", "ReduceL1", 1, 17, import_reduce_l1<axes_attribute>},
    {"", "ReduceL1", 18, kLatest, import_reduce_l1<axes_input>},
    {"", "ReduceL2", 1, 17, import_reduce_l2<axes_attribute>},
    {"", "ReduceL2", 18, kLatest, import_reduce_l2<axes_input>},
    {"", "ReduceLogSum", 1, 17, import_reduce_log_sum<axes_attribute>},
    {"", "ReduceLogSum", 18, kLatest, import_reduce_log_sum<axes_input>},
    {"", "ReduceLogSumExp", 1, 17, import_reduce_log_sum_exp<axes_attribute>},
    {"", "ReduceLogSumExp", 18, kLatest, import_reduce_log_sum_exp<axes_input>},
    {"", "ReduceMax", 1, 17, import_reduce<ReduceKind::kMax, kNumbers, axes_attribute>},
    {"", "ReduceMax", 18, kLatest, import_reduce<ReduceKind::kMax, kReducible, axes_input>},
    {"", "ReduceMean", 1, 17, import_reduce<ReduceKind::kMean, kNumbers, axes_attribute>},
    {"", "ReduceMean", 18, kLatest, import_reduce<ReduceKind::kMean, kNumbers, axes_input>},
    {"", "ReduceMin", 1, 17, import_reduce<ReduceKind::kMin, kNumbers, axes_attribute>},
    {"", "ReduceMin", 18, kLatest, import_reduce<ReduceKind::kMin, kReducible, axes_input>},
    {"", "ReduceProd", 1, 17, import_reduce<ReduceKind::kProd, kNumbers, axes_attribute>},
    {"", "ReduceProd", 18, kLatest, import_reduce<ReduceKind::kProd, kNumbers, axes_input>},
    {"", "ReduceSum", 1, 12, import_reduce<ReduceKind::kSum, kNumbers, axes_attribute>},
    {"", "ReduceSum", 13, kLatest, import_reduce<ReduceKind::kSum, kNumbers, axes_input>},
    {"", "ReduceSumSquare", 1, 17, import_reduce_sum_square<axes_attribute>},
    {"", "ReduceSumSquare", 18, kLatest, import_reduce_sum_square<axes_input>},
    {"", "Softmax", 1, 12, import_flattened_softmax<false>},
    {"", "Softmax", 13, kLatest, import_softmax<false>},
    {"", "TopK", 1, 9, import_top_k_attribute},
    {"", "TopK", 10, 10, import_top_k_largest},
    {"", "TopK", 11, kLatest, import_top_k},
    {kMicrosoft, "BiasSoftmax", 1, kLatest, import_bias_softmax},
};

}  // namespace

std::span<const OpRow> reduce_rows() { return kReduceRows; }

}  // namespace anneal
