// The arithmetic of the fake cuBLASLt: sums in f32 or i32, rounded once.
#pragma once
#include <cstddef>
#include <vector>

#include "anneal/tests/virtual_card/cublas_lt/objects.h"

namespace anneal::fake_cublas_lt {

// Of one product of the batch; the addresses are the host's.
struct Memory {
  const std::byte *a, *b, *c, *bias;  // null: it has none
  std::byte *d, *sums;                // null: the depth is not split
};
void compute(const Problem& problem, int split, float alpha, float beta, const Memory& memory);

}  // namespace anneal::fake_cublas_lt
