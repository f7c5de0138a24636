// Whether a batch may run in parts (engine/run/context/batch_split.h), which the plan records. A
// plan for a fixed batch gets a symbol in place of the number of rows for that.
#pragma once
#include "anneal/core/result.h"
#include "anneal/engine/plan.h"

namespace anneal {

// The same steps and slots with a symbol in place of the number of rows, from 1 to that number, and
// batch_split: its results for a part of the batch equal those of `plan` for these rows. Constants
// with the number of rows in Reshape or Expand are replaced, in the pool of `file`. Refuses if that
// equality is not proved, where a kernel needs the number, or if there are fewer than three rows;
// then no weight is added. REQUIRES: check_plan() accepts `plan`.
Result<Plan> make_batch_dynamic(const Plan& plan, EngineFile& file);

// Sets plan.batch_split if the batch may run in parts, and records that, or the reason against it.
// The plan of a fixed batch becomes that of make_batch_dynamic(). REQUIRES: as there.
void decide_batch_split(Plan& plan, EngineFile& file);

}  // namespace anneal
