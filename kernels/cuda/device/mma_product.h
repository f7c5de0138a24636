// Sums of products on tensor cores: tile_product.h's sides and result, for elements of 16 bits,
// whose sums are f32, and of 8 bits, signed or not on either side, whose sums are i32. A block's
// pieces of both sides go through several stages of shared memory, filled while earlier ones are
// multiplied; each warp multiplies its part of the tile.
//
// Elements are multiplied unchanged, zero points are subtracted from the sums: sum of (a - za)(b -
// zb) is sum of ab - za * sum of b - zb * sum of a + za * zb * depth. Beside the members that
// tile_product.h requires, a side has
//   kHasZero: whether zero_of() may be other than 0;
//   kOutsideIsZero: elements outside (not is_in()) are read as zero_of(Line), else as 0;
//   kValid: how many of kLanes neighbours are elements; the others are 0 on both sides, whatever
//   memory contains there. `depth` counts them all.
//
// A block's tile, here of WarpTile<128, 128, 32, 2, 4, 3>, with the numbers of its warps:
//
//                     kWarpColumns = 32
//                  +------+------+------+------+
//                  |  0   |  1   |  2   |  3   |  kWarpRows = 64
//    kRows = 128   +------+------+------+------+
//                  |  4   |  5   |  6   |  7   |
//                  +------+------+------+------+
//                        kColumns = 128
//
// A warp's part is sums[kDown = 64 / 16][kAcross = 32 / 8], fragments of 16 rows and 8 columns.
// Lane l has four sums of a fragment: [0] and [1] in row l / 4, [2] and [3] in row l / 4 + 8.
//
//    row   columns 0 1    2 3    4 5    6 7
//     0            l 0    l 1    l 2    l 3    [0] [1]
//     1            l 4    l 5    l 6    l 7
//     7            l 28   l 29   l 30   l 31
//     8            l 0    l 1    l 2    l 3    [2] [3]
//    15            l 28   l 29   l 30   l 31
//
// Stages are a ring in shared memory; each has kDepth of the depth, of A and then of B. All threads
// copy, thread t the vector t % kVectors of the rows t / kVectors + i * kStep. With 3 stages:
//
//    piece of the depth     stage 0     stage 1     stage 2
//            0             multiplied   arriving    begun (piece 2)
//            1               begun     multiplied   arriving
//            2              arriving     begun     multiplied
//
// Behind the loop each warp sends 16 rows of sums after the other through its Exchange. Lane l then
// has kLanes neighbours of row l / kAlong, from column l % kAlong * kLanes on, to store at once.
#pragma once

namespace product {

template <int rows, int columns, int depth, int warps_down, int warps_across, int stages>
struct WarpTile {
  enum : int { kRows = rows, kColumns = columns, kDepth = depth };  // of the block
  enum : int { kStages = stages };
  enum : int { kWarpsAcross = warps_across };
  enum : int { kThreads = 32 * warps_down * warps_across };
  enum : int { kWarpRows = rows / warps_down, kWarpColumns = columns / warps_across };
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0 && depth % 16 == 0,
                "whole fragments");
};

template <class T>
struct SumOf {
  using Type = i32;
};
template <>
struct SumOf<h16> {
  using Type = f32;
};
template <>
struct SumOf<bf16> {
  using Type = f32;
};

// Rows of `wide` elements in vectors of 16 bytes, whose places in a row change from row to row, so
// that the 8 rows that ldmatrix reads at once lie in different banks.
template <class T, int wide>
struct Swizzle {
  enum : int { kVector = 16 / sizeof(T), kVectors = wide / kVector };
  __device__ static i32 place(i32 high, i32 vector) {
    constexpr int kMask = (kVectors < 8 ? kVectors : 8) - 1;
    constexpr int kRowsInLine = kVectors < 8 ? 8 / kVectors : 1;  // of all banks
    return high * wide + (vector ^ (high / kRowsInLine & kMask)) * kVector;
  }
};

// One side in a stage: [line][depth] if it is read along the depth, else [depth][line].
template <class Tile, class Side, int kLines>
struct StagedPanel {
  using Index = typename Side::Index;
  using Element = typename Side::Element;
  enum : bool { kAlongDepth = Side::kAlongDepth };
  enum : int { kWide = kAlongDepth ? Tile::kDepth : kLines };
  enum : int { kHigh = kAlongDepth ? kLines : Tile::kDepth };
  enum : int { kSize = kWide * kHigh };
  using Places = Swizzle<Element, kWide>;
  enum : int { kVector = Places::kVector };
  enum : int { kPieces = kVector / Side::kLanes };  // of a vector, each read at once
  enum : int { kStep = Tile::kThreads / Places::kVectors };
  enum : int { kEach = (kHigh + kStep - 1) / kStep };
  static_assert(Tile::kThreads % Places::kVectors == 0, "threads go round evenly");
  static_assert(kAlongDepth || (sizeof(Element) == 2 && kPieces == 1), "what can be transposed");

