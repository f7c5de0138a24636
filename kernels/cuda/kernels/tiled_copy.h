// Copies between tensors that are dense along different axes, by way of shared memory.
#pragma once
#include <string_view>

#include "anneal/kernels/cuda/text/operand_views.h"

namespace anneal::cuda {

// Of the only op input as it is seen, which has the output's axes, to the output.
KernelResult make_tiled_copy(OperandViews seen, std::string_view family);

}  // namespace anneal::cuda
