#include "anneal/importer/ml/tree_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

namespace anneal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double neighbour(double x, double towards, DataType dtype) {
  if (dtype == DataType::kF64) return std::nextafter(x, towards);
  return std::nextafter(static_cast<float>(x), static_cast<float>(towards));
}

bool contains(const std::vector<TreeNode>& nodes, int64_t index) {
  return index >= 0 && index < static_cast<int64_t>(nodes.size());
}

// The number of tests below each node, from the leaves up.
class Heights {
 public:
  Heights(const Node& node, const std::vector<TreeNode>& nodes)
      : node_(node), nodes_(nodes), heights_(nodes.size(), kNew) {}

  int64_t of(int64_t root) {
    std::vector<int64_t> path = {root};
    while (!path.empty()) {
      const int64_t index = path.back();
      if (!contains(nodes_, index))
        node_.invalid(fmt::format("a tree refers to node {} of {}", index, nodes_.size()));
      const TreeNode& one = nodes_[static_cast<size_t>(index)];
      int64_t& height = heights_[static_cast<size_t>(index)];
      if (height >= 0 || one.is_leaf) {
        height = std::max<int64_t>(height, 0);
        path.pop_back();
      } else if (height == kNew) {
        height = kOpen;
        for (const int64_t child : {one.if_passed, one.if_failed}) {
          if (contains(nodes_, child) && heights_[static_cast<size_t>(child)] == kOpen)
            node_.invalid(fmt::format("node {} of a tree is below itself", child));
          path.push_back(child);
        }
      } else {
        height = 1 + std::max(heights_[static_cast<size_t>(one.if_passed)],
                              heights_[static_cast<size_t>(one.if_failed)]);
        path.pop_back();
      }
    }
    return heights_[static_cast<size_t>(root)];
  }
  bool is_used(size_t index) const { return heights_[index] >= 0; }

 private:
  static constexpr int64_t kNew = -1, kOpen = -2;
  const Node& node_;
  const std::vector<TreeNode>& nodes_;
  std::vector<int64_t> heights_;
};

std::vector<LeafWeight> sum_by_target(std::vector<LeafWeight> weights) {
  std::ranges::stable_sort(weights, {}, &LeafWeight::target);
  std::vector<LeafWeight> sums;
  for (const LeafWeight& one : weights) {
    if (sums.empty() || sums.back().target != one.target)
      sums.push_back(one);
    else
      sums.back().weight += one.weight;
  }
  return sums;
}

// Which tree a leaf belongs to.
void mark_leaves(TreeTables& tables) {
  constexpr int64_t kNone = -1, kUnknown = -2;
  std::vector<int64_t> tree_of(tables.features.size(), kUnknown);
  for (size_t tree = 0; tree < tables.roots.size(); ++tree) {
    const auto number = static_cast<int64_t>(tree);
    std::vector<int64_t> open = {tables.roots[tree]};
    while (!open.empty()) {
      const auto index = static_cast<size_t>(open.back());
      open.pop_back();
      if (tree_of[index] == number || tree_of[index] == kNone) continue;
      tree_of[index] = tree_of[index] == kUnknown ? number : kNone;
      if (index < static_cast<size_t>(tables.leaves)) continue;
      open.push_back(tables.children[2 * index]);
      open.push_back(tables.children[2 * index + 1]);
    }
  }
  for (size_t leaf = 0; leaf < static_cast<size_t>(tables.leaves); ++leaf)
    tables.tree_of_leaf.push_back(std::max(tree_of[leaf], kNone));
}

std::vector<int64_t> integers(Node& node, const std::string& name, size_t count) {
  std::vector<int64_t> values = node.find_integers(name).value_or(std::vector<int64_t>());
  if (values.size() != count)
    node.invalid(fmt::format("attribute \"{}\" has {} values for {}", name, values.size(), count));
  return values;
}

// Empty if the attribute is absent.
std::vector<int64_t> flags(Node& node, const std::string& name, size_t count) {
  if (!node.has_attribute(name)) return {};
  auto values = node.find_integers(name).value_or(std::vector<int64_t>());
  if (values.empty()) return values;
  return integers(node, name, count);
}

// What both kinds of files list for each node.
struct NodeLists {
  NodeLists(Node& node, size_t count)
      : features(integers(node, "nodes_featureids", count)),
        if_true(integers(node, "nodes_truenodeids", count)),
        if_false(integers(node, "nodes_falsenodeids", count)),
        nan_is_true(flags(node, "nodes_missing_value_tracks_true", count)) {}
  bool is_nan_true(size_t i) const { return !nan_is_true.empty() && nan_is_true[i] != 0; }

