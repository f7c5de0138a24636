// Operators of ai.onnx.ml from ONNX to results: trees, linear models and support vectors.
#include <algorithm>
#include <cmath>
#include <random>

#include "anneal/tests/engine/imported/ml_models.h"

namespace anneal::testing {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Trees as a file has them, and what they give by walking down.
struct Forest {
  struct Node {
    int64_t tree, id, feature = 0;
    float value = 0;
    std::string mode = "LEAF";
    bool nan_is_true = false;
    int64_t if_true = 0, if_false = 0;
    std::vector<float> weights = {};  // of each target, or none
  };
  std::vector<Node> nodes;
  int64_t trees = 0, targets = 1;
  bool has_nan_flags = false;

  int64_t grow(std::mt19937& random, const std::vector<std::string>& modes, int depth) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const size_t at = nodes.size();
    int64_t id = 0;
    for (const Node& one : nodes) id += one.tree == trees ? 1 : 0;
    nodes.push_back({.tree = trees, .id = id});
    if (depth == 0 || below(6) == 0) {
      for (int64_t i = 0; i < targets; ++i)
        nodes[at].weights.push_back(static_cast<float>(below(17) - 8) / 4);
      return id;
    }
    nodes[at].feature = below(3);
    nodes[at].value = static_cast<float>(below(5) - 2);
    nodes[at].mode = modes[static_cast<size_t>(below(static_cast<int>(modes.size())))];
    nodes[at].nan_is_true = has_nan_flags && below(2) == 0;
    const int64_t if_true = grow(random, modes, depth - 1);
    const int64_t if_false = grow(random, modes, depth - 1);
    nodes[at].if_true = if_true, nodes[at].if_false = if_false;
    return id;
  }

  const Node& node(int64_t tree, int64_t id) const {
    return *std::ranges::find_if(nodes,
                                 [&](const Node& one) { return one.tree == tree && one.id == id; });
  }
  static bool holds(const std::string& mode, float x, float value) {
    if (mode == "BRANCH_LEQ") return x <= value;
    if (mode == "BRANCH_LT") return x < value;
    if (mode == "BRANCH_GTE") return x >= value;
    if (mode == "BRANCH_GT") return x > value;
    if (mode == "BRANCH_EQ") return x == value;
    return x != value;
  }
  const std::vector<float>& leaf(int64_t tree, const std::vector<double>& x) const {
    const Node* at = &node(tree, 0);
    while (at->mode != "LEAF") {
      const auto feature = static_cast<float>(x[static_cast<size_t>(at->feature)]);
      const bool is_true =
          holds(at->mode, feature, at->value) || (std::isnan(feature) && at->nan_is_true);
      at = &node(tree, is_true ? at->if_true : at->if_false);
    }
    return at->weights;
  }
  std::vector<double> scores(const std::vector<double>& x, const std::string& aggregate) const {
    std::vector<double> sums;
    for (size_t target = 0; target < static_cast<size_t>(targets); ++target) {
      double sum = leaf(0, x)[target];
      for (int64_t tree = 1; tree < trees; ++tree) {
        const double weight = leaf(tree, x)[target];
        sum = aggregate == "MIN"   ? std::min(sum, weight)
              : aggregate == "MAX" ? std::max(sum, weight)
                                   : sum + weight;
      }
      sums.push_back(aggregate == "AVERAGE" ? sum / static_cast<double>(trees) : sum);
    }
    return sums;
  }

