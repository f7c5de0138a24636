// The last decisions about memory: who shares, how long each buffer lives, where it lies.
#pragma once
#include "anneal/engine/plan.h"

namespace anneal {

// A Pointwise step whose input is read for the last time writes over it. Kernels of Pointwise are
// required to work on an output that is the very view of an input.
void share_in_place(Plan& plan);

// first_step and last_step of every arena slot; then, if all sizes are known, offsets and
// arena_bytes.
void place_arena(Plan& plan);

}  // namespace anneal
