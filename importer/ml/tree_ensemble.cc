// TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml.
//
// DecisionTrees find the leaf that each row reaches in each tree; the rest is a gather of weights
// and a sum.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "anneal/importer/ml/scores.h"
#include "anneal/importer/ml/tree_tables.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

enum class Aggregate : uint8_t { kAverage, kSum, kMin, kMax };

class Trees {
 public:
  Trees(Node& node, ValueId rows, TreeTables tables)
      : node_(node),
        tables_(std::move(tables)),
        rows_(rows),
        dtype_(node.graph().value(rows).type().dtype) {
    if (!feature_count(node, rows_)) {
      std::vector<int64_t> read;
      for (int64_t i = 0; i < tables_.feature_count; ++i) read.push_back(i);
      rows_ =
          node.layer(Gather{.axis = 1}, {rows_, indices(read, "read_features")}, "features_read");
    }
    if (static_cast<int64_t>(tables_.features.size()) > std::numeric_limits<int32_t>::max() / 2)
      node.unsupported(fmt::format("{} nodes of trees", tables_.features.size()));
  }

  // The combined weights of all trees, [rows, targets], and base values: none, or one for each
  // target.
  ValueId scores(int64_t targets, Aggregate aggregate, const std::vector<double>& base) {
    // A few numbers of a file must not stand for tables of any size.
    constexpr int64_t kAnyElements = 1 << 22, kMostElements = 1 << 28, kElementsOfWeight = 1 << 10;
    int64_t given = 0;
    for (const auto& weights : tables_.weights) given += static_cast<int64_t>(weights.size());
    const int64_t most = std::clamp(given * kElementsOfWeight, kAnyElements, kMostElements);
    if (targets > most / std::max(tree_count(), tables_.leaves))
      node_.unsupported(fmt::format("{} targets of {} trees and {} leaves", targets, tree_count(),
                                    tables_.leaves));
    for (const auto& weights : tables_.weights)
      for (const LeafWeight& one : weights)
        if (one.target < 0 || one.target >= targets)
          node_.invalid(fmt::format("a weight for target {} of {}", one.target, targets));
    const ValueId leaves = reached_leaves();
    const bool adds = aggregate == Aggregate::kSum || aggregate == Aggregate::kAverage;
    const auto target_of_tree = adds ? single_targets() : std::nullopt;
    ValueId sum = target_of_tree ? sum_of_single(leaves, *target_of_tree, targets)
                                 : combined(leaves, targets, aggregate);
    if (aggregate == Aggregate::kAverage)
      sum = pointwise(node_, "average", {sum}, dtype_, [&](Expressions in) {
        return in[0] / static_cast<double>(tables_.roots.size());
      });
    if (base.empty()) return sum;
    if (static_cast<int64_t>(base.size()) != targets)
      node_.unsupported(fmt::format("{} base values for {} targets", base.size(), targets));
    const ValueId values = node_.constant_value(tensor_of(dtype_, {targets}, base), "base");
    return pointwise(node_, "with_base", {sum, values}, dtype_,
                     [](Expressions in) { return in[0] + in[1]; });
  }

 private:
  int64_t tree_count() const { return static_cast<int64_t>(tables_.roots.size()); }
  ValueId indices(const std::vector<int64_t>& values, std::string_view name) {
    const std::vector<int32_t> narrow(values.begin(), values.end());
    const Dims dims = {static_cast<int64_t>(narrow.size())};
    return node_.constant_value(Tensor::of<int32_t>(DataType::kI32, dims, narrow), name);
  }
  ValueId numbers(const std::vector<double>& values, std::string_view name) {
    const Dims dims = {static_cast<int64_t>(values.size())};
    return node_.constant_value(tensor_of(dtype_, dims, values), name);
  }

  // The features, and behind them the features with -inf for NaN if tests read those.
  ValueId tested_features() {
    if (!tables_.reads_nan_as_least) return rows_;
    const ValueId least = pointwise(node_, "nan_is_least", {rows_}, dtype_, [](Expressions in) {
      const Expression x = in[0];
      return select(x.apply(Opcode::kIsNan), x.number(-std::numeric_limits<double>::infinity()), x);
    });
    return node_.layer(Concat{.axis = 1}, {rows_, least}, "tested");
  }

