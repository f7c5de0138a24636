// Matrix products: packed right-hand sides, and blocks of rows. MatMul and convolutions put them
// together.
//
// Every sum is one chain of additions in the order of k, however the work is cut.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "anneal/core/integer.h"
#include "anneal/core/isa.h"
#include "anneal/core/tensor.h"
#include "anneal/kernels/cpu/gemm/gemm_kernels.h"

namespace anneal::cpu {

GemmKernels f32_gemm(Isa isa);
GemmKernels int8_gemm(Isa isa);
GemmKernels weights_gemm(Isa isa, WeightEncoding encoding);  // f32 by quantized weights
GemmKernels half_weights_gemm(Isa isa, DataType half);       // f32 by weights of f16 or bf16
// The kernels for operands of that type: f32, f16, bf16 or 8 bits.
GemmKernels gemm_of(DataType operands, Isa isa);

// Where a panel goes. kMemory is for panels that are read later: stores bypass the cache, and get
// memory of their own if that helps.
enum class PackTo : uint8_t { kCache, kMemory };
void pack_panel(const PackLayout& layout, const PackSource& source, int64_t panel, std::byte* to,
                PackTo where = PackTo::kCache);
// Packs panels [begin, min(end, layout.panels())), as pack_panel() does. Several at a time take
// less time than one after the other where the columns of a row are adjacent.
constexpr int64_t kPanelsAtOnce = 4;
void pack_panels(const PackLayout& layout, const PackSource& source, int64_t begin, int64_t end,
                 std::byte* to, PackTo where = PackTo::kCache);

// kU8S8 leaves zero points out, and moves unsigned right sides and signed left sides by 128. With
// zero points za and zb of the moved operands, column n therefore starts at
// k za zb[n] - za sum(b[n]), and row m loses zb[n] sum(a[m]).
struct Compensation {
  int32_t a_zero = 0;  // of the moved operand
  DataType b_dtype = DataType::kI8;
  const std::byte* b_zero = nullptr;  // null: zero
  int64_t b_zero_stride = 0;
  // Both arrays have one number per padded column. Returns whether any zb is not zero.
  bool columns(const PackLayout& layout, const std::byte* packed, int32_t* initial,
               int32_t* b_zeros) const;
};
int32_t load_zero_point(const TensorView& view);  // 0 if absent
inline int32_t moved_by(DataType left) { return left == DataType::kI8 ? 128 : 0; }

// Row sums of a block of kU8S8, and the initial values of its columns; the zero points of b follow
// after padded_columns() numbers.
struct BlockSums {
  int32_t* rows = nullptr;
  const int32_t* columns = nullptr;
  bool has_b_zero = false;
  // Quantized weights: of the block's first column, in the first group; zeros may be null.
  const float *scales = nullptr, *zeros = nullptr;

  // Quantized weights: of the columns from this one on.
  BlockSums from_column(int64_t column) const {
    BlockSums part = *this;
    if (scales != nullptr) part.scales += column;
    if (zeros != nullptr) part.zeros += column;
    return part;
  }
};
struct LaneRange {
  int64_t begin = 0, end = 0;
};
// All of k for one block, or a part of it, as many lanes at a time as `lanes`. left(k, elements)
// gives the left-hand side from element k on: where its rows are, and how many bytes apart. panel:
// at lane 0. REQUIRES: no block.finish with sums.has_b_zero; parts are of f32
template <class Left>
void run_lanes(const GemmKernels& kernels, const PackLayout& layout, int64_t lanes,
               const std::byte* panel, const BlockSums& sums, GemmBlock block, const Left& left,
               std::optional<LaneRange> part = std::nullopt) {
  const LaneRange all = part.value_or(LaneRange{0, layout.lanes()});
  if (kernels.kind == GemmKind::kU8S8) {
    block.initial = reinterpret_cast<const std::byte*>(sums.columns);
    std::fill(sums.rows, sums.rows + block.rows, 0);
  }
  block.panel_stride = layout.panel_bytes();
  block.encoding = layout.encoding;
  const RegisterEpilogue* const finish = block.finish;
  int64_t lane = all.begin;
  do {  // once even if k is 0
    int64_t next = std::min(lanes, all.end - lane);
    block.lanes = next;
    if (layout.group > 0) {  // whole groups, or a part of one
      block.lanes = std::min(next, layout.group - lane % layout.group);
      block.tap_count = std::max<int64_t>(next / layout.group, 1);
      next = block.lanes * block.tap_count;
      block.scales_stride = layout.padded_columns();
      const int64_t of_group = lane / layout.group * block.scales_stride;
      block.scales = sums.scales + of_group;
      block.zeros = sums.zeros == nullptr ? nullptr : sums.zeros + of_group;
    }
    block.finish = lane + next == all.end ? finish : nullptr;
    const int64_t k = lane * kernels.elements_per_lane;
    const int64_t elements = std::min(next * kernels.elements_per_lane, layout.k - k);
    std::tie(block.a, block.a_stride) = left(k, elements);
    block.b = panel + lane * layout.lane_bytes();
    kernels.block(block);
    if (sums.has_b_zero) kernels.row_sums(block, elements, sums.rows);
    block.accumulate = true;
    lane += next;
  } while (lane < all.end);
  if (sums.has_b_zero)
    kernels.subtract_outer(sums.rows, sums.columns + layout.padded_columns(), block.rows,
                           block.columns, reinterpret_cast<int32_t*>(block.c), block.c_stride);
}

// How a product of m x n is cut into independent blocks, and k into parts that stay in cache.
struct GemmBlocks {
  GemmBlocks() = default;
  GemmBlocks(const GemmKernels& kernels, int64_t m, int64_t n, int64_t lanes, int64_t products,
             int threads);
  int64_t rows = 1, columns = 1, lanes = 1;  // of a block; columns are whole panels
  int64_t row_blocks = 1, column_blocks = 1;
  int64_t count() const { return row_blocks * column_blocks; }
};

}  // namespace anneal::cpu