  void write(NodeProto& to, const std::string& prefix) const {
    std::vector<int64_t> tree_ids, ids, features, if_true, if_false, nan, of_tree, of_node, target;
    std::vector<float> values, weights;
    std::vector<std::string> modes;
    for (const Node& one : nodes) {
      tree_ids.push_back(one.tree), ids.push_back(one.id), features.push_back(one.feature);
      values.push_back(one.value), modes.push_back(one.mode);
      if_true.push_back(one.if_true), if_false.push_back(one.if_false);
      nan.push_back(one.nan_is_true ? 1 : 0);
      for (size_t i = 0; i < one.weights.size(); ++i) {
        of_tree.push_back(one.tree), of_node.push_back(one.id);
        target.push_back(static_cast<int64_t>(i)), weights.push_back(one.weights[i]);
      }
    }
    set(to, "nodes_treeids", tree_ids), set(to, "nodes_nodeids", ids);
    set(to, "nodes_featureids", features), set_floats(to, "nodes_values", values);
    set_texts(to, "nodes_modes", modes);
    set(to, "nodes_truenodeids", if_true), set(to, "nodes_falsenodeids", if_false);
    if (has_nan_flags) set(to, "nodes_missing_value_tracks_true", nan);
    set(to, prefix + "_treeids", of_tree), set(to, prefix + "_nodeids", of_node);
    set(to, prefix + "_ids", target), set_floats(to, prefix + "_weights", weights);
  }
};

const std::vector<std::string> kModes = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};

std::vector<std::vector<double>> feature_values(std::mt19937& random) {
  std::vector<std::vector<double>> x;
  for (int row = 0; row < 40; ++row) {
    std::vector<double>& features = x.emplace_back();
    for (int i = 0; i < 3; ++i) {
      const int drawn = static_cast<int>(random() % 12);
      features.push_back(drawn == 11 ? kNan : drawn == 10 ? -INFINITY : (drawn - 4) / 2.0);
    }
  }
  return x;
}

TEST(Trees, ReachTheLeavesThatWalkingReaches) {
  const std::vector<std::string> aggregates = {"SUM", "AVERAGE", "MIN", "MAX"};
  for (unsigned seed = 0; seed < 48; ++seed) {
    std::mt19937 random(seed);
    Forest forest;
    forest.targets = 1 + static_cast<int64_t>(seed % 3);
    forest.has_nan_flags = seed % 2 == 1;
    const std::vector<std::string> one_mode = {kModes[seed % kModes.size()]};
    for (int tree = 0; tree < 4; ++tree, ++forest.trees)
      forest.grow(random, seed < 24 ? one_mode : kModes, static_cast<int>(random() % 5));
    const std::string& aggregate = aggregates[seed / 6 % aggregates.size()];
    const auto x = feature_values(random);
    const DataType dtype = seed % 5 == 4 ? DataType::kF64 : DataType::kF32;
    const std::vector<Tensor> y =
        run_node("TreeEnsembleRegressor", {rows(x, dtype)}, [&](NodeProto& node) {
          forest.write(node, "target");
          set(node, "n_targets", forest.targets);
          set(node, "aggregate_function", aggregate.c_str());
        });
    std::vector<double> want;
    for (const auto& row : x)
      std::ranges::copy(forest.scores(row, aggregate), std::back_inserter(want));
    EXPECT_EQ(y[0].dims(), (Dims{40, forest.targets}));
    ASSERT_THAT(numbers_of(y[0]), near_all(want)) << seed;
  }
}

// A test with two leaves, of which the second is for x above 0.
void write_stump(NodeProto& node, const std::vector<int64_t>& classes,
                 const std::vector<float>& weights) {
  set(node, "nodes_treeids", {{0, 0, 0}}), set(node, "nodes_nodeids", {{0, 1, 2}});
  set(node, "nodes_featureids", {{0, 0, 0}}), set_floats(node, "nodes_values", {0, 0, 0});
  set_texts(node, "nodes_modes", {"BRANCH_LEQ", "LEAF", "LEAF"});
  set(node, "nodes_truenodeids", {{1, 0, 0}}), set(node, "nodes_falsenodeids", {{2, 0, 0}});
  const std::vector<int64_t> none(classes.size(), 0);
  std::vector<int64_t> leaves;
  for (size_t i = 0; i < classes.size(); ++i) leaves.push_back(i < classes.size() / 2 ? 1 : 2);
  set(node, "class_treeids", none), set(node, "class_nodeids", leaves);
  set(node, "class_ids", classes), set_floats(node, "class_weights", weights);
  set(node, "classlabels_int64s", {{10, 20}});
}