  // i32[rows, trees]
  ValueId reached_leaves() {
    const auto nodes = static_cast<int64_t>(tables_.features.size());
    const ValueId children = reshape(node_, indices(tables_.children, "node_children"),
                                     {Size(nodes), Size(2)}, "children_of_nodes");
    return node_.layer(
        DecisionTrees{.leaves = tables_.leaves, .depth = tables_.depth},
        {tested_features(), indices(tables_.features, "node_features"),
         numbers(tables_.high, "node_high"), children, indices(tables_.roots, "roots")},
        "leaves");
  }

  // The target of each tree, if all its leaves have at most one weight, for the same target.
  std::optional<std::vector<int64_t>> single_targets() const {
    std::vector<int64_t> targets(tables_.roots.size(), -1);
    for (size_t leaf = 0; leaf < tables_.weights.size(); ++leaf) {
      const auto& weights = tables_.weights[leaf];
      if (weights.empty()) continue;
      const int64_t tree = tables_.tree_of_leaf[leaf];
      // An infinite weight would be NaN in the sums of other targets.
      if (weights.size() > 1 || tree < 0 || !std::isfinite(weights[0].weight)) return std::nullopt;
      int64_t& target = targets[static_cast<size_t>(tree)];
      if (target >= 0 && target != weights[0].target) return std::nullopt;
      target = weights[0].target;
    }
    return targets;
  }

  ValueId sum_of_single(ValueId leaves, const std::vector<int64_t>& target_of_tree,
                        int64_t targets) {
    std::vector<double> weights;
    for (const auto& of_leaf : tables_.weights)
      weights.push_back(of_leaf.empty() ? 0 : of_leaf[0].weight);
    const ValueId values =
        node_.layer(Gather{}, {numbers(weights, "weights"), leaves}, "weights_of_trees");
    if (targets == 1)
      return node_.layer(Reduce{}, {values, node_.integers_value({1}, "trees_axis")}, "sum");
    std::vector<double> is_target(target_of_tree.size() * static_cast<size_t>(targets));
    for (size_t tree = 0; tree < target_of_tree.size(); ++tree)
      if (target_of_tree[tree] >= 0)
        is_target[tree * static_cast<size_t>(targets) + static_cast<size_t>(target_of_tree[tree])] =
            1;
    const ValueId matrix = node_.constant_value(
        tensor_of(dtype_, {tree_count(), targets}, is_target), "targets_of_trees");
    return node_.layer(MatMul{}, {values, matrix}, "sum");
  }

  ValueId combined(ValueId leaves, int64_t targets, Aggregate aggregate) {
    const bool is_min = aggregate == Aggregate::kMin, is_max = aggregate == Aggregate::kMax;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double absent = is_min ? kInfinity : is_max ? -kInfinity : 0;
    std::vector<double> weights(static_cast<size_t>(tables_.leaves * targets), absent);
    bool is_complete = true;
    for (const auto& of_leaf : tables_.weights)
      is_complete &= static_cast<int64_t>(of_leaf.size()) == targets;
    for (size_t leaf = 0; leaf < tables_.weights.size(); ++leaf)
      for (const LeafWeight& one : tables_.weights[leaf])
        weights[leaf * static_cast<size_t>(targets) + static_cast<size_t>(one.target)] = one.weight;
    const ValueId table =
        node_.constant_value(tensor_of(dtype_, {tables_.leaves, targets}, weights), "weights");
    const ValueId values = node_.layer(Gather{}, {table, leaves}, "weights_of_trees");
    const Reduce reduce = {.kind = is_min   ? ReduceKind::kMin
                                   : is_max ? ReduceKind::kMax
                                            : ReduceKind::kSum,
                           .keepdims = false};
    const ValueId all =
        node_.layer(reduce, {values, node_.integers_value({1}, "trees_axis")}, "sum");
    if (is_complete || (!is_min && !is_max)) return all;
    // A target that no leaf has a weight for.
    return pointwise(node_, "with_zeros", {all}, dtype_, [](Expressions in) {
      return select(in[0].apply(Opcode::kIsInf), in[0].number(0), in[0]);
    });
  }

  Node& node_;
  TreeTables tables_;
  ValueId rows_;
  DataType dtype_;
};

DataType features_dtype(Node& node, ValueId rows) { return node.graph().value(rows).type().dtype; }

ValueId regressed(Node& node, Trees& trees, int64_t targets, Aggregate aggregate,
                  PostTransform transform, const std::vector<double>& base) {
  if (targets < 1) node.invalid(fmt::format("{} targets", targets));
  const ValueId scores = trees.scores(targets, aggregate, base);
  return transformed_targets(node, scores, targets, transform);
}

