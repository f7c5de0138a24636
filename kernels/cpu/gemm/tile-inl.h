// Blocks of a matrix product from register tiles. Included inside a namespace that is compiled for
// one instruction set, by files that define there, for each kind of lane, a struct Dot:
//   using Vector, Number (f32 or i32); kRows, kVectors, kLanes (per vector);
//   kColumnBits: of one lane of a column of b;
//   zero(), load(p), broadcast(p), dot(sum, a, b), load_sum(p), store_sum(p, sum); with 4 bits
//   load_low(p) and load_high(p) in place of load(p);
//   kFinishes: whether finish_tile<Dot>() (gemm/register_epilogue-inl.h) can follow;
//   starts_rows(): only of lanes that add GemmBlock::row_starts; and add(sum, vector);
//   kScales: whether the loaded elements of b have scales, and scaled(loaded, scale, zero).

// The prefetch distance in the panels, which are consecutive: with AVX-512 some 500 cycles of work,
// as long as a line takes from memory. The processor itself does not fetch beyond a page of 4 KiB.
constexpr int64_t kPrefetchBytes = 8192;
// The same in each of several panels side by side.
constexpr int64_t kPrefetchBeside = 2048;

// Vector v of a panel's row. With 4 bits the columns of the second half of the row lie in the high
// halves of the bytes of the first.
template <class Dot>
typename Dot::Vector load_columns(const std::byte* row, int v) {
  if constexpr (Dot::kColumnBits == 4) {
    constexpr int kHalf = Dot::kVectors / 2;
    return v < kHalf ? Dot::load_low(row + v * Dot::kLanes)
                     : Dot::load_high(row + (v - kHalf) * Dot::kLanes);
  } else {
    return Dot::load(row + v * Dot::kLanes * Dot::kColumnBits / 8);
  }
}

// One tile of a block.
template <class Number>
struct TilePlace {
  int64_t row, column;  // of the block
  const std::byte *a, *b;
  const Number* initial;
  Number* c;
  int64_t c_stride;
};

// kUsed: vectors of a panel's row that are needed; the last panel may need fewer than it has.
// kPanels: the number of panels side by side, for products with too few rows to hide the latency of
// the sums.
template <class Dot, int kRows, int kUsed, int kPanels = 1>
void gemm_tile(const GemmBlock& block, const TilePlace<typename Dot::Number>& tile) {
  static_assert(kPanels == 1 || kUsed == Dot::kVectors);
  constexpr int kVectors = kUsed * kPanels;
  constexpr int kLanes = Dot::kLanes;
  constexpr int kRowBytes = Dot::kVectors * kLanes * Dot::kColumnBits / 8;  // of a panel
  // Three rows to a pointer, which x86 addresses as base, base + stride, base + 2 * stride.
  constexpr int kPointers = (kRows + 2) / 3;
  const std::byte* b = tile.b;
  const auto* const initial = tile.initial;
  auto* const c = tile.c;
  const int64_t c_stride = tile.c_stride;
  typename Dot::Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = block.accumulate     ? Dot::load_sum(c + row * c_stride + v * kLanes)
                     : initial != nullptr ? Dot::load_sum(initial + v * kLanes)
                                          : Dot::zero();
    }
  }
  if constexpr (requires { Dot::starts_rows(); })
    if (block.row_starts != nullptr && !block.accumulate) {
#pragma GCC unroll 16
      for (int row = 0; row < kRows; ++row) {
        const auto start =
            Dot::broadcast(reinterpret_cast<const std::byte*>(block.row_starts + tile.row + row));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[row][v] = Dot::add(sums[row][v], start);
      }
    }
  const int64_t stride = block.a_stride;
  const std::byte* panels[kPanels];
