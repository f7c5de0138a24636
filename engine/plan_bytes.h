// Plan <-> bytes of one section of an engine file. Layout: docs/plan_format.md.
#pragma once
#include "anneal/core/bytes.h"
#include "anneal/engine/plan.h"

namespace anneal {

void save(ByteWriter& to, const Plan& plan);
// Believes no count, enumerator or index of a size, slot or device; what the plan means is checked
// by check_plan().
Plan load_plan(ByteReader& from);

}  // namespace anneal
