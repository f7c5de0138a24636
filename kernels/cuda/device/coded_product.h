// Products of a few rows by weights in codes of a few bits. A warp adds up the products of some
// columns: each lane takes eight neighbours along the depth at a time, whose sum is multiplied by
// their scale, and the sums of the lanes are added at the end, in the order of a butterfly.
#pragma once

namespace coded {

enum class Coding : int { kInteger, kE4M3, kE5M2, kE2M1 };

template <int bits>
struct WordOf {
  using Type = u32;
};
template <>
struct WordOf<2> {
  using Type = u16;
};

// The number of a code of floats but for a power of two, factor_of(): the fields of f16, which has
// another exponent bias.
template <Coding coding>
__device__ inline f32 number(u32 code) {
  if constexpr (coding == Coding::kE5M2)
    return to_f32(h16{u16(code << 8)});
  else if constexpr (coding == Coding::kE4M3)
    return to_f32(h16{u16((code & 0x80) << 8 | (code & 0x7f) << 7)});
  else
    return to_f32(h16{u16((code & 8) << 12 | (code & 7) << 9)});
}
template <Coding coding>
__device__ inline f32 factor_of() {
  return coding == Coding::kE4M3 ? 256.0f : coding == Coding::kE2M1 ? 16384.0f : 1.0f;
}

// Eight codes of `bits` bits, the first in the lowest bits, are kWords words: of u16 with 2 bits,
// of u32 otherwise, which are read at once. Zeros gives the zero point of a place among the scales.
// A column has `pitch` words, and a scale for each `group` of the depth; factor_pitch: from its
// first scale to that of the next column. is_signed: integers of 8 bits with a sign.
template <Coding coding_of, int bits, bool is_signed, class Zeros>
struct Weights {
  using Word = typename WordOf<bits>::Type;
  enum : int { kBits = bits, kWords = bits == 8 ? 2 : 1 };
  In<Word> codes;
  In<f32> scales;
  Zeros zeros;
  i64 pitch, factor_pitch;
  i32 group;

  using Codes = Vec<Word, kWords>;
  __device__ Codes load_codes(i64 column, i64 depth) const {
    return load<kWords>(codes, column * pitch + depth / 8 * kWords);
  }
  // Without their scale. An integer from 0 to 255 is in the low bits of 1.5 * 2^23 + integer.
  __device__ Vec<f32, 8> numbers(const Codes& loaded, i64 place) const {
    constexpr u32 kWhole = 0x4b400000u;
    f32 zero = zeros(place);
    if constexpr (coding_of == Coding::kInteger)
      zero += __builtin_bit_cast(f32, kWhole) + (is_signed ? 128.0f : 0.0f);
    Vec<f32, 8> numbers;
    UNROLL
    for (int i = 0; i < 8; ++i) {
      u32 word = loaded[i * kBits / 32];
      if constexpr (is_signed) word ^= 0x80808080u;  // moved by 128
      constexpr u32 kMask = (1u << kBits) - 1;
      word >>= i * kBits % 32;
      if constexpr (coding_of == Coding::kInteger)
        numbers[i] = __builtin_bit_cast(f32, masked_or(word, kMask, kWhole)) - zero;
      else
        numbers[i] = number<coding_of>(word & kMask);
    }
    return numbers;
  }
  __device__ i64 place(i64 column, i64 depth) const {
    return column * factor_pitch + depth / group;
  }
  __device__ f32 scale(i64 place) const {
    const f32 scale = scales[place];
    return scale;
  }
  // Products by what numbers() gives, as by the codes' numbers.
  __device__ static f32 whole(f32 sum) { return sum * factor_of<coding_of>(); }
};

// a: Vec<f32, 8> eight(offset, depth), and offset(row). Result is as in tile_product.h, with one
// lane.
template <int kRows, int kColumns, class A, class B, class Result>
__device__ void few_rows(const A& a, const B& b, const Result& result, typename A::Index first_row,
                         typename A::Index rows, typename A::Index first_column,
                         typename A::Index columns, typename A::Index depth) {
  using Index = typename A::Index;
  constexpr int kSteps = B::kBits == 8 ? 2 : 4;  // loads of a column that are under way
  static_assert(kRows * kColumns <= 32, "a lane stores a sum");
  const i32 lane = i32(threadIdx.x) % 32;
  Index offsets[kRows], lines[kColumns];
  UNROLL
  for (int r = 0; r < kRows; ++r) offsets[r] = a.offset(readable_line(first_row + r, rows));
  UNROLL
  for (int c = 0; c < kColumns; ++c) lines[c] = readable_line(first_column + c, columns);
  f32 sums[kRows][kColumns];
  UNROLL
  for (int r = 0; r < kRows; ++r) {
    UNROLL
    for (int c = 0; c < kColumns; ++c) sums[r][c] = 0;
  }
  for (Index first = lane * 8; first < depth; first += kSteps * 256) {
    typename B::Codes loaded[kSteps][kColumns];
    UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const Index k = first + step * 256 < depth ? first + step * 256 : first;
      UNROLL
      for (int c = 0; c < kColumns; ++c) loaded[step][c] = b.load_codes(lines[c], k);
    }
    UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const Index k = first + step * 256;
      if (k >= depth) continue;
      Vec<f32, 8> weights[kColumns];
      f32 scales[kColumns];
      UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const i64 place = b.place(lines[c], k);
        weights[c] = b.numbers(loaded[step][c], place);
        scales[c] = b.scale(place);
      }
      UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec<f32, 8> left = a.eight(offsets[r], k);
        UNROLL
        for (int c = 0; c < kColumns; ++c) {
          f32 sum = left[0] * weights[c][0];
          UNROLL
          for (int i = 1; i < 8; ++i) sum = multiply_add(left[i], weights[c][i], sum);
          sums[r][c] = multiply_add(B::whole(sum), scales[c], sums[r][c]);
        }
      }
    }
  }
  f32 own = 0;
  UNROLL
  for (int r = 0; r < kRows; ++r) {
    UNROLL
    for (int c = 0; c < kColumns; ++c) {
      f32 sum = sums[r][c];
      UNROLL
      for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (lane == r * kColumns + c) own = sum;
    }
  }
  const Index row = first_row + lane / kColumns, column = first_column + lane % kColumns;
  if (lane >= kRows * kColumns || row >= rows || column >= columns) return;
  const auto at = result.row(row);
  Vec<f32, 1> value;
  value[0] = own;
  result(value, result.columns(column), result.inputs(at, column), at, column);
}

}  // namespace coded
