// Functions of one number for random graphs, spelled as exporters do.
#pragma once
#include <cstdint>

#include "anneal/graph/program/program.h"

namespace anneal::testing {

// Continuous, and below about 100 where x is. REQUIRES: kind < kTameFunctions
constexpr uint32_t kTameFunctions = 12;
Reg tame_function(ProgramBuilder& builder, uint32_t kind, Reg x);
// Functions that make NaN and infinities, distinguish them from numbers, or seem to cancel; the
// first ones, which distinguish, are otherwise as continuous as the tame ones. REQUIRES: kind <
// kWildFunctions
constexpr uint32_t kAskingFunctions = 8, kWildFunctions = 32;
Reg wild_function(ProgramBuilder& builder, uint32_t kind, Reg x);

}  // namespace anneal::testing
