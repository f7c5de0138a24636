// SVMClassifier and SVMRegressor of ai.onnx.ml.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "anneal/importer/ml/pair_probabilities.h"
#include "anneal/importer/ml/scores.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// Attributes of support vectors, and sums of their kernels.
class SupportVectors {
 public:
  // supports: vectors; 0: there are none, and `columns` sums of features.
  SupportVectors(Node& node, int64_t supports, int64_t columns) : node_(node) {
    kind_ = static_cast<Kind>(node.choice("kernel_type", {"LINEAR", "POLY", "RBF", "SIGMOID"}));
    const auto params = node.find_numbers("kernel_params").value_or(std::vector<float>());
    if (!params.empty() && params.size() != 3)
      node.invalid(fmt::format("{} kernel_params, 3 expected", params.size()));
    if (params.size() == 3) gamma_ = params[0], offset_ = params[1], degree_ = params[2];
    vectors_ = node.find_numbers("support_vectors").value_or(std::vector<float>());
    coefficients_ = node.find_numbers("coefficients").value_or(std::vector<float>());
    rho_ = node.find_numbers("rho").value_or(std::vector<float>());
    rows_ = feature_rows(node);
    const size_t numbers = supports > 0 ? vectors_.size() : coefficients_.size();
    const int64_t parts = std::max<int64_t>(supports > 0 ? supports : columns, 1);
    features_ = feature_count(node, rows_).value_or(static_cast<int64_t>(numbers) / parts);
    rows_ = with_features(node, rows_, features_);
    if (node.graph().value(rows_).type().dtype != DataType::kF32)
      rows_ =
          pointwise(node, "rows", {rows_}, DataType::kF32, [](Expressions in) { return in[0]; });
  }

  int64_t features() const { return features_; }
  const std::vector<float>& coefficients() const { return coefficients_; }
  const std::vector<float>& rho() const { return rho_; }

  // The sum of kernel(row, vector) * factors[vector][column] over `count` vectors, and rho of the
  // column: [rows, columns].
  ValueId weighted_kernels(const std::vector<float>& factors, int64_t count, int64_t columns) {
    if (features_ < 1 || count != static_cast<int64_t>(vectors_.size()) / features_ ||
        vectors_.size() % static_cast<size_t>(features_) != 0)
      node_.invalid(fmt::format("{} numbers for {} support vectors of {} features", vectors_.size(),
                                count, features_));
    if (kind_ == Kind::kLinear) return linear_sums(combined_vectors(factors, count, columns));
    const Size rows = node_.graph().value(rows_).type().shape[0];
    const ValueId kernels = kernel_values(matrix(vectors_, count, features_, "support_vectors"));
    const ValueId each = reshape(node_, kernels, {rows, 1, count}, "kernels_of_one");
    // Large terms of both signs cancel, so they are added in f64.
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kF32};
    const Reduce sum = {.keepdims = false,
                        .map = program_of(kTypes, DataType::kF64, [](Expressions in) {
                          return in[0].cast(RegisterType::kF64) * in[1].cast(RegisterType::kF64);
                        })};
    std::vector<float> turned(factors.size());
    for (int64_t vector = 0; vector < count; ++vector)
      for (int64_t column = 0; column < columns; ++column)
        turned[static_cast<size_t>(column * count + vector)] =
            factors[static_cast<size_t>(vector * columns + column)];
    return with_rho(node_.layer(sum,
                                {each, node_.integers_value({2}, "vectors_axis"),
                                 matrix(turned, columns, count, "factors")},
                                "sums"));
  }

  // Products of the rows and of weights[columns, features], and rho of the column.
  ValueId linear_sums(const std::vector<float>& weights) {
    const int64_t columns = static_cast<int64_t>(weights.size()) / std::max<int64_t>(features_, 1);
    return with_rho(node_.layer(MatMul{.transpose_b = true},
                                {rows_, matrix(weights, columns, features_, "weights")}, "sums"));
  }

  ValueId matrix(const std::vector<float>& values, int64_t rows, int64_t columns,
                 std::string_view name) {
    return node_.constant_value(Tensor::of<float>(DataType::kF32, {rows, columns}, values), name);
  }

 private:
  enum class Kind : uint8_t { kLinear, kPoly, kRbf, kSigmoid };

  // With a linear kernel all vectors of a column are one: [columns, features].
  std::vector<float> combined_vectors(const std::vector<float>& factors, int64_t count,
                                      int64_t columns) const {
    std::vector<double> sums(static_cast<size_t>(columns * features_));
    for (int64_t vector = 0; vector < count; ++vector)
      for (int64_t column = 0; column < columns; ++column) {
        const double factor = factors[static_cast<size_t>(vector * columns + column)];
        for (int64_t i = 0; i < features_; ++i)
          sums[static_cast<size_t>(column * features_ + i)] +=
              factor * vectors_[static_cast<size_t>(vector * features_ + i)];
      }
    return {sums.begin(), sums.end()};
  }

  ValueId with_rho(ValueId sums) {
    const Dims dims = {static_cast<int64_t>(rho_.size())};
    const ValueId rho = node_.constant_value(Tensor::of<float>(DataType::kF32, dims, rho_), "rho");
    return pointwise(node_, "scores", {sums, rho}, DataType::kF32,
                     [](Expressions in) { return in[0] + in[1].cast(in[0].reg.type); });
  }

  ValueId kernel_values(ValueId vectors) {
    if (kind_ == Kind::kRbf) return gaussian(vectors);
    const ValueId products = node_.layer(MatMul{.transpose_b = true}, {rows_, vectors}, "products");
    return pointwise(node_, "kernels", {products}, DataType::kF32, [&](Expressions in) {
      const Expression sum = in[0] * gamma_ + offset_;
      return kind_ == Kind::kSigmoid ? sum.apply(Opcode::kTanh)
                                     : sum.apply(Opcode::kPow, sum.number(degree_));
    });
  }

  // exp(-gamma * |row - vector|^2), by differences: products of large features would cancel.
  ValueId gaussian(ValueId vectors) {
    const Size rows = node_.graph().value(rows_).type().shape[0];
    const ValueId each = reshape(node_, rows_, {rows, 1, features_}, "rows_of_one");
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kF32};
    const Reduce squares = {.keepdims = false,
                            .map = program_of(kTypes, DataType::kF32, [](Expressions in) {
                              const Expression difference = in[0] - in[1];
                              return difference * difference;
                            })};
    const ValueId distances = node_.layer(
        squares, {each, node_.integers_value({2}, "features_axis"), vectors}, "distances");
    return pointwise(node_, "kernels", {distances}, DataType::kF32,
                     [&](Expressions in) { return (in[0] * -gamma_).apply(Opcode::kExp); });
  }

  Node& node_;
  Kind kind_ = Kind::kLinear;
  double gamma_ = 0, offset_ = 0, degree_ = 0;
  std::vector<float> vectors_, coefficients_, rho_;
  ValueId rows_ = ValueId::kNone;
  int64_t features_ = 0;
};

