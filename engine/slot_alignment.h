// Known alignment of the slots of a plan, for kernels that read several elements at once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// For each slot the largest power of two, up to 64, that divides the address of its first element;
// 0: it is not known. Weights, arena slots, late slots and the ports of a body on a GPU begin at
// multiples of 64, and a view at its base plus its offset. Memory that callers bind has no known
// alignment.
std::vector<uint32_t> alignments_of(const Plan& plan, std::span<const uint32_t> slots);

}  // namespace anneal
