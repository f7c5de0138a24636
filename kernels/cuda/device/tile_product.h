// Sums of products on CUDA cores, the common part of MatMul and Conv. A block computes the sums of
// a tile, rows of side A by columns of side B; pieces of both sides go through shared memory, where
// one is read while the next is on its way.
//
// A side describes where its elements are. Its lines are rows of A, or columns of B:
//   Element, Index; kLanes neighbours are read at once, along the depth if kAlongDepth, else along
//   the lines;
//   Line line(Index i): the data that all elements of line i share; Deep deep(Index d): for all
//   elements at depth d; both for any i, d >= 0. Lines beyond the last are read as the last.
//   data[offset(Line, Deep)], ...: kLanes elements, together if they are `aligned`. Elements that
//   are not is_in(Line, Deep) are beyond the depth or in padding, and count as zero_of(Line). Acc
//   zero_of(Line): the number that is subtracted from each element.
#pragma once

namespace product {

template <int rows, int columns, int depth, int thread_rows, int thread_columns, int slices,
          bool lanes_down>
struct Tile {
  enum : int { kRows = rows, kColumns = columns, kDepth = depth };  // of the block
  enum : int { kThreadRows = thread_rows, kThreadColumns = thread_columns };
  // Threads that share sums, each for its part of the depth.
  enum : int { kSlices = slices };
  enum : int { kDown = rows / thread_rows, kAcross = columns / thread_columns };
  enum : int { kSliceThreads = kDown * kAcross, kThreads = kSliceThreads * slices };
  enum : bool { kLanesDown = lanes_down };  // the lanes of a warp are rows, else columns
};

template <class Side, class Line, class Deep>
__device__ auto fetch(const Side& side, const Line& line, const Deep& deep) {
  if (side.is_in(line, deep))
    return load_lanes<Side::kLanes>(side.data, side.offset(line, deep), side.aligned);
  Vec<typename Side::Element, Side::kLanes> none;
  UNROLL
  for (int i = 0; i < Side::kLanes; ++i)
    none[i] = Narrow<typename Side::Element>::of(side.zero_of(line));
  return none;
}

// The elements of one side that a thread brings to shared memory: [depth][line], lines adjacent.
template <class Tile, class Acc, class Side, int kLines>
struct Panel {
  using Index = typename Side::Index;
  enum : int { kLanes = Side::kLanes };
  enum : bool { kAlongDepth = Side::kAlongDepth };
  enum : int { kVector = 16 / sizeof(Acc) };
  enum : int { kPitch = kLines + kVector, kSize = Tile::kDepth * kPitch };
  // Neighbouring threads go the fast way; a thread's own elements are steps apart in the slow one.
  enum : int { kFast = (kAlongDepth ? Tile::kDepth : kLines) / kLanes };
  enum : int { kSlow = kAlongDepth ? kLines : Tile::kDepth };
  enum : int { kStep = Tile::kThreads / kFast };
  enum : int { kEach = (kSlow + kStep - 1) / kStep };
  static_assert(Tile::kThreads % kFast == 0 && kFast * kLanes >= 1, "threads go round evenly");

  const Side& side;
  i32 fast, slow;
  typename Side::Line lines[kAlongDepth ? kEach : 1];
  Vec<typename Side::Element, kLanes> values[kEach];

  __device__ Panel(const Side& from, Index first) : side(from) {
    fast = i32(threadIdx.x) % kFast * kLanes;
    slow = i32(threadIdx.x) / kFast;
    if constexpr (kAlongDepth) {
      UNROLL
      for (int i = 0; i < kEach; ++i) lines[i] = side.line(first + slow + i * kStep);
    } else {
      lines[0] = side.line(first + fast);
    }
  }
  __device__ bool has(int i) const { return kSlow % kStep == 0 || slow + i * kStep < kSlow; }

  __device__ void fetch(Index depth) {
    if constexpr (kAlongDepth) {
      const auto deep = side.deep(depth + fast);
      UNROLL
      for (int i = 0; i < kEach; ++i)
        if (has(i)) values[i] = product::fetch(side, lines[i], deep);
    } else {
      UNROLL
      for (int i = 0; i < kEach; ++i)
        if (has(i)) values[i] = product::fetch(side, lines[0], side.deep(depth + slow + i * kStep));
    }
  }

  __device__ void put(SharedArray<Acc> to) const {
    UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (!has(i)) continue;
      const Acc zero = side.zero_of(lines[kAlongDepth ? i : 0]);
      if constexpr (kAlongDepth) {
        UNROLL
        for (int lane = 0; lane < kLanes; ++lane)
          to[(fast + lane) * kPitch + slow + i * kStep] = op::widen(values[i][lane]) - zero;
      } else {
        constexpr int kPart = kLanes < kVector ? kLanes : kVector;
        UNROLL
        for (int first = 0; first < kLanes; first += kPart) {
          Vec<Acc, kPart> part;
          UNROLL
          for (int lane = 0; lane < kPart; ++lane)
            part[lane] = op::widen(values[i][first + lane]) - zero;
          store(to, (slow + i * kStep) * kPitch + fast + first, part);
        }
      }
    }
  }
};

// Which of a block's lines are a thread's: groups of neighbours, so that it reads vectors and the
// threads of a warp read other banks.
template <class Acc, int kThreadLines, int kThreadsAlong>
struct Share {
  enum : int { kVector = 16 / sizeof(Acc) };
  enum : int { kGroup = kThreadLines < kVector ? kThreadLines : kVector };
  enum : int { kGroups = kThreadLines / kGroup };
  __device__ static i32 at(i32 thread, int i) {
    return i / kGroup * (kThreadsAlong * kGroup) + thread * kGroup + i % kGroup;
  }
  __device__ static void read(SharedArray<Acc> from, i32 thread, Acc (&values)[kThreadLines]) {
    UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const auto part = load<kGroup>(from, at(thread, group * kGroup));
      UNROLL
      for (int i = 0; i < kGroup; ++i) values[group * kGroup + i] = part[i];
    }
  }
};

