// Shared parts of the kernels of Recurrent.
#pragma once
#include <cstdint>

#include "anneal/core/tensor.h"
#include "anneal/graph/op/ops.h"

namespace anneal::cpu {

inline int64_t gates_of(RecurrentKind kind) {
  return kind == RecurrentKind::kRnn ? 1 : kind == RecurrentKind::kGru ? 3 : 4;
}

// The length for one element of the batch. Fails with kInvalidArgument if it is not in 0..steps.
int64_t sequence_length(const TensorView& lengths, int64_t batch, int64_t steps);

}  // namespace anneal::cpu
