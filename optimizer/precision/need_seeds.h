// Which operations magnify small errors, and where what follows them takes that back.
#pragma once
#include <unordered_set>
#include <utility>
#include <vector>

#include "anneal/optimizer/precision/value_range.h"

namespace anneal {

class NeedSeeds {
 public:
  NeedSeeds(const ValueFlow& flow, const FlowFacts& facts) : flow_(flow), facts_(facts) {}

  // For an instruction that rounds to whole numbers: whether it is a quantization, whose steps are
  // noise to its readers.
  bool is_quantization(int node) const;
  // For a comparison or a number that becomes an integer: whether it is an index of a table,
  // perhaps after counting.
  bool is_index(int node) const;
  // Whether it is an index of a constant table, such as the codes of a quantizer.
  bool is_code(int node) const;
  // The values whose squares or magnitudes the argument of a logarithm sums, where that is the
  // result of a product: digits that the product loses are lost to the smallest sums.
  std::vector<int> squared(int node) const;
  // For a comparison: whether it only selects the branch of a function of the compared number, as
  // in a leaky ReLU.
  bool is_branch(int node) const;
  // For an exponential: whether its readers hardly depend on the error of a large argument, as in a
  // sigmoid.
  bool is_tamed(int node) const;
  // Whether a sum of exponentials over other elements divides it, as in a softmax.
  bool is_softmax(int node) const;
  // For a sine or cosine: whether it is added to its own argument, a feature (the snake
  // activation).
  bool is_snake(int node) const;
  // The two sides of the difference that this is, by way of clamps, addends and factors; twice the
  // result of a product that is taken from a constant; -1, -1 if it is none.
  std::pair<int, int> difference(int node) const;
  // For a sum: the two sides of a difference from numbers of the same kind, which may differ
  // little: from the mean, as in p - mean(p) and mean(p^2) - mean(p)^2, or from a neighbour, as in
  // slices. -1, -1 of other sums, and of features, which are of the size of their differences.
  std::pair<int, int> centered(int node) const;

 private:
  bool is_constant(int node) const;
  bool is_instruction(int node, Opcode opcode) const;
  bool is_output(int node) const;
  bool is_negated(int node) const;
  // What a number is a part, a multiple, a square or a mean of.
  struct Origin {
    int node = -1;
    bool is_mean = false;
    bool is_scaled = false;
  };
  Origin origin_of(int node) const;
  // Whether `from` is made of `target`, within few operations.
  bool is_made_of(int from, int target, int depth = 6) const;
  bool branches_by(int node, int compared, int depth) const;
  bool ends_in_quantization(int node, bool clamped, int depth) const;
  enum class Tables : uint8_t { kAll, kConstant };
  bool indexes(int node, Tables tables, std::unordered_set<int>& seen) const;
  void add_squared(int node, int depth, std::vector<int>& found) const;
  bool tames(int node, int argument, int depth) const;
  bool joins(int node, int argument, int depth) const;
  bool is_divided_by_sum(int node, int exponential, int depth) const;

  const ValueFlow& flow_;
  const FlowFacts& facts_;
};

}  // namespace anneal
