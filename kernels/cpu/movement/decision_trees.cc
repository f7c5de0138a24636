// DecisionTrees with constant tables: "cpu.decision_trees.lanes". Rows go down a tree side by side,
// or one row goes down several trees, so that a row does not wait for what another one loads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "anneal/core/integer.h"
#include "anneal/core/tensor_view.h"
#include "anneal/kernels/cpu/base/entries.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kLanes = 16;
// While a tree goes through a block, its nodes and the rows stay in the first-level cache.
constexpr int64_t kRowsAtOnce = 64, kTreesAtOnce = 32;
constexpr int64_t kWalksAtOnce = 1024;  // of a thread at least

template <class T>
struct TreeNode {
  T threshold;
  int32_t feature;                  // in elements from the first one
  std::array<int32_t, 2> children;  // of a leaf: itself
};

// The nodes of all trees. Empty: a table has an index out of range, which the reference reports.
// step: between the features of a row.
template <class T>
std::vector<TreeNode<T>> nodes_of(const DecisionTrees& op, const Request& request,
                                  int64_t feature_count, int32_t step) {
  const auto table = [&](int input) { return request.inputs[input].constant->as<int32_t>(); };
  const auto features = table(1), children = table(3);
  const auto thresholds = request.inputs[2].constant->as<T>();
  std::vector<TreeNode<T>> nodes(thresholds.size());
  const auto count = static_cast<int64_t>(nodes.size());
  const auto is_node = [&](int32_t index) { return index >= 0 && index < count; };
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto own = static_cast<int32_t>(i);
    const bool is_leaf = own < op.leaves;
    nodes[i] = {thresholds[i], 0, {own, own}};
    if (is_leaf) continue;
    if (features[i] < 0 || features[i] >= feature_count || !is_node(children[2 * i]) ||
        !is_node(children[2 * i + 1]))
      return {};
    nodes[i].feature = features[i] * step;
    nodes[i].children = {children[2 * i], children[2 * i + 1]};
  }
  return std::ranges::all_of(table(4), is_node) ? nodes : std::vector<TreeNode<T>>();
}

template <class T>
class DecisionTreesLanes final : public Kernel {
 public:
  DecisionTreesLanes(const DecisionTrees& op, const Request& request,
                     std::vector<TreeNode<T>> nodes)
      : op_(op), nodes_(std::move(nodes)), roots_(*request.inputs[4].constant) {}

  void launch(const LaunchArgs& args) const override {
    const TensorView &x = args.inputs[0], &y = args.outputs[0];
    const int64_t rows = y.dims[0], trees = y.dims[1];
    const bool few = rows < kLanes;
    const int64_t most_rows = few ? 1 : kRowsAtOnce, tree_blocks = ceil_div(trees, kTreesAtOnce);
    const int64_t grain = ceil_div(kWalksAtOnce, most_rows * kTreesAtOnce);
    args.team.for_ranges(ceil_div(rows, most_rows) * tree_blocks, grain,
                         [&](int64_t begin, int64_t end) {
                           for (int64_t block = begin; block < end; ++block) {
                             const int64_t row = block / tree_blocks * most_rows;
                             const int64_t tree = block % tree_blocks * kTreesAtOnce;
                             const Block here{row, std::min(row + most_rows, rows), tree,
                                              std::min(tree + kTreesAtOnce, trees)};
                             few ? of_one_row(here, x, y) : of_rows(here, x, y);
                           }
                         });
  }

 private:
  struct Block {
    int64_t first_row, end_row, first_tree, end_tree;
  };
  struct Walks {
    std::array<const T*, kLanes> rows;
    std::array<int32_t, kLanes> nodes;
  };

  int32_t root(int64_t tree) const { return roots_.as<int32_t>()[static_cast<size_t>(tree)]; }
  static const T* row_of(const TensorView& x, int64_t row) {
    return x.as<T>() + row * x.strides[0];
  }
  static int32_t& result(const TensorView& y, int64_t row, int64_t tree) {
    return y.as<int32_t>()[row * y.strides[0] + tree * y.strides[1]];
  }

  // Lanes beyond the last row repeat it.
  void of_rows(const Block& block, const TensorView& x, const TensorView& y) const {
    for (int64_t tree = block.first_tree; tree < block.end_tree; ++tree)
      for (int64_t first = block.first_row; first < block.end_row; first += kLanes) {
        Walks walks;
        walks.nodes.fill(root(tree));
        for (int64_t lane = 0; lane < kLanes; ++lane)
          walks.rows[lane] = row_of(x, std::min(first + lane, block.end_row - 1));
        go_down(walks);
        for (int64_t lane = 0; lane < std::min(kLanes, block.end_row - first); ++lane)
          result(y, first + lane, tree) = walks.nodes[lane];
      }
  }
  void of_one_row(const Block& block, const TensorView& x, const TensorView& y) const {
    for (int64_t first = block.first_tree; first < block.end_tree; first += kLanes) {
      Walks walks;
      walks.rows.fill(row_of(x, block.first_row));
      for (int64_t lane = 0; lane < kLanes; ++lane)
        walks.nodes[lane] = root(std::min(first + lane, block.end_tree - 1));
      go_down(walks);
      for (int64_t lane = 0; lane < std::min(kLanes, block.end_tree - first); ++lane)
        result(y, block.first_row, first + lane) = walks.nodes[lane];
    }
  }

  [[gnu::noinline]] void go_down(Walks& walks) const {
    const TreeNode<T>* const nodes = nodes_.data();
    const auto leaves = static_cast<int32_t>(op_.leaves);
    std::array<int32_t, kLanes> at = walks.nodes;
    int32_t most = leaves;
    for (int64_t level = 0; most >= leaves && level < op_.depth; ++level) {
      most = 0;
#pragma GCC unroll 16
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const TreeNode<T>& node = nodes[at[lane]];
        at[lane] = node.children[walks.rows[lane][node.feature] <= node.threshold ? 1 : 0];
        most = std::max(most, at[lane]);
      }
    }
    walks.nodes = at;
  }

  DecisionTrees op_;
  std::vector<TreeNode<T>> nodes_;
  Tensor roots_;
};

template <class T>
KernelResult make_for(const DecisionTrees& op, const Request& request) {
  const Size features = request.inputs[0].type.shape[1], step = request.inputs[0].strides[1];
  if (!features.known() || !step.known() || features.value() < 1)
    return refuse("no known number of features");
  if (step.value() < 0 || features.value() > INT32_MAX / std::max<int64_t>(step.value(), 1))
    return refuse("features that lie far apart");
  std::vector<TreeNode<T>> nodes =
      nodes_of<T>(op, request, features.value(), static_cast<int32_t>(step.value()));
  if (nodes.empty()) return refuse("no nodes, or an index out of range");
  return std::make_unique<DecisionTreesLanes<T>>(op, request, std::move(nodes));
}

KernelResult make_decision_trees(const DecisionTrees& op, const Request& request) {
  for (int input = 1; input < 5; ++input)
    if (request.inputs[input].constant == nullptr) return refuse("trees that are not constant");
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  return request.inputs[0].type.dtype == DataType::kF32 ? make_for<float>(op, request)
                                                        : make_for<double>(op, request);
}

constexpr KernelEntry kDecisionTreesEntries[] = {
    entry<DecisionTrees, make_decision_trees>("cpu.decision_trees.lanes"),
};

}  // namespace

std::span<const KernelEntry> decision_trees_entries() { return kDecisionTreesEntries; }

}  // namespace anneal::cpu