Outputs import_svm_regressor(Node& node) {
  node.expect_inputs(1, 1);
  const int64_t count = node.integer("n_supports", 0);
  SupportVectors svm(node, count, 1);
  const bool one_class = node.flag("one_class", false);
  node.ignore("post_transform");  // as in ONNX Runtime, by whose results converters are tested
  if (svm.rho().size() != 1) node.invalid(fmt::format("{} values of rho", svm.rho().size()));
  const auto terms = static_cast<int64_t>(svm.coefficients().size());
  if (terms != (count > 0 ? count : svm.features()))
    node.invalid(fmt::format("{} coefficients", terms));
  const ValueId sums = count > 0 ? svm.weighted_kernels(svm.coefficients(), count, 1)
                                 : svm.linear_sums(svm.coefficients());
  return pointwise_result(node, {sums}, DataType::kF32, [&](Expressions in) {
    const Expression x = in[0];
    return one_class ? select(x.number(0) < x, x.number(1), x.number(-1)) : x;
  });
}

// A score for each pair of classes.
class PairClassifier {
 public:
  PairClassifier(Node& node, SupportVectors& svm, std::vector<int64_t> vectors_per_class)
      : node_(node), svm_(svm), sizes_(std::move(vectors_per_class)) {
    const auto most = static_cast<int64_t>(svm.coefficients().size());
    for (const int64_t size : sizes_) {
      if (size < 0 || size > most - total_)
        node.invalid(fmt::format("{} vectors of a class", size));
      starts_.push_back(total_);
      total_ += size;
    }
    const auto classes = static_cast<int64_t>(sizes_.size());
    pairs_ = classes * (classes - 1) / 2;
    if (static_cast<int64_t>(svm.coefficients().size()) != (classes - 1) * total_ ||
        static_cast<int64_t>(svm.rho().size()) != pairs_)
      node.invalid(fmt::format("{} coefficients and {} values of rho for {} vectors of {} classes",
                               svm.coefficients().size(), svm.rho().size(), total_, classes));
  }

  // [rows, pairs]: above 0 for the first class of the pair.
  ValueId scores() {
    constexpr int64_t kMostFactors = int64_t{1} << 26;
    if (total_ > 0 && pairs_ > kMostFactors / total_)
      node_.unsupported(fmt::format("{} support vectors of {} pairs of classes", total_, pairs_));
    std::vector<float> factors(static_cast<size_t>(total_ * pairs_));
    const auto put = [&](size_t of, size_t row, int64_t pair) {
      for (int64_t i = starts_[of]; i < starts_[of] + sizes_[of]; ++i)
        factors[static_cast<size_t>(i * pairs_ + pair)] =
            svm_.coefficients()[row * static_cast<size_t>(total_) + static_cast<size_t>(i)];
    };
    int64_t pair = 0;
    for_pairs([&](size_t i, size_t j) { put(i, j - 1, pair), put(j, i, pair), ++pair; });
    return svm_.weighted_kernels(factors, total_, pairs_);
  }

