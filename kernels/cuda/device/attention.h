// Attention of a tile of rows of q: keys come by tiles to shared memory, and each tile of scores is
// folded at once into sums that are scaled to the largest score so far.
//
// 16 x 16 threads; thread (down, across) has the rows kRows * down + r of the tile, and of keys and
// columns those that are `across` modulo 16, so that the 16 threads of a row lie in one warp.
#pragma once

namespace attention {

constexpr int kSide = 16, kThreads = kSide * kSide;

struct Sizes {
  i64 heads, groups, queries, keys;
};
struct Strides {
  i64 batch, head, row, column;
};

// Of the 16 threads that share a row.
template <class Combine>
__device__ inline f32 over_row(f32 value, Combine combine) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// A tile of lines, `pitch` apart in shared memory; lines beyond `count` are 0.
template <int lines, int length, class T>
__device__ inline void fetch(In<T> from, i64 line, i64 column, i64 count, Shared<f32> to,
                             int pitch) {
  for (int i = threadIdx.x; i < lines * length; i += kThreads) {
    const int at = i / length, in_line = i % length;
    f32 value = 0;
    if (at < count) value = op::widen(from[at * line + in_line * column]);
    to[at * pitch + in_line] = value;
  }
}

template <int rows, int keys, int depth, int width>
struct Tile {
  static constexpr int kRows = rows / kSide, kKeys = keys / kSide;
  static constexpr int kColumns = (width + kSide - 1) / kSide;
  static constexpr int kPitch = depth + 1, kWeightPitch = keys + 1;
  static constexpr int kLine = depth + 1 > width ? depth + 1 : width;  // of a key or a value
};

// queries, lines and weights: rows * kPitch, keys * kLine and rows * kWeightPitch elements.
template <int rows, int keys, int depth, int width, bool hidden_is_zero, class T, class Score,
          class Store>
__device__ inline void run(In<T> q, In<T> k, In<T> v, const Strides& of_q, const Strides& of_k,
                           const Strides& of_v, const Sizes& s, const Score& score,
                           const Store& store, Shared<f32> queries, Shared<f32> lines,
                           Shared<f32> weights) {
  using Of = Tile<rows, keys, depth, width>;
  const int across = threadIdx.x % kSide, down = threadIdx.x / kSide;
  const i64 tiles = (s.queries + rows - 1) / rows;
  const i64 first = i64(blockIdx.x) % tiles * rows;
  const i64 head = i64(blockIdx.x) / tiles % s.heads, batch = i64(blockIdx.x) / tiles / s.heads;
  const i64 group = head / (s.heads / s.groups);
  q = q + (batch * of_q.batch + head * of_q.head + first * of_q.row);
  k = k + (batch * of_k.batch + group * of_k.head);
  v = v + (batch * of_v.batch + group * of_v.head);

  fetch<rows, depth>(q, of_q.row, of_q.column, s.queries - first, queries, Of::kPitch);
  f32 sums[Of::kRows][Of::kColumns] = {}, most[Of::kRows], total[Of::kRows] = {};
  for (int r = 0; r < Of::kRows; ++r) most[r] = -op::inf_f32();
  for (i64 start = 0; start < s.keys; start += keys) {
    const i64 left = s.keys - start;
    __syncthreads();  // what was in `lines` has been read
    fetch<keys, depth>(k + start * of_k.row, of_k.row, of_k.column, left, lines, Of::kPitch);
    __syncthreads();
    f32 scores[Of::kRows][Of::kKeys] = {};
    for (int d = 0; d < depth; ++d) {
      f32 of_row[Of::kRows], of_key[Of::kKeys];
#pragma unroll
      for (int r = 0; r < Of::kRows; ++r) {
        const f32 value = queries[(Of::kRows * down + r) * Of::kPitch + d];
        of_row[r] = value;
      }
#pragma unroll
      for (int c = 0; c < Of::kKeys; ++c) {
        const f32 value = lines[(across + kSide * c) * Of::kPitch + d];
        of_key[c] = value;
      }
#pragma unroll
      for (int r = 0; r < Of::kRows; ++r)
#pragma unroll
        for (int c = 0; c < Of::kKeys; ++c) scores[r][c] += of_row[r] * of_key[c];
    }
#pragma unroll
    for (int r = 0; r < Of::kRows; ++r) {
      const int row = Of::kRows * down + r;
      f32 largest = most[r];
#pragma unroll
      for (int c = 0; c < Of::kKeys; ++c) {
        const i64 key = start + across + kSide * c;
        const bool is_in = key < s.keys && first + row < s.queries;
        scores[r][c] = is_in ? score(scores[r][c], batch, head, first + row, key) : -op::inf_f32();
        largest = op::max(largest, scores[r][c]);
      }
      largest = over_row(largest, Largest());
      // Before anything is seen there is nothing to scale, and -inf - -inf is no number.
      const bool sees = largest != -op::inf_f32();
      const f32 scale = sees ? op::exp(most[r] - largest) : 1.0f;
      f32 sum = 0;
#pragma unroll
      for (int c = 0; c < Of::kKeys; ++c) {
        const f32 weight = sees ? op::exp(scores[r][c] - largest) : 0.0f;
        weights[row * Of::kWeightPitch + across + kSide * c] = weight;
        sum += weight;
      }
      total[r] = total[r] * scale + over_row(sum, Add());
      most[r] = largest;
#pragma unroll
      for (int c = 0; c < Of::kColumns; ++c) sums[r][c] *= scale;
    }
    __syncthreads();
    fetch<keys, width>(v + start * of_v.row, of_v.row, of_v.column, left, lines, width);
    __syncthreads();
    const int here = left < keys ? int(left) : keys;
    for (int key = 0; key < here; ++key) {
      f32 of_row[Of::kRows];
#pragma unroll
      for (int r = 0; r < Of::kRows; ++r) {
        const f32 weight = weights[(Of::kRows * down + r) * Of::kWeightPitch + key];
        of_row[r] = weight;
      }
#pragma unroll
      for (int c = 0; c < Of::kColumns; ++c) {
        const int column = across + kSide * c;
        if (width % kSide != 0 && column >= width) continue;
        const f32 value = lines[key * width + column];
#pragma unroll
        for (int r = 0; r < Of::kRows; ++r) sums[r][c] += of_row[r] * value;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < Of::kRows; ++r) {
    const i64 row = first + Of::kRows * down + r;
    if (row >= s.queries) continue;
    const bool hidden = most[r] == -op::inf_f32();
#pragma unroll
    for (int c = 0; c < Of::kColumns; ++c) {
      const int column = across + kSide * c;
      if (width % kSide != 0 && column >= width) continue;
      f32 value = sums[r][c] / total[r];
      if (hidden) value = hidden_is_zero || s.keys == 0 ? 0.0f : op::nan_f32();
      store(value, batch, head, row, i64(column));
    }
  }
}

}  // namespace attention
