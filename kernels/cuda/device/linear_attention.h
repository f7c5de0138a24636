// LinearAttention: a warp takes kColumns columns of a head's state through all positions. Lane i
// keeps rows i, i + 32, ... of these columns in registers.
//
// Layer gives Index, kRows (of a lane), kColumns, kHasState, kHasDecay, kHasBeta, and
//   batch(), length(), heads(), rows(), columns()          sizes
//   readers()                                              heads of queries for one of the state
//   q(b, t, head, reader, i), k(b, t, head, i), v(b, t, head, j)
//   decay(b, t, head, i), beta(b, t, head), first(b, head, i, j), scale()
//   put_y(b, t, head, reader, j, y), put_state(b, head, i, j, s)
#pragma once

namespace linear_attention {

// sums[c] = the sum of weights[r] * state[r][c] over the rows of all lanes.
template <int rows, int columns>
__device__ inline void weigh(const f32 (&weights)[rows], const f32 (&state)[rows][columns],
                             f32 (&sums)[columns]) {
  UNROLL
  for (int c = 0; c < columns; ++c) {
    f32 sum = 0;
    UNROLL
    for (int r = 0; r < rows; ++r) sum = multiply_add(weights[r], state[r][c], sum);
    for (int distance = 16; distance > 0; distance /= 2) sum = sum + from_lane(sum, distance);
    sums[c] = sum;
  }
}

template <class Layer>
__device__ inline void run(const Layer& layer) {
  using I = typename Layer::Index;
  enum : int { kRows = Layer::kRows, kColumns = Layer::kColumns };
  const I lane = I(threadIdx.x % 32), warps = I(gridDim.x * (blockDim.x / 32));
  const I blocks = (layer.columns() + kColumns - 1) / kColumns;
  const I items = layer.batch() * layer.heads() * blocks;
  for (I item = I(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32); item < items; item += warps) {
    const I b = item / blocks / layer.heads(), head = item / blocks % layer.heads();
    const I first = item % blocks * kColumns;
    const auto row = [&](int r) { return lane + I(32 * r); };
    // Columns beyond the last one repeat it.
    const auto column = [&](int c) { return op::min(I(first + c), I(layer.columns() - 1)); };
    f32 state[kRows][kColumns] = {};
    if constexpr (Layer::kHasState) {
      UNROLL
      for (int r = 0; r < kRows; ++r) UNROLL
      for (int c = 0; c < kColumns; ++c)
        if (row(r) < layer.rows()) state[r][c] = layer.first(b, head, row(r), column(c));
    }
    for (I t = 0; t < layer.length(); ++t) {
      f32 keys[kRows], queries[kRows], sums[kColumns];
      UNROLL
      for (int r = 0; r < kRows; ++r) {
        const bool is_row = row(r) < layer.rows();
        keys[r] = is_row ? layer.k(b, t, head, row(r)) : 0.0f;
        if constexpr (Layer::kHasDecay) {
          const f32 factor = is_row ? op::exp(layer.decay(b, t, head, row(r))) : 0.0f;
          UNROLL
          for (int c = 0; c < kColumns; ++c) state[r][c] = state[r][c] * factor;
        }
      }
      if constexpr (Layer::kHasBeta) weigh(keys, state, sums);
      UNROLL
      for (int c = 0; c < kColumns; ++c) {
        f32 added = layer.v(b, t, head, column(c));
        if constexpr (Layer::kHasBeta) added = layer.beta(b, t, head) * (added - sums[c]);
        UNROLL
        for (int r = 0; r < kRows; ++r) state[r][c] = multiply_add(keys[r], added, state[r][c]);
      }
      for (I reader = 0; reader < layer.readers(); ++reader) {
        UNROLL
        for (int r = 0; r < kRows; ++r)
          queries[r] = row(r) < layer.rows() ? layer.q(b, t, head, reader, row(r)) : 0.0f;
        weigh(queries, state, sums);
        UNROLL
        for (int c = 0; c < kColumns; ++c)
          if (lane == c && first + c < layer.columns())
            layer.put_y(b, t, head, reader, first + c, sums[c] * layer.scale());
      }
    }
    UNROLL
    for (int r = 0; r < kRows; ++r) UNROLL
    for (int c = 0; c < kColumns; ++c)
      if (row(r) < layer.rows() && first + c < layer.columns())
        layer.put_state(b, head, row(r), first + c, state[r][c]);
  }
}

}  // namespace linear_attention
