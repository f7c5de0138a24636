// Known alignment of the slots of a plan, for kernels that read several elements at once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// Of each slot the largest power of two, up to 64, that divides the address of its first element;
// 0: it is not known. Weights and what lies in an arena begin at multiples of 64, and a view where
// its base does and its offset says. What callers bind, and what is allocated during a run, lies
// anywhere.
std::vector<uint32_t> alignments_of(const Plan& plan, std::span<const uint32_t> slots);

}  // namespace anneal