// Result::kLanes columns are stored at once. result.row(Index): what is the same for all columns of
// a row; result.columns(Index): what is read for kLanes columns and the same in all rows;
// result.inputs(row, Index column): what else is read for them; and result(sums, columns, inputs,
// row, Index column) stores. Only rows below `rows` and columns below `columns` are stored; columns
// begin at multiples of kLanes, and end there if kLanes is not 1.
template <class Tile, class Acc, class A, class B, class Result>
__device__ void tile_product(const A& a, const B& b, const Result& result,
                             typename A::Index first_row, typename A::Index rows,
                             typename A::Index first_column, typename A::Index columns,
                             typename A::Index depth) {
  using Index = typename A::Index;
  using PanelA = Panel<Tile, Acc, A, Tile::kRows>;
  using PanelB = Panel<Tile, Acc, B, Tile::kColumns>;
  using Rows = Share<Acc, Tile::kThreadRows, Tile::kDown>;
  using Columns = Share<Acc, Tile::kThreadColumns, Tile::kAcross>;
  constexpr int kStage = PanelA::kSize + PanelB::kSize;
  constexpr int kExchange = Tile::kSlices / 2 * Tile::kRows * Tile::kColumns;
  SHARED(Acc, memory, kExchange > 2 * kStage ? kExchange : 2 * kStage);

  const i32 slice = i32(threadIdx.x) / Tile::kSliceThreads;
  const i32 thread = i32(threadIdx.x) % Tile::kSliceThreads;
  const i32 down = Tile::kLanesDown ? thread % Tile::kDown : thread / Tile::kAcross;
  const i32 across = Tile::kLanesDown ? thread / Tile::kDown : thread % Tile::kAcross;
  Acc sums[Tile::kThreadRows][Tile::kThreadColumns];
  UNROLL
  for (int r = 0; r < Tile::kThreadRows; ++r) {
    UNROLL
    for (int c = 0; c < Tile::kThreadColumns; ++c) sums[r][c] = Acc(0);
  }

  PanelA panel_a(a, first_row);
  PanelB panel_b(b, first_column);
  i32 stage = 0;
  if (depth > 0) {
    panel_a.fetch(0);
    panel_b.fetch(0);
    panel_a.put(memory);
    panel_b.put(memory + PanelA::kSize);
  }
  __syncthreads();
  for (Index at = 0; at < depth; at += Tile::kDepth) {
    const bool more = depth - at > Tile::kDepth;
    if (more) {
      panel_a.fetch(at + Tile::kDepth);
      panel_b.fetch(at + Tile::kDepth);
    }
    const SharedArray<Acc> piece_a = memory + stage * kStage, piece_b = piece_a + PanelA::kSize;
    UNROLL
    for (int part = 0; part < Tile::kDepth / Tile::kSlices; ++part) {
      const i32 k = part * Tile::kSlices + slice;
      Acc left[Tile::kThreadRows], right[Tile::kThreadColumns];
      Rows::read(piece_a + k * PanelA::kPitch, down, left);
      Columns::read(piece_b + k * PanelB::kPitch, across, right);
      UNROLL
      for (int r = 0; r < Tile::kThreadRows; ++r) {
        UNROLL
        for (int c = 0; c < Tile::kThreadColumns; ++c)
          sums[r][c] = multiply_add(left[r], right[c], sums[r][c]);
      }
    }
    stage ^= 1;
    if (more) {
      panel_a.put(memory + stage * kStage);
      panel_b.put(memory + stage * kStage + PanelA::kSize);
    }
    __syncthreads();
  }

  if constexpr (Tile::kSlices > 1) {
    for (int half = Tile::kSlices / 2; half > 0; half /= 2) {
      const i32 pitch = half * Tile::kSliceThreads;
      const i32 mine = slice % half * Tile::kSliceThreads + thread;
      const bool gives = slice >= half && slice < 2 * half;
      UNROLL
      for (int i = 0; i < Tile::kThreadRows * Tile::kThreadColumns; ++i)
        if (gives)
          memory[i * pitch + mine] = sums[i / Tile::kThreadColumns][i % Tile::kThreadColumns];
      __syncthreads();
      UNROLL
      for (int i = 0; i < Tile::kThreadRows * Tile::kThreadColumns; ++i)
        if (slice < half) {
          Acc& sum = sums[i / Tile::kThreadColumns][i % Tile::kThreadColumns];
          const Acc other = memory[i * pitch + mine];
          sum = op::add(sum, other);
        }
      __syncthreads();
    }
    if (slice != 0) return;
  }
  constexpr int kLanes = Result::kLanes;
  static_assert(Columns::kGroup % kLanes == 0, "a thread's neighbours are whole vectors");
  UNROLL
  for (int c = 0; c < Tile::kThreadColumns; c += kLanes) {
    const Index column = first_column + Columns::at(across, c);
    if (column >= columns) continue;
    const auto of_columns = result.columns(column);
    UNROLL
    for (int r = 0; r < Tile::kThreadRows; ++r) {
      const Index row = first_row + Rows::at(down, r);
      if (row >= rows) continue;
      const auto at = result.row(row);
      Vec<Acc, kLanes> values;
      UNROLL
      for (int lane = 0; lane < kLanes; ++lane) values[lane] = sums[r][c + lane];
      result(values, of_columns, result.inputs(at, column), at, column);
    }
  }
}

}  // namespace product
