#include "anneal/engine/builder/inputs/size_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "anneal/core/error.h"
#include "anneal/engine/builder/inputs/range_search.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

// The limit on checked steps in all: a large model must not be searched for minutes.
constexpr size_t kMostSizedSteps = 300'000;
constexpr size_t kMostTrials = 1500;
constexpr size_t kMostDoubtfulTrials = 100;  // that all layers accept, except for possible values
// The limits on walks with the intervals of values: steps in all, and walks of one trial.
constexpr size_t kMostStepsOfWalks = 1'000'000;
constexpr size_t kMostWalksOfTrial = 200;
constexpr size_t kMostRuns = 48;
constexpr int64_t kLargestSearched = 1 << 16;

// A product of sizes that a step reads, writes or holds as contents.
using Quantity = std::vector<Size>;

class SizeSearch {
 public:
  SizeSearch(const Plan& plan, std::span<const Tensor> weights, const SymbolValues& values,
             std::span<const SearchedSize> searched, const TrialRun& run)
      : plan_(plan), weights_(weights), run_(run), sizes_(*plan.sizes), first_(values) {
    for (const SearchedSize& one : searched) {
      searched_[one.symbol] = one;
      first_[one.symbol] = std::clamp(one.start, one.min, one.max);
    }
    for (size_t i = 0; i < plan.steps.size(); ++i)
      for (const uint32_t output : plan.steps[i].outputs) producer_[output] = i;
  }

  SizeSearchResult run() {
    SizeSearchResult best = search(false);
    if (best.complaint.empty()) return best;
    SizeSearchResult lenient = search(true);
    return lenient.complaint.empty() ? lenient : best;
  }

 private:
  struct Trial {
    SymbolValues values;
    SizedPlan sized;
    std::string complaint;
    std::optional<RangeRefusal> refusal;
    std::optional<StepFailure> failure;  // of its run
    bool has_run = false;
    int refusals = 0;
    size_t progress = 0;  // steps before the complaint
    size_t changes = 0, number = 0;
    // The best last: more progress, then less refused, then fewer changes, then the one that was
    // tried first.
    bool operator<(const Trial& other) const {
      if (progress != other.progress) return progress < other.progress;
      if (refusals != other.refusals) return refusals > other.refusals;
      if (excess() != other.excess()) return excess() > other.excess();
      if (changes != other.changes) return changes > other.changes;
      return number > other.number;
    }
    bool is_done() const { return complaint.empty() && !failure && (has_run || !refusal); }
    double excess() const {
      if (!refusal) return 0;
      return std::max(refusal->range.high - refusal->accepted.high,
                      refusal->accepted.low - refusal->range.low);
    }
    std::optional<ShortAxis> short_axis() const {
      if (refusal) return refusal->short_axis();
      return sized.complaint ? sized.complaint->short_axis : std::nullopt;
    }
    std::optional<size_t> step() const {
      if (refusal) return refusal->step;
      if (failure) return failure->step;
      return sized.complaint ? sized.complaint->step : std::nullopt;
    }
  };

  Trial attempt(SymbolValues values, bool soft_is_fine) {
    Trial trial;
    trial.values = std::move(values);
    trial.number = trials_++;
    for (const auto& [symbol, one] : searched_)
      if (trial.values[symbol] != first_[symbol]) ++trial.changes;
    trial.sized = sized_plan(plan_, weights_, trial.values);
    const auto& complaint = trial.sized.complaint;
    const size_t all = plan_.steps.size() + 1;
    trial.progress = !complaint || (soft_is_fine && complaint->is_soft) ? all
                     : complaint->step                                  ? *complaint->step + 1
                                                                        : 0;
    looked_at_ += trial.progress;
    if (trial.progress < all) {
      trial.complaint =
          complaint->step ? text_of(*complaint->step) + complaint->text : complaint->text;
      return trial;
    }
    // Strides and places are checked by binding alone.
    const std::vector<Dims> dims = dims_of_inputs(plan_, trial.values);
    try {
      bind_shapes(plan_, weights_, dims);
      ++trial.progress;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      trial.complaint = error.what();
      return trial;
    }
    find_refusal(trial, dims);
    // A run decides: an interval is wider than the set of values that follow from the inputs.
    if (run_ && runs_ < kMostRuns) {
      ++runs_;
      trial.failure = run_(dims);
      trial.has_run = true;
      trial.progress += trial.failure ? trial.failure->step : plan_.steps.size();
    }
    return trial;
  }

