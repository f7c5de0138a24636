// Blocks of a matrix product from register tiles. Included inside a namespace that is compiled for
// one instruction set, by files that define there, for each kind of lane, a struct Dot:
//   using Vector, Number (f32 or i32); kRows, kVectors, kLanes (per vector);
//   zero(), load(p), broadcast(p), dot(sum, a, b), load_sum(p), store_sum(p, sum).

// kUsed: vectors of a panel's row that are needed; the last panel may need fewer than it has.
template <class Dot, int kRows, int kUsed>
void gemm_tile(const GemmBlock& block, const std::byte* a, const std::byte* b,
               const typename Dot::Number* initial, typename Dot::Number* c, int64_t c_stride,
               bool accumulate) {
  constexpr int kVectors = kUsed;
  constexpr int kLanes = Dot::kLanes;
  // Three rows to a pointer, which x86 addresses as base, base + stride, base + 2 * stride.
  constexpr int kPointers = (kRows + 2) / 3;
  typename Dot::Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = accumulate           ? Dot::load_sum(c + row * c_stride + v * kLanes)
                     : initial != nullptr ? Dot::load_sum(initial + v * kLanes)
                                          : Dot::zero();
    }
  }
  const int64_t stride = block.a_stride;
  const std::byte* rows[kPointers];
#pragma GCC unroll 8
  for (int i = 0; i < kPointers; ++i) rows[i] = a + 3 * i * stride;
  for (int64_t lane = block.lanes; lane > 0; --lane) {
    typename Dot::Vector columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) columns[v] = Dot::load(b + v * kLanes * 4);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const auto value = Dot::broadcast(rows[row / 3] + (row % 3) * stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[row][v] = Dot::dot(sums[row][v], value, columns[v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) rows[i] += 4;
    b += Dot::kVectors * kLanes * 4;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      Dot::store_sum(c + row * c_stride + v * kLanes, sums[row][v]);
  }
}

template <class Dot>
void gemm_block(const GemmBlock& block) {
  using Number = typename Dot::Number;
  using Tile = void (*)(const GemmBlock&, const std::byte*, const std::byte*, const Number*,
                        Number*, int64_t, bool);
  constexpr int kHalf = Dot::kVectors / 2;
  constexpr auto tiles_of = []<int used, int... rows>(std::integer_sequence<int, used>,
                                                      std::integer_sequence<int, rows...>) {
    return std::array<Tile, sizeof...(rows)>{&gemm_tile<Dot, rows + 1, used>...};
  };
  constexpr std::make_integer_sequence<int, Dot::kRows> heights{};
  static constexpr auto kWholeTiles =
      tiles_of(std::integer_sequence<int, Dot::kVectors>{}, heights);
  static constexpr auto kHalfTiles = tiles_of(std::integer_sequence<int, kHalf>{}, heights);
  constexpr int64_t kColumns = Dot::kVectors * Dot::kLanes;

  // Tiles of nearly equal height, so that none is left with a row or two.
  const int64_t tiles = (block.rows + Dot::kRows - 1) / Dot::kRows;
  const std::byte* panel = block.b;
  for (int64_t column = 0; column < block.columns; column += kColumns) {
    const int64_t width = block.columns - column;
    const auto* initial = block.initial == nullptr
                              ? nullptr
                              : reinterpret_cast<const Number*>(block.initial) + column;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = block.rows * tile / tiles;
      const int64_t rows = block.rows * (tile + 1) / tiles - row;
      const std::byte* a = block.a + row * block.a_stride;
      Number* c = reinterpret_cast<Number*>(block.c) + row * block.c_stride + column;
      const Tile compute =
          (width <= kHalf * Dot::kLanes ? kHalfTiles : kWholeTiles)[static_cast<size_t>(rows - 1)];
      if (width >= kColumns || block.c_is_padded) {
        compute(block, a, panel, initial, c, block.c_stride, block.accumulate);
        continue;
      }
      alignas(64) Number edge[Dot::kRows * kColumns] = {};
      const size_t bytes = static_cast<size_t>(width) * sizeof(Number);
      if (block.accumulate)
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(edge + r * kColumns, c + r * block.c_stride, bytes);
      compute(block, a, panel, initial, edge, kColumns, block.accumulate);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(c + r * block.c_stride, edge + r * kColumns, bytes);
    }
    panel += block.panel_stride;
  }
}
