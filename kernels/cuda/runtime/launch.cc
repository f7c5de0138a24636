#include "anneal/kernels/cuda/runtime/launch.h"

namespace anneal::cuda {

void* const* Arguments::pointers() {
  for (size_t i = 0; i < count_; ++i) pointers_[i] = &values_[i];
  // A driver reads as many as the function has: if one is missing, it meets no older pointer.
  if (count_ < kMost) pointers_[count_] = nullptr;
  return pointers_.data();
}

}  // namespace anneal::cuda
