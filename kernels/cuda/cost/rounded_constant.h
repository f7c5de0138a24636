// Constants of f32 as a library's kernel reads them.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "anneal/core/dtype.h"

namespace anneal::cuda {

// The values in f16 or bf16. Empty if one becomes infinite or NaN, or becomes 0 and was not.
std::vector<std::byte> rounded_constant(std::span<const float> values, DataType dtype);

}  // namespace anneal::cuda
