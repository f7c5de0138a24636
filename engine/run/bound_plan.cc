#include "anneal/engine/run/bound_plan.h"

#include <fmt/format.h>

#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

uint64_t bytes_of(const TensorView& view) {
  return static_cast<uint64_t>(extent(view.dims, view.strides)) * size_of(view.dtype);
}

// A static plan was checked when it was loaded; symbolic sizes meet reality here.
void check_inference(const Plan& plan, std::span<const Tensor> weights,
                     std::span<const Dims> dims_of_inputs, const BoundPlan& bound) {
  SizeTable sizes = *plan.sizes;
  const auto facts = infer_slots(plan, weights, dims_of_inputs, sizes);
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (!facts[i] || plan.slots[i].storage == Storage::kLate) continue;
    const Shape& inferred = facts[i]->type.shape;
    for (int axis = 0; axis < inferred.rank(); ++axis)
      if (inferred[axis].known() && inferred[axis].value() != bound.slots[i].dims[axis])
        fail(Code::kInvalidArgument,
             fmt::format("with these inputs \"{}\" would be {} instead of {}", plan.slots[i].name,
                         sizes.text(inferred), to_text(bound.slots[i].dims)));
  }
}

void check_views(const Plan& plan, const BoundPlan& bound) {
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.storage != Storage::kView) continue;
    const int64_t offset = plan.sizes->evaluate(slot.base_offset, bound.symbols);
    const TensorView &view = bound.slots[i], &base = bound.slots[slot.base];
    if (offset < 0 || offset > extent(base.dims, base.strides) - extent(view.dims, view.strides))
      fail(Code::kInvalidArgument,
           fmt::format("with these inputs \"{}\" reaches beyond its memory", slot.name));
  }
}

void place_arena(const Plan& plan, bool fixed, BoundPlan& bound) {
  bound.arena_offsets.assign(plan.slots.size(), 0);
  bound.arena_bytes = plan.arena_bytes;
  Placement placement;
  if (!fixed) {
    placement = place(arena_lifetimes(plan, bound));
    bound.arena_bytes = placement.total;
  }
  size_t buffer = 0;
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (plan.slots[i].storage == Storage::kArena)
      bound.arena_offsets[i] = fixed ? plan.slots[i].offset : placement.offsets[buffer++];
}

}  // namespace

std::vector<Lifetime> arena_lifetimes(const Plan& plan, const BoundPlan& bound) {
  std::vector<Lifetime> lifetimes;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.storage == Storage::kArena)
      lifetimes.push_back({bytes_of(bound.slots[i]), slot.first_step, slot.last_step});
  }
  return lifetimes;
}

BoundPlan bind_shapes(const Plan& plan, std::span<const Tensor> weights,
                      std::span<const Dims> dims_of_inputs, const SymbolValues& outer) {
  BoundPlan bound;
  bound.symbols = solve_symbols(plan, dims_of_inputs, outer);
  bound.slots.resize(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    TensorView& view = bound.slots[i];
    view.dtype = slot.type.dtype;
    if (slot.storage == Storage::kLate) continue;
    view.dims = plan.sizes->evaluate(slot.type.shape, bound.symbols);
    view.strides = plan.sizes->evaluate(slot.strides, bound.symbols);
    static_cast<void>(extent(view.dims, view.strides));
  }
  const bool fixed = is_static(plan);
  if (!fixed) {
    check_inference(plan, weights, dims_of_inputs, bound);
    check_views(plan, bound);
  }
  place_arena(plan, fixed, bound);
  return bound;
}

}  // namespace anneal
