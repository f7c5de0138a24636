// Libraries of kernels: shared libraries with the table of engine/run/library/c_kernels.h.
#pragma once
#include <span>
#include <string>

#include "anneal/graph/op/custom_operator.h"

namespace anneal {

// The operators of all libraries, in their order. A path without a slash is one of the current
// folder. The libraries stay open until the process ends. Fails with kIo on a file that cannot be
// opened, and with kInvalidArgument on one without a table, or whose table is wrong, naming it.
CustomOperators load_kernel_libraries(std::span<const std::string> paths);

// The operators of a table, an anneal_kernels; name: that of the library, if the table has none.
// Copies the table.
CustomOperators operators_of(const void* table, const std::string& name);

}  // namespace anneal
