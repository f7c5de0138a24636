// Packing of weights at build instead of at load.
#pragma once
#include "anneal/engine/plan.h"

namespace anneal {

// Fills file.packed with what the CPU kernels of its plans make of their weights on this machine,
// by as many threads as the team has. Plans for instructions that it lacks get none.
void pack_weights(EngineFile& file, ThreadTeam& team);

}  // namespace anneal