  std::vector<int64_t> features, if_true, if_false, nan_is_true;
};

TreeMode mode_of(const Node& node, const std::string& text) {
  constexpr std::string_view kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  const auto* found = std::ranges::find(kModes, text);
  if (found == std::end(kModes))
    node.unsupported(fmt::format("a tree's node of mode \"{}\"", text));
  return static_cast<TreeMode>(found - std::begin(kModes));
}

// The numbers of a file for (tree, node), as indices of a list.
class NodeNumbers {
 public:
  NodeNumbers(const Node& node, const std::vector<int64_t>& trees,
              const std::vector<int64_t>& nodes)
      : node_(node) {
    for (size_t i = 0; i < trees.size(); ++i)
      numbers_.push_back({{trees[i], nodes[i]}, static_cast<int64_t>(i)});
    std::ranges::sort(numbers_);
    const auto twin = std::ranges::adjacent_find(numbers_, {}, &Entry::first);
    if (twin != numbers_.end())
      node.invalid(fmt::format("tree {} has node {} twice", twin->first.first, twin->first.second));
  }
  int64_t of(int64_t tree, int64_t node) const {
    const Key key = {tree, node};
    const auto found = std::ranges::lower_bound(numbers_, key, {}, &Entry::first);
    if (found == numbers_.end() || found->first != key)
      node_.invalid(fmt::format("tree {} has no node {}", tree, node));
    return found->second;
  }

 private:
  using Key = std::pair<int64_t, int64_t>;
  using Entry = std::pair<Key, int64_t>;
  const Node& node_;
  std::vector<Entry> numbers_;
};

// The node of each tree that is no other node's child, in the order of the list. Nodes behind
// tree_ids are children.
std::vector<int64_t> find_roots(const Node& node, const std::vector<TreeNode>& nodes,
                                const std::vector<int64_t>& tree_ids) {
  std::vector<bool> is_child(nodes.size());
  for (const TreeNode& one : nodes)
    if (!one.is_leaf)
      is_child[static_cast<size_t>(one.if_passed)] = is_child[static_cast<size_t>(one.if_failed)] =
          true;
  std::vector<int64_t> roots;
  std::vector<int64_t> trees_with_root;
  for (size_t i = 0; i < tree_ids.size(); ++i)
    if (!is_child[i]) {
      roots.push_back(static_cast<int64_t>(i));
      trees_with_root.push_back(tree_ids[i]);
    }
  std::vector<int64_t> trees = tree_ids;
  for (auto* list : {&trees, &trees_with_root}) std::ranges::sort(*list);
  trees.erase(std::ranges::unique(trees).begin(), trees.end());
  if (trees != trees_with_root) node.invalid("a tree without a root, or with several");
  return roots;
}

// Codes of TreeEnsemble for the modes of TreeMode, and for "is a member of a set".
constexpr int64_t kMember = 6;

}  // namespace

void TreeList::set_test(const Node& node, int64_t index, const TreeTest& test) {
  const double threshold =
      dtype == DataType::kF32 ? static_cast<float>(test.threshold) : test.threshold;
  const bool is_less = test.mode == TreeMode::kLess || test.mode == TreeMode::kGreaterEqual;
  if (std::isnan(threshold) || (is_less && threshold == -kInfinity))
    node.unsupported(fmt::format("a comparison with {} in a tree", threshold));
  const bool is_equality = test.mode == TreeMode::kEqual || test.mode == TreeMode::kNotEqual;
  const bool is_turned = test.mode == TreeMode::kGreaterEqual || test.mode == TreeMode::kGreater ||
                         test.mode == TreeMode::kNotEqual;
  const double below = neighbour(threshold, -kInfinity, dtype);
  // NaN equals nothing. Where the test is turned it passes what the comparison fails.
  const bool nan_is_true = test.nan_is_true || test.mode == TreeMode::kNotEqual;
  const int64_t if_passed = is_turned ? test.if_false : test.if_true;
  const int64_t if_failed = is_turned ? test.if_true : test.if_false;
  const bool nan_passes = nan_is_true != is_turned;

  TreeNode made{.feature = test.feature,
                .high = is_less ? below : threshold,
                .nan_passes = nan_passes,
                .if_passed = if_passed,
                .if_failed = if_failed};
  if (is_equality && threshold > -kInfinity) {
    // What is not above the threshold is equal unless it is below. NaN fails the second test.
    made.if_passed = static_cast<int64_t>(nodes.size());
    nodes.push_back(
        {.feature = test.feature, .high = below, .if_passed = if_failed, .if_failed = if_passed});
  }
  nodes[static_cast<size_t>(index)] = std::move(made);
}

