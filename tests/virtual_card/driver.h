// The functions of the virtual card's libcuda.so.1, for programs that link them.
#pragma once
#include "anneal/kernels/cuda/api/cuda_api.h"

namespace anneal::virtual_card {

using namespace cuda;

extern "C" {
#define X(function, symbol, ...) CUresult symbol(__VA_ARGS__);
ANNEAL_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
}

}  // namespace anneal::virtual_card
