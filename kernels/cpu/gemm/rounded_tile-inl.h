// The tile of products by weights of 2, 4 or 8 bits (rounded_dots.h), for the vectors of one
// instruction set. Included in a namespace of the file that is compiled for it. A struct V
// describes them:
//
//   Integer, Float, kLanes  vectors of 32-bit lanes
//   dot(sum, codes, q)      adds the products of bytes, u8 of up to 4 bits by s8, to a partial sum
//   dot_bytes(sum, codes, q)  adds the products of bytes, u8 less kByteZero by s8, to a whole sum
//   kIsWhole                whether a partial sum has lanes of 32 bits; else whole(sum) makes them
//   kMostTerms              of k in a partial sum, so that it cannot overflow; a multiple of 16
//   kTermsOfLoop            of k in one pass of the inner loop: 8 or 16
// and operations on lanes by their names.

constexpr int kMostTileRows = 4;                               // at most, of a tile
constexpr int64_t kAheadOfCodes = 2048, kAheadOfScales = 256;  // bytes that are fetched ahead

// Few rows take several panels, whose sums hide each other's latency.
template <class V>
constexpr int rounded_panels(int rows) {
  constexpr int kPanelVectors = static_cast<int>(CodeLayout::kColumns) / V::kLanes;
  return rows == 1 ? 4 / kPanelVectors : kPanelVectors == 1 || rows == 2 ? 2 : 1;
}

template <class V>
HWY_INLINE typename V::Integer four_numbers(const int8_t* q) {
  int32_t quad;
  std::memcpy(&quad, q, sizeof quad);
  return V::set(quad);
}

// Adds the products of a group to `dots`, of 8-bit codes at the byte `at` of each panel.
template <class V, int kRows, int kVectors>
HWY_INLINE void add_bytes(typename V::Integer (&dots)[kRows][kVectors],
                          const std::byte* const* panels, int64_t& at, int64_t ahead,
                          const int8_t*& q, const CodeLayout& layout) {
  constexpr int kPanelVectors = static_cast<int>(CodeLayout::kColumns) / V::kLanes;
  for (int64_t k = 0; k < layout.group; k += 8)
#pragma GCC unroll 2
    for (int64_t i = 0; i < 8; i += 4, at += 64, q += 4)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* from = panels[v / kPanelVectors] + at;
        if (v % kPanelVectors == 0) __builtin_prefetch(from + ahead);
        const auto bytes = V::load_integers(from + v % kPanelVectors * V::kLanes * 4);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          dots[r][v] = V::dot_bytes(dots[r][v], bytes, four_numbers<V>(q + r * layout.k));
      }
}

// Adds the products of four terms of each row to the vector v of `sums`.
template <class V, int kRows, int kVectors>
HWY_INLINE void add_terms(typename V::Integer (&sums)[kRows][kVectors], int v,
                          typename V::Integer codes, const int8_t* q, const CodeLayout& layout) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
    sums[r][v] = V::dot(sums[r][v], codes, four_numbers<V>(q + r * layout.k));
}

// As add_bytes(), of codes of 2 or 4 bits.
template <class V, int kBits, int kRows, int kVectors>
HWY_INLINE void add_codes(typename V::Integer (&dots)[kRows][kVectors],
                          const std::byte* const* panels, int64_t& at, int64_t ahead,
                          const int8_t*& q, const CodeLayout& layout) {
  using Integer = typename V::Integer;
  constexpr int kPanelVectors = static_cast<int>(CodeLayout::kColumns) / V::kLanes;
  constexpr int64_t kTerms = 32 / kBits;  // of k in 64 bytes
  constexpr int64_t kTermsOfLoop = std::max(V::kTermsOfLoop, kTerms);
  const Integer mask = V::set(kBits == 2 ? 0x03030303 : 0x0F0F0F0F);
  for (int64_t left = layout.group; left > 0; left -= V::kMostTerms) {
    Integer partial[kRows][kVectors];
    const int64_t terms = std::min(left, V::kMostTerms);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) partial[r][v] = V::kIsWhole ? dots[r][v] : V::set(0);
    for (int64_t k = 0; k < terms; k += kTermsOfLoop)
#pragma GCC unroll 2
      for (int64_t i = 0; i < kTermsOfLoop; i += kTerms, at += 64, q += kTerms)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const std::byte* from = panels[v / kPanelVectors] + at;
          if (v % kPanelVectors == 0) __builtin_prefetch(from + ahead);
          const Integer bytes = V::load_integers(from + v % kPanelVectors * V::kLanes * 4);
          add_terms<V>(partial, v, V::both(bytes, mask), q, layout);
          add_terms<V>(partial, v, V::both(V::template shift<kBits>(bytes), mask), q + 4, layout);
          if constexpr (kBits == 2) {
            add_terms<V>(partial, v, V::both(V::template shift<4>(bytes), mask), q + 8, layout);
            add_terms<V>(partial, v, V::both(V::template shift<6>(bytes), mask), q + 12, layout);
          }
        }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (V::kIsWhole)
          dots[r][v] = partial[r][v];
        else
          dots[r][v] = V::add(dots[r][v], V::whole(partial[r][v]));
      }
  }
}