struct TwoClassCase {
  std::vector<int64_t> classes;
  std::vector<float> weights;
  const char* transform;
  std::vector<int64_t> labels;
  std::vector<double> scores;
};

// The numbers of ONNX Runtime 1.32.
TEST(Trees, TwoClassesWithWeightsOfOneOrBoth) {
  const TwoClassCase cases[] = {
      {{0, 0}, {0.3f, 0.9f}, "NONE", {10, 20}, {0.7, 0.3, 0.1, 0.9}},
      {{0, 0}, {0.3f, 0.9f}, "SOFTMAX", {10, 20}, {0.7, 0.3, 0.1, 0.9}},
      {{0, 0}, {-0.3f, 0.9f}, "NONE", {10, 20}, {0.3, -0.3, -0.9, 0.9}},
      {{0, 0}, {-0.3f, 0.9f}, "LOGISTIC", {10, 20}, {0.574442, 0.425558, 0.2890505, 0.7109495}},
      {{1, 1}, {0.3f, 0.9f}, "NONE", {10, 20}, {0, 0.3, 0, 0.9}},
      {{1, 1}, {-0.3f, 0.9f}, "LOGISTIC", {10, 20}, {0.5, 0.425558, 0.5, 0.7109495}},
      {{1, 1}, {0.3f, 0.9f}, "SOFTMAX_ZERO", {10, 20}, {0, 1, 0, 1}},
      {{0, 1, 0, 1}, {0.7f, 0.3f, 0.1f, 0.9f}, "NONE", {10, 20}, {0.7, 0.3, 0.1, 0.9}},
  };
  for (const TwoClassCase& one : cases) {
    const std::vector<Tensor> y = run_node(
        "TreeEnsembleClassifier", {rows({{-1}, {1}})},
        [&](NodeProto& node) {
          write_stump(node, one.classes, one.weights);
          set(node, "post_transform", one.transform);
        },
        2);
    EXPECT_EQ(integers_of(y[0]), one.labels) << one.transform;
    EXPECT_THAT(numbers_of(y[1]), near_all(one.scores)) << one.transform;
  }
}

// The example of the ONNX standard for BRANCH_MEMBER.
TEST(Trees, TestMembershipInSets) {
  const auto y = run_node(
      "TreeEnsemble", {rows({{1.2}, {3.4}, {-0.12}, {kNan}, {12}, {7}})},
      [](NodeProto& node) {
        set(node, "n_targets", int64_t{4}), set(node, "aggregate_function", int64_t{1});
        set(node, "tree_roots", std::vector<int64_t>{0});
        set_tensor(node, "nodes_modes", TensorProto::UINT8, {0, 6, 6});
        set(node, "nodes_featureids", {{0, 0, 0}});
        set_tensor(node, "nodes_splits", TensorProto::FLOAT, {11, 232344, kNan});
        set(node, "nodes_truenodeids", {{1, 0, 1}}), set(node, "nodes_trueleafs", {{0, 1, 1}});
        set(node, "nodes_falsenodeids", {{2, 2, 3}}), set(node, "nodes_falseleafs", {{1, 0, 1}});
        set(node, "leaf_targetids", {{0, 1, 2, 3}});
        set_tensor(node, "leaf_weights", TensorProto::FLOAT, {1, 10, 1000, 100});
        set_tensor(node, "membership_values", TensorProto::FLOAT,
                   {1.2, 3.7, 8, 9, kNan, 12, 7, kNan});
      },
      1, 5);
  EXPECT_THAT(numbers_of(y[0]), ElementsAre(1, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 100, 0, 0, 1000, 0,
                                            0, 0, 1000, 0, 0, 10, 0, 0));
}

std::string refusal(const char* op, const Fill& fill, int outputs = 1, int version = 3) {
  return error_of([&] { run_node(op, {rows({{0, 0}})}, fill, outputs, version); });
}

