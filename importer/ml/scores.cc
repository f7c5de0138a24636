#include "anneal/importer/ml/scores.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <numbers>

#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

const Type& type_of(const Node& node, ValueId value) { return node.graph().value(value).type(); }

// The inverse of the normal distribution by Winitzki's approximation of the inverse of erf, with
// the constants of ONNX Runtime.
Expression probit(Expression p) {
  const Expression y = p * 2.0 - 1.0;
  const Expression log = ((1.0 - y) * (y + 1.0)).apply(Opcode::kLog);
  const Expression half = log * 0.5 + 2 / (3.14159 * 0.147);
  const Expression root = (half * half - log * (1 / 0.147)).apply(Opcode::kSqrt);
  return (root - half).apply(Opcode::kSqrt) * y.apply(Opcode::kSign) * std::numbers::sqrt2;
}

// Softmax in which scores of 0 take no part.
ValueId softmax_zero(Node& node, ValueId scores, DataType dtype) {
  const ValueId axis = node.integers_value({1}, "classes_axis");
  const ValueId most = node.layer(Reduce{.kind = ReduceKind::kMax}, {scores, axis}, "largest");
  const ValueId powers = pointwise(node, "powers", {scores, most}, dtype, [](Expressions in) {
    const Expression x = in[0], size = x.apply(Opcode::kAbs);
    const Expression is_zero = size <= 1e-7;
    return select(is_zero, x * (-in[1]).apply(Opcode::kExp), (x - in[1]).apply(Opcode::kExp));
  });
  const ValueId counted =
      pointwise(node, "counted_powers", {scores, powers}, dtype, [](Expressions in) {
        return select(in[0].apply(Opcode::kAbs) <= 1e-7, in[1].number(0), in[1]);
      });
  const ValueId sum = node.layer(Reduce{}, {counted, axis}, "sum_of_powers");
  return pointwise(node, "transformed", {powers, sum}, dtype,
                   [](Expressions in) { return in[0] / in[1]; });
}

}  // namespace

ValueId feature_rows(Node& node) {
  const DataType dtype = node.dtype(0, kNumbers);
  const DataType wide = dtype == DataType::kF64 ? DataType::kF64 : DataType::kF32;
  ValueId x = node.input(0);
  const Shape shape = node.shape(0);
  if (shape.rank() != 1 && shape.rank() != 2)
    node.invalid(fmt::format("input 0 has {} axes, 1 or 2 expected", shape.rank()));
  if (shape.rank() == 1) x = reshape(node, x, {1, shape[0]}, "row");
  if (dtype == wide) return x;
  return pointwise(node, "features", {x}, wide, [](Expressions in) { return in[0]; });
}

std::optional<int64_t> feature_count(const Node& node, ValueId rows) {
  const Size count = type_of(node, rows).shape[1];
  return count.known() ? std::optional(count.value()) : std::nullopt;
}

ValueId with_features(Node& node, ValueId rows, int64_t count) {
  const auto known = feature_count(node, rows);
  if (known && *known != count)
    node.invalid(fmt::format("{} features, where the model has {}", *known, count));
  return reshape(node, rows, {type_of(node, rows).shape[0], count}, "rows_of_features");
}

PostTransform read_post_transform(Node& node) {
  return static_cast<PostTransform>(
      node.choice("post_transform", {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"}));
}

ValueId transformed(Node& node, ValueId scores, PostTransform transform) {
  const DataType dtype = type_of(node, scores).dtype;
  switch (transform) {
    case PostTransform::kNone:
      return scores;
    case PostTransform::kSoftmax:
      return node.layer(Softmax{.axis = 1}, {scores}, "transformed");
    case PostTransform::kLogistic:
      return pointwise(node, "transformed", {scores}, dtype,
                       [](Expressions in) { return in[0].apply(Opcode::kSigmoid); });
    case PostTransform::kSoftmaxZero:
      return softmax_zero(node, scores, dtype);
    case PostTransform::kProbit:
      return pointwise(node, "transformed", {scores}, dtype,
                       [](Expressions in) { return probit(in[0]); });
  }
  return scores;
}

ValueId transformed_targets(Node& node, ValueId scores, int64_t targets, PostTransform transform) {
  if (targets == 1 && transform != PostTransform::kProbit) return scores;
  return transformed(node, scores, transform);
}

ClassifierOutputs::ClassifierOutputs(Node& node, std::string_view ints) : node_(node) {
  if (const auto labels = node.find_integers(ints)) labels_ = *labels;
  const auto texts = node.find_texts("classlabels_strings");
  has_texts_ = texts && !texts->empty();
  if (has_texts_ && !labels_.empty()) node.invalid("labels of two kinds");
  count_ = static_cast<int64_t>(has_texts_ ? texts->size() : labels_.size());
  if (has_texts_) node.leave_out(0, "labels that are strings: export with integer labels");
}

ValueId ClassifierOutputs::labels_of(ValueId indices) {
  bool is_index = true;
  for (size_t i = 0; i < labels_.size(); ++i) is_index &= labels_[i] == static_cast<int64_t>(i);
  if (is_index)
    return pointwise_result(node_, {indices}, DataType::kI64,
                            [](Expressions in) { return in[0]; })[0];
  const ValueId labels = node_.integers_value(labels_, "labels");
  return node_.result(Gather{}, {labels, indices})[0];
}

Outputs ClassifierOutputs::outputs(ValueId indices, ValueId scores) {
  const ValueId labels = has_texts_ ? ValueId::kNone : labels_of(indices);
  return {labels, pointwise_result(
                      node_, {scores}, DataType::kF32, [](Expressions in) { return in[0]; },
                      "scores", 1)[0]};
}

Outputs ClassifierOutputs::of_scores(ValueId scores, PostTransform transform) {
  const ValueId largest =
      node_.layer(ArgReduce{.axis = 1, .keepdims = false}, {scores}, "largest_score");
  return of_scores(scores, largest, transform);
}

Outputs ClassifierOutputs::of_scores(ValueId scores, ValueId indices, PostTransform transform) {
  return outputs(indices, transformed(node_, scores, transform));
}

ValueId ClassifierOutputs::index_of_two(const TwoClasses& classes) {
  const ValueId score =
      reshape(node_, classes.score, {type_of(node_, classes.score).shape[0]}, "score");
  return pointwise(node_, "index", {score}, DataType::kI64, [&](Expressions in) {
    return (in[0].number(classes.threshold) < in[0]).cast(RegisterType::kI64);
  });
}

Outputs ClassifierOutputs::of_two(const TwoClasses& classes, PostTransform transform,
                                  ValueId indices) {
  if (transform == PostTransform::kProbit) node_.unsupported("PROBIT of one score for two classes");
  const DataType dtype = type_of(node_, classes.score).dtype;
  const ValueId column = node_.integers_value({0, 1}, "column");
  const ValueId scores =
      pointwise(node_, "both_scores", {classes.score, column}, dtype, [&](Expressions in) {
        const Expression s = in[0], is_first = in[1] == 0;
        if (transform == PostTransform::kLogistic)
          return select(is_first, -s, s).apply(Opcode::kSigmoid);
        return select(is_first, classes.are_probabilities ? 1.0 - s : -s, s);
      });
  return outputs(indices == ValueId::kNone ? index_of_two(classes) : indices, scores);
}

}  // namespace anneal
