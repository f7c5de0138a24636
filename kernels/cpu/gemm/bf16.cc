#include "anneal/kernels/cpu/gemm/bf16.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "anneal/core/float16.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace anneal::cpu {
namespace {

#include "anneal/kernels/cpu/gemm/register_epilogue-inl.h"
//
#include "anneal/kernels/cpu/gemm/register_epilogue_bf16-inl.h"

struct Bf16Dot : FinishedBf16 {
  static constexpr int kRows = 14, kVectors = 2, kLanes = 16, kColumnBits = 32;
  static constexpr bool kScales = false;
  using Vector = __m512;
  using Number = float;
  static HWY_INLINE Vector zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE Vector load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static HWY_INLINE Vector broadcast(const std::byte* p) {
    int32_t lane;
    std::memcpy(&lane, p, sizeof(lane));
    return _mm512_castsi512_ps(_mm512_set1_epi32(lane));
  }
  static HWY_INLINE Vector dot(Vector sum, Vector a, Vector b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static HWY_INLINE Vector load_sum(const float* p) { return _mm512_loadu_ps(p); }
  static HWY_INLINE void store_sum(float* p, Vector sum) { _mm512_storeu_ps(p, sum); }

  static constexpr bool kFinishes = true;
  static HWY_INLINE __m512 to_f32(Vector sum) { return sum; }
};

#include "anneal/kernels/cpu/gemm/tile-inl.h"

void bf16_block(const GemmBlock& block) { gemm_block<Bf16Dot>(block); }

__mmask16 first_lanes(int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(-1)
                 : static_cast<__mmask16>((1U << std::max<int64_t>(n, 0)) - 1);
}

void fetch_bf16(DataType storage, const std::byte* from, int64_t n, int32_t, std::byte* to) {
  if (storage == DataType::kBF16) {
    std::memcpy(to, from, static_cast<size_t>(n) * 2);
    return;
  }
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = first_lanes(n - i);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + i * 4));
    _mm256_mask_storeu_epi16(to + i * 2, mask, reinterpret_cast<__m256i>(rounded));
  }
}

// Pairs of k of 16 columns that are contiguous along k, `step` elements from column to column.
class PairsAlongK {
 public:
  PairsAlongK(int64_t step, __mmask16 columns) : step_(step), columns_(columns) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    offsets_ = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int32_t>(step)));
  }
  __m512i whole(const std::byte* data) const {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), columns_, offsets_, data, 2);
  }
  // With nothing in its second half.
  __m512i half(const std::byte* data) const {
    alignas(64) uint32_t pairs[16] = {};
    for (int i = 0; i < 16; ++i)
      if ((columns_ >> i & 1) != 0) std::memcpy(&pairs[i], data + i * step_ * 2, 2);
    return _mm512_load_si512(pairs);
  }

 private:
  int64_t step_;
  __mmask16 columns_;
  __m512i offsets_;
};

// A row of columns that are contiguous.
__m512i row_of(const std::byte* data, __mmask16 columns) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, data));
}

}  // namespace

bool dpbf16_pack(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
                 std::byte* to) {
  if (source.dtype != DataType::kBF16 || source.k_dims.rank() != 1 || layout.tap != layout.k)
    return false;
  const int64_t step = source.k_strides[0], column_step = source.column_stride;
  constexpr int64_t kFarthest = std::numeric_limits<int32_t>::max() / 16;
  if (column_step != 1 && (step != 1 || column_step < 0 || column_step > kFarthest)) return false;
  for (int64_t column = 0; column < width; column += 16) {
    const __mmask16 columns = first_lanes(width - column);
    const std::byte* const data = source.data + (first + column) * column_step * 2;
    const PairsAlongK along_k(column_step, columns);
    for (int64_t k = 0; k < layout.k; k += 2) {
      const std::byte* const at = data + k * step * 2;
      const bool is_whole = k + 1 < layout.k;
      __m512i pairs;
      if (column_step == 1) {
        pairs = row_of(at, columns);
        if (is_whole)
          pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(row_of(at + step * 2, columns), 16));
      } else {
        pairs = is_whole ? along_k.whole(at) : along_k.half(at);
      }
      _mm512_storeu_si512(to + (k / 2 * layout.tile_columns + column) * 4, pairs);
    }
  }
  return true;
}

GemmKernels dpbf16_gemm() {
  GemmKernels kernels;
  kernels.kind = GemmKind::kBf16;
  kernels.tile_rows = Bf16Dot::kRows;
  kernels.tile_columns = Bf16Dot::kVectors * Bf16Dot::kLanes;
  kernels.elements_per_lane = 2;
  kernels.block = bf16_block;
  kernels.finishes = [](DataType storage) { return storage == DataType::kBF16; };
  kernels.fetch = fetch_bf16;
  return kernels;
}

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
