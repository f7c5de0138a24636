// The batch axis: whether a plan computes each row of a batch by itself, so that the batch may run
// in parts.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/engine/plan.h"

namespace anneal {

// By slot: whether it is a port or an operand of a step, or the base of one. The other slots of a
// plan for one device are views that no step reads.
std::vector<bool> used_slots(const Plan& plan);

// The symbol of the number of rows (BatchSplit::symbol), or why the batch has to stay whole. Proved
// of plans for the CPU alone, without control flow or sizes that depend on values, whose number of
// rows is open from 1 on.
Result<uint32_t> separable_batch(const Plan& plan);

}  // namespace anneal
