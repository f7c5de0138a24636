// Attention of a tile of rows of q: keys come by tiles to shared memory, and each tile of scores is
// folded at once into sums that are scaled to the largest score so far.
//
// 16 x 16 threads; thread (down, across) has the rows kRows * down + r of the tile, the keys that
// are `across` modulo 16, and kGroup neighbouring columns of every 16 * kGroup, so that the 16
// threads of a row lie in one warp.
#pragma once

namespace attention {

enum : int { kSide = 16, kThreads = kSide * kSide };

// Of type I are extents and offsets in elements.
template <class I>
struct Sizes {
  I heads, groups, queries, keys;
};
template <class I>
struct Strides {
  I batch, head, row, column;
};

// Of the 16 threads that share a row.
template <class Combine>
__device__ inline f32 over_row(f32 value, Combine combine) {
  UNROLL
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// Elements of q, k or v in shared memory: a tile of lines, whose elements are f32 and followed by
// zeros up to a multiple of 4. Lines beyond the last are zeros. kPitch is an odd number of vectors,
// so that vectors of neighbouring lines lie in different banks.
template <int lines, int length>
struct Panel {
  enum : int { kWide = (length + 3) / 4 * 4 };
  enum : int { kPitch = (kWide / 4 | 1) * 4, kSize = lines * kPitch };

  // `line` and `column` are strides of memory, where `lanes` elements are read at once.
  template <int lanes, class T, class I>
  __device__ static void fetch(In<T> from, I line, I column, i32 count, bool aligned,
                               SharedArray<f32> to) {
    constexpr int kVectors = kWide / lanes, kAll = lines * kVectors;
    static_assert(lanes == 1 || length % lanes == 0, "whole vectors");
    UNROLL
    for (int step = 0; step < (kAll + kThreads - 1) / kThreads; ++step) {
      const int i = step * kThreads + int(threadIdx.x);
      if (kAll % kThreads != 0 && i >= kAll) continue;
      const int at = i / kVectors, first = i % kVectors * lanes;
      Vec<f32, lanes> values{};
      if (at < count && first < length) {
        const auto read = load_lanes<lanes>(from, at * line + first * column, aligned);
        UNROLL
        for (int lane = 0; lane < lanes; ++lane) values[lane] = op::widen(read[lane]);
      }
      constexpr int kPart = lanes < 4 ? lanes : 4;
      UNROLL
      for (int lane = 0; lane < lanes; lane += kPart) {
        Vec<f32, kPart> part;
        UNROLL
        for (int k = 0; k < kPart; ++k) part[k] = values[lane + k];
        store(to, at * kPitch + first + lane, part);
      }
    }
  }
};

template <int rows, int keys, int depth, int width>
struct Tile {
  enum : int { kRows = rows / kSide, kKeys = keys / kSide };
  using Queries = Panel<rows, depth>;
  using Keys = Panel<keys, depth>;
  using Values = Panel<keys, width>;
  enum : int { kGroup = width > 2 * kSide ? 4 : width > kSide ? 2 : 1 };
  enum : int { kGroups = (width + kSide * kGroup - 1) / (kSide * kGroup) };
  enum : int { kWeightPitch = keys + 4, kWeights = rows * kWeightPitch };
  enum : int { kLines = Keys::kSize > Values::kSize ? Keys::kSize : Values::kSize };
};

// a * b of four neighbours, added to `sum`.
__device__ inline f32 add_products(const Vec<f32, 4>& a, const Vec<f32, 4>& b, f32 sum) {
  UNROLL
  for (int i = 0; i < 4; ++i) sum = multiply_add(a[i], b[i], sum);
  return sum;
}

// Lanes: of q and k along the depth, of v along the width. `aligned`: bits of q, k and v.
// Result: what tile_product.h's is, of a row and a column of one head.
template <int rows, int keys, int depth, int width, bool hidden_is_zero, int q_lanes, int k_lanes,
          int v_lanes, class T, class I, class Score, class Store>
__device__ inline void run(In<T> q, In<T> k, In<T> v, const Strides<I>& of_q,
                           const Strides<I>& of_k, const Strides<I>& of_v, const Sizes<I>& s,
                           i32 aligned, const Score& score, const Store& store) {
  using Of = Tile<rows, keys, depth, width>;
  SHARED(f32, queries, Of::Queries::kSize);
  SHARED(f32, lines, Of::kLines);
  SHARED(f32, weights, Of::kWeights);
  const int across = threadIdx.x % kSide, down = threadIdx.x / kSide;
  const I tiles = (s.queries + rows - 1) / rows;
  const I first = I(blockIdx.x) % tiles * rows;
  const I head = I(blockIdx.x) / tiles % s.heads, batch = I(blockIdx.x) / tiles / s.heads;
  const I group = head / (s.heads / s.groups);
  q = q + (batch * of_q.batch + head * of_q.head + first * of_q.row);
  k = k + (batch * of_k.batch + group * of_k.head);
  v = v + (batch * of_v.batch + group * of_v.head);

  Of::Queries::template fetch<q_lanes>(q, of_q.row, of_q.column,
                                       s.queries - first < rows ? i32(s.queries - first) : rows,
                                       (aligned & 1) != 0, queries);
  f32 sums[Of::kRows][Of::kGroups][Of::kGroup] = {}, most[Of::kRows], total[Of::kRows] = {};
  UNROLL
  for (int r = 0; r < Of::kRows; ++r) most[r] = -op::inf_f32();
  NO_UNROLL
  for (I start = 0; start < s.keys; start += keys) {
    const i32 left = s.keys - start < keys ? i32(s.keys - start) : keys;
    __syncthreads();  // what was in `lines` has been read
    Of::Keys::template fetch<k_lanes>(k + start * of_k.row, of_k.row, of_k.column, left,
                                      (aligned & 2) != 0, lines);
    __syncthreads();
    f32 scores[Of::kRows][Of::kKeys] = {};
    UNROLL_BY(4)
    for (int d = 0; d < Of::Queries::kWide; d += 4) {
      Vec<f32, 4> of_key[Of::kKeys];
      UNROLL
      for (int c = 0; c < Of::kKeys; ++c)
        of_key[c] = load<4>(lines, (across + kSide * c) * Of::Keys::kPitch + d);
      UNROLL
      for (int r = 0; r < Of::kRows; ++r) {
        const auto of_row = load<4>(queries, (Of::kRows * down + r) * Of::Queries::kPitch + d);
        UNROLL
        for (int c = 0; c < Of::kKeys; ++c)
          scores[r][c] = add_products(of_row, of_key[c], scores[r][c]);
      }
    }
    UNROLL
    for (int r = 0; r < Of::kRows; ++r) {
      const int row = Of::kRows * down + r;
      f32 largest = most[r];
      UNROLL
      for (int c = 0; c < Of::kKeys; ++c) {
        const I key = start + across + kSide * c;
        const bool is_in = across + kSide * c < left && first + row < s.queries;
        scores[r][c] = is_in ? score(scores[r][c], batch, head, first + row, key) : -op::inf_f32();
        largest = op::max(largest, scores[r][c]);
      }
      largest = over_row(largest, Largest());
      // Before anything is seen there is nothing to scale, and -inf - -inf is no number.
      const bool sees = largest != -op::inf_f32();
      const f32 scale = sees ? op::exp(most[r] - largest) : 1.0f;
      f32 sum = 0;
      UNROLL
      for (int c = 0; c < Of::kKeys; ++c) {
        const f32 weight = sees ? op::exp(scores[r][c] - largest) : 0.0f;
        weights[row * Of::kWeightPitch + across + kSide * c] = weight;
        sum += weight;
      }
      total[r] = multiply_add(total[r], scale, over_row(sum, Add()));
      most[r] = largest;
      UNROLL
      for (int g = 0; g < Of::kGroups; ++g) {
        UNROLL
        for (int c = 0; c < Of::kGroup; ++c) sums[r][g][c] *= scale;
      }
    }
    __syncthreads();
    Of::Values::template fetch<v_lanes>(v + start * of_v.row, of_v.row, of_v.column, left,
                                        (aligned & 4) != 0, lines);
    __syncthreads();
    // Weights of keys beyond the last are 0, as their values are.
    NO_UNROLL
    for (int key = 0; key < keys; key += 4) {
      Vec<f32, 4> of_row[Of::kRows];
      UNROLL
      for (int r = 0; r < Of::kRows; ++r)
        of_row[r] = load<4>(weights, (Of::kRows * down + r) * Of::kWeightPitch + key);
      UNROLL
      for (int g = 0; g < Of::kGroups; ++g) {
        const int column = (g * kSide + across) * Of::kGroup;
        if (width % (kSide * Of::kGroup) != 0 && column >= width) continue;
        UNROLL
        for (int i = 0; i < 4; ++i) {
          const auto values = load<Of::kGroup>(lines, (key + i) * Of::Values::kPitch + column);
          UNROLL
          for (int r = 0; r < Of::kRows; ++r) {
            UNROLL
            for (int c = 0; c < Of::kGroup; ++c)
              sums[r][g][c] = multiply_add(of_row[r][i], values[c], sums[r][g][c]);
          }
        }
      }
    }
  }
  constexpr int kLanes = Store::kLanes;
  static_assert(Of::kGroup % kLanes == 0, "neighbours are whole vectors");
  UNROLL
  for (int r = 0; r < Of::kRows; ++r) {
    const I row = first + Of::kRows * down + r;
    if (row >= s.queries) continue;
    const bool hidden = most[r] == -op::inf_f32();
    const f32 none = hidden_is_zero || s.keys == 0 ? 0.0f : op::nan_f32();
    // The largest score has weight 1, so that the total is at least that.
    const f32 guess = reciprocal(total[r]);
    const f32 part = multiply_add(multiply_add(-total[r], guess, 1.0f), guess, guess);
    UNROLL
    for (int g = 0; g < Of::kGroups; ++g) {
      UNROLL
      for (int c = 0; c < Of::kGroup; c += kLanes) {
        const int column = (g * kSide + across) * Of::kGroup + c;
        if (width % (kSide * Of::kGroup) != 0 && column >= width) continue;
        Vec<f32, kLanes> values;
        UNROLL
        for (int lane = 0; lane < kLanes; ++lane)
          values[lane] = hidden ? none : sums[r][g][c + lane] * part;
        store(values, store.columns(column), store.inputs(row, batch, head, row, column), row,
              batch, head, row, column);
      }
    }
  }
}

}  // namespace attention
