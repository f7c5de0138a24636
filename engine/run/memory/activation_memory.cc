#include "anneal/engine/run/memory/activation_memory.h"

#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {

namespace {

void add(const Plan& plan, std::span<const Tensor> weights, const SymbolValues& best,
         bool is_outermost, ActivationMemory& memory) {
  std::vector<Dims> dims;
  for (const uint32_t input : plan.inputs)
    dims.push_back(plan.sizes->evaluate(plan.slots[input].type.shape, best));
  const BoundPlan bound = bind_shapes(plan, weights, dims, is_outermost ? SymbolValues() : best);
  for (size_t device = 0; device < plan.devices.size(); ++device) {
    memory.arena_bytes += bound.arena_bytes[device];
    memory.live_bytes += most_live_bytes(arena_lifetimes(plan, bound, device));
  }
  for (size_t i = 0; is_outermost && i < plan.slots.size(); ++i)
    if (plan.slots[i].storage == Storage::kInput || plan.slots[i].storage == Storage::kOutput)
      memory.port_bytes += bytes_of(bound.slots[i]);
  if (memory.fullest_step.empty()) memory.fullest_step = fullest_step(plan, bound);
  memory.at_best |= !is_static(plan) && !fixed_batch_dims(plan);
  for (const Plan& body : plan.bodies) add(body, weights, best, false, memory);
}

}  // namespace

ActivationMemory activation_memory(const Plan& plan, std::span<const Tensor> weights) {
  SymbolValues best;
  for (const SizeSymbol& symbol : plan.sizes->symbols()) best.emplace_back(symbol.bounds.opt);
  ActivationMemory memory;
  add(plan, weights, best, true, memory);
  return memory;
}

}  // namespace anneal