TEST(Trees, RefuseBrokenFiles) {
  const auto stump = [](const Fill& change) {
    return [change](NodeProto& node) {
      write_stump(node, {0, 0}, {1, 2});
      change(node);
    };
  };
  const auto replace = [](NodeProto& node, const std::string& name, std::vector<int64_t> values) {
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.name() == name) {
        attribute.clear_ints();
        for (const int64_t value : values) attribute.add_ints(value);
      }
  };
  const auto with = [&](const std::string& name, std::vector<int64_t> values) {
    return refusal("TreeEnsembleClassifier",
                   stump([&](NodeProto& node) { replace(node, name, values); }), 2);
  };
  EXPECT_THAT(with("nodes_truenodeids", {7, 0, 0}), HasSubstr("tree 0 has no node 7"));
  EXPECT_THAT(with("nodes_truenodeids", {0, 0, 0}), HasSubstr("below itself"));
  EXPECT_THAT(with("nodes_nodeids", {0, 1, 1}), HasSubstr("tree 0 has node 1 twice"));
  EXPECT_THAT(with("nodes_featureids", {5, 0, 0}), HasSubstr("feature 5 of 2"));
  EXPECT_THAT(with("nodes_featureids", {0}), HasSubstr("\"nodes_featureids\" has 1 values for 3"));
  EXPECT_THAT(with("class_ids", {0, 2}), HasSubstr("target 2 of 2"));
  EXPECT_THAT(with("class_ids", {5, 5}), HasSubstr("class 5 of 2"));
  EXPECT_THAT(refusal("TreeEnsembleRegressor",
                      [](NodeProto& node) {
                        Forest forest;
                        std::mt19937 random(3);
                        forest.grow(random, kModes, 0), ++forest.trees;
                        forest.write(node, "target");
                        set(node, "n_targets", int64_t{1} << 62);
                      }),
              HasSubstr("4611686018427387904 targets"));
}

// The number of features, which the model has, is not declared.
TEST(Trees, ReadWideRowsOfUndeclaredWidth) {
  std::mt19937 random(5);
  Forest forest;
  forest.has_nan_flags = true;
  for (int tree = 0; tree < 3; ++tree, ++forest.trees) forest.grow(random, kModes, 4);
  ModelBuilder model = model_of(
      "TreeEnsembleRegressor", [&](NodeProto& node) { forest.write(node, "target"); }, 3, 1, 1);
  model.input("x0", {"rows", "features"});
  auto x = feature_values(random);
  std::vector<double> want;
  for (auto& row : x) {
    want.push_back(forest.scores(row, "SUM")[0]);
    row.insert(row.end(), {7, 8});
  }
  EXPECT_THAT(numbers_of(run_model(model, {rows(x)})[0]), near_all(want));
}

TEST(Labels, ThatAreStringsAreRefusedWhereTheyAreUsed) {
  const Fill fill = [](NodeProto& node) {
    set_floats(node, "coefficients", {1, 2, -1, 0}), set_floats(node, "intercepts", {0, 1});
    set_texts(node, "classlabels_strings", {"cat", "dog"});
  };
  EXPECT_THAT(refusal("LinearClassifier", fill, 2), HasSubstr("labels that are strings"));
  ModelBuilder model = model_of("LinearClassifier", fill, 1, 1, 2);
  model.input("x0", {"rows", "2"});
  model.graph().mutable_output()->DeleteSubrange(0, 1);
  EXPECT_THAT(numbers_of(run_model(model, {rows({{1, 2}})})[0]), ElementsAre(5, 0));
}

