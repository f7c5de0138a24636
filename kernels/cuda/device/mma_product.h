// Sums of products on tensor cores: tile_product.h's sides and result, for elements of 16 bits. A
// block's pieces of both sides go through several stages of shared memory, filled while earlier
// ones are multiplied; each warp multiplies its part of the tile.
#pragma once

namespace product {

template <int rows, int columns, int depth, int warps_down, int warps_across, int stages>
struct WarpTile {
  static constexpr int kRows = rows, kColumns = columns, kDepth = depth;  // of the block
  static constexpr int kStages = stages;
  static constexpr int kWarpsAcross = warps_across;
  static constexpr int kThreads = 32 * warps_down * warps_across;
  static constexpr int kWarpRows = rows / warps_down, kWarpColumns = columns / warps_across;
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0 && depth % 16 == 0,
                "whole fragments");
};

// One side in a stage: rows of kWide elements, [line][depth] if it is read along the depth, else
// [depth][line], in vectors of 8 whose places in a row change from row to row, so that the 8 rows
// that ldmatrix reads at once lie in different banks.
template <class Tile, class Side, int kLines>
struct StagedPanel {
  using Index = typename Side::Index;
  static constexpr bool kAlongDepth = Side::kAlongDepth;
  static constexpr int kWide = kAlongDepth ? Tile::kDepth : kLines;
  static constexpr int kHigh = kAlongDepth ? kLines : Tile::kDepth;
  static constexpr int kSize = kWide * kHigh;
  static constexpr int kVectors = kWide / 8;
  static constexpr int kStep = Tile::kThreads / kVectors;
  static constexpr int kEach = (kHigh + kStep - 1) / kStep;
  static_assert(Tile::kThreads % kVectors == 0, "threads go round evenly");

  const Side& side;
  i32 vector, high;
  typename Side::Line lines[kAlongDepth ? kEach : 1];

  __device__ static i32 place(i32 high, i32 vector) {
    constexpr int kMask = (kVectors < 8 ? kVectors : 8) - 1;
    constexpr int kRowsInLine = kVectors < 8 ? 8 / kVectors : 1;  // of all banks
    return high * kWide + (vector ^ (high / kRowsInLine & kMask)) * 8;
  }

  __device__ StagedPanel(const Side& from, Index first) : side(from) {
    vector = i32(threadIdx.x) % kVectors;
    high = i32(threadIdx.x) / kVectors;
    if constexpr (kAlongDepth) {
      UNROLL
      for (int i = 0; i < kEach; ++i) lines[i] = side.line(first + high + i * kStep);
    } else {
      lines[0] = side.line(first + vector * 8);
    }
  }

  // Begins to fill a stage with what is at this depth.
  __device__ void fill(Shared<typename Side::Element> to, Index depth) const {
    if constexpr (kAlongDepth && Side::kLanes == 8) {
      const auto deep = side.deep(depth + vector * 8);
      UNROLL
      for (int i = 0; i < kEach; ++i)
        if (kHigh % kStep == 0 || high + i * kStep < kHigh)
          copy(to, place(high + i * kStep, vector), lines[i], deep);
    } else if constexpr (kAlongDepth) {
      UNROLL
      for (int lane = 0; lane < 8; ++lane) {
        const auto deep = side.deep(depth + vector * 8 + lane);
        UNROLL
        for (int i = 0; i < kEach; ++i)
          if (kHigh % kStep == 0 || high + i * kStep < kHigh)
            to[place(high + i * kStep, vector) + lane] = product::fetch(side, lines[i], deep)[0];
      }
    } else {
      UNROLL
      for (int i = 0; i < kEach; ++i)
        if (kHigh % kStep == 0 || high + i * kStep < kHigh)
          copy(to, place(high + i * kStep, vector), lines[0], side.deep(depth + high + i * kStep));
    }
  }

 private:
  __device__ void copy(Shared<typename Side::Element> to, i32 at, const typename Side::Line& line,
                       const typename Side::Deep& deep) const {
    const bool is_in = side.is_in(line, deep);
    const i64 from = is_in ? i64(side.offset(line, deep)) : 0;
    if (side.aligned)
      copy_async<16>(to, at, side.data, from, is_in);
    else
      store(to, at, product::fetch(side, line, deep));
  }
};

