#include "anneal/engine/builder/inputs/size_search.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

// Steps that are looked at in all: a large model is not searched for minutes.
constexpr size_t kMostSizedSteps = 300'000;
constexpr size_t kMostTrials = 1500;
constexpr int64_t kLargestSearched = 1 << 16;

// A product of sizes that a step reads, writes or holds as contents.
using Quantity = std::vector<Size>;

class SizeSearch {
 public:
  SizeSearch(const Plan& plan, std::span<const Tensor> weights, const SymbolValues& values,
             std::span<const SearchedSize> searched)
      : plan_(plan), weights_(weights), sizes_(*plan.sizes), first_(values) {
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
    size_t progress = 0;  // steps before the complaint
    size_t changes = 0, number = 0;
    // The best last: more progress, then fewer changes, then the one that was tried first.
    bool operator<(const Trial& other) const {
      if (progress != other.progress) return progress < other.progress;
      if (changes != other.changes) return changes > other.changes;
      return number > other.number;
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
      trial.complaint = complaint->step
                            ? "step \"" + plan_.steps[*complaint->step].name + "\" (" +
                                  std::string(to_string(plan_.steps[*complaint->step].op)) +
                                  "): " + complaint->text
                            : complaint->text;
      return trial;
    }
    // Strides and places are checked by binding alone.
    try {
      bind_shapes(plan_, weights_, dims_of_inputs(plan_, trial.values));
      ++trial.progress;
    } catch (const Error& error) {
      if (error.code() == Code::kInternal) throw;
      trial.complaint = error.what();
    }
    return trial;
  }

  SizeSearchResult search(bool soft_is_fine) {
    std::priority_queue<Trial> open;
    std::set<SymbolValues> seen;
    trials_ = looked_at_ = 0;
    open.push(attempt(first_, soft_is_fine));
    seen.insert(first_);
    Trial best = open.top();
    while (!open.empty()) {
      Trial trial = open.top();
      open.pop();
      if (best < trial) best = trial;
      if (trial.complaint.empty()) break;
      if (!trial.sized.complaint) continue;
      for (SymbolValues& next : successors(trial)) {
        if (trials_ >= kMostTrials || looked_at_ >= kMostSizedSteps) break;
        if (!seen.insert(next).second) continue;
        Trial tried = attempt(std::move(next), soft_is_fine);
        const bool is_done = tried.complaint.empty();
        // A choice that comes no further is kept too: two sizes may have to change.
        if (is_done || tried.progress >= trial.progress) open.push(std::move(tried));
        if (is_done) break;
      }
    }
    return {best.values, best.complaint, std::move(best.sized.facts)};
  }

  // The quantities of a step: sizes and element counts of what it reads and writes.
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
    if (const auto step = trial.sized.complaint->step) {
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
    return {found.begin(), found.end()};
  }

  std::vector<SymbolValues> successors(const Trial& trial) const {
    const std::vector<Quantity> all = quantities(trial);
    const std::vector<uint32_t> symbols = symbols_of(all);
    std::set<int64_t> targets;
    for (const Quantity& quantity : all)
      if (const auto value = value_of(quantity, trial.values); value && *value > 0)
        targets.insert(*value);
    // First what makes two quantities equal, then other sizes.
    std::vector<std::pair<uint32_t, int64_t>> moves;
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
    const auto enlarge = [&] {
      for (SymbolValues& values : enlarged(symbols, trial.values))
        next.push_back(std::move(values));
    };
    for (size_t i = 0; i < moves.size(); ++i) {
      if (i == solved) enlarge();
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

  // All sizes of a step together, but those that are 1: a window is smaller than both axes.
  std::vector<SymbolValues> enlarged(const std::vector<uint32_t>& symbols,
                                     const SymbolValues& values) const {
    std::vector<SymbolValues> found;
    for (const int64_t factor : {2, 4, 8}) {
      SymbolValues next = values;
      bool is_within = true;
      for (const uint32_t symbol : symbols) {
        if (*next[symbol] <= 1) continue;
        *next[symbol] *= factor;
        is_within &= *next[symbol] <= std::min(searched_.at(symbol).max, kLargestSearched);
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
  const SizeTable& sizes_;
  SymbolValues first_;
  std::map<uint32_t, SearchedSize> searched_;
  std::map<uint32_t, size_t> producer_;  // by slot: its step
  size_t trials_ = 0, looked_at_ = 0;
};

}  // namespace

std::vector<Dims> dims_of_inputs(const Plan& plan, const SymbolValues& values) {
  std::vector<Dims> dims;
  for (const uint32_t input : plan.inputs)
    dims.push_back(plan.sizes->evaluate(plan.slots[input].type.shape, values));
  return dims;
}

SizeSearchResult search_sizes(const Plan& plan, std::span<const Tensor> weights,
                              const SymbolValues& values, std::span<const SearchedSize> searched) {
  return SizeSearch(plan, weights, values, searched).run();
}

}  // namespace anneal