TreeTables tree_tables(const Node& node, const TreeList& trees,
                       std::optional<int64_t> given_features) {
  if (trees.roots.empty()) node.invalid("no trees");
  TreeTables tables;
  Heights heights(node, trees.nodes);
  for (const int64_t root : trees.roots) tables.depth = std::max(tables.depth, heights.of(root));
  for (size_t i = 0; i < trees.nodes.size(); ++i)
    if (!heights.is_used(i) && !trees.nodes[i].is_leaf)
      node.invalid(fmt::format("node {} of the trees is below itself, or below no root", i));

  constexpr int64_t kMostFeatures = 1 << 24;
  int64_t features = given_features.value_or(1);
  if (!given_features)
    for (const TreeNode& one : trees.nodes)
      if (!one.is_leaf) features = std::clamp(one.feature + 1, features, kMostFeatures);
  if (features > kMostFeatures) node.unsupported(fmt::format("{} features of trees", features));
  tables.feature_count = features;
  std::vector<int64_t> places(trees.nodes.size());
  std::vector<const TreeNode*> order;
  for (const bool leaves : {true, false}) {
    for (size_t i = 0; i < trees.nodes.size(); ++i) {
      if (trees.nodes[i].is_leaf != leaves || !heights.is_used(i)) continue;
      places[i] = static_cast<int64_t>(order.size());
      order.push_back(&trees.nodes[i]);
    }
    if (leaves) tables.leaves = static_cast<int64_t>(order.size());
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const TreeNode& one = *order[i];
    const auto self = static_cast<int64_t>(i);
    if (!one.is_leaf && (one.feature < 0 || one.feature >= features))
      node.invalid(fmt::format("a tree reads feature {} of {}", one.feature, features));
    tables.features.push_back(one.is_leaf ? 0 : one.feature + (one.nan_passes ? features : 0));
    tables.reads_nan_as_least |= !one.is_leaf && one.nan_passes;
    tables.high.push_back(one.is_leaf ? kInfinity : one.high);
    tables.children.push_back(one.is_leaf ? self : places[static_cast<size_t>(one.if_failed)]);
    tables.children.push_back(one.is_leaf ? self : places[static_cast<size_t>(one.if_passed)]);
    if (one.is_leaf) tables.weights.push_back(sum_by_target(one.weights));
  }
  for (const int64_t root : trees.roots) tables.roots.push_back(places[static_cast<size_t>(root)]);
  mark_leaves(tables);
  return tables;
}

std::vector<double> read_numbers(Node& node, const std::string& name) {
  if (const auto numbers = node.find_numbers(name); numbers && !numbers->empty())
    return {numbers->begin(), numbers->end()};
  if (const auto tensor = node.find_tensor(name + "_as_tensor")) return numbers_of(*tensor);
  return {};
}

TreeList read_trees(Node& node, DataType dtype, const std::string& prefix) {
  node.ignore("nodes_hitrates"), node.ignore("nodes_hitrates_as_tensor");
  const auto modes = node.find_texts("nodes_modes").value_or(std::vector<std::string>());
  const size_t count = modes.size();
  const auto tree_ids = integers(node, "nodes_treeids", count);
  const auto node_ids = integers(node, "nodes_nodeids", count);
  const NodeLists lists(node, count);
  const auto values = read_numbers(node, "nodes_values");
  if (values.size() != count)
    node.invalid(fmt::format("{} nodes of trees and {} values", count, values.size()));
  const NodeNumbers numbers(node, tree_ids, node_ids);

  TreeList trees{.dtype = dtype};
  trees.nodes.resize(count);
  for (size_t i = 0; i < count; ++i) {
    trees.nodes[i].is_leaf = modes[i] == "LEAF";
    if (modes[i] == "LEAF") continue;
    trees.set_test(node, static_cast<int64_t>(i),
                   {.feature = lists.features[i],
                    .mode = mode_of(node, modes[i]),
                    .threshold = values[i],
                    .nan_is_true = lists.is_nan_true(i),
                    .if_true = numbers.of(tree_ids[i], lists.if_true[i]),
                    .if_false = numbers.of(tree_ids[i], lists.if_false[i])});
  }
  trees.roots = find_roots(node, trees.nodes, tree_ids);

  const auto weights = read_numbers(node, prefix + "_weights");
  const auto weight_trees = integers(node, prefix + "_treeids", weights.size());
  const auto weight_nodes = integers(node, prefix + "_nodeids", weights.size());
  const auto targets = integers(node, prefix + "_ids", weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t leaf = numbers.of(weight_trees[i], weight_nodes[i]);
    trees.nodes[static_cast<size_t>(leaf)].weights.push_back({targets[i], weights[i]});
  }
  return trees;
}

