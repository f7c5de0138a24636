// The CUDA backend: own kernels for some ops, made on any machine, run on a card or emulated.
#pragma once
#include "anneal/kernels/kernel.h"

namespace anneal {

const Backend& cuda_backend();
bool is_cuda_target(std::string_view target);  // "sm_90", "cuda:0", "emulated"

}  // namespace anneal