template <class V, int kRows, int kPanels>
void rounded_tile(const RoundedBlock& block, int64_t row, int64_t panel) {
  using Integer = typename V::Integer;
  using Float = typename V::Float;
  constexpr int kPanelVectors = static_cast<int>(CodeLayout::kColumns) / V::kLanes;
  constexpr int kVectors = kPanels * kPanelVectors;
  const CodeLayout& layout = *block.layout;
  const int64_t groups = layout.groups(), scale_bytes = layout.scale_bytes();
  const bool is_wide = layout.bits == 8;
  const std::byte* panels[kPanels];
#pragma GCC unroll 4
  for (int i = 0; i < kPanels; ++i) panels[i] = block.panel + (panel + i) * layout.panel_bytes();
  const int8_t* q = block.rows.q + row * layout.k;
  const float* const row_scales = block.rows.scales + row * groups;
  const int32_t* const q_sums = block.rows.sums + row * groups;
  Float sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::set(0.0F);
  int64_t at = 0;  // of the codes of a panel
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t ahead = ahead_of(layout, at, layout.code_bytes(), kAheadOfCodes, kPanels);
    Integer dots[kRows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const int zero = (layout.has_zeros ? 0 : layout.zero) - (is_wide ? V::kByteZero : 0);
      const Integer first = V::set(-zero * q_sums[r * groups + group]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dots[r][v] = first;
    }
    if (is_wide)
      add_bytes<V>(dots, panels, at, ahead, q, layout);
    else if (layout.bits == 4)
      add_codes<V, 4>(dots, panels, at, ahead, q, layout);
    else
      add_codes<V, 2>(dots, panels, at, ahead, q, layout);
    const int64_t scales = group * scale_bytes;
    const int64_t scales_ahead =
        ahead_of(layout, scales, groups * scale_bytes, kAheadOfScales, kPanels);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::byte* const at_panel = panels[v / kPanelVectors];
      const std::byte* const factors = at_panel + layout.scales_at() + scales;
      const int column = v % kPanelVectors * V::kLanes;
      if (column == 0) __builtin_prefetch(factors + scales_ahead);
      const Float scale = layout.has_f32_scales ? V::load_floats(factors + column * 4)
                                                : V::load_halves(factors + column * 2);
      if (layout.has_zeros) {
        const Integer zero =
            V::load_bytes(at_panel + layout.zeros_at() + group * CodeLayout::kColumns + column);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          dots[r][v] =
              V::subtract(dots[r][v], V::multiply(zero, V::set(q_sums[r * groups + group])));
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        sums[r][v] =
            V::multiply_add(V::to_float(dots[r][v]),
                            V::multiply(scale, V::set(row_scales[r * groups + group])), sums[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      V::store(sums[r][v],
               block.c + (row + r) * block.c_stride + panel * CodeLayout::kColumns + v * V::kLanes);
}

template <class V, int kRows>
void rounded_row(const RoundedBlock& block, int64_t row, int64_t panel, int64_t end) {
  constexpr int kPanels = rounded_panels<V>(kRows);
  for (; panel + kPanels <= end; panel += kPanels)
    rounded_tile<V, kRows, kPanels>(block, row, panel);
  if constexpr (kPanels > 1)
    for (; panel < end; ++panel) rounded_tile<V, kRows, 1>(block, row, panel);
}

template <class V>
void rounded_block(const RoundedBlock& block) {
  constexpr int64_t kPanelsAtOnce = 2;  // which stay in the cache for the tiles of all rows
  const int64_t heights = ceil_div<int64_t>(block.row_count, kMostTileRows);
  const int64_t step = heights == 1 ? block.panels : kPanelsAtOnce;
  for (int64_t panel = 0; panel < block.panels; panel += step)
    for (int64_t i = 0; i < heights; ++i) {
      const int64_t row = block.row_count * i / heights;
      const int64_t end = std::min(panel + step, block.panels);
      switch (block.row_count * (i + 1) / heights - row) {
        case 1:
          rounded_row<V, 1>(block, row, panel, end);
          break;
        case 2:
          rounded_row<V, 2>(block, row, panel, end);
          break;
        case 3:
          rounded_row<V, 3>(block, row, panel, end);
          break;
        default:
          rounded_row<V, 4>(block, row, panel, end);
      }
    }
}
