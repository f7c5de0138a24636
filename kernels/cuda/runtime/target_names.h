// Names of the targets of the CUDA backend.
#pragma once
#include <string_view>

namespace anneal {

bool is_cuda_target(std::string_view target);  // "sm_90", "cuda:0", "emulated"

// The emulated device, counting what functions do. It runs the plans of "emulated", more slowly.
inline constexpr std::string_view kCountingTarget = "emulated:counting";

}  // namespace anneal