  // By Platt's formula, within the limits of libsvm: [rows, classes].
  ValueId probabilities(ValueId scores, const std::vector<float>& a, const std::vector<float>& b) {
    if (static_cast<int64_t>(a.size()) != pairs_ || b.size() != a.size())
      node_.invalid(fmt::format("{} and {} numbers in prob_a and prob_b for {} pairs of classes",
                                a.size(), b.size(), pairs_));
    const std::vector<ValueId> inputs = {scores, svm_.matrix(a, 1, pairs_, "prob_a"),
                                         svm_.matrix(b, 1, pairs_, "prob_b")};
    const ValueId first =
        pointwise(node_, "pair_probability", inputs, DataType::kF32, [&](Expressions in) {
          const Expression p = (-(in[0] * in[1] + in[2])).apply(Opcode::kSigmoid);
          return min(max(p, p.number(1e-7)), p.number(1 - 1e-7));
        });
    return coupled_probabilities(node_, first, static_cast<int64_t>(sizes_.size()));
  }

  // The class with the most pairs for it: i64[rows].
  ValueId winners(ValueId scores) {
    const ValueId won = pair_matrix(
        node_, scores, static_cast<int64_t>(sizes_.size()), "won",
        [](Expression score) { return (score.number(0) < score).cast(score.reg.type); });
    const ValueId votes = node_.layer(Reduce{.keepdims = false},
                                      {won, node_.integers_value({2}, "others_axis")}, "votes");
    return node_.layer(ArgReduce{.axis = 1, .keepdims = false}, {votes}, "winner");
  }

 private:
  template <class F>
  void for_pairs(F f) const {
    for (size_t i = 0; i < sizes_.size(); ++i)
      for (size_t j = i + 1; j < sizes_.size(); ++j) f(i, j);
  }

  Node& node_;
  SupportVectors& svm_;
  std::vector<int64_t> sizes_, starts_;
  int64_t total_ = 0, pairs_ = 0;
};

Outputs import_svm_classifier(Node& node) {
  node.expect_inputs(1, 1);
  const PostTransform transform = read_post_transform(node);
  ClassifierOutputs outputs(node, "classlabels_ints");
  const auto sizes = node.find_integers("vectors_per_class").value_or(std::vector<int64_t>());
  int64_t vectors = 0;
  for (const int64_t size : sizes) vectors += std::clamp<int64_t>(size, 0, 1 << 30);
  SupportVectors svm(node, vectors, outputs.count());
  const auto prob_a = node.find_numbers("prob_a").value_or(std::vector<float>());
  const auto prob_b = node.find_numbers("prob_b").value_or(std::vector<float>());
  if (sizes.empty()) {
    const int64_t count = outputs.count();
    if (count < 1 || svm.coefficients().size() % static_cast<size_t>(count) != 0 ||
        static_cast<int64_t>(svm.coefficients().size()) / count != svm.features() ||
        (svm.rho().size() != 1 && static_cast<int64_t>(svm.rho().size()) != count))
      node.invalid(fmt::format("{} coefficients and {} values of rho for {} classes",
                               svm.coefficients().size(), svm.rho().size(), count));
    return outputs.of_scores(svm.linear_sums(svm.coefficients()), transform);
  }
  if (static_cast<int64_t>(sizes.size()) != outputs.count() || sizes.size() < 2)
    node.invalid(
        fmt::format("vectors of {} classes and labels of {}", sizes.size(), outputs.count()));
  PairClassifier classifier(node, svm, sizes);
  const ValueId scores = classifier.scores();
  // The pairs decide the label also where there are probabilities.
  const ValueId winners = classifier.winners(scores);
  if (!prob_a.empty())
    return outputs.of_scores(classifier.probabilities(scores, prob_a, prob_b), winners, transform);
  if (sizes.size() > 2) return outputs.of_scores(scores, winners, transform);
  // As ONNX Runtime does where a transform is named.
  const bool are_probabilities = transform != PostTransform::kNone;
  return outputs.of_two({.score = scores, .are_probabilities = are_probabilities}, transform,
                        winners);
}

constexpr OpRow kSvmRows[] = {
    {kMl, "SVMClassifier", 1, kLatest, import_svm_classifier},
    {kMl, "SVMRegressor", 1, kLatest, import_svm_regressor},
};

}  // namespace

std::span<const OpRow> ml_svm_rows() { return kSvmRows; }

}  // namespace anneal