#pragma GCC unroll 8
  for (int i = 0; i < kPanels; ++i) panels[i] = b + i * block.panel_stride;
  for (int64_t tap = 0; tap < block.tap_count; ++tap) {
    const std::byte* const base =
        tile.a + (block.taps == nullptr ? tap * block.lanes * 4 : block.taps[tap]);
    const std::byte* rows[kPointers];
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) rows[i] = base + 3 * i * stride;
    [[maybe_unused]] typename Dot::Vector scales[kVectors], zeros[kVectors];
    if constexpr (Dot::kScales) {
      const int64_t at = tap * block.scales_stride + tile.column;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        scales[v] = Dot::load_sum(block.scales + at + v * kLanes);
        zeros[v] = Dot::kZeros ? Dot::load_sum(block.zeros + at + v * kLanes) : Dot::zero();
      }
    }
    for (int64_t lane = block.lanes; lane > 0; --lane) {
      typename Dot::Vector columns[kVectors];
      if constexpr (kPanels == 1) {
#pragma GCC unroll 8
        for (int at = 0; at < kRowBytes; at += 64) __builtin_prefetch(b + at + kPrefetchBytes);
        b += kRowBytes;
      } else if (constexpr int kRowsOfLine = kRowBytes < 64 ? 64 / kRowBytes : 1;
                 lane % kRowsOfLine == 0) {
#pragma GCC unroll 8
        for (int i = 0; i < kPanels; ++i)
#pragma GCC unroll 8
          for (int at = 0; at < kRowBytes; at += 64)
            __builtin_prefetch(panels[i] + at + kPrefetchBeside);
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        columns[v] = load_columns<Dot>(panels[v / kUsed], v % kUsed);
      if constexpr (Dot::kScales) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          columns[v] = Dot::scaled(columns[v], scales[v], zeros[v]);
      }
#pragma GCC unroll 16
      for (int row = 0; row < kRows; ++row) {
        const auto value = Dot::broadcast(rows[row / 3] + (row % 3) * stride);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[row][v] = Dot::dot(sums[row][v], value, columns[v]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kPointers; ++i) rows[i] += 4;
#pragma GCC unroll 8
      for (int i = 0; i < kPanels; ++i) panels[i] += kRowBytes;
    }
  }
  if constexpr (Dot::kFinishes)
    if (block.finish != nullptr)
      return finish_tile<Dot>(*block.finish, tile.row, tile.column, sums);
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      Dot::store_sum(c + row * c_stride + v * kLanes, sums[row][v]);
  }
}

// As many as keep 8 sums in work.
template <class Dot>
constexpr int panels_beside(int rows) {
  return rows * Dot::kVectors >= 8 ? 1 : 8 / (rows * Dot::kVectors);
}

template <class Dot>
void gemm_block(const GemmBlock& block) {
  using Number = typename Dot::Number;
  using Place = TilePlace<Number>;
  using Compute = void (*)(const GemmBlock&, const Place&);
  constexpr int kHalf = Dot::kVectors / 2;
  constexpr auto tiles_of = []<int used, int... rows>(std::integer_sequence<int, used>,
                                                      std::integer_sequence<int, rows...>) {
    return std::array<Compute, sizeof...(rows)>{&gemm_tile<Dot, rows + 1, used>...};
  };
  constexpr std::make_integer_sequence<int, Dot::kRows> heights{};
  static constexpr auto kWholeTiles =
      tiles_of(std::integer_sequence<int, Dot::kVectors>{}, heights);
  static constexpr auto kHalfTiles = tiles_of(std::integer_sequence<int, kHalf>{}, heights);
  constexpr int64_t kColumns = Dot::kVectors * Dot::kLanes;

  constexpr auto few_rows = []<int... rows>(std::integer_sequence<int, rows...>) {
    return std::array<Compute, sizeof...(rows)>{
        &gemm_tile<Dot, rows + 1, Dot::kVectors, panels_beside<Dot>(rows + 1)>...};
  };
  static constexpr auto kWideTiles = few_rows(heights);

  // Tiles of nearly equal height, so that none is left with a row or two.
  const int64_t tiles = (block.rows + Dot::kRows - 1) / Dot::kRows;
  const std::byte* panel = block.b;
  const auto initial_of = [&](int64_t at) {
    return block.initial == nullptr ? nullptr : reinterpret_cast<const Number*>(block.initial) + at;
  };
  const auto c_of = [&](int64_t at) { return reinterpret_cast<Number*>(block.c) + at; };
  int64_t column = 0;
  if (block.rows > 0 && block.rows <= Dot::kRows &&
      panels_beside<Dot>(static_cast<int>(block.rows)) > 1) {
    const int64_t step = panels_beside<Dot>(static_cast<int>(block.rows)) * kColumns;
    const Compute compute = kWideTiles[static_cast<size_t>(block.rows - 1)];
    for (; column + step <= block.columns; column += step) {
      compute(block,
              Place{0, column, block.a, panel, initial_of(column), c_of(column), block.c_stride});
      panel += step / kColumns * block.panel_stride;
    }
  }
  for (; column < block.columns; column += kColumns) {
    const int64_t width = block.columns - column;
    const Number* const initial = initial_of(column);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = block.rows * tile / tiles;
      const int64_t rows = block.rows * (tile + 1) / tiles - row;
      Number* const c = c_of(column) + row * block.c_stride;
      Place place{row, column, block.a + row * block.a_stride, panel, initial, c, block.c_stride};
      const Compute compute =
          (width <= kHalf * Dot::kLanes ? kHalfTiles : kWholeTiles)[static_cast<size_t>(rows - 1)];
      if (width >= kColumns || block.c_is_padded || block.finish != nullptr) {
        compute(block, place);
        continue;
      }
      alignas(64) Number edge[Dot::kRows * kColumns] = {};
      const size_t bytes = static_cast<size_t>(width) * sizeof(Number);
      if (block.accumulate)
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(edge + r * kColumns, c + r * block.c_stride, bytes);
      place.c = edge, place.c_stride = kColumns;
      compute(block, place);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(c + r * block.c_stride, edge + r * kColumns, bytes);
    }
    panel += block.panel_stride;
  }
}
