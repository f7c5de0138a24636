// Strides that a kernel requests for its inputs. The builder stores constants in them, and may copy
// activations to them.
#pragma once
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal {

// The inputs whose strides are free: constants, or activations as well.
enum class FreeInputs : uint8_t { kConstants, kAll };

// The strides in which a kernel wants an input that the request has in others.
struct LaidOutInput {
  size_t input = 0;  // its index in the layer
  Shape strides = {};
};
// A kernel, or why there is none, and the operands that need other strides than in its request.
struct LaidOutKernel {
  KernelResult made;
  std::vector<LaidOutInput> laid_out = {};
};

}  // namespace anneal