  const Side& side;
  i32 vector, high;
  typename Side::Line lines[kAlongDepth ? kEach : 1];

  __device__ StagedPanel(const Side& from, Index first) : side(from) {
    vector = i32(threadIdx.x) % Places::kVectors;
    high = i32(threadIdx.x) / Places::kVectors;
    if constexpr (kAlongDepth) {
      UNROLL
      for (int i = 0; i < kEach; ++i) lines[i] = side.line(first + high + i * kStep);
    } else {
      lines[0] = side.line(first + vector * kVector);
    }
  }
  __device__ static i32 place(i32 high, i32 vector) { return Places::place(high, vector); }
  __device__ bool has(int i) const { return kHigh % kStep == 0 || high + i * kStep < kHigh; }

  // Begins to fill a stage with the elements at this depth; put() ends it.
  __device__ void begin(SharedArray<Element> to, Index depth) {
    if constexpr (kAlongDepth) {
      UNROLL
      for (int piece = 0; piece < kPieces; ++piece) {
        const auto deep = side.deep(depth + vector * kVector + piece * Side::kLanes);
        UNROLL
        for (int i = 0; i < kEach; ++i)
          if (has(i))
            copy(to, place(high + i * kStep, vector) + piece * Side::kLanes, lines[i], deep);
      }
    } else {
      UNROLL
      for (int i = 0; i < kEach; ++i)
        if (has(i))
          copy(to, place(high + i * kStep, vector), lines[0], side.deep(depth + high + i * kStep));
    }
  }
  __device__ void put(SharedArray<Element>) const {}

 private:
  __device__ auto lanes_of(const typename Side::Line& line, const typename Side::Deep& deep) const {
    Vec<Element, Side::kLanes> lanes{};
    const bool is_in = side.is_in(line, deep);
    const i64 from = side.offset(line, deep);
    UNROLL
    for (int lane = 0; lane < Side::kValid; ++lane) {
      if (is_in)
        lanes[lane] = side.data[from + lane];
      else if constexpr (Side::kOutsideIsZero)
        lanes[lane] = Narrow<Element>::of(side.zero_of(line));
    }
    return lanes;
  }
  __device__ void copy(SharedArray<Element> to, i32 at, const typename Side::Line& line,
                       const typename Side::Deep& deep) const {
    const bool is_in = side.is_in(line, deep);
    if (side.aligned && (is_in || !Side::kOutsideIsZero))
      copy_async<Side::kLanes * sizeof(Element), Side::kValid * sizeof(Element)>(
          to, at, side.data, i64(side.offset(line, deep)), is_in);
    else
      store(to, at, lanes_of(line, deep));
  }
};

// A side of bytes that is read along the lines: [line][depth] all the same, for nothing transposes
// bytes on their way from shared memory. Threads turn squares of 4 by 4 on the way there.
template <class Tile, class Side, int kLines>
struct TurnedPanel {
  using Index = typename Side::Index;
  using Element = typename Side::Element;
  enum : bool { kAlongDepth = true };  // in shared memory
  enum : int { kSize = Tile::kDepth * kLines };
  using Places = Swizzle<Element, Tile::kDepth>;
  // Neighbouring threads: the squares of a vector, then of the lines, then of the depth.
  enum : int { kAcross = kLines / 4, kSquares = Tile::kDepth / 4 * kAcross };
  enum : int { kStep = Tile::kThreads / (4 * kAcross) };  // vectors
  enum : int { kEach = kSquares / Tile::kThreads };
  static_assert(sizeof(Element) == 1 && Side::kLanes == 4 && !Side::kOutsideIsZero, "squares");
  static_assert(kEach * Tile::kThreads == kSquares && kStep >= 1, "threads go round evenly");

  const Side& side;
  i32 line, vector, square;
  typename Side::Line first_line;
  Vec<Element, 4> values[kEach][4];

  __device__ TurnedPanel(const Side& from, Index first) : side(from) {
    square = i32(threadIdx.x) % 4;
    line = i32(threadIdx.x) / 4 % kAcross * 4;
    vector = i32(threadIdx.x) / 4 / kAcross;
    first_line = side.line(first + line);
  }
  __device__ static i32 place(i32 high, i32 vector) { return Places::place(high, vector); }