  // Whether readers accept what follows from some values of the inputs.
  void find_refusal(Trial& trial, const std::vector<Dims>& dims) {
    RangeSearch ranges(plan_, weights_, dims, trial.values, trial.sized);
    const size_t left =
        (kMostStepsOfWalks - std::min(kMostStepsOfWalks, walked_)) / (plan_.steps.size() + 1);
    const RangeFindings findings = ranges.settle(std::clamp<size_t>(left, 1, kMostWalksOfTrial));
    walked_ += ranges.walks() * plan_.steps.size();
    trial.refusal = findings.first;
    if (trial.refusal) trial.refusals = findings.refusals;
    ++doubtful_;
  }

  std::string text_of(size_t step) const {
    return fmt::format("step \"{}\" ({}): ", plan_.steps[step].name,
                       to_string(plan_.steps[step].op));
  }
  std::string text_of(const Trial& trial) const {
    if (trial.failure) return trial.failure->text;
    if (!trial.refusal || trial.has_run) return "";
    const RangeRefusal& it = *trial.refusal;
    const auto number = [](double value) { return fmt::format("{:.0f}", value); };
    const std::string of = it.slot == kNoSlot ? ""
                                              : fmt::format(" of axis {} of \"{}\"", it.axis,
                                                            plan_.slots[it.slot].name);
    return fmt::format("{}may read {} to {}{}, where {} to {} are accepted", text_of(it.step),
                       number(it.range.low), number(it.range.high), of, number(it.accepted.low),
                       number(it.accepted.high));
  }

  SizeSearchResult search(bool soft_is_fine) {
    std::priority_queue<Trial> open;
    std::set<SymbolValues> seen;
    trials_ = looked_at_ = doubtful_ = walked_ = 0;
    open.push(attempt(first_, soft_is_fine));
    seen.insert(first_);
    Trial best = open.top();
    while (!open.empty()) {
      Trial trial = open.top();
      open.pop();
      if (best < trial) best = trial;
      if (trial.is_done() || is_spent()) break;
      if (!trial.sized.complaint && !trial.refusal && !trial.failure) continue;
      for (SymbolValues& next : successors(trial)) {
        if (is_spent()) break;
        if (!seen.insert(next).second) continue;
        Trial tried = attempt(std::move(next), soft_is_fine);
        const bool is_done = tried.is_done();
        // A choice that comes no further is kept too: two sizes may have to change.
        if (is_done || tried.progress >= trial.progress) open.push(std::move(tried));
        if (is_done) break;
      }
    }
    return {best.values, best.complaint, text_of(best), std::move(best.sized.facts)};
  }

  bool is_spent() const {
    return trials_ >= kMostTrials || looked_at_ >= kMostSizedSteps ||
           doubtful_ >= kMostDoubtfulTrials || walked_ >= kMostStepsOfWalks ||
           (run_ && runs_ >= kMostRuns);
  }