TEST(LinearModels, GiveScoresAndLabels) {
  const Tensor x = rows({{1, 2}, {-3, 0.5}});
  const auto two = run_node(
      "LinearClassifier", {x},
      [](NodeProto& node) {
        set_floats(node, "coefficients", {1, 2, -1, 0, 0, 0.5});
        set_floats(node, "intercepts", {0, 1, 0.25f});
        set(node, "classlabels_ints", {{4, 6, 8}});
      },
      2);
  EXPECT_THAT(integers_of(two[0]), ElementsAre(4, 6));
  EXPECT_THAT(numbers_of(two[1]), near_all({5, 0, 1.25, -2, 4, 0.5}));
  // One score for two classes.
  const auto one = run_node(
      "LinearClassifier", {x},
      [](NodeProto& node) {
        set_floats(node, "coefficients", {1, 0}), set_floats(node, "intercepts", {0});
        set(node, "classlabels_ints", {{0, 1}}), set(node, "post_transform", "LOGISTIC");
      },
      2);
  EXPECT_THAT(integers_of(one[0]), ElementsAre(1, 0));
  EXPECT_THAT(numbers_of(one[1]), near_all({0.2689414, 0.7310586, 0.9525741, 0.0474259}));
  const auto regressed = run_node("LinearRegressor", {x}, [](NodeProto& node) {
    set_floats(node, "coefficients", {1, 2, -1, 0}), set_floats(node, "intercepts", {0, 1});
    set(node, "targets", int64_t{2});
  });
  EXPECT_THAT(numbers_of(regressed[0]), near_all({5, 0, -2, 4}));
}

TEST(SupportVectors, SumKernels) {
  const Tensor x = rows({{1, 2}, {0, -1}});
  const auto svr = [&](const char* kernel, bool one_class) {
    return numbers_of(run_node("SVMRegressor", {x}, [&](NodeProto& node) {
      set(node, "kernel_type", kernel), set_floats(node, "kernel_params", {0.5f, 1, 3});
      set_floats(node, "support_vectors", {1, 0, 0, 1}), set(node, "n_supports", int64_t{2});
      set_floats(node, "coefficients", {2, -1}), set_floats(node, "rho", {0.25f});
      set(node, "one_class", int64_t{one_class});
    })[0]);
  };
  EXPECT_THAT(svr("LINEAR", false), near_all({2 * 1 - 2 + 0.25, 0 + 1 + 0.25}));
  EXPECT_THAT(svr("POLY", false), near_all({2 * std::pow(1.5, 3) - 8 + 0.25, 2 - 0.125 + 0.25}));
  EXPECT_THAT(svr("RBF", false), near_all({2 * std::exp(-2) - std::exp(-1) + 0.25,
                                           2 * std::exp(-1) - std::exp(-2) + 0.25}));
  EXPECT_THAT(svr("SIGMOID", false), near_all({2 * std::tanh(1.5) - std::tanh(2) + 0.25,
                                               2 * std::tanh(1) - std::tanh(0.5) + 0.25}));
  EXPECT_THAT(svr("RBF", true), ElementsAre(1, 1));
}

TEST(SupportVectors, RefuseBrokenFiles) {
  const auto with = [](const std::vector<int64_t>& sizes) {
    return refusal(
        "SVMClassifier",
        [&](NodeProto& node) {
          set(node, "kernel_type", "RBF"), set_floats(node, "kernel_params", {1, 0, 0});
          set_floats(node, "support_vectors", {1, 0, 0, 1}), set_floats(node, "rho", {0.5f});
          set_floats(node, "coefficients", {1, -1});
          set(node, "vectors_per_class", sizes), set(node, "classlabels_ints", {{0, 1}});
        },
        2);
  };
  EXPECT_EQ(with({1, 1}), "");
  EXPECT_THAT(with({-1000000000, 1000000002}), HasSubstr("-1000000000 vectors of a class"));
  EXPECT_THAT(with({-1, 3}), HasSubstr("-1 vectors of a class"));
  EXPECT_THAT(with({2, 2}), HasSubstr("2 vectors of a class"));
}

