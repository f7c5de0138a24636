// Distinct slices: their indices are sorted by slice, and a slice is known by the first equal one,
// its leader. compare(a, b) is negative, 0 or positive as slice a is less than, equal to or greater
// than slice b.
#pragma once

namespace unique {

// Equal slices keep their order. Places behind the last slice hold -1 and come last.
template <class Compare>
__device__ inline bool comes_before(i32 a, i32 b, Compare compare) {
  if (a < 0 || b < 0) return b < 0 && a >= 0;
  const i32 way = compare(a, b);
  return way < 0 || (way == 0 && a < b);
}

// One step of a bitonic sort of `size` places, a power of two, for all threads of the grid. The
// first step fills the places.
template <class Compare>
__device__ inline void sort_step(Out<i32> order, i64 slices, i64 size, i64 run, i64 apart,
                                 Compare compare) {
  for (i64 pair = i64(blockIdx.x) * blockDim.x + threadIdx.x; pair < size / 2;
       pair += i64(gridDim.x) * blockDim.x) {
    // `apart` is a power of two: without divisions, which call functions.
    const i64 low = 2 * pair - (pair & (apart - 1)), high = low + apart;
    const bool is_first = run == 2;
    const i32 a = is_first ? (low < slices ? i32(low) : -1) : order[low];
    const i32 b = is_first ? (high < slices ? i32(high) : -1) : order[high];
    const bool ascends = (low & run) == 0;
    const bool swaps = ascends ? comes_before(b, a, compare) : comes_before(a, b, compare);
    order[low] = swaps ? b : a;
    order[high] = swaps ? a : b;
  }
}

// How many slices are less than slice `of`, or, with `equal` = 1, not greater.
template <class Compare>
__device__ inline i64 number_below(In<i32> order, i64 slices, i32 of, i32 equal, Compare compare) {
  i64 low = 0, high = slices;
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (compare(order[middle], of) < equal)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace unique
