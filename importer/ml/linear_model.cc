// LinearClassifier and LinearRegressor of ai.onnx.ml.
#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "anneal/importer/ml/scores.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// Products of the rows and one vector of coefficients for each output, and the intercepts.
struct LinearScores {
  ValueId scores = ValueId::kNone;  // [rows, count], f32
  int64_t count = 0;
};

LinearScores linear_scores(Node& node, std::optional<int64_t> count) {
  ValueId rows = feature_rows(node);
  const auto coefficients = node.find_numbers("coefficients").value_or(std::vector<float>());
  const auto intercepts = node.find_numbers("intercepts").value_or(std::vector<float>());
  const auto given = static_cast<int64_t>(coefficients.size());
  const auto known = feature_count(node, rows);
  if (!count && !intercepts.empty()) count = static_cast<int64_t>(intercepts.size());
  if (!count && !known) node.unsupported("a number of features that only a run knows");
  if ((count && *count < 1) || (known && *known < 1)) node.invalid("no outputs or no features");
  if (!count) count = given / *known;
  const int64_t features = known ? *known : given / *count;
  if (*count < 1 || given % *count != 0 || given / *count != features)
    node.invalid(fmt::format("{} coefficients for {} features", given, features));
  if (!intercepts.empty() && static_cast<int64_t>(intercepts.size()) != *count)
    node.invalid(fmt::format("{} intercepts for {} outputs", intercepts.size(), *count));
  rows = with_features(node, rows, features);

  // The result is f32, whatever the features are.
  if (node.graph().value(rows).type().dtype != DataType::kF32)
    rows = pointwise(node, "rows", {rows}, DataType::kF32, [](Expressions in) { return in[0]; });
  const ValueId matrix = node.constant_value(
      Tensor::of<float>(DataType::kF32, {*count, features}, coefficients), "coefficients");
  const ValueId products = node.layer(MatMul{.transpose_b = true}, {rows, matrix}, "products");
  if (intercepts.empty()) return {products, *count};
  const ValueId offsets =
      node.constant_value(Tensor::of<float>(DataType::kF32, {*count}, intercepts), "intercepts");
  return {pointwise(node, "sums", {products, offsets}, DataType::kF32,
                    [](Expressions in) { return in[0] + in[1]; }),
          *count};
}

Outputs import_linear_regressor(Node& node) {
  node.expect_inputs(1, 1);
  const PostTransform transform = read_post_transform(node);
  const LinearScores linear = linear_scores(node, node.integer("targets", 1));
  const ValueId scores = transformed_targets(node, linear.scores, linear.count, transform);
  return pointwise_result(node, {scores}, DataType::kF32, [](Expressions in) { return in[0]; });
}

Outputs import_linear_classifier(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("multi_class");
  const PostTransform transform = read_post_transform(node);
  ClassifierOutputs outputs(node, "classlabels_ints");
  const LinearScores linear = linear_scores(node, std::nullopt);
  if (linear.count == 1 && outputs.count() == 2)
    return outputs.of_two({.score = linear.scores, .are_probabilities = true}, transform);
  if (linear.count != outputs.count())
    node.invalid(fmt::format("{} scores for {} classes", linear.count, outputs.count()));
  return outputs.of_scores(linear.scores, transform);
}

constexpr OpRow kLinearModelRows[] = {
    {kMl, "LinearClassifier", 1, kLatest, import_linear_classifier},
    {kMl, "LinearRegressor", 1, kLatest, import_linear_regressor},
};

}  // namespace

std::span<const OpRow> ml_linear_rows() { return kLinearModelRows; }

}  // namespace anneal