  __device__ void begin(SharedArray<Element>, Index depth) {
    UNROLL
    for (int i = 0; i < kEach; ++i) {
      UNROLL
      for (int row = 0; row < 4; ++row) {
        const auto deep = side.deep(depth + (vector + i * kStep) * 16 + square * 4 + row);
        values[i][row] = Vec<Element, 4>{};
        if (side.is_in(first_line, deep))
          values[i][row] = load_lanes<4>(side.data, side.offset(first_line, deep), side.aligned);
      }
    }
  }
  __device__ void put(SharedArray<Element> to) {
    UNROLL
    for (int i = 0; i < kEach; ++i) {
      transpose_bytes(values[i]);
      UNROLL
      for (int row = 0; row < 4; ++row)
        store(to, place(line + row, vector + i * kStep) + square * 4, values[i][row]);
    }
  }
};

template <class Tile, class Side, int kLines, bool is_turned>
struct PanelOf {
  using Type = StagedPanel<Tile, Side, kLines>;
};
template <class Tile, class Side, int kLines>
struct PanelOf<Tile, Side, kLines, true> {
  using Type = TurnedPanel<Tile, Side, kLines>;
};
template <class Tile, class Side, int kLines>
using panel_of = typename PanelOf<Tile, Side, kLines,
                                  !Side::kAlongDepth && sizeof(typename Side::Element) == 1>::Type;

template <class A, class B, class Sum>
__device__ void multiply(Vec<Sum, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  if constexpr (sizeof(A) == 1)
    mma_m16n8k32<A, B>(c, a, b0, b1);
  else
    mma_m16n8k16<A>(c, a, b0, b1);
}

// Sums of the elements of each line beside the products, by multiplying with ones: what the zero
// points of the other side are taken off by.
template <class Side, class Other, int count>
struct LineSums {
  enum : bool { kAny = Other::kHasZero };
  enum : u32 { kOnes = 0x01010101 };
  Vec<i32, 4> sums[kAny ? count : 1] = {};
};

// Fragments of a warp on their way to its lanes: 16 rows of sums, so that each lane has neighbours
// of one row. Rows lie apart and every other one has its halves of 8 sums swapped, so that neither
// the fragments nor the lanes' vectors meet in a bank.
template <class Tile, class Sum>
struct Exchange {
  enum : int { kWide = Tile::kWarpColumns, kPitch = kWide + 8 };
  enum : int { kSize = 16 * kPitch };  // of a warp
  SharedArray<Sum> memory;

  __device__ static i32 place(i32 row, i32 column) {
    return row * kPitch + (column ^ (row % 2 * 4));
  }
  template <int count>
  __device__ void write(const Vec<Sum, 4> (&sums)[count]) const {
    const i32 lane = i32(threadIdx.x) % 32, row = lane / 4;
    UNROLL
    for (int c = 0; c < count; ++c) {
      const i32 column = c * 8 + lane % 4 * 2;
      store(memory, place(row, column), Vec<Sum, 2>{{sums[c][0], sums[c][1]}});
      store(memory, place(row + 8, column), Vec<Sum, 2>{{sums[c][2], sums[c][3]}});
    }
  }
  template <int count>
  __device__ Vec<Sum, count> read(i32 row, i32 column) const {
    constexpr int kPart = count < 4 ? count : 4;
    Vec<Sum, count> sums;
    UNROLL
    for (int i = 0; i < count; i += kPart) {
      const auto part = load<kPart>(memory, place(row, column + i));
      UNROLL
      for (int k = 0; k < kPart; ++k) sums[i + k] = part[k];
    }
    return sums;
  }
};

