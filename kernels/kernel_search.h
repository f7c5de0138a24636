// The walk through a backend's kernels for an op.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal {

// The first kernel of the op that `refusal`, called in order of preference, gives an empty reason
// for; null if there is none. Adds the others, with their reasons, to `refused`.
const KernelEntry* first_accepting(const Backend& backend, size_t op, const KernelOptions& options,
                                   const std::function<std::string(const KernelEntry&)>& refusal,
                                   std::vector<std::pair<std::string_view, std::string>>& refused);

}  // namespace anneal
