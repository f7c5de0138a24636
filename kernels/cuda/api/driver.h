// CUDA's driver API as a table: filled from libcuda.so.1, or with the emulated device's functions.
#pragma once
#include <string>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/api/cuda_api.h"

namespace anneal::cuda {

struct Driver {
#define X(function, symbol, ...) CUresult (*function)(__VA_ARGS__) = nullptr;
  ANNEAL_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
};

// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
std::string error_text(const Driver& driver, CUresult result);

using anneal::check;
// Fails with kDevice: "WHAT: CUDA_ERROR_...".
void check(const Driver& driver, CUresult result, std::string_view what);

// After these the context is of no use any more: every later call gives the same error.
bool is_sticky(CUresult result);

}  // namespace anneal::cuda
