// Running sums and products along the lines of a tensor: element i of a line is the combination of
// all elements up to i. A line of one thread is combined in its order. The threads of a warp
// combine 32 neighbours by a tree, and what the warps have is combined in the order of the line.
#pragma once

namespace scan {

// before[e]: what all threads hold in own[0], ..., own[e - 1] and the threads before this one in
// own[e], combined. The result: all elements of the line, combined. start: the neutral element.
// `threads` share a line: a warp, or a block, for which `partial` has `each` elements for every
// warp.
template <int threads, int each, class T, class Combine>
__device__ inline T before_threads(const T (&own)[each], T start, SharedArray<T> partial,
                                   Combine combine, T (&before)[each]) {
  constexpr int kWarps = threads / 32;
  const i32 lane = i32(threadIdx.x) % 32, warp = i32(threadIdx.x) / 32 % kWarps;
  T sums[each];
  UNROLL
  for (int e = 0; e < each; ++e) {
    sums[e] = own[e];
    for (int distance = 1; distance < 32; distance *= 2) {
      const T other = __shfl_up_sync(0xffffffffu, sums[e], distance);
      if (lane >= distance) sums[e] = combine(other, sums[e]);
    }
    const T left = __shfl_up_sync(0xffffffffu, sums[e], 1);
    before[e] = lane == 0 ? start : left;
  }
  if constexpr (kWarps > 1) {
    __syncthreads();  // what was in `partial` has been read
    UNROLL
    for (int e = 0; e < each; ++e)
      if (lane == 31) partial[e * kWarps + warp] = sums[e];
    __syncthreads();
  }
  T all = start;
  UNROLL
  for (int e = 0; e < each; ++e) {
    for (i32 i = 0; i < kWarps; ++i) {
      T one;
      if constexpr (kWarps == 1)
        one = __shfl_sync(0xffffffffu, sums[e], 31);
      else
        one = partial[e * kWarps + i];
      if (i == warp) before[e] = combine(all, before[e]);
      all = combine(all, one);
    }
  }
  return all;
}

// read(i) gives element i of the line, and write(i, value) takes what the elements up to it are
// together, or those before it. `threads` share the line, and each reads `each` elements at a time.
template <int threads, int each, bool reverse, bool exclusive, class I, class T, class Combine,
          class Read, class Write>
__device__ inline void along(I length, T start, SharedArray<T> partial, Combine combine, Read read,
                             Write write) {
  const I thread = threads == 1 ? 0 : I(threadIdx.x) % threads;
  T carry = start;
  for (I first = 0; first < length; first += threads * each) {
    const auto place = [&](int e) { return first + e * threads + thread; };
    T own[each], before[each];
    UNROLL
    for (int e = 0; e < each; ++e)
      own[e] = place(e) < length ? read(reverse ? length - 1 - place(e) : place(e)) : start;
    if constexpr (threads == 1) {
      UNROLL
      for (int e = 0; e < each; ++e) {
        before[e] = carry;
        carry = combine(carry, own[e]);
      }
    } else {
      const T all = before_threads<threads>(own, start, partial, combine, before);
      UNROLL
      for (int e = 0; e < each; ++e) before[e] = combine(carry, before[e]);
      carry = combine(carry, all);
    }
    UNROLL
    for (int e = 0; e < each; ++e)
      if (place(e) < length)
        write(reverse ? length - 1 - place(e) : place(e),
              exclusive ? before[e] : combine(before[e], own[e]));
  }
}

}  // namespace scan