// Gives a warp's sums to the result, kLanes columns of a row at once: see tile_product.h.
template <class Tile, class Sum, int kDown, int kAcross, class Result, class Index>
__device__ void store_sums(const Vec<Sum, 4> (&sums)[kDown][kAcross], SharedArray<Sum> memory,
                           const Result& result, Index first_row, Index rows, Index first_column,
                           Index columns) {
  constexpr int kLanes = Result::kLanes, kVectors = Tile::kWarpColumns / kLanes;
  constexpr int kAlong = kVectors < 32 ? kVectors : 32;  // lanes that share a row
  constexpr int kRowsAtOnce = 32 / kAlong, kParts = kVectors / kAlong, kTimes = 16 / kRowsAtOnce;
  static_assert(32 % kAlong == 0 && kVectors % kAlong == 0 && kRowsAtOnce <= 16, "lanes go evenly");
  const i32 lane = i32(threadIdx.x) % 32, warp = i32(threadIdx.x) / 32;
  const Exchange<Tile, Sum> exchange{memory + warp * Exchange<Tile, Sum>::kSize};
  const i32 own_row = lane / kAlong, own_column = lane % kAlong * kLanes;
  // Once for all parts of the tile: its text may be long.
  NO_UNROLL
  for (int r = 0; r < kDown; ++r) {
    __syncwarp();
    UNROLL
    for (int part = 0; part < kDown; ++part)
      if (part == r) exchange.write(sums[part]);
    __syncwarp();
    UNROLL
    for (int part = 0; part < kParts; ++part) {
      const i32 in_tile = own_column + part * kAlong * kLanes;
      const Index column = first_column + in_tile;
      if (column >= columns) continue;
      const auto of_columns = result.columns(column);
      decltype(result.row(Index())) at[kTimes];
      decltype(result.inputs(at[0], column)) inputs[kTimes];
      UNROLL
      for (int time = 0; time < kTimes; ++time) {
        const Index row = first_row + (r * 16 + time * kRowsAtOnce + own_row);
        if (row >= rows) continue;
        at[time] = result.row(row);
        inputs[time] = result.inputs(at[time], column);
      }
      UNROLL
      for (int time = 0; time < kTimes; ++time) {
        const i32 in_part = time * kRowsAtOnce + own_row;
        if (first_row + (r * 16 + in_part) >= rows) continue;
        result(exchange.template read<kLanes>(in_part, in_tile), of_columns, inputs[time], at[time],
               column);
      }
    }
  }
}

