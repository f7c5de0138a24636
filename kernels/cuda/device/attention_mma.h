// Attention on tensor cores, of 16-bit floats. Each warp has 16 rows of q, as fragments in
// registers. Keys and values come by tiles to two stages of shared memory, one filled while the
// other is multiplied; each tile of scores is folded at once into sums that are scaled to the
// largest score so far. Fragments are those of mma.h: lane l has the rows l / 4 and l / 4 + 8 of
// its warp, so that 4 lanes share a row.
//
// Scores and sums are f32. Weights are multiplied with values as the sum of two parts of 16 bits,
// the second of which is what rounding takes off the first: with one part results would differ by
// several units in the last place. The largest weight is 1024, so that the first parts of f16 reach
// down to 2^-35 of it.
#pragma once

namespace attention {

enum : int { kLargest = 1024 };

template <class T>
__device__ T narrow(f32 x);
template <>
__device__ inline h16 narrow<h16>(f32 x) {
  return to_h16(x);
}
template <>
__device__ inline bf16 narrow<bf16>(f32 x) {
  return to_bf16(x);
}
template <class T>
__device__ inline u32 packed(f32 low, f32 high) {
  return __builtin_bit_cast(u32, Vec<T, 2>{{narrow<T>(low), narrow<T>(high)}});
}

// Two fragments of sums as the fragment of a left side of 16 columns.
template <class T>
__device__ inline Vec<u32, 4> weights_of(const Vec<f32, 4>& near, const Vec<f32, 4>& far) {
  return {{packed<T>(near[0], near[1]), packed<T>(near[2], near[3]), packed<T>(far[0], far[1]),
           packed<T>(far[2], far[3])}};
}
// What rounding to T takes off.
template <class T>
__device__ inline Vec<f32, 4> rest_of(const Vec<f32, 4>& sums) {
  Vec<f32, 4> rest;
  UNROLL
  for (int i = 0; i < 4; ++i) rest[i] = sums[i] - op::widen(narrow<T>(sums[i]));
  return rest;
}

// Of the 4 lanes that share a row.
template <class Combine>
__device__ inline f32 over_lanes(f32 value, Combine combine) {
  value = combine(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return combine(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// Lines of q, k or v in shared memory, with zeros behind `length` up to whole fragments, and zeros
// for lines beyond the last.
template <class T, int lines, int length>
struct MmaPanel {
  enum : int { kWide = length <= 16 ? 16 : length <= 32 ? 32 : length <= 64 ? 64 : 128 };
  enum : int { kSize = lines * kWide, kFragments = (length + 15) / 16 };
  enum : int { kVectors = 2 * kFragments, kAll = lines * kVectors };
  using Places = product::Swizzle<T, kWide>;

  // Begins to fill it; `line` and `column` are strides of memory, where `lanes` elements are read
  // at once.
  template <int threads, int lanes, class I>
  __device__ static void begin(In<T> from, I line, I column, i32 count, bool aligned,
                               SharedArray<T> to) {
    UNROLL
    for (int step = 0; step < (kAll + threads - 1) / threads; ++step) {
      const int i = step * threads + int(threadIdx.x);
      if (kAll % threads != 0 && i >= kAll) continue;
      const int at = i / kVectors, vector = i % kVectors;
      const i32 place = Places::place(at, vector);
      if constexpr (lanes == 8) {
        if (aligned) {
          copy_async<16>(to, place, from, i64(at * line + vector * 8 * column),
                         at < count && vector * 8 < length);
          continue;
        }
      }
      Vec<T, 8> values{};
      UNROLL
      for (int first = 0; first < 8; first += lanes) {
        if (at >= count || vector * 8 + first >= length) continue;
        const auto read =
            load_lanes<lanes>(from, at * line + (vector * 8 + first) * column, aligned);
        UNROLL
        for (int lane = 0; lane < lanes; ++lane) values[first + lane] = read[lane];
      }
      store(to, place, values);
    }
  }
};

// Sums leave by parts of at most 64 columns.
template <int across>
struct SumsOfWarp {
  enum : int { kWarpColumns = across > 8 ? 64 : across * 8 };
};

template <class T, int warps, int keys, int depth, int width>
struct MmaTile {
  enum : int { kThreads = 32 * warps, kRows = 16 * warps };
  using Queries = MmaPanel<T, kRows, depth>;
  using Keys = MmaPanel<T, keys, depth>;
  using Values = MmaPanel<T, keys, width>;
  enum : int { kStage = Keys::kSize + Values::kSize };
  enum : int { kAcross = 2 * Values::kFragments };  // of 8 columns
  using Sums = product::Exchange<SumsOfWarp<kAcross>, f32>;
  enum : int { kOut = warps * Sums::kSize * int(sizeof(f32) / sizeof(T)) };
  enum : int { kIn = 2 * kStage > Queries::kSize ? 2 * kStage : Queries::kSize };
  enum : int { kShared = kIn > kOut ? kIn : kOut };
};

// What a warp keeps of its rows between tiles of keys; of each lane two rows.
template <int across>
struct RunningSums {
  Vec<f32, 4> sums[across];
  f32 most[2], total[2];  // total: of the lane's own keys
};

// Lanes, `aligned` and the result are as run() of attention.h has them.
template <int warps, int keys, int depth, int width, bool hidden_is_zero, int q_lanes, int k_lanes,
          int v_lanes, class T, class I, class Score, class Store>
__device__ inline void run_mma(In<T> q, In<T> k, In<T> v, const Strides<I>& of_q,
                               const Strides<I>& of_k, const Strides<I>& of_v, const Sizes<I>& s,
                               i32 aligned, const Score& score, const Store& store) {
  using Of = MmaTile<T, warps, keys, depth, width>;
  using Keys = typename Of::Keys;
  using Values = typename Of::Values;
  SHARED(T, stages, Of::kShared);
  const i32 lane = i32(threadIdx.x) % 32, warp = i32(threadIdx.x) / 32;
  const I tiles = (s.queries + Of::kRows - 1) / Of::kRows;
  const I first = I(blockIdx.x) % tiles * Of::kRows;
  const I head = I(blockIdx.x) / tiles % s.heads, batch = I(blockIdx.x) / tiles / s.heads;
  const I group = head / (s.heads / s.groups);
  q = q + (batch * of_q.batch + head * of_q.head + first * of_q.row);
  k = k + (batch * of_k.batch + group * of_k.head);
  v = v + (batch * of_v.batch + group * of_v.head);

  Of::Queries::template begin<Of::kThreads, q_lanes>(
      q, of_q.row, of_q.column, s.queries - first < Of::kRows ? i32(s.queries - first) : Of::kRows,
      (aligned & 1) != 0, stages);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
  Vec<u32, 4> query[Keys::kFragments];
  UNROLL
  for (int d = 0; d < Keys::kFragments; ++d)
    query[d] =
        ldmatrix_x4(stages, Of::Queries::Places::place(warp * 16 + lane % 16, 2 * d + lane / 16));
  __syncthreads();  // all have their rows, and the stages are free

  const auto begin = [&](i32 stage, I start) {
    if (start < s.keys) {
      const i32 left = s.keys - start < keys ? i32(s.keys - start) : keys;
      const SharedArray<T> to = stages + stage * Of::kStage;
      Keys::template begin<Of::kThreads, k_lanes>(k + start * of_k.row, of_k.row, of_k.column, left,
                                                  (aligned & 2) != 0, to);
      Values::template begin<Of::kThreads, v_lanes>(v + start * of_v.row, of_v.row, of_v.column,
                                                    left, (aligned & 4) != 0, to + Keys::kSize);
    }
    copy_async_commit();
  };
  RunningSums<Of::kAcross> of_rows;
  UNROLL
  for (int c = 0; c < Of::kAcross; ++c) of_rows.sums[c] = Vec<f32, 4>{{0, 0, 0, 0}};
  UNROLL
  for (int half = 0; half < 2; ++half) of_rows.most[half] = -op::inf_f32(), of_rows.total[half] = 0;
  const I own_row = first + warp * 16 + lane / 4;

  i32 now = 0;
  begin(0, 0);
  NO_UNROLL
  for (I start = 0; start < s.keys; start += keys) {
    begin(1 - now, start + keys);
    copy_async_wait<1>();
    __syncthreads();  // this stage is ready for all threads
    const SharedArray<T> key_lines = stages + now * Of::kStage;
    const SharedArray<T> value_lines = key_lines + Keys::kSize;
    Vec<f32, 4> scores[keys / 8];
    UNROLL
    for (int c = 0; c < keys / 8; ++c) scores[c] = Vec<f32, 4>{{0, 0, 0, 0}};
    UNROLL
    for (int d = 0; d < Keys::kFragments; ++d) {
      UNROLL
      for (int c = 0; c < keys / 8; c += 2) {
        const auto right = ldmatrix_x4(
            key_lines, Keys::Places::place(c * 8 + lane / 16 * 8 + lane % 8, 2 * d + lane / 8 % 2));
        mma_m16n8k16<T>(scores[c], query[d], right[0], right[1]);
        mma_m16n8k16<T>(scores[c + 1], query[d], right[2], right[3]);
      }
    }
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const I row = own_row + half * 8;
      f32 largest = of_rows.most[half];
      UNROLL
      for (int c = 0; c < keys / 8; ++c) {
        UNROLL
        for (int i = 0; i < 2; ++i) {
          const I key = start + c * 8 + lane % 4 * 2 + i;
          f32& value = scores[c][2 * half + i];
          value = key < s.keys && row < s.queries ? score(value, batch, head, row, key)
                                                  : -op::inf_f32();
          largest = op::max(largest, value);
        }
      }
      largest = over_lanes(largest, Largest());
      // Before anything is seen there is nothing to scale, and -inf - -inf is no number.
      const bool sees = largest != -op::inf_f32();
      const f32 scale = sees ? op::exp(of_rows.most[half] - largest) : 1.0f;
      of_rows.most[half] = largest;
      f32 sum = 0;
      UNROLL
      for (int c = 0; c < keys / 8; ++c) {
        UNROLL
        for (int i = 0; i < 2; ++i) {
          f32& value = scores[c][2 * half + i];
          value = sees ? op::exp(value - largest) * kLargest : 0.0f;
          sum += value;
        }
      }
      of_rows.total[half] = multiply_add(of_rows.total[half], scale, sum);
      UNROLL
      for (int c = 0; c < Of::kAcross; ++c) {
        of_rows.sums[c][2 * half] *= scale;
        of_rows.sums[c][2 * half + 1] *= scale;
      }
    }
    // Weights of keys beyond the last are 0, as their values are.
    UNROLL
    for (int d = 0; d < keys / 16; ++d) {
      const Vec<f32, 4>&near = scores[2 * d], &far = scores[2 * d + 1];
      const auto weights = weights_of<T>(near, far);
      const auto rests = weights_of<T>(rest_of<T>(near), rest_of<T>(far));
      UNROLL
      for (int c = 0; c < Of::kAcross; c += 2) {
        const auto right = ldmatrix_x4_trans(
            value_lines, Values::Places::place(d * 16 + lane % 16, c + lane / 16));
        mma_m16n8k16<T>(of_rows.sums[c], weights, right[0], right[1]);
        mma_m16n8k16<T>(of_rows.sums[c + 1], weights, right[2], right[3]);
        mma_m16n8k16<T>(of_rows.sums[c], rests, right[0], right[1]);
        mma_m16n8k16<T>(of_rows.sums[c + 1], rests, right[2], right[3]);
      }
    }
    __syncthreads();  // all are done with this stage
    now = 1 - now;
  }
  copy_async_wait<0>();

  UNROLL
  for (int half = 0; half < 2; ++half) {
    const bool hidden = of_rows.most[half] == -op::inf_f32();
    const f32 none = hidden_is_zero || s.keys == 0 ? 0.0f : op::nan_f32();
    // The largest score has the largest weight, so that the total is at least that.
    const f32 total = over_lanes(of_rows.total[half], Add());
    const f32 guess = reciprocal(total);
    const f32 part = multiply_add(multiply_add(-total, guess, 1.0f), guess, guess);
    UNROLL
    for (int c = 0; c < Of::kAcross; ++c) {
      UNROLL
      for (int i = 2 * half; i < 2 * half + 2; ++i)
        of_rows.sums[c][i] = hidden ? none : of_rows.sums[c][i] * part;
    }
  }
  // Through shared memory, so that a lane has neighbours of one row to store at once.
  constexpr int kLanes = Store::kLanes, kColumns = Of::Sums::kWide;
  constexpr int kAlong = kColumns / kLanes, kEach = 16 * kAlong;
  const typename Of::Sums exchange{shared_as<f32>(stages) + warp * Of::Sums::kSize};
  UNROLL
  for (int begin_at = 0; begin_at < Of::kAcross * 8; begin_at += kColumns) {
    constexpr int kFragments = kColumns / 8;
    Vec<f32, 4> part[kFragments];
    UNROLL
    for (int c = 0; c < kFragments; ++c)
      part[c] = begin_at / 8 + c < Of::kAcross ? of_rows.sums[begin_at / 8 + c]
                                               : Vec<f32, 4>{{0, 0, 0, 0}};
    __syncwarp();
    exchange.write(part);
    __syncwarp();
    UNROLL
    for (int step = 0; step < (kEach + 31) / 32; ++step) {
      const i32 i = step * 32 + lane, in_warp = i / kAlong, in_part = i % kAlong * kLanes;
      const I row = first + warp * 16 + in_warp;
      const i32 column = begin_at + in_part;
      if (i >= kEach || row >= s.queries || column >= width) continue;
      store(exchange.template read<kLanes>(in_warp, in_part), store.columns(column),
            store.inputs(row, batch, head, row, column), row, batch, head, row, column);
    }
  }
}

}  // namespace attention
