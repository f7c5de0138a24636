// A plan with actual sizes, which a context computes when the shapes of its inputs change.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/memory_planner.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op/infer.h"

namespace anneal {

struct BoundPlan {
  SymbolValues symbols;
  std::vector<TensorView> slots;  // dims and strides; no data; late ones are empty
  // By slot, in bytes: of an arena base from the arena's begin, of a view from its base.
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> arena_bytes;  // by device
  std::vector<Fact> facts;            // by slot: what inference found; of a static plan none
  // By slot: whether the dims or strides are others than in the binding that this one began as.
  std::vector<bool> changed;
};

// From the view's first element to the end of its last one.
uint64_t bytes_of(const TensorView& view);

// Fails with kInvalidArgument as solve_symbols() does, and where sizes that inference took as equal
// turn out to differ. outer: for a body, the values of symbols known outside; may be empty. before:
// a binding of the same plan; steps with the same sizes as there are not inferred again.
BoundPlan bind_shapes(const Plan& plan, std::span<const Tensor> weights,
                      std::span<const Dims> dims_of_inputs, const SymbolValues& outer = {},
                      BoundPlan before = {});

size_t held_bytes(const BoundPlan& bound);  // of its vectors

// "step \"conv1\" (Conv)": at which most bytes of the first device's arena are in use.
std::string fullest_step(const Plan& plan, const BoundPlan& bound);

// By device: the arena of a plan whose callers can bind one shape only; else empty.
std::vector<uint64_t> fixed_arena_bytes(const Plan& plan, std::span<const Tensor> weights);

// The buffers of one device's arena: what bind_shapes() placed, in the order of their slots.
std::vector<Lifetime> arena_lifetimes(const Plan& plan, const BoundPlan& bound, size_t device);

}  // namespace anneal
