#include "anneal/cli/activation_memory.h"

#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/bound_plan.h"

namespace anneal {

std::optional<ActivationMemory> activation_memory(const Plan& plan,
                                                  std::span<const Tensor> weights) {
  std::vector<std::optional<int64_t>> best;
  for (const SizeSymbol& symbol : plan.sizes.symbols()) best.emplace_back(symbol.bounds.opt);
  try {
    std::vector<Dims> dims;
    for (const uint32_t input : plan.inputs)
      dims.push_back(plan.sizes.evaluate(plan.slots[input].type.shape, best));
    const BoundPlan bound = bind_shapes(plan, weights, dims);
    return ActivationMemory{bound.arena_bytes, most_live_bytes(arena_lifetimes(plan, bound)),
                            !is_static(plan)};
  } catch (const Error& error) {
    if (error.code() != Code::kInvalidArgument) throw;
    return std::nullopt;
  }
}

}  // namespace anneal
