// Decision trees as tables that layers read by index.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/importer/node/node.h"

namespace anneal {

struct LeafWeight {
  int64_t target = 0;
  double weight = 0;
};

// A node of a tree. Nodes refer to each other by their index in a list, and may share a child.
struct TreeNode {
  bool is_leaf = false;
  // A feature passes if it is `high` or less, or if it is NaN and nan_passes.
  int64_t feature = 0;
  double high = 0;
  bool nan_passes = false;
  int64_t if_passed = 0, if_failed = 0;
  std::vector<LeafWeight> weights = {};
};

// Comparisons of a feature with a threshold, in the order of TreeEnsemble's codes.
enum class TreeMode : uint8_t { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual };

// A test as a file has it.
struct TreeTest {
  int64_t feature = 0;
  TreeMode mode = TreeMode::kLessEqual;
  double threshold = 0;
  bool nan_is_true = false;  // else NaN is what the comparison gives
  int64_t if_true = 0, if_false = 0;
};

struct TreeList {
  DataType dtype = DataType::kF32;  // of features: f32 or f64
  std::vector<TreeNode> nodes = {};
  std::vector<int64_t> roots = {};  // one for each tree

  // The node of that index, and for equality a further one, decide as the test. Fails with
  // kUnsupported for what no TreeNode expresses.
  void set_test(const Node& node, int64_t index, const TreeTest& test);
};

// The same trees with leaves first. A row reaches its leaf after `depth` tests, since both children
// of a leaf are the leaf itself.
struct TreeTables {
  int64_t leaves = 0, depth = 0, feature_count = 0;
  // Of each node. Tests that NaN passes read the features behind all others, in which NaN is -inf.
  std::vector<int64_t> features;
  bool reads_nan_as_least = false;
  std::vector<double> high;
  std::vector<int64_t> children;  // two for each node: if the test fails, if it passes
  std::vector<int64_t> roots;
  std::vector<std::vector<LeafWeight>> weights;  // of each leaf, at most one for each target
  std::vector<int64_t> tree_of_leaf;             // -1: none reaches it, or several do
};

// Refuses nodes that are not in the list, cycles and features outside [0, features); nullopt: all
// that the trees read.
TreeTables tree_tables(const Node& node, const TreeList& trees, std::optional<int64_t> features);

// The trees of TreeEnsembleClassifier and TreeEnsembleRegressor. prefix: of the attributes of the
// weights, "class" or "target", whose ids are in attribute `ids`.
TreeList read_trees(Node& node, DataType dtype, const std::string& prefix);
// The trees of TreeEnsemble.
TreeList read_tree_ensemble(Node& node, DataType dtype);
// An attribute of floats, or the one of the name with "_as_tensor"; empty if both are absent.
std::vector<double> read_numbers(Node& node, const std::string& name);

}  // namespace anneal