// The iteration of libsvm for one row, element by element.
std::vector<double> coupled(const std::vector<std::vector<double>>& r) {
  const size_t k = r.size();
  std::vector<std::vector<double>> q(k, std::vector<double>(k));
  for (size_t t = 0; t < k; ++t)
    for (size_t j = 0; j < k; ++j) {
      if (j == t) continue;
      q[t][t] += r[j][t] * r[j][t];
      q[t][j] = -r[j][t] * r[t][j];
    }
  std::vector<double> p(k, 1.0 / static_cast<double>(k)), qp(k);
  for (int iteration = 0; iteration < 100; ++iteration) {
    double pqp = 0, error = 0;
    for (size_t t = 0; t < k; ++t) {
      qp[t] = 0;
      for (size_t j = 0; j < k; ++j) qp[t] += q[t][j] * p[j];
      pqp += p[t] * qp[t];
    }
    for (size_t t = 0; t < k; ++t) error = std::max(error, std::abs(qp[t] - pqp));
    if (error < 0.005 / static_cast<double>(k)) break;
    for (size_t t = 0; t < k; ++t) {
      const double step = (pqp - qp[t]) / q[t][t];
      p[t] += step;
      pqp = (pqp + step * (step * q[t][t] + 2 * qp[t])) / (1 + step) / (1 + step);
      for (size_t j = 0; j < k; ++j) {
        qp[j] = (qp[j] + step * q[t][j]) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
  return p;
}

TEST(SupportVectors, PairsOfClassesVoteAndGiveProbabilities) {
  const std::vector<std::vector<double>> x = {{1, 2}, {0, -1}, {-2, 0.5}};
  // One vector for each class; with a linear kernel the score of pair (i, j) is
  // c[j-1][i] * x.v(i) + c[i][j] * x.v(j) + rho.
  const double v[3][2] = {{1, 0}, {0, 1}, {-1, -1}}, c[2][3] = {{1, -0.5, -1}, {0.75, 0.5, -0.25}};
  const double rho[3] = {0.1, -0.2, 0.3}, a[3] = {-1, -2, -0.5}, b[3] = {0.1, 0, -0.3};
  const auto classify = [&](bool has_probabilities) {
    return run_node(
        "SVMClassifier", {rows(x)},
        [&](NodeProto& node) {
          set(node, "kernel_type", "LINEAR");
          set_floats(node, "support_vectors", {1, 0, 0, 1, -1, -1});
          set_floats(node, "coefficients", {1, -0.5f, -1, 0.75f, 0.5f, -0.25f});
          set_floats(node, "rho", {0.1f, -0.2f, 0.3f});
          set(node, "vectors_per_class", {{1, 1, 1}}), set(node, "classlabels_ints", {{3, 5, 9}});
          if (!has_probabilities) return;
          set_floats(node, "prob_a", {-1, -2, -0.5f}), set_floats(node, "prob_b", {0.1f, 0, -0.3f});
        },
        2);
  };
  std::vector<int64_t> labels;
  std::vector<double> scores, probabilities;
  for (const auto& row : x) {
    std::vector<int> votes(3);
    std::vector<std::vector<double>> r(3, std::vector<double>(3));
    const auto dot = [&](int i) { return row[0] * v[i][0] + row[1] * v[i][1]; };
    for (int i = 0, pair = 0; i < 3; ++i)
      for (int j = i + 1; j < 3; ++j, ++pair) {
        const double score = c[j - 1][i] * dot(i) + c[i][j] * dot(j) + rho[pair];
        scores.push_back(score);
        ++votes[static_cast<size_t>(score > 0 ? i : j)];
        const double p = 1 / (1 + std::exp(a[pair] * score + b[pair]));
        r[static_cast<size_t>(i)][static_cast<size_t>(j)] = p;
        r[static_cast<size_t>(j)][static_cast<size_t>(i)] = 1 - p;
      }
    constexpr int64_t kLabels[] = {3, 5, 9};
    labels.push_back(kLabels[std::ranges::max_element(votes) - votes.begin()]);
    std::ranges::copy(coupled(r), std::back_inserter(probabilities));
  }
  const auto plain = classify(false), with_probabilities = classify(true);
  EXPECT_EQ(integers_of(plain[0]), labels);
  EXPECT_THAT(numbers_of(plain[1]), near_all(scores));
  EXPECT_EQ(integers_of(with_probabilities[0]), labels);
  EXPECT_THAT(numbers_of(with_probabilities[1]), near_all(probabilities));
}

}  // namespace
}  // namespace anneal::testing