template <class Tile, class A, class B, class Result, class Index>
__device__ void mma_product(const A& a, const B& b, const Result& result, Index first_row,
                            Index rows, Index first_column, Index columns, Index depth) {
  using T = typename A::Element;
  using PanelA = StagedPanel<Tile, A, Tile::kRows>;
  using PanelB = StagedPanel<Tile, B, Tile::kColumns>;
  constexpr int kStage = PanelA::kSize + PanelB::kSize;
  constexpr int kDown = Tile::kWarpRows / 16, kAcross = Tile::kWarpColumns / 8;
  DYNAMIC_SHARED(T, stages);

  const i32 lane = i32(threadIdx.x) % 32, warp = i32(threadIdx.x) / 32;
  const i32 warp_row = warp / Tile::kWarpsAcross * Tile::kWarpRows;
  const i32 warp_column = warp % Tile::kWarpsAcross * Tile::kWarpColumns;
  Vec<f32, 4> sums[kDown][kAcross];
  UNROLL
  for (int r = 0; r < kDown; ++r) {
    UNROLL
    for (int c = 0; c < kAcross; ++c) sums[r][c] = Vec<f32, 4>{{0, 0, 0, 0}};
  }

  const PanelA panel_a(a, first_row);
  const PanelB panel_b(b, first_column);
  const auto fill = [&](i32 stage, Index at) {
    if (at < depth) {
      panel_a.fill(stages + stage * kStage, at);
      panel_b.fill(stages + (stage * kStage + PanelA::kSize), at);
    }
    copy_async_commit();
  };
  UNROLL
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) fill(stage, Index(stage) * Tile::kDepth);
  i32 now = 0;
  for (Index at = 0; at < depth; at += Tile::kDepth) {
    copy_async_wait<Tile::kStages - 2>();
    __syncthreads();  // this stage is there for all, and all are done with the one before
    const i32 free = now == 0 ? Tile::kStages - 1 : now - 1;
    fill(free, at + Index(Tile::kStages - 1) * Tile::kDepth);
    const Shared<T> piece_a = stages + now * kStage, piece_b = piece_a + PanelA::kSize;
    UNROLL
    for (int k = 0; k < Tile::kDepth; k += 16) {
      Vec<u32, 4> left[kDown];
      UNROLL
      for (int r = 0; r < kDown; ++r)
        if constexpr (A::kAlongDepth)
          left[r] =
              ldmatrix_x4(piece_a, PanelA::place(warp_row + r * 16 + lane % 16, k / 8 + lane / 16));
        else
          left[r] = ldmatrix_x4_trans(piece_a, PanelA::place(k + lane / 16 * 8 + lane % 8,
                                                             warp_row / 8 + r * 2 + lane / 8 % 2));
      UNROLL
      for (int c = 0; c < kAcross; c += 2) {
        // Two columns of fragments: of both the first 8 of the depth, then the last.
        Vec<u32, 4> right;
        const i32 column = warp_column + c * 8;
        if constexpr (B::kAlongDepth)
          right = ldmatrix_x4(
              piece_b, PanelB::place(column + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
        else
          right = ldmatrix_x4_trans(piece_b, PanelB::place(k + lane % 16, column / 8 + lane / 16));
        UNROLL
        for (int r = 0; r < kDown; ++r) {
          mma_m16n8k16<T>(sums[r][c], left[r], right[0], right[1]);
          mma_m16n8k16<T>(sums[r][c + 1], left[r], right[2], right[3]);
        }
      }
    }
    now = now + 1 == Tile::kStages ? 0 : now + 1;
  }
  copy_async_wait<0>();

  // Through shared memory, 16 rows of each warp at a time, so that the lanes of a warp store
  // neighbours.
  constexpr int kPitch = Tile::kWarpColumns + 4;
  SHARED(f32, exchange, Tile::kThreads / 32 * 16 * kPitch);
  const Shared<f32> mine = exchange + warp * 16 * kPitch;
  UNROLL
  for (int r = 0; r < kDown; ++r) {
    __syncwarp();
    UNROLL
    for (int c = 0; c < kAcross; ++c) {
      const i32 column = c * 8 + lane % 4 * 2;
      store(mine, lane / 4 * kPitch + column, Vec<f32, 2>{{sums[r][c][0], sums[r][c][1]}});
      store(mine, (lane / 4 + 8) * kPitch + column, Vec<f32, 2>{{sums[r][c][2], sums[r][c][3]}});
    }
    __syncwarp();
    for (int i = 0; i < 16; ++i) {
      const Index row = first_row + warp_row + r * 16 + i;
      if (row >= rows) break;
      const auto at = result.row(row);
      for (int c = lane; c < Tile::kWarpColumns; c += 32) {
        const Index column = first_column + warp_column + c;
        if (column < columns) result(f32(mine[i * kPitch + c]), at, column);
      }
    }
  }
}

}  // namespace product
