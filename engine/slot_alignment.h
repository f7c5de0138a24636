// Known alignment of the slots of a plan, for kernels that read several elements at once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// For each slot the largest power of two, up to 64, that divides the address of its first element;
// 0: it is not known. Weights and arena slots begin at multiples of 64, and a view at its base plus
// its offset; so do the ports of a body on a GPU. Other memory that callers bind, or that is
// allocated during a run, has no known alignment.
std::vector<uint32_t> alignments_of(const Plan& plan, std::span<const uint32_t> slots);

}  // namespace anneal