template <class Tile, class A, class B, class Result>
__device__ void mma_product(const A& a, const B& b, const Result& result,
                            typename A::Index first_row, typename A::Index rows,
                            typename A::Index first_column, typename A::Index columns,
                            typename A::Index depth) {
  using Index = typename A::Index;
  using T = typename A::Element;
  using U = typename B::Element;
  using Sum = typename SumOf<T>::Type;
  using PanelA = panel_of<Tile, A, Tile::kRows>;
  using PanelB = panel_of<Tile, B, Tile::kColumns>;
  static_assert(sizeof(T) == sizeof(U) && !B::kOutsideIsZero, "what is multiplied here");
  constexpr int kStage = PanelA::kSize + PanelB::kSize;
  constexpr int kVector = 16 / sizeof(T);
  constexpr int kDown = Tile::kWarpRows / 16, kAcross = Tile::kWarpColumns / 8;
  DYNAMIC_SHARED(T, stages);

  const i32 lane = i32(threadIdx.x) % 32, warp = i32(threadIdx.x) / 32;
  const i32 warp_row = warp / Tile::kWarpsAcross * Tile::kWarpRows;
  const i32 warp_column = warp % Tile::kWarpsAcross * Tile::kWarpColumns;
  Vec<Sum, 4> sums[kDown][kAcross];
  UNROLL
  for (int r = 0; r < kDown; ++r) {
    UNROLL
    for (int c = 0; c < kAcross; ++c) sums[r][c] = Vec<Sum, 4>{{0, 0, 0, 0}};
  }
  LineSums<A, B, kDown> of_rows;
  LineSums<B, A, kAcross> of_columns;

  PanelA panel_a(a, first_row);
  PanelB panel_b(b, first_column);
  const auto place_a = [&](i32 stage) { return stages + stage * kStage; };
  const auto place_b = [&](i32 stage) {
    return shared_as<U>(stages + (stage * kStage + PanelA::kSize));
  };
  const auto begin = [&](i32 stage, Index at) {
    if (at < depth) {
      panel_a.begin(place_a(stage), at);
      panel_b.begin(place_b(stage), at);
    }
    copy_async_commit();
  };
  const auto put = [&](i32 stage, Index at) {
    if (at < depth) {
      panel_a.put(place_a(stage));
      panel_b.put(place_b(stage));
    }
  };
  UNROLL
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
    begin(stage, Index(stage) * Tile::kDepth);
    put(stage, Index(stage) * Tile::kDepth);
  }
  i32 now = 0;
  // Unrolled whole, a depth that is a number in the text would take twice the code and a third more
  // registers. Round all stages their places are numbers, which pays where there is little to
  // multiply in between.
  constexpr int kTimes = kDown * kAcross <= 4 ? Tile::kStages : 1;
  UNROLL_BY(kTimes)
  for (Index at = 0; at < depth; at += Tile::kDepth) {
    copy_async_wait<Tile::kStages - 2>();
    __syncthreads();  // this stage is ready for all threads, and all are done with the one before
    const i32 free = now == 0 ? Tile::kStages - 1 : now - 1;
    const Index next = at + Index(Tile::kStages - 1) * Tile::kDepth;
    begin(free, next);
    const SharedArray<T> piece_a = place_a(now);
    const SharedArray<U> piece_b = place_b(now);
    UNROLL
    for (int k = 0; k < Tile::kDepth / kVector; k += 2) {
      Vec<u32, 4> left[kDown];
      UNROLL
      for (int r = 0; r < kDown; ++r)
        if constexpr (PanelA::kAlongDepth)
          left[r] =
              ldmatrix_x4(piece_a, PanelA::place(warp_row + r * 16 + lane % 16, k + lane / 16));
        else
          left[r] = ldmatrix_x4_trans(piece_a, PanelA::place(k * 8 + lane / 16 * 8 + lane % 8,
                                                             warp_row / 8 + r * 2 + lane / 8 % 2));
      if constexpr (of_rows.kAny) {
        UNROLL
        for (int r = 0; r < kDown; ++r)
          multiply<T, U>(of_rows.sums[r], left[r], of_rows.kOnes, of_rows.kOnes);
      }
      UNROLL
      for (int c = 0; c < kAcross; c += 2) {
        // Two columns of fragments: of both the first 8 of the depth, then the last.
        Vec<u32, 4> right;
        const i32 column = warp_column + c * 8;
        if constexpr (PanelB::kAlongDepth)
          right = ldmatrix_x4(piece_b,
                              PanelB::place(column + lane / 16 * 8 + lane % 8, k + lane / 8 % 2));
        else
          right =
              ldmatrix_x4_trans(piece_b, PanelB::place(k * 8 + lane % 16, column / 8 + lane / 16));
        UNROLL
        for (int r = 0; r < kDown; ++r) {
          multiply<T, U>(sums[r][c], left[r], right[0], right[1]);
          multiply<T, U>(sums[r][c + 1], left[r], right[2], right[3]);
        }
        if constexpr (of_columns.kAny) {
          constexpr u32 kOnes = of_columns.kOnes;
          const Vec<u32, 4> ones{{kOnes, kOnes, kOnes, kOnes}};
          multiply<T, U>(of_columns.sums[c], ones, right[0], right[1]);
          multiply<T, U>(of_columns.sums[c + 1], ones, right[2], right[3]);
        }
      }
    }
    put(free, next);
    now = now + 1 == Tile::kStages ? 0 : now + 1;
  }
  copy_async_wait<0>();
  if constexpr (A::kHasZero || B::kHasZero) {
    // The number of products in which neither side was 0 because it is outside.
    const Index multiplied =
        (A::kOutsideIsZero ? (depth + Tile::kDepth - 1) / Tile::kDepth * Tile::kDepth : depth) /
        A::kLanes * A::kValid;
    i32 zeros_a[kDown][2];
    UNROLL
    for (int r = 0; r < kDown; ++r) {
      UNROLL
      for (int half = 0; half < 2; ++half)
        zeros_a[r][half] = a.zero_of(a.line(first_row + warp_row + r * 16 + half * 8 + lane / 4));
    }
    UNROLL
    for (int c = 0; c < kAcross; ++c) {
      UNROLL
      for (int i = 0; i < 4; ++i) {
        const i32 zero_b =
            b.zero_of(b.line(first_column + warp_column + c * 8 + lane % 4 * 2 + i % 2));
        const i32 of_column = of_columns.kAny ? of_columns.sums[of_columns.kAny ? c : 0][i] : 0;
        const i32 less = op::sub(of_column, op::mul(zero_b, i32(multiplied)));
        UNROLL
        for (int r = 0; r < kDown; ++r) {
          const i32 of_row = of_rows.kAny ? of_rows.sums[of_rows.kAny ? r : 0][i] : 0;
          const i32 taken = op::add(op::mul(zeros_a[r][i / 2], less), op::mul(zero_b, of_row));
          sums[r][c][i] = op::sub(sums[r][c][i], taken);
        }
      }
    }
  }

  __syncthreads();  // all are done with the stages
  store_sums<Tile>(sums, shared_as<Sum>(stages), result, first_row + warp_row, rows,
                   first_column + warp_column, columns);
}

}  // namespace product
