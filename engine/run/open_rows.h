// Replaces the fixed batch of a plan by a symbol, so that parts of the batch can run
// (row_slices.h).
#pragma once
#include <optional>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// The same steps and slots with a symbol in place of the number of rows, from 1 to that number:
// keeps_rows_apart(), and what it computes of a part of the batch is what `plan` computes of these
// rows. Constants that tell Reshape or Expand the number have others in their place, added to
// `weights`. Decisions are left out. Nothing, and no weight added, where that is not proved, or if
// there are fewer than three rows. REQUIRES: check_plan() accepts `plan`.
std::optional<Plan> open_rows(const Plan& plan, std::vector<Tensor>& weights);

}  // namespace anneal
