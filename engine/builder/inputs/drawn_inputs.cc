#include "anneal/engine/builder/inputs/drawn_inputs.h"

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/builder/inputs/range_search.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/plan_check.h"

namespace anneal {

std::vector<InputRange> input_ranges(const Plan& plan, std::span<const Tensor> weights,
                                     std::span<const Dims> dims, int64_t most_steps) {
  const SymbolValues symbols = solve_symbols(plan, dims);
  const SizedPlan sized = sized_plan(plan, weights, symbols);
  return RangeSearch(plan, weights, dims, symbols, sized, most_steps).run();
}

Tensor draw_input(DataType dtype, const Dims& dims, const InputRange& range, uint64_t seed,
                  bool at_end) {
  if (!is_integer(dtype)) return random_sample(dtype, dims, seed);
  if (range.role == InputRole::kMask) return mask_sample(dtype, dims, seed);
  if (range.role == InputRole::kPlace)
    return consecutive_sample(dtype, dims, range.low, range.high, seed);
  return integer_sample(dtype, dims, range.low, range.high, seed,
                        at_end                            ? RangeEnds::kHigh
                        : range.role == InputRole::kIndex ? RangeEnds::kBoth
                                                          : RangeEnds::kNone);
}

Tensor alike_input(DataType dtype, const Dims& dims, const InputRange& range, uint64_t seed,
                   double value) {
  if (is_float(dtype)) return random_sample(dtype, dims, seed);
  const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  return alike_sample(dtype, dims, std::clamp(value, low, high));
}

std::vector<Tensor> draw_inputs(const Plan& plan, std::span<const Tensor> weights,
                                std::span<const Dims> dims, uint64_t seed, bool at_end) {
  const std::vector<InputRange> ranges = input_ranges(plan, weights, dims);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Tensor* const value = default_value(plan, weights, i);
    inputs.push_back(value != nullptr && value->dims() == dims[i]
                         ? *value
                         : draw_input(plan.slots[plan.inputs[i]].type.dtype, dims[i], ranges[i],
                                      seed + i, at_end));
  }
  return inputs;
}

}  // namespace anneal
