// Inputs in strides that a kernel asks for, where they are free to choose: while an engine is built
// constants are stored so, and activations may be copied so.
#pragma once
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal {

enum class LaysOut : uint8_t { kConstants, kAll };

struct LaidOutInput {
  size_t input = 0;
  Shape strides = {};
};
struct MadeLaidOut {
  Made made;
  std::vector<LaidOutInput> laid_out = {};
};

}  // namespace anneal
