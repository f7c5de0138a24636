#include "anneal/kernels/cuda/runtime/launch.h"

namespace anneal::cuda {

void* const* Arguments::pointers() {
  for (size_t i = 0; i < count_; ++i) pointers_[i] = &values_[i];
  return pointers_.data();
}

}  // namespace anneal::cuda
