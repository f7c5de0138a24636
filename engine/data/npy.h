// NumPy's .npy: one array. Reads format versions 1 to 3, either byte order, C and Fortran order,
// the types that Anneal has; nothing pickled.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

bool is_npy(std::span<const std::byte> bytes);  // by the first six bytes
// Fails with kInvalidArgument.
Tensor read_npy(std::span<const std::byte> bytes);
// Version 1.0, little-endian, C order. NumPy has no bf16: it is written as f32.
std::vector<std::byte> write_npy(const ConstTensorView& view);

}  // namespace anneal
