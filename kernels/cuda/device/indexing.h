// Positions that indices name.
#pragma once

namespace indexing {

// The position of an axis that an index names, from the end if it is negative; -1 if there is none.
__device__ inline i64 position(i64 index, i64 size) {
  const i64 from_front = index < 0 ? index + size : index;
  return from_front < 0 || from_front >= size ? i64(-1) : from_front;
}
// The same, or the nearest position, so that a read stays within the tensor. REQUIRES: size > 0.
__device__ inline i64 nearest(i64 index, i64 size) {
  const i64 from_front = index < 0 ? index + size : index;
  return from_front < 0 ? i64(0) : from_front >= size ? size - 1 : from_front;
}

}  // namespace indexing
