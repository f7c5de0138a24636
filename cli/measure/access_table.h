// Tables of counted memory accesses: the lines with the most requests, and the number of each warp
// operation.
#pragma once
#include <string>
#include <vector>

#include "anneal/cli/output/json_file.h"
#include "anneal/engine/run/counted_steps.h"

namespace anneal {

// For one step; counts of `runs` runs are shown per run. Lines with less than a
// hundredth of the function's sectors and wavefronts are left out unless they are wasteful, which
// a star marks.
std::string access_text(const std::vector<FunctionCounts>& functions, int runs);
Json access_json(const std::vector<FunctionCounts>& functions, int runs);  // all lines

}  // namespace anneal
