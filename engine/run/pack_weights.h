// Packing of weights at build instead of at load.
#pragma once
#include "anneal/engine/plan.h"

namespace anneal {

// Fills file.packed with the weights as the CPU kernels of its plans pack them on this machine, by
// the team's threads. Plans for instructions that the machine lacks get no packed weights.
void pack_weights(EngineFile& file, ThreadTeam& team);

}  // namespace anneal
