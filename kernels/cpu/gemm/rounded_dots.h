// Products of rows of 8-bit numbers by weights of 2, 4 or 8 bits: exact integer sums within a group
// of k, and f32 sums of the groups, in their order.
//
//   y[row][n] = sum over groups of  s[row][group] scale[group][n] sum over the group's k of
//               q[row][k] (code[k][n] - zero[group][n])
//
// Panels of 16 columns follow each other. A panel holds
//   codes of 2 bits, for each 16 of k: 64 bytes, four for each column; byte j of a column has codes
//                    j, j + 4, j + 8 and j + 12 of the sixteen, from its lowest bits on
//   codes of 4 bits, for each 8 of k: 64 bytes, four for each column; byte j of a column has code j
//                    of the eight in its low half and code j + 4 in its high half
//   codes of 8 bits, for each 4 of k: 64 bytes, four for each column
//   for each group: 16 scales, f32, or f16 times the power of two by which the rows' scales are
//                    divided
//   for each group: 16 zero points (u8), if the layout has them
// The layout and the results are the same for every instruction set. Rounding scales to f16 changes
// results far less than rounding rows to 8 bits, and saves half of their memory. Three rows of 8
// bits, of a row, of what rounding it left and of what rounding that left, are within about 2^-24
// of the largest number of a group, and want scales of f32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "anneal/core/integer.h"
#include "anneal/core/isa.h"

namespace anneal::cpu {

struct CodeLayout {
  static constexpr int64_t kColumns = 16;     // of a panel
  static constexpr int64_t kLeastGroup = 16;  // groups are multiples of it
  // A sum of 2^16 products of 127 and a zero point of 255 fits 32 bits.
  static constexpr int64_t kMostGroup = 1 << 16;
  int64_t k = 0, n = 0, group = 0;  // group: a divisor of k
  int bits = 4;                     // of a code: 2, 4 or 8
  bool has_zeros = false, has_f32_scales = false;
  int zero = 8;            // the zero point of all without has_zeros
  float scale_factor = 1;  // of the packed scales: a power of two
  int64_t scale_bytes() const { return kColumns * (has_f32_scales ? 4 : 2); }  // of a group
  int64_t groups() const { return k / group; }
  int64_t panels() const { return ceil_div(n, kColumns); }
  int64_t code_bytes() const { return k * kColumns * bits / 8; }  // of a panel
  int64_t scales_at() const { return code_bytes(); }
  int64_t zeros_at() const { return scales_at() + groups() * scale_bytes(); }
  int64_t panel_bytes() const {
    return align_up(zeros_at() + (has_zeros ? groups() * kColumns : 0), 64);
  }
  size_t bytes() const { return static_cast<size_t>(panels() * panel_bytes()); }
  std::string form() const;  // as packed_constant() wants it
};

// How far ahead of byte `at` of a part of its panels a tile of `panels` panels prefetches:
// `distance` bytes, and at the end of the part to the same part of the next tile's panels.
inline int64_t ahead_of(const CodeLayout& layout, int64_t at, int64_t part_bytes, int64_t distance,
                        int panels) {
  return distance + (at + distance >= part_bytes ? panels * layout.panel_bytes() - part_bytes : 0);
}

// Weights to pack: columns of codes of 2, 4 or 8 bits. Those of fewer than 8 bits follow each other
// in a column, from the lowest bits of a byte on. zeros: null without has_zeros. Signed numbers of
// 8 bits become codes by 128 more, and so do their zero points.
struct CodeSource {
  const uint8_t* codes = nullptr;
  bool is_signed = false;
  int64_t column_bytes = 0;  // from a column to the next one
  int64_t k_bytes = 1;       // of 8 bits, from one code of a column to the next one
  const float* scales = nullptr;
  const uint8_t* zeros = nullptr;
  // Of scales and zero points: from a column to the next one (0: all share them), from a group to
  // the next one, and how many groups of the layout share one.
  int64_t factor_stride = 0, group_stride = 1, groups_of_factor = 1;
};
// CodeLayout::scale_factor for these scales, `groups` for each column. nullopt: one is not
// finite, or the largest scales of two columns are too far apart for f16.
std::optional<float> scale_factor_of(std::span<const float> scales, int64_t groups);
void pack_code_panel(const CodeLayout& layout, const CodeSource& source, int64_t panel,
                     std::byte* to);

// A row of f32 as q * scale * layout.scale_factor, with a scale for each group: the largest
// magnitude becomes 127. A group with a number that is not finite has a NaN as its scale.
struct RoundedRow {
  int8_t* q = nullptr;      // k
  float* scales = nullptr;  // one for each group
  int32_t* sums = nullptr;  // of the group's q
};
using RoundRow = void (*)(const CodeLayout& layout, const float* row, const RoundedRow& to);
RoundRow round_row(Isa isa);
// rest[i] = row[i] less what it became in `rounded`. May be the row.
using RoundingRest = void (*)(const CodeLayout& layout, const float* row, const RoundedRow& rounded,
                              float* rest);
RoundingRest rounding_rest(Isa isa);

struct RoundedBlock {
  const CodeLayout* layout = nullptr;
  const std::byte* panel = nullptr;  // the first one
  int64_t panels = 0;
  RoundedRow rows;  // the first one; the next one is k, groups and groups numbers later
  int64_t row_count = 0;
  float* c = nullptr;
  int64_t c_stride = 0;  // elements; rows of c have room for whole panels
};
using RoundedDots = void (*)(const RoundedBlock& block);
RoundedDots rounded_dots(Isa isa);
void rounded_vnni(const RoundedBlock& block);      // REQUIRES: as vnni_gemm()
void rounded_avx_vnni(const RoundedBlock& block);  // REQUIRES: has_avx_vnni()

}  // namespace anneal::cpu
