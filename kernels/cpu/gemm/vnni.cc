#include "anneal/kernels/cpu/gemm/vnni.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "anneal/core/dtype_kinds.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace anneal::cpu {
namespace {

struct U8S8Dot {
  static constexpr int kRows = 14, kVectors = 2, kLanes = 16, kColumnBits = 32;
  static constexpr bool kScales = false;
  using Vector = __m512i;
  using Number = int32_t;
  static HWY_INLINE Vector zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE Vector load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE Vector broadcast(const std::byte* p) {
    int32_t lane;
    std::memcpy(&lane, p, sizeof(lane));
    return _mm512_set1_epi32(lane);
  }
  static HWY_INLINE Vector dot(Vector sum, Vector a, Vector b) {
    return _mm512_dpbusd_epi32(sum, a, b);
  }
  static constexpr void starts_rows() {}
  static HWY_INLINE Vector add(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
  static HWY_INLINE Vector load_sum(const int32_t* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE void store_sum(int32_t* p, Vector sum) { _mm512_storeu_si512(p, sum); }

  static constexpr bool kFinishes = true, kQuantizes = true;
  static HWY_INLINE __m512 to_f32(Vector sum) { return _mm512_cvtepi32_ps(sum); }
};

#include "anneal/kernels/cpu/gemm/register_epilogue-inl.h"
//
#include "anneal/kernels/cpu/gemm/tile-inl.h"

__mmask64 first_bytes(int64_t n) { return n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1; }

void vnni_block(const GemmBlock& block) { gemm_block<U8S8Dot>(block); }

void fetch_u8(DataType storage, const std::byte* from, int64_t n, int32_t, std::byte* to) {
  if (storage == DataType::kU8) {
    std::memcpy(to, from, static_cast<size_t>(n));
    return;
  }
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int64_t i = 0; i < n; i += 64) {
    const __mmask64 mask = first_bytes(n - i);
    const __m512i bytes = _mm512_maskz_loadu_epi8(mask, from + i);
    _mm512_mask_storeu_epi8(to + i, mask, _mm512_xor_si512(bytes, sign));
  }
}

// Lanes of 128 bits of a beside those of b, each added to its neighbour.
__m512i halved(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
// The sums of the 16 lanes of each of 16 vectors.
__m512i sums_of_lanes(const __m512i* rows) {
  __m512i pairs[8], fours[4];  // of rows, in each 128 bits
  for (int i = 0; i < 8; ++i)
    pairs[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]),
                                _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]));
  for (int i = 0; i < 4; ++i)
    fours[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                                _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  return halved(halved(fours[0], fours[1]), halved(fours[2], fours[3]));
}

void row_sums(const GemmBlock& block, int64_t bytes, int32_t* sums) {
  const __m512i ones = _mm512_set1_epi8(1);
  const int64_t taps = block.taps == nullptr ? 1 : block.tap_count;
  const int64_t whole = (bytes - 1) / 64 * 64;
  const __mmask64 last = first_bytes(bytes - whole);
  for (int64_t first = 0; first < block.rows; first += 16) {
    __m512i of_rows[16];
    const int64_t count = std::min<int64_t>(block.rows - first, 16);
    std::fill(of_rows + count, of_rows + 16, _mm512_setzero_si512());
    for (int64_t row = 0; row < count; ++row) {
      const std::byte* const from = block.a + (first + row) * block.a_stride;
      __m512i sum = _mm512_setzero_si512();
      for (int64_t tap = 0; tap < taps; ++tap) {
        const std::byte* const at = from + (block.taps == nullptr ? 0 : block.taps[tap]);
        for (int64_t i = 0; i < whole; i += 64)
          sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(at + i), ones);
        sum = _mm512_dpbusd_epi32(sum, _mm512_maskz_loadu_epi8(last, at + whole), ones);
      }
      of_rows[row] = sum;
    }
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    const __m512i before = _mm512_maskz_loadu_epi32(mask, sums + first);
    _mm512_mask_storeu_epi32(sums + first, mask, _mm512_add_epi32(before, sums_of_lanes(of_rows)));
  }
}