Outputs import_tree_regressor(Node& node) {
  node.expect_inputs(1, 1);
  constexpr Aggregate kAggregates[] = {Aggregate::kSum, Aggregate::kAverage, Aggregate::kMin,
                                       Aggregate::kMax};
  const auto aggregate =
      kAggregates[node.choice("aggregate_function", {"SUM", "AVERAGE", "MIN", "MAX"})];
  const ValueId rows = feature_rows(node);
  const TreeList list = read_trees(node, features_dtype(node, rows), "target");
  Trees trees(node, rows, tree_tables(node, list, feature_count(node, rows)));
  const ValueId scores = regressed(node, trees, node.integer("n_targets", 1), aggregate,
                                   read_post_transform(node), read_numbers(node, "base_values"));
  return pointwise_result(node, {scores}, DataType::kF32, [](Expressions in) { return in[0]; });
}

Outputs import_tree_ensemble(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFloats);
  const int64_t aggregate = node.integer("aggregate_function", 1);
  const int64_t transform = node.integer("post_transform", 0);
  if (aggregate < 0 || aggregate > 3) node.invalid(fmt::format("aggregate_function {}", aggregate));
  if (transform < 0 || transform > 4) node.invalid(fmt::format("post_transform {}", transform));
  const ValueId rows = feature_rows(node);
  const TreeList list = read_tree_ensemble(node, features_dtype(node, rows));
  Trees trees(node, rows, tree_tables(node, list, feature_count(node, rows)));
  const ValueId scores =
      regressed(node, trees, node.integer("n_targets", 1), static_cast<Aggregate>(aggregate),
                static_cast<PostTransform>(transform), {});
  return pointwise_result(node, {scores}, dtype, [](Expressions in) { return in[0]; });
}

// The class that all weights are of; nullopt if they are of several.
std::optional<int64_t> only_class(const std::vector<int64_t>& ids) {
  if (ids.empty() || !std::ranges::all_of(ids, [&](int64_t id) { return id == ids[0]; }))
    return std::nullopt;
  return ids[0];
}

// The weights of a file for two classes may all belong to one class. If all are 0 or more, ONNX
// Runtime takes their sum for a probability.
Outputs import_tree_classifier(Node& node) {
  node.expect_inputs(1, 1);
  const PostTransform transform = read_post_transform(node);
  const std::vector<double> base = read_numbers(node, "base_values");
  const std::vector<double> weights = read_numbers(node, "class_weights");
  const auto ids = node.find_integers("class_ids").value_or(std::vector<int64_t>());
  ClassifierOutputs outputs(node, "classlabels_int64s");
  const auto only = outputs.count() == 2 ? only_class(ids) : std::nullopt;
  const ValueId rows = feature_rows(node);
  TreeList list = read_trees(node, features_dtype(node, rows), "class");
  if (only && (*only < 0 || *only > 1)) node.invalid(fmt::format("class {} of 2", *only));
  if (only)
    for (TreeNode& one : list.nodes)
      for (LeafWeight& weight : one.weights) weight.target = 0;
  Trees trees(node, rows, tree_tables(node, list, feature_count(node, rows)));
  if (!only)
    return outputs.of_scores(trees.scores(outputs.count(), Aggregate::kSum, base), transform);

  const bool is_first = *only == 0;
  if (base.size() > (is_first ? 1 : 0))
    node.unsupported(fmt::format("{} base values and weights of one class of two", base.size()));
  const bool are_probabilities = std::ranges::all_of(weights, [](double w) { return w >= 0; });
  const TwoClasses two = {trees.scores(1, Aggregate::kSum, base), are_probabilities ? 0.5 : 0,
                          are_probabilities};
  if (is_first) return outputs.of_two(two, transform);
  const ValueId column = node.integers_value({0, 1}, "column");
  const ValueId both =
      pointwise(node, "both_scores", {two.score, column}, features_dtype(node, rows),
                [](Expressions in) { return select(in[1] == 0, in[0].number(0), in[0]); });
  return outputs.of_scores(both, outputs.index_of_two(two), transform);
}

constexpr OpRow kTreeRows[] = {
    {kMl, "TreeEnsemble", 5, kLatest, import_tree_ensemble},
    {kMl, "TreeEnsembleClassifier", 1, kLatest, import_tree_classifier},
    {kMl, "TreeEnsembleRegressor", 1, kLatest, import_tree_regressor},
};

}  // namespace

std::span<const OpRow> ml_trees_rows() { return kTreeRows; }

}  // namespace anneal
