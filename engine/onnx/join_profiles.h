// One engine file of the plans that were built for several profiles.
#pragma once
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// by_profile: of one model, with the same targets. Equal weights are stored once, of one name if
// weights are apart. Fails with kInvalidArgument, naming the input, if the profiles give it
// different numbers of axes.
EngineFile join_profiles(std::vector<EngineFile> by_profile);

}  // namespace anneal
