// Selections: how many elements are taken, the values alone tell. One launch counts what each group
// takes, and another writes what was taken behind what earlier groups have.
#pragma once

namespace select {

// The sum of read(i) for i in [begin, end), for each of 256 threads.
template <class I, class Read>
__device__ inline i64 sum(I begin, I end, SharedArray<i64> partial, Read read) {
  i64 own = 0;
  for (I i = begin + I(threadIdx.x); i < end; i += 256) own += read(i);
  return over_row<256>(own, partial, Add());
}

// write(place, i) for each i in [begin, end) that is taken; the first one's place is `first`.
// `each` is the number of elements that a thread looks at at once.
template <int each, class I, class Takes, class Write>
__device__ inline void write_taken(I begin, I end, i64 first, SharedArray<i64> partial, Takes takes,
                                   Write write) {
  scan::along<256, each, false, true>(
      I(end - begin), i64(0), partial, Add(), [&](I i) { return i64(takes(begin + i) ? 1 : 0); },
      [&](i64 i, i64 earlier) {
        const I at = begin + I(i);
        if (takes(at)) write(first + earlier, at);
      });
}

}  // namespace select
