// The parts of matrix products that each instruction set has of its own: register tiles, and the
// layout of packed right-hand sides.
//
// A left-hand side is rows of 32-bit lanes: one f32, two bf16 or i16, or four u8 that follow each
// other along k. A right-hand side is packed into panels of as many columns as a register tile has;
// a panel holds, for each lane along k, that lane of every column. Weights of f16 and bf16 have two
// bytes of each column there. Quantized weights (kWeights8, kWeights4 and kCodes) have a byte or a
// part of one; groups of lanes have a scale and a zero point for each column.
//
// Every sum is one chain of additions in the order of k, however the work is cut.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "anneal/core/integer.h"
#include "anneal/core/tensor.h"
#include "anneal/graph/op/weight_encoding.h"
#include "anneal/kernels/cpu/program/register_epilogue.h"

namespace anneal::cpu {

// c = initial + row_starts + a * b, or c += a * b.
struct GemmBlock {
  const std::byte* a = nullptr;
  int64_t a_stride = 0;                 // bytes from row to row
  const std::byte* b = nullptr;         // the first panel, at the first lane
  int64_t panel_stride = 0;             // bytes from panel to panel
  std::byte* c = nullptr;               // f32 or i32
  int64_t c_stride = 0;                 // elements from row to row
  const std::byte* initial = nullptr;   // per column, padded to whole panels; null: zeros
  const int32_t* row_starts = nullptr;  // kU8S8: added to the sums of each row; null: nothing
  int64_t rows = 0, columns = 0, lanes = 0;
  // A row of a consists of tap_count pieces of `lanes` elements. taps: the byte offset of each
  // piece from the row; null: the pieces follow each other.
  const int64_t* taps = nullptr;
  int64_t tap_count = 1;
  // Quantized weights: one number per column of the first piece, padded to whole panels; those of
  // the next piece follow scales_stride numbers later. zeros is null: no column has a zero point.
  const float *scales = nullptr, *zeros = nullptr;
  int64_t scales_stride = 0;
  WeightEncoding encoding = WeightEncoding::kIntegers;  // of quantized weights
  bool accumulate = false;
  bool c_is_padded = false;  // whole panels may be written
  // Null: sums are stored. c is only read else, if sums accumulate. REQUIRES:
  // GemmKernels::finishes() its storage, and columns are a multiple of kRegisterColumns
  const RegisterEpilogue* finish = nullptr;
};

constexpr int64_t kRegisterColumns = 16;
constexpr int64_t kBlockLanes = 512;  // of a block of GemmBlocks
// Lanes of a panel that becomes f32, in half of the first-level cache.
constexpr int64_t kCachedLanes = 128;

enum class GemmKind : uint8_t {
  kF32,          // f32 * f32
  kI16,          // pairs of i16: 8-bit operands from which zero points are already taken
  kU8S8,         // quads of u8 * s8: zero points are accounted for afterwards
  kBf16,         // pairs of bf16, with sums of f32: gemm/bf16.h
  kWeights8,     // f32 * (s8 - zero) * scale, bit-equal to f32 * f32 after Dequantize
  kWeights4,     // f32 * (s4 - zero) * scale, likewise
  kCodes,        // f32 * (number of the code - zero) * scale, likewise
  kWeightsF16,   // f32 * f16, bit-equal to f32 * f32
  kWeightsBf16,  // f32 * bf16, likewise
};
constexpr bool has_half_weights(GemmKind kind) {
  return kind == GemmKind::kWeightsF16 || kind == GemmKind::kWeightsBf16;
}
// Whether the elements of b become f32 before they are multiplied.
constexpr bool converts_weights(GemmKind kind) {
  return kind == GemmKind::kWeights8 || kind == GemmKind::kWeights4 || kind == GemmKind::kCodes ||
         has_half_weights(kind);
}

// Rows of a tile whose weights become f32 in registers, at most; more rows read a panel that was
// converted once. Tiles of each height are code of their own.
constexpr int most_converting_rows(GemmKind kind) {
  return kind == GemmKind::kCodes ? 0 : has_half_weights(kind) ? 1 : 4;
}

// One instruction set's way to compute blocks.
struct GemmKernels {
  GemmKind kind = GemmKind::kF32;
  WeightEncoding encoding = WeightEncoding::kIntegers;  // of quantized weights
  int tile_rows = 0, tile_columns = 0;
  int elements_per_lane = 1;
  void (*block)(const GemmBlock&) = nullptr;
  // n elements of storage -> elements of a left-hand side. f32 for kF32; bf16, or f32 to be
  // rounded, for kBf16; an 8-bit type otherwise, of which kI16 subtracts `zero`, and kU8S8 makes i8
  // unsigned by adding 128.
  void (*fetch)(DataType storage, const std::byte* from, int64_t n, int32_t zero,
                std::byte* to) = nullptr;
  CanStore finishes = stores_nothing;
  // kU8S8: adds the first `bytes` bytes of each piece of a row of a to the row's sum.
  void (*row_sums)(const GemmBlock& block, int64_t bytes, int32_t* sums) = nullptr;
  // kU8S8: c[row][column] -= sums[row] * zeros[column]; columns are padded to whole panels.
  void (*subtract_outer)(const int32_t* sums, const int32_t* zeros, int64_t rows, int64_t columns,
                         int32_t* c, int64_t c_stride) = nullptr;

