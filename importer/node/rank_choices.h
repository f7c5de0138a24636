// RankChoices: what is assumed where values of a run decide a rank: the branch of an If whose
// results have different ranks, the open sizes that a Squeeze without axes takes for 1.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace anneal {

// Results of different rank cannot both be in one graph: either one is reshaped to the rank of the
// other, or one branch is taken and the engine refuses inputs that need the other. Which choice is
// right shows only in later nodes, so a failed import is tried again with the next choices. Nodes
// are identified by their names.
class RankChoices {
 public:
  enum class Choice : uint8_t { kAlign, kThen, kElse };

  std::optional<Choice> find(const std::string& name) const;
  // For a node that is new: first its results are aligned, if possible, then the first branch is
  // tried, then the other one. For a choice between two answers, "then" is yes.
  Choice add(const std::string& name, bool can_align, bool then_first);
  // A later node needs the exact rank of an aligned result: the next import takes a branch.
  void refuse_alignment(const std::string& name);
  bool has_refused() const { return has_refused_; }
  bool any() const { return !choices_.empty(); }
  // The next choices to try; false if there are none, or too much has been tried.
  bool next();
  bool is_retry() const { return is_retry_; }
  // Fails with kUnsupported if there are too many, in all tries together.
  void count_again(int nodes);

 private:
  struct RankChoice {
    std::string name;
    bool then_first;
    Choice now;
    Choice branch(bool first) const { return first == then_first ? Choice::kThen : Choice::kElse; }
  };

  std::vector<RankChoice> choices_;  // in order of need
  bool is_retry_ = false, has_refused_ = false;
  int tries_ = 0;
  int nodes_again_ = 0;  // imported more than once
};

}  // namespace anneal
