// Sizes of inputs: what was given or declared, else small ones that the layers accept.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/builder/inputs/size_search.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

constexpr int64_t kLength = 8;  // tokens, frames
constexpr int64_t kPictureSize = 64;
constexpr int64_t kLargerFactor = 4;

bool is_left_open(const Bounds& bounds) { return bounds == Bounds{.opt = bounds.opt}; }

bool is_picture(const Shape& shape) {
  return shape.rank() >= 4 && std::ranges::all_of(shape.begin() + 2, shape.end(),
                                                  [](Size size) { return !size.known(); });
}

// Whether the size counts iterations: those of a Scan, or the time of a recurrent layer.
std::vector<bool> are_iterated(const Plan& plan) {
  std::vector<bool> iterated(plan.sizes->symbols().size());
  const auto add = [&](const Step& step, size_t input, int64_t axis) {
    if (input >= step.inputs.size() || step.inputs[input] == kNoSlot) return;
    const Shape& shape = plan.slots[step.inputs[input]].type.shape;
    if (axis < 0 || axis >= shape.rank() || shape[static_cast<int>(axis)].is_unknown()) return;
    for (const uint32_t symbol : plan.sizes->symbols_in(shape[static_cast<int>(axis)]))
      iterated[symbol] = true;
  };
  for (const Step& step : plan.steps) {
    if (std::holds_alternative<Recurrent>(step.op)) add(step, 0, 0);
    if (std::holds_alternative<LinearAttention>(step.op)) add(step, 0, 1);
    if (const auto* scan = std::get_if<Scan>(&step.op))
      for (size_t i = 0; i < scan->axes.size(); ++i)
        add(step, static_cast<size_t>(scan->carried) + i, scan->axes[i]);
  }
  return iterated;
}

// By symbol: a size to begin with, where the build declared none. The first axis counts samples.
std::vector<int64_t> likely_sizes(const Plan& plan) {
  const SizeTable& sizes = *plan.sizes;
  std::vector<int64_t> likely(sizes.symbols().size(), 1);
  std::vector<bool> is_alone(likely.size(), true), is_first(likely.size());
  for (const uint32_t input : plan.inputs) {
    const Slot& slot = plan.slots[input];
    const Shape& shape = slot.type.shape;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis].known() || shape[axis].is_unknown()) continue;
      for (const uint32_t symbol : sizes.symbols_in(shape[axis])) {
        if (axis > 0)
          likely[symbol] = std::max(
              likely[symbol],
              is_float(slot.type.dtype) && is_picture(shape) && axis >= 2 ? kPictureSize : kLength);
        if (shape.rank() > 1) is_alone[symbol] = false;
        if (axis == 0 && shape.rank() > 1 && sizes.symbol_index(shape[axis]))
          is_first[symbol] = true;
      }
    }
  }
  for (size_t symbol = 0; symbol < likely.size(); ++symbol)
    if (is_alone[symbol] || is_first[symbol]) likely[symbol] = is_first[symbol] ? 1 : kLength;
  return likely;
}

class InputDims {
 public:
  InputDims(const Plan& plan, std::span<const Tensor> weights, SizeChoice choice,
            std::span<const std::optional<Dims>> given, const TrialRun& run)
      : plan_(plan), weights_(weights), choice_(choice), given_(given), run_(run) {}

  std::vector<Dims> choose() {
    values_.resize(plan_.sizes->symbols().size());
    learn_given();
    const std::vector<bool> solvable = solvable_symbols(plan_);
    std::vector<int64_t> likely = likely_sizes(plan_);
    const int64_t factor = choice_ == SizeChoice::kLarger ? kLargerFactor : 1;
    if (choice_ == SizeChoice::kLarger) {
      const std::vector<bool> iterated = are_iterated(plan_);
      for (size_t i = 0; i < likely.size(); ++i)
        if (iterated[i]) likely[i] = std::max(likely[i], kLength);
    }
    for (int64_t& size : likely) size *= factor;
    std::vector<SearchedSize> open, declared;
    for (uint32_t i = 0; i < values_.size(); ++i) {
      if (values_[i] || !solvable[i]) continue;
      const Bounds& bounds = plan_.sizes->symbols()[i].bounds;
      if (is_left_open(bounds)) {
        open.push_back({i, std::max(likely[i], factor * bounds.opt), 1, bounds.max});
      } else {
        const int64_t start = choice_ == SizeChoice::kOptimal    ? bounds.opt
                              : choice_ == SizeChoice::kSmallest ? bounds.min
                                                                 : bounds.max;
        declared.push_back({i, start, bounds.min, bounds.max});
      }
    }
    SymbolValues values = values_;
    for (const SearchedSize& one : declared) values[one.symbol] = one.start;
    start_small(values, open, likely);
    if (open.empty() && declared.empty()) {
      std::vector<Dims> dims = with_given(dims_of_inputs(plan_, values));
      if (run_) run_(dims);  // the only choice; values may differ
      return dims;
    }
    SizeSearchResult found = search_sizes(plan_, weights_, values, open, run_);
    if (!(found.complaint.empty() && found.doubt.empty()) && !declared.empty()) {
      std::vector<SearchedSize> all = open;
      all.insert(all.end(), declared.begin(), declared.end());
      SizeSearchResult other = search_sizes(plan_, weights_, values, all, run_);
      if (other.complaint.empty() && (other.doubt.empty() || !found.complaint.empty()))
        found = std::move(other);
    }
    if (!found.complaint.empty() && !binds_at_opt(values, open, found)) refuse(found);
    return with_given(dims_of_inputs(plan_, found.values));
  }

