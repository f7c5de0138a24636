#include "anneal/importer/node/rank_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr int kMaxTries = 64;
// A body inside others may be imported again for each way to see the outer ones, and everything for
// each choice between branches.
constexpr int kMaxNodesAgain = 1'000'000;

}  // namespace

std::optional<RankChoices::Choice> RankChoices::find(const std::string& name) const {
  const auto found = std::ranges::find(choices_, name, &RankChoice::name);
  return found == choices_.end() ? std::nullopt : std::optional(found->now);
}

RankChoices::Choice RankChoices::add(const std::string& name, bool can_align, bool then_first) {
  RankChoice added{name, then_first, Choice::kAlign};
  if (!can_align) added.now = added.branch(true);
  return choices_.emplace_back(std::move(added)).now;
}

void RankChoices::refuse_alignment(const std::string& name) {
  const auto found = std::ranges::find(choices_, name, &RankChoice::name);
  if (found == choices_.end() || found->now != Choice::kAlign) return;
  found->now = found->branch(true);
  has_refused_ = true;
}

bool RankChoices::next() {
  if (nodes_again_ > kMaxNodesAgain) return false;
  is_retry_ = true;
  if (std::exchange(has_refused_, false)) return true;
  while (!choices_.empty() && choices_.back().now == choices_.back().branch(false))
    choices_.pop_back();
  if (choices_.empty() || ++tries_ > kMaxTries) return false;
  RankChoice& last = choices_.back();
  last.now = last.branch(last.now == Choice::kAlign);
  return true;
}

void RankChoices::count_again(int nodes) {
  nodes_again_ += nodes;
  if (nodes_again_ > kMaxNodesAgain)
    fail(ErrorCode::kUnsupported,
         fmt::format(
             "control flow whose types depend on each other: more than {} nodes imported again",
             kMaxNodesAgain));
}

}  // namespace anneal
