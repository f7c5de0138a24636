// The idx format of the MNIST files: a big-endian header, then elements in row-major order.
#pragma once
#include <cstddef>
#include <span>

#include "anneal/core/tensor.h"

namespace anneal {

// Fails with kInvalidArgument.
Tensor read_idx(std::span<const std::byte> bytes);

}  // namespace anneal
