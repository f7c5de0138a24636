// Losses of classifiers: minus the score of each target's class, weighted, and summed up.
#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// scores: input 0, or its logarithmic softmax; [N,C,...]. Input 1 holds classes [N,...], input 2
// weights [C].
ValueId loss(Node& node, ValueId scores) {
  const DataType dtype = node.dtype(0, kFloats);
  node.expect_same_dtype({0, 2});
  node.dtype(1, kIndices);
  const int rank = node.rank(0);
  if (rank < 2 || node.rank(1) != rank - 1)
    node.invalid(fmt::format("targets of {} axes for {}", node.rank(1), rank));
  const int reduction = node.choice("reduction", {"mean", "sum", "none"});
  const auto ignored = node.find_integer("ignore_index");
  const ValueId target = as_i64(node, node.input(1), "target");
  const Shape target_shape = node.shape(1);
  const auto is_ignored = [&](Expression x) { return x == static_cast<double>(*ignored); };

  ValueId chosen = target;
  if (ignored)
    chosen = pointwise(node, "chosen", {target}, DataType::kI64, [&](Expressions in) {
      return select(is_ignored(in[0]), in[0].number(0), in[0]);
    });
  std::vector<Size> column(target_shape.begin(), target_shape.end());
  const std::vector<Size> row = column;
  column.insert(column.begin() + 1, 1);
  const ValueId index = reshape(node, chosen, column, "class_axis");
  const ValueId taken = node.layer(GatherElements{.axis = 1}, {scores, index}, "taken");
  const ValueId score = reshape(node, taken, row, "score");

  ValueId weight = ValueId::kNone;
  if (node.has_input(2)) weight = node.layer(Gather{}, {node.input(2), chosen}, "class_weight");
  if (ignored) {
    const bool given = weight != ValueId::kNone;
    weight =
        pointwise(node, "weight", {given ? weight : score, target}, dtype, [&](Expressions in) {
          return select(is_ignored(in[1]), in[0].number(0), given ? in[0] : in[0].number(1));
        });
  }
  const bool weighted = weight != ValueId::kNone;
  const std::vector<ValueId> terms = weighted ? std::vector{score, weight} : std::vector{score};
  const auto term = [&](Expressions in) {
    if (!weighted) return -in[0];
    return select(in[1] == 0, in[1].number(0), -in[0] * in[1]);
  };
  if (reduction == 2) return pointwise_result(node, terms, dtype, term)[0];
  const ValueId losses = pointwise(node, "losses", terms, dtype, term);
  std::vector<int64_t> all(static_cast<size_t>(rank - 1));
  std::iota(all.begin(), all.end(), 0);
  const ValueId axes = node.integers_value(all, "axes");
  const bool mean = reduction == 0;
  const Reduce whole{.kind = mean && !weighted ? ReduceKind::kMean : ReduceKind::kSum,
                     .keepdims = false};
  if (!mean || !weighted) return node.result(whole, {losses, axes})[0];
  const ValueId sum = node.layer(whole, {losses, axes}, "sum");
  const ValueId weights = node.layer(whole, {weight, axes}, "weights");
  return pointwise_result(node, {sum, weights}, dtype,
                          [](Expressions in) { return in[0] / in[1]; })[0];
}

Outputs import_negative_log_likelihood(Node& node) {
  node.expect_inputs(2, 3);
  return {loss(node, node.input(0))};
}

Outputs import_softmax_cross_entropy(Node& node) {
  node.expect_inputs(2, 3);
  const Softmax softmax{.axis = 1, .log = true};
  if (node.rank(0) < 2) node.invalid("scores without classes");
  const ValueId scores = node.result(softmax, {node.input(0)}, "log_probabilities", 1)[0];
  return {loss(node, scores), scores};
}

constexpr OpRow kLossRows[] = {
    {"", "NegativeLogLikelihoodLoss", 12, kLatest, import_negative_log_likelihood},
    {"", "SoftmaxCrossEntropyLoss", 12, kLatest, import_softmax_cross_entropy},
};

}  // namespace

std::span<const OpRow> loss_rows() { return kLossRows; }

}  // namespace anneal
