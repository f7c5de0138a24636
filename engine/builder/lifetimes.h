// The last decisions about memory: sharing, lifetime and address of each buffer.
#pragma once
#include "anneal/engine/plan.h"

namespace anneal {

// A step whose input is read for the last time writes over it, where Kernel::launch() says that it
// can: so that elementwise layers, residual sums and scatters need no memory of their own.
void share_in_place(Plan& plan);

// Plan::updated_ports: the state of a model, such as past keys, which a run may update in place.
void find_updated_ports(Plan& plan);

// first_step and last_step of every arena slot; then, if all sizes are known, offsets and
// arena_bytes.
void place_arena(Plan& plan);

}  // namespace anneal
