// Scatters: a copy of a tensor, and updates of its elements at positions that indices name.
//
// The output consists of lines: a line has one element for each position that indices can name. All
// updates of an element are updates of its line. They are applied in their order, so results are
// those of a loop over all updates: the last of several updates of an element remains, and a sum of
// floats is rounded as often and in the same order.
//
// No element is written by two threads: line `l` belongs to `parts` threads, and a thread to the
// positions p with p % parts == part. It copies their elements, reads all indices of the line, and
// applies the updates of its own positions. parts: a power of two.
//
// Scatter gives Index, kPartsFirst (whether the threads of a line are neighbours), and
//   lines(), positions()      their numbers
//   copy(line, position)      the element before all updates
//   updates(line)             their number
//   position(line, n)         that update n names; -1: none, and it is left out
//   update(line, position, n) applies update n
#pragma once

namespace indexing {

template <class Scatter>
__device__ void scatter(const Scatter& s, i64 parts) {
  using I = typename Scatter::Index;
  enum : int { kAtOnce = 4 };  // indices in flight: read before the first is used
  const I lines = s.lines(), positions = s.positions();
  const i64 items = i64(lines) * parts, threads = i64(gridDim.x) * blockDim.x;
  for (i64 item = i64(blockIdx.x) * blockDim.x + threadIdx.x; item < items; item += threads) {
    const I line = I(Scatter::kPartsFirst ? item / parts : item % lines);
    const I part = I(Scatter::kPartsFirst ? item % parts : item / lines);
    const I own = I(parts - 1);
    for (I position = part; position < positions; position += I(parts)) s.copy(line, position);
    const I updates = s.updates(line);
    for (I n = 0; n < updates; n += kAtOnce) {
      I at[kAtOnce];
      UNROLL
      for (int k = 0; k < kAtOnce; ++k) at[k] = n + k < updates ? s.position(line, n + k) : I(-1);
      UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (at[k] >= 0 && (at[k] & own) == part) s.update(line, at[k], n + k);
    }
  }
}

}  // namespace indexing