 private:
  void learn_given() {
    for (size_t i = 0; i < plan_.inputs.size() && i < given_.size(); ++i) {
      if (!given_[i]) continue;
      const Shape& shape = plan_.slots[plan_.inputs[i]].type.shape;
      for (int axis = 0; axis < std::min(shape.rank(), given_[i]->rank()); ++axis)
        if (const auto symbol = plan_.sizes->symbol_index(shape[axis]);
            symbol && (*given_[i])[axis] >= 0)
          values_[*symbol] = (*given_[i])[axis];
    }
    const auto& split = plan_.batch_split;
    if (split && split->is_fixed)
      values_[split->symbol] = plan_.sizes->symbols()[split->symbol].bounds.max;
  }

  // The importer may have chosen larger sizes than are needed.
  void start_small(SymbolValues values, std::vector<SearchedSize>& open,
                   const std::vector<int64_t>& likely) const {
    std::vector<SearchedSize> small = open;
    for (SearchedSize& one : small) {
      one.start = std::clamp(likely[one.symbol], one.min, one.max);
      values[one.symbol] = one.start;
    }
    const auto complaint = sized_plan(plan_, weights_, values).complaint;
    if (!complaint || complaint->short_axis) open = std::move(small);
  }

  // Binding has the last word: it takes the sizes that the importer chose.
  bool binds_at_opt(SymbolValues values, const std::vector<SearchedSize>& open,
                    SizeSearchResult& found) const {
    for (const SearchedSize& one : open)
      values[one.symbol] = plan_.sizes->symbols()[one.symbol].bounds.opt;
    try {
      bind_shapes(plan_, weights_, dims_of_inputs(plan_, values));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      return false;
    }
    found.values = std::move(values);
    return true;
  }

  std::vector<Dims> with_given(std::vector<Dims> dims) const {
    for (size_t i = 0; i < dims.size() && i < given_.size(); ++i) {
      if (!given_[i]) continue;
      Dims wanted = *given_[i];
      for (int axis = 0; axis < std::min(wanted.rank(), dims[i].rank()); ++axis)
        if (wanted[axis] < 0) wanted[axis] = dims[i][axis];
      dims[i] = wanted;
    }
    return dims;
  }

  [[noreturn]] void refuse(const SizeSearchResult& found) const {
    std::string inputs;
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const Slot& slot = plan_.slots[plan_.inputs[i]];
      if (known(port_shape(plan_, plan_.inputs[i]))) continue;
      inputs += fmt::format("{}\"{}\" {}", inputs.empty() ? "" : ", ", slot.name,
                            plan_.sizes->text(slot.type.shape));
    }
    std::string tried;
    try {
      for (const Dims& dims : with_given(dims_of_inputs(plan_, found.values)))
        tried += (tried.empty() ? "" : ", ") + to_string(dims);
    } catch (const Error&) {
      tried = "none";
    }
    fail(ErrorCode::kInvalidArgument,
         fmt::format("no sizes were found that all layers accept. Open inputs: {}. Closest were "
                     "{}: {}. Give sizes with --shapes",
                     inputs, tried, found.complaint));
  }

  const Plan& plan_;
  std::span<const Tensor> weights_;
  SizeChoice choice_;
  std::span<const std::optional<Dims>> given_;
  const TrialRun& run_;
  SymbolValues values_;
};

}  // namespace

std::vector<Dims> choose_input_dims(const Plan& plan, std::span<const Tensor> weights,
                                    SizeChoice sizes, std::span<const std::optional<Dims>> given,
                                    const TrialRun& run) {
  return InputDims(plan, weights, sizes, given, run).choose();
}

}  // namespace anneal