void subtract_outer(const int32_t* sums, const int32_t* zeros, int64_t rows, int64_t columns,
                    int32_t* c, int64_t c_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    const __m512i sum = _mm512_set1_epi32(sums[row]);
    int32_t* const to = c + row * c_stride;
    for (int64_t i = 0; i < columns; i += 16) {
      const __m512i product = _mm512_mullo_epi32(sum, _mm512_loadu_si512(zeros + i));
      _mm512_storeu_si512(to + i, _mm512_sub_epi32(_mm512_loadu_si512(to + i), product));
    }
  }
}

__mmask16 first_lanes(int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(-1)
                 : static_cast<__mmask16>((1U << std::max<int64_t>(n, 0)) - 1);
}

// The quad of k from `row` on of 16 columns that are contiguous along k.
__m512i quads_along_k(const std::byte* data, __m512i offsets, __mmask16 columns, int64_t left) {
  if (left >= 4)
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), columns, offsets, data, 1);
  alignas(64) int32_t at[16], quads[16] = {};
  _mm512_store_si512(at, offsets);
  for (int i = 0; i < 16; ++i)
    if ((columns >> i & 1) != 0) std::memcpy(&quads[i], data + at[i], static_cast<size_t>(left));
  return _mm512_load_si512(quads);
}

// The quad of columns that are contiguous, with rows `step` bytes apart.
__m512i quads_along_columns(const std::byte* data, int64_t step, __mmask16 columns, int64_t left) {
  __m512i quads = _mm512_setzero_si512();
  for (int64_t row = std::min<int64_t>(left, 4) - 1; row >= 0; --row) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(columns, data + row * step));
    quads = _mm512_or_si512(_mm512_slli_epi32(quads, 8), bytes);
  }
  return quads;
}

}  // namespace

bool vnni_pack(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
               std::byte* to, int32_t* sums) {
  if (source.k_dims.rank() != 1 || layout.tap != layout.k) return false;
  const int64_t step = source.k_strides[0], column_step = source.column_stride;
  if (column_step != 1 && (step != 1 || column_step < 0 || column_step > INT32_MAX / 16))
    return false;
  const __m512i ones = _mm512_set1_epi8(1);
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i offsets =
      _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int32_t>(column_step)));
  for (int64_t column = 0; column < width; column += 16) {
    const __mmask16 columns = first_lanes(width - column);
    const std::byte* const data = source.data + (first + column) * column_step;
    __m512i sum = _mm512_setzero_si512();
    for (int64_t k = 0; k < layout.k; k += 4) {
      const int64_t left = layout.k - k;
      __m512i quads = column_step == 1 ? quads_along_columns(data + k * step, step, columns, left)
                                       : quads_along_k(data + k, offsets, columns, left);
      if (source.dtype == DataType::kU8) {
        const uint32_t signs = left >= 4 ? 0x80808080U : 0x80808080U >> (4 - left) * 8;
        quads =
            _mm512_maskz_xor_epi32(columns, quads, _mm512_set1_epi32(static_cast<int32_t>(signs)));
      }
      sum = _mm512_dpbusd_epi32(sum, ones, quads);
      _mm512_storeu_si512(to + (k * layout.tile_columns / 4 + column) * 4, quads);
    }
    _mm512_storeu_si512(sums + column, sum);
  }
  return true;
}

GemmKernels vnni_gemm() {
  GemmKernels kernels;
  kernels.kind = GemmKind::kU8S8;
  kernels.tile_rows = U8S8Dot::kRows;
  kernels.tile_columns = U8S8Dot::kVectors * U8S8Dot::kLanes;
  kernels.elements_per_lane = 4;
  kernels.block = vnni_block;
  kernels.fetch = fetch_u8;
  kernels.finishes = is_8bit;
  kernels.row_sums = row_sums;
  kernels.subtract_outer = subtract_outer;
  return kernels;
}

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