  // The quantities of a step: sizes and element counts of its inputs and outputs.
  std::vector<Quantity> quantities(const Trial& trial) const {
    std::vector<Quantity> found;
    const auto look = [&](uint32_t slot) {
      if (slot == kNoSlot) return;
      const Shape& shape = plan_.slots[slot].type.shape;
      for (const Size size : shape) found.push_back({size});
      found.emplace_back(shape.begin(), shape.end());
      const auto producer = producer_.find(slot);
      if (producer == producer_.end()) return;
      if (const auto* sizes = std::get_if<SizeTensor>(&plan_.steps[producer->second].op)) {
        for (const Size size : sizes->elements) found.push_back({size});
        found.emplace_back(sizes->elements.begin(), sizes->elements.end());
      }
    };
    if (const auto step = trial.step()) {
      std::ranges::for_each(plan_.steps[*step].inputs, look);
      std::ranges::for_each(plan_.steps[*step].outputs, look);
    } else {
      std::ranges::for_each(plan_.inputs, look);
    }
    return found;
  }

  std::optional<int64_t> value_of(const Quantity& quantity, const SymbolValues& values) const {
    int64_t product = 1;
    try {
      for (const Size size : quantity)
        if (size.is_unknown() ||
            __builtin_mul_overflow(product, sizes_.evaluate(size, values), &product))
          return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
    return product;
  }

  // The symbols that a step depends on: those in its quantities, or all where these are numbers.
  std::vector<uint32_t> symbols_of(const std::vector<Quantity>& quantities) const {
    std::set<uint32_t> found;
    for (const Quantity& quantity : quantities)
      for (const Size size : quantity)
        if (!size.known() && !size.is_unknown())
          for (const uint32_t symbol : sizes_.symbols_in(size))
            if (searched_.contains(symbol)) found.insert(symbol);
    if (found.empty())
      for (const auto& [symbol, one] : searched_) found.insert(symbol);
    // Those that begin with 1 last: they count samples.
    std::vector<uint32_t> symbols(found.begin(), found.end());
    std::ranges::stable_partition(symbols, [&](uint32_t symbol) { return *first_[symbol] > 1; });
    return symbols;
  }

  std::vector<SymbolValues> successors(const Trial& trial) const {
    const std::vector<Quantity> all = quantities(trial);
    const std::vector<uint32_t> symbols = symbols_of(all);
    std::set<int64_t> targets;
    for (const Quantity& quantity : all)
      if (const auto value = value_of(quantity, trial.values); value && *value > 0)
        targets.insert(*value);
    // First what makes an axis long enough, or two quantities equal, then other sizes.
    std::vector<std::pair<uint32_t, int64_t>> moves;
    if (const auto axis = trial.short_axis())
      for (const uint32_t symbol : symbols)
        if (const auto value = enough(*axis, symbol, trial.values))
          moves.emplace_back(symbol, *value);
    for (const uint32_t symbol : symbols) {
      for (const Quantity& quantity : all)
        for (const int64_t value : solutions(quantity, symbol, targets, trial.values))
          moves.emplace_back(symbol, value);
    }
    const size_t solved = moves.size();
    for (const uint32_t symbol : symbols)
      for (const int64_t value : usual_values(symbol, trial.values))
        moves.emplace_back(symbol, value);
    std::vector<SymbolValues> next;
    const auto scale = [&] {
      for (SymbolValues& values : scaled(symbols, trial.values)) next.push_back(std::move(values));
    };
    for (size_t i = 0; i < moves.size(); ++i) {
      if (i == solved) scale();
      const auto [symbol, value] = moves[i];
      const SearchedSize& one = searched_.at(symbol);
      if (value < one.min || value > std::min(one.max, std::max(kLargestSearched, one.start)) ||
          value == trial.values[symbol])
        continue;
      next.push_back(trial.values);
      next.back()[symbol] = value;
    }
    return next;
  }

  // All sizes of a step together, but those that are 1: a window is smaller than both axes of a
  // picture, and a table of its places larger.
  std::vector<SymbolValues> scaled(const std::vector<uint32_t>& symbols,
                                   const SymbolValues& values) const {
    std::vector<SymbolValues> found;
    for (const auto& [factor, divisor] :
         {std::pair{2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {1, 8}}) {
      SymbolValues next = values;
      bool is_within = true;
      for (const uint32_t symbol : symbols) {
        if (*next[symbol] <= 1) continue;
        *next[symbol] = std::max<int64_t>(1, *next[symbol] * factor / divisor);
        const SearchedSize& one = searched_.at(symbol);
        is_within &=
            one.min <= *next[symbol] && *next[symbol] <= std::min(one.max, kLargestSearched);
      }
      if (is_within) found.push_back(std::move(next));
    }
    return found;
  }

  // Values of a symbol with which a quantity, if linear in it, has one of the targets. An axis of 1
  // fits by broadcasting alone, and is tried later.
  std::vector<int64_t> solutions(const Quantity& quantity, uint32_t symbol,
                                 const std::set<int64_t>& targets, SymbolValues values) const {
    const int64_t now = *values[symbol];
    const auto here = value_of(quantity, values);
    values[symbol] = now + 1;
    const auto there = value_of(quantity, values);
    std::vector<int64_t> found;
    if (!here || !there || *here == *there) return found;
    const int64_t slope = *there - *here;
    for (const int64_t target : targets)
      if ((target - *here) % slope == 0) {
        const int64_t value = now + (target - *here) / slope;
        if (value > 1) found.push_back(value);
      }
    return found;
  }

  // The value of a symbol with which an axis is as long as a reader wants.
  std::optional<int64_t> enough(const ShortAxis& axis, uint32_t symbol, SymbolValues values) const {
    const Quantity size = {plan_.slots[axis.slot].type.shape[axis.axis]};
    const int64_t now = *values[symbol];
    const auto here = value_of(size, values);
    values[symbol] = now + 1;
    const auto there = value_of(size, values);
    if (!here || !there || *there <= *here || axis.wanted > kLargestSearched) return std::nullopt;
    const int64_t slope = *there - *here, gap = axis.wanted - *here;
    return now + std::max<int64_t>(1, (gap + slope - 1) / slope);
  }

  std::vector<int64_t> usual_values(uint32_t symbol, const SymbolValues& values) const {
    const int64_t now = *values[symbol];
    std::vector<int64_t> found = {1, 2 * now, 4 * now};
    std::set<int64_t> others;
    for (const auto& [other, one] : searched_)
      if (other != symbol) others.insert(*values[other]);
    for (const int64_t a : others) found.push_back(a);
    for (const int64_t a : others) {
      found.push_back(a + 1);
      found.push_back(a - 1);
      for (const int64_t b : others) {
        found.push_back(a + b);
        found.push_back(a - b);
        found.push_back(a * b);
      }
    }
    for (int64_t value = 2; value <= 64; ++value) found.push_back(value);
    for (int64_t value = 80; value <= kLargestSearched; value += value / 5) found.push_back(value);
    for (int64_t value = 128; value <= kLargestSearched; value *= 2) found.push_back(value);
    return found;
  }

  const Plan& plan_;
  std::span<const Tensor> weights_;
  const TrialRun& run_;
  const SizeTable& sizes_;
  SymbolValues first_;
  std::map<uint32_t, SearchedSize> searched_;
  std::map<uint32_t, size_t> producer_;  // by slot: its step
  size_t trials_ = 0, looked_at_ = 0, doubtful_ = 0, walked_ = 0, runs_ = 0;
};

}  // namespace

std::vector<Dims> dims_of_inputs(const Plan& plan, const SymbolValues& values) {
  std::vector<Dims> dims;
  for (const uint32_t input : plan.inputs)
    dims.push_back(plan.sizes->evaluate(plan.slots[input].type.shape, values));
  return dims;
}

SizeSearchResult search_sizes(const Plan& plan, std::span<const Tensor> weights,
                              const SymbolValues& values, std::span<const SearchedSize> searched,
                              const TrialRun& run) {
  return SizeSearch(plan, weights, values, searched, run).run();
}

}  // namespace anneal