TreeList read_tree_ensemble(Node& node, DataType dtype) {
  node.ignore("nodes_hitrates");
  const auto mode_codes = node.find_tensor("nodes_modes");
  if (!mode_codes) node.invalid("attribute \"nodes_modes\" is missing");
  const std::vector<int64_t> modes = integers_of(*mode_codes);
  const size_t count = modes.size();
  const NodeLists lists(node, count);
  const auto true_is_leaf = integers(node, "nodes_trueleafs", count);
  const auto false_is_leaf = integers(node, "nodes_falseleafs", count);
  const auto splits = node.find_tensor("nodes_splits"), weights = node.find_tensor("leaf_weights");
  if (!splits || !weights) node.invalid("nodes_splits or leaf_weights is missing");
  const std::vector<double> thresholds = numbers_of(*splits), leaf_weights = numbers_of(*weights);
  const auto targets = integers(node, "leaf_targetids", leaf_weights.size());
  if (thresholds.size() != count)
    node.invalid(fmt::format("{} nodes of trees and {} splits", count, thresholds.size()));
  std::vector<double> members;
  if (const auto sets = node.find_tensor("membership_values")) members = numbers_of(*sets);

  // Leaves follow the nodes.
  const auto child = [&](int64_t index, int64_t is_leaf) {
    const size_t most = is_leaf != 0 ? leaf_weights.size() : count;
    if (index < 0 || index >= static_cast<int64_t>(most))
      node.invalid(fmt::format("a tree refers to node {} of {}", index, most));
    return is_leaf != 0 ? index + static_cast<int64_t>(count) : index;
  };
  TreeList trees{.dtype = dtype};
  trees.nodes.resize(count + leaf_weights.size());
  for (size_t i = 0; i < leaf_weights.size(); ++i) {
    TreeNode& leaf = trees.nodes[count + i];
    leaf.is_leaf = true;
    leaf.weights = {{targets[i], leaf_weights[i]}};
  }
  auto member = members.begin();
  for (size_t i = 0; i < count; ++i) {
    const int64_t yes = child(lists.if_true[i], true_is_leaf[i]);
    const int64_t no = child(lists.if_false[i], false_is_leaf[i]);
    const auto set = [&](size_t at, TreeMode mode, double threshold, int64_t otherwise) {
      trees.set_test(node, static_cast<int64_t>(at),
                     {.feature = lists.features[i],
                      .mode = mode,
                      .threshold = threshold,
                      .nan_is_true = lists.is_nan_true(i),
                      .if_true = yes,
                      .if_false = otherwise});
    };
    if (modes[i] != kMember) {
      if (modes[i] < 0 || modes[i] > kMember)
        node.invalid(fmt::format("a tree's node of mode {}", modes[i]));
      set(i, static_cast<TreeMode>(modes[i]), thresholds[i], no);
      continue;
    }
    // A test for each member of the set, which NaN ends.
    if (member == members.end() || std::isnan(*member))
      node.invalid("a set of a tree without members");
    size_t at = i;
    for (; member + 1 != members.end() && !std::isnan(*(member + 1)); ++member) {
      const size_t next = trees.nodes.size();
      trees.nodes.emplace_back();
      set(at, TreeMode::kEqual, *member, static_cast<int64_t>(next));
      at = next;
    }
    set(at, TreeMode::kEqual, *member, no);
    member += member + 1 == members.end() ? 1 : 2;
  }
  trees.roots = node.find_integers("tree_roots").value_or(std::vector<int64_t>());
  for (const int64_t root : trees.roots) child(root, 0);
  return trees;
}

}  // namespace anneal