  size_t element_size() const { return 4 / static_cast<size_t>(elements_per_lane); }
  bool sums_are_f32() const { return kind != GemmKind::kI16 && kind != GemmKind::kU8S8; }
  // Whether the product reads elements of this storage type as a left-hand side without conversion.
  bool reads(DataType storage) const;
};

// One packed matrix of k rows and n columns.
struct PackLayout {
  PackLayout() = default;
  // tap: k is pieces of `tap` elements, each of which begins at a lane; 0: one piece.
  PackLayout(const GemmKernels& kernels, int64_t rows, int64_t columns, int64_t tap = 0);
  int64_t k = 0, n = 0, tap = 0;
  GemmKind kind = GemmKind::kF32;
  WeightEncoding encoding = WeightEncoding::kIntegers;  // of quantized weights
  int tile_columns = 1, elements_per_lane = 1;
  int64_t group = 0;       // of quantized weights: lanes that share a scale, a divisor of k
  bool has_zeros = false;  // of quantized weights: room for zero points

  int64_t tap_lanes() const { return ceil_div(tap, elements_per_lane); }
  int64_t lanes() const { return tap == 0 ? 0 : k / tap * tap_lanes(); }
  // Where element i of k is, counted in elements.
  int64_t place(int64_t i) const { return i / tap * tap_lanes() * elements_per_lane + i % tap; }
  int64_t panels() const { return ceil_div(n, tile_columns); }
  int64_t padded_columns() const { return panels() * tile_columns; }
  int64_t lane_bytes() const {
    if (kind == GemmKind::kWeights4) return tile_columns / 2;
    if (kind == GemmKind::kCodes) return tile_columns * bits_of(encoding) / 8;
    if (has_half_weights(kind)) return tile_columns * 2;
    return tile_columns * (kind == GemmKind::kWeights8 ? 1 : 4);
  }
  int64_t panel_bytes() const { return lanes() * lane_bytes(); }
  int64_t groups() const { return group == 0 ? 0 : lanes() / group; }
  // Behind the panels: sums of the columns (i32), which only kU8S8 uses; of quantized weights the
  // scales of each group (f32, for each column), then the zero points likewise, if there are any.
  int64_t sums_offset() const { return panels() * panel_bytes(); }
  int64_t zeros_offset() const { return sums_offset() + groups() * padded_columns() * 4; }
  size_t bytes() const;      // a multiple of 64
  std::string form() const;  // names all of the above, as packed_constant() wants it
};

// A matrix to pack. Its k is made of several axes, the last one fastest.
// For kWeights4 and kCodes it has MatMul's b_encoding: k has one axis, a byte holds several of its
// codes, and column_stride counts bytes.
struct PackSource {
  DataType dtype = DataType::kF32;
  const std::byte* data = nullptr;
  int64_t column_stride = 0;
  Dims k_dims, k_strides;
  // kI16 subtracts them; null: zero. Stride 0: one for all columns.
  const std::byte* zero = nullptr;
  int64_t zero_stride = 0;
  // Of quantized weights: scales of f32. Zero points lie as scales do.
  const float* scale = nullptr;
  int64_t scale_stride = 0, scale_group_stride = 0;
};

}  // namespace anneal::cpu
