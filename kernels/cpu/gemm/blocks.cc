// Register tiles of f32 and of i16 pairs, for every instruction set.
#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/gemm/blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/gemm/avx_vnni.h"
#include "anneal/kernels/cpu/gemm/bf16.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/gemm/vnni.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct Tile {
#if HWY_TARGET == HWY_AVX3
  static constexpr int kRows = 14, kVectors = 2;
#elif HWY_TARGET == HWY_AVX2
  static constexpr int kRows = 6, kVectors = 2;
#else
  static constexpr int kRows = 3, kVectors = 4;
#endif
  static constexpr int kLanes = HWY_LANES(float), kColumnBits = 32;
  static constexpr bool kScales = false;
};

#if HWY_TARGET == HWY_AVX3
#include "anneal/kernels/cpu/gemm/register_epilogue-inl.h"
#else
struct FinishedF32 {};
#endif

struct F32Dot : Tile, FinishedF32 {
  using D = hn::ScalableTag<float>;
  using Vector = hn::Vec<D>;
  using Number = float;
  static HWY_INLINE Vector zero() { return hn::Zero(D()); }
  static HWY_INLINE Vector load(const std::byte* p) {
    return hn::LoadU(D(), reinterpret_cast<const float*>(p));
  }
  static HWY_INLINE Vector broadcast(const std::byte* p) {
    return hn::Set(D(), *reinterpret_cast<const float*>(p));
  }
  static HWY_INLINE Vector dot(Vector sum, Vector a, Vector b) { return hn::MulAdd(a, b, sum); }
  static HWY_INLINE Vector load_sum(const float* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store_sum(float* p, Vector sum) { hn::StoreU(sum, D(), p); }
#if HWY_TARGET == HWY_AVX3
  static constexpr bool kFinishes = true;
  static HWY_INLINE __m512 to_f32(Vector sum) { return sum.raw; }
#else
  static constexpr bool kFinishes = false;
#endif
};

struct I16Dot : Tile {
  static constexpr bool kFinishes = false;
  using D = hn::ScalableTag<int32_t>;
  using Vector = hn::Vec<D>;
  using Number = int32_t;
  static HWY_INLINE Vector zero() { return hn::Zero(D()); }
  static HWY_INLINE Vector load(const std::byte* p) {
    return hn::LoadU(D(), reinterpret_cast<const int32_t*>(p));
  }
  // Two numbers at any address of a number.
  static HWY_INLINE Vector broadcast(const std::byte* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return hn::Set(D(), pair);
  }
  // The sum of both products of each lane.
  static HWY_INLINE Vector dot(Vector sum, Vector a, Vector b) {
#if HWY_TARGET == HWY_AVX3
    return hn::Add(sum, Vector{_mm512_madd_epi16(a.raw, b.raw)});
#elif HWY_TARGET == HWY_AVX2
    return hn::Add(sum, Vector{_mm256_madd_epi16(a.raw, b.raw)});
#else
    const auto low = [](Vector v) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
    const auto high = [](Vector v) { return hn::ShiftRight<16>(v); };
    return hn::Add(sum, hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b))));
#endif
  }
  static HWY_INLINE Vector load_sum(const int32_t* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store_sum(int32_t* p, Vector sum) { hn::StoreU(sum, D(), p); }
};

// Quantized weights: what the panels hold becomes the f32 numbers that it stands for.
template <bool has_zeros>
struct Weights8Dot : F32Dot {
  static constexpr int kRows = std::min(Tile::kRows, most_converting_rows(GemmKind::kWeights8));
  static constexpr int kColumnBits = 8;
  static constexpr bool kScales = true, kZeros = has_zeros;
  static HWY_INLINE Vector load(const std::byte* p) {
    const hn::Rebind<int8_t, D> bytes;
    const hn::Rebind<int32_t, D> integers;
    const auto loaded = hn::LoadU(bytes, reinterpret_cast<const int8_t*>(p));
    return hn::ConvertTo(D(), hn::PromoteTo(integers, loaded));
  }
  static HWY_INLINE Vector scaled(Vector integers, Vector scale, Vector zero) {
    return hn::Mul(kZeros ? hn::Sub(integers, zero) : integers, scale);
  }
};

// Numbers of 4 bits with a sign, two in a byte.
template <bool has_zeros>
struct Weights4Dot : Weights8Dot<has_zeros> {
  using typename F32Dot::D;
  using typename F32Dot::Vector;
  static constexpr int kRows = std::min(F32Dot::kRows, most_converting_rows(GemmKind::kWeights4));
  static constexpr int kColumnBits = 4;
#if HWY_TARGET == HWY_AVX3
  // The number of each code: the permutation reads the low 4 bits of an index.
  static HWY_INLINE Vector numbers_of(__m512i codes) {
    return Vector{_mm512_permutexvar_ps(
        codes, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1))};
  }
  static HWY_INLINE __m512i load_bytes(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static HWY_INLINE Vector load_low(const std::byte* p) { return numbers_of(load_bytes(p)); }
  static HWY_INLINE Vector load_high(const std::byte* p) {
    return numbers_of(_mm512_srli_epi32(load_bytes(p), 4));
  }
#else
  static HWY_INLINE auto load_bytes(const std::byte* p) {
    const hn::Rebind<int8_t, D> bytes;
    const hn::Rebind<int32_t, D> integers;
    return hn::PromoteTo(integers, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(p)));
  }
  static HWY_INLINE Vector load_low(const std::byte* p) {
    return hn::ConvertTo(D(), hn::ShiftRight<28>(hn::ShiftLeft<28>(load_bytes(p))));
  }
  static HWY_INLINE Vector load_high(const std::byte* p) {
    return hn::ConvertTo(D(), hn::ShiftRight<4>(load_bytes(p)));
  }
#endif
};

// Weights of f16 or bf16 (Half) become f32.
template <class Half, GemmKind kind>
struct HalfWeightsDot : F32Dot {
  static constexpr int kRows = std::min(Tile::kRows, most_converting_rows(kind));
  static constexpr int kColumnBits = 16;
  static HWY_INLINE Vector load(const std::byte* p) {
    const hn::Rebind<Half, D> halves;
    return hn::PromoteTo(D(), hn::LoadU(halves, reinterpret_cast<const Half*>(p)));
  }
};

#include "anneal/kernels/cpu/gemm/tile-inl.h"

// Codes that become f32 by way of a panel, with as many rows as there are: numbers(row, v) are
// those of vector v of a panel's row.
struct CodesDot : F32Dot {
  static constexpr bool kScales = true, kZeros = false;
  static HWY_INLINE Vector scaled(Vector numbers, Vector scale, Vector) {
    return hn::Mul(numbers, scale);
  }
};

struct U2Codes : CodesDot {
  static constexpr int kColumnBits = 2;
  static constexpr bool kZeros = true;
  explicit U2Codes(WeightEncoding) {}
  HWY_INLINE Vector numbers(const std::byte* row, int v) const {
    const hn::RebindToSigned<D> d;
    const int column = v * kLanes;
    int32_t word;
    std::memcpy(&word, row + column / 16 * 4, sizeof word);
    const auto places = hn::Mul(hn::Iota(d, column % 16), hn::Set(d, 2));
    const auto high = hn::Shl(hn::Set(d, word), hn::Sub(hn::Set(d, 30), places));
    return hn::ConvertTo(D(), hn::ShiftRight<30>(high));
  }
  static HWY_INLINE Vector scaled(Vector integers, Vector scale, Vector zero) {
    return hn::Mul(hn::Sub(integers, zero), scale);
  }
};

struct Float4Codes : CodesDot {
  static constexpr int kColumnBits = 4;
  explicit Float4Codes(WeightEncoding encoding) : table_(numbers_of_4_bits(encoding).data()) {}
  HWY_INLINE Vector numbers(const std::byte* row, int v) const {
    const hn::Rebind<uint8_t, D> bytes;
    const hn::RebindToSigned<D> d;
    constexpr int kHalf = kVectors / 2;
    const auto* at = reinterpret_cast<const uint8_t*>(row + v % kHalf * kLanes);
    const auto both = hn::PromoteTo(d, hn::LoadU(bytes, at));
    const auto codes = v < kHalf ? hn::And(both, hn::Set(d, 15)) : hn::ShiftRight<4>(both);
#if HWY_TARGET == HWY_AVX3
    return hn::TableLookupLanes(hn::LoadU(D(), table_), hn::IndicesFromVec(D(), codes));
#elif HWY_TARGET == HWY_AVX2
    const auto within = hn::IndicesFromVec(D(), hn::And(codes, hn::Set(d, 7)));
    const auto low = hn::TableLookupLanes(hn::LoadU(D(), table_), within);
    const auto high = hn::TableLookupLanes(hn::LoadU(D(), table_ + kLanes), within);
    return hn::IfThenElse(hn::RebindMask(D(), hn::Gt(codes, hn::Set(d, 7))), high, low);
#else
    return hn::GatherIndex(D(), table_, codes);
#endif
  }

 private:
  const float* table_;
};

// f16 has the fields of both types, and the exponent bias of E5M2; that of E4M3 is less by 8.
struct Float8Codes : CodesDot {
  static constexpr int kColumnBits = 8;
  explicit Float8Codes(WeightEncoding encoding)
      : shift_(encoding == WeightEncoding::kE4M3 ? 7 : 8),
        factor_(encoding == WeightEncoding::kE4M3 ? 256.0F : 1.0F) {}
  HWY_INLINE Vector numbers(const std::byte* row, int v) const {
    const hn::Rebind<uint8_t, D> bytes;
    const hn::Rebind<uint16_t, D> words;
    const auto codes =
        hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(row + v * kLanes)));
    const auto magnitude = hn::ShiftLeftSame(hn::And(codes, hn::Set(words, 0x7f)), shift_);
    const auto sign = hn::ShiftLeft<8>(hn::And(codes, hn::Set(words, 0x80)));
    const hn::Rebind<hwy::float16_t, D> halves;
    const auto half = hn::BitCast(halves, hn::Or(sign, magnitude));
    return hn::Mul(hn::PromoteTo(D(), half), hn::Set(D(), factor_));
  }

 private:
  int shift_;
  float factor_;
};

// The lanes of a block's panel, from this column on, as a panel of f32.
template <class Dot>
void convert_panel(const GemmBlock& block, const Dot& dot, int64_t column, float* to) {
  constexpr int64_t kColumns = Dot::kVectors * Dot::kLanes;
  constexpr int64_t kLaneBytes = kColumns * Dot::kColumnBits / 8;
  const std::byte* from = block.b + column / kColumns * block.panel_stride;
  for (int64_t tap = 0; tap < block.tap_count; ++tap) {
    [[maybe_unused]] typename Dot::Vector scales[Dot::kVectors], zeros[Dot::kVectors];
    if constexpr (Dot::kScales) {
      const int64_t at = tap * block.scales_stride + column;
      for (int v = 0; v < Dot::kVectors; ++v) {
        scales[v] = Dot::load_sum(block.scales + at + v * Dot::kLanes);
        const bool has_zeros = Dot::kZeros && block.zeros != nullptr;
        zeros[v] = has_zeros ? Dot::load_sum(block.zeros + at + v * Dot::kLanes) : Dot::zero();
      }
    }
    for (int64_t lane = 0; lane < block.lanes; ++lane, from += kLaneBytes, to += kColumns) {
      __builtin_prefetch(from + block.panel_stride);  // of the next panel
#pragma GCC unroll 8
      for (int v = 0; v < Dot::kVectors; ++v) {
        auto numbers = typename Dot::Vector{};
        if constexpr (requires { dot.numbers(from, v); })
          numbers = dot.numbers(from, v);
        else
          numbers = load_columns<Dot>(from, v);
        if constexpr (Dot::kScales) numbers = Dot::scaled(numbers, scales[v], zeros[v]);
        Dot::store_sum(to + v * Dot::kLanes, numbers);
      }
    }
  }
}

// With few rows, weights are converted in registers, but for codes; with many, all rows read a
// panel that was converted once. Either way every sum is the same chain of the same products.
template <class Dot>
void converted_block(const GemmBlock& block, const Dot& dot) {
  constexpr int64_t kColumns = Dot::kVectors * Dot::kLanes;
  alignas(64) float panels[kBlockLanes * kColumns];
  const int64_t lanes = block.lanes * block.tap_count;
  // One row wants several panels side by side, whose sums hide each other's latency.
  const int64_t beside =
      block.rows == 1 ? std::clamp<int64_t>(kBlockLanes / std::max<int64_t>(lanes, 1), 1, 4) : 1;
  for (int64_t column = 0; column < block.columns; column += beside * kColumns) {
    const int64_t columns = std::min(beside * kColumns, block.columns - column);
    for (int64_t first = 0; first < columns; first += kColumns)
      convert_panel(block, dot, column + first, panels + first * lanes);
    GemmBlock part = block;
    part.b = reinterpret_cast<const std::byte*>(panels);
    part.panel_stride = lanes * kColumns * 4;
    part.c = block.c + column * 4;
    part.columns = columns;
    part.lanes = lanes;
    part.tap_count = 1;
    RegisterEpilogue finish;
    if (block.finish != nullptr) {
      finish = from_column(*block.finish, column);
      part.finish = &finish;
    }
    gemm_block<F32Dot>(part);
  }
}
template <class Dot>
void weights_block_of(const GemmBlock& block) {
  block.rows <= Dot::kRows ? gemm_block<Dot>(block) : converted_block(block, Dot());
}

}  // namespace

void weights8_block(const GemmBlock& block) {
  block.zeros == nullptr ? weights_block_of<Weights8Dot<false>>(block)
                         : weights_block_of<Weights8Dot<true>>(block);
}
void weights4_block(const GemmBlock& block) {
  block.zeros == nullptr ? weights_block_of<Weights4Dot<false>>(block)
                         : weights_block_of<Weights4Dot<true>>(block);
}
void codes_block(const GemmBlock& block) {
  if (block.encoding == WeightEncoding::kU2) return converted_block(block, U2Codes(block.encoding));
  has_float8(block.encoding) ? converted_block(block, Float8Codes(block.encoding))
                             : converted_block(block, Float4Codes(block.encoding));
}
void weights_f16_block(const GemmBlock& block) {
  weights_block_of<HalfWeightsDot<hwy::float16_t, GemmKind::kWeightsF16>>(block);
}
void weights_bf16_block(const GemmBlock& block) {
  weights_block_of<HalfWeightsDot<hwy::bfloat16_t, GemmKind::kWeightsBf16>>(block);
}
void f32_block(const GemmBlock& block) { gemm_block<F32Dot>(block); }
void i16_block(const GemmBlock& block) { gemm_block<I16Dot>(block); }

void fetch_i16(DataType storage, const std::byte* from, int64_t n, int32_t zero, std::byte* to) {
  auto* out = reinterpret_cast<int16_t*>(to);
  const auto widen = [&](auto kind) HWY_ATTR {
    using T = decltype(kind);
    const auto* in = reinterpret_cast<const T*>(from);
    int64_t i = 0;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    const hn::ScalableTag<int16_t> d;
    const hn::Rebind<T, decltype(d)> dn;
    const auto zeros = hn::Set(d, static_cast<int16_t>(zero));
    for (; i + static_cast<int64_t>(hn::Lanes(d)) <= n; i += static_cast<int64_t>(hn::Lanes(d)))
      hn::StoreU(hn::Sub(hn::PromoteTo(d, hn::LoadU(dn, in + i)), zeros), d, out + i);
#endif
    for (; i < n; ++i) out[i] = static_cast<int16_t>(in[i] - zero);
  };
  if (storage == DataType::kI8) {
    widen(int8_t{});
  } else {
    widen(uint8_t{});
  }
}

void tile_shape(int& rows, int& columns) {
  rows = Tile::kRows;
  columns = Tile::kVectors * Tile::kLanes;
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

void fetch_f32(DataType, const std::byte* from, int64_t n, int32_t, std::byte* to) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

GemmKernels f32_gemm(Isa isa) {
  GemmKernels kernels;
  ANNEAL_BY_ISA(isa, tile_shape)(kernels.tile_rows, kernels.tile_columns);
  kernels.block = ANNEAL_BY_ISA(isa, f32_block);
  kernels.fetch = fetch_f32;
  if (isa >= Isa::kAvx512)
    kernels.finishes = [](DataType storage) { return storage == DataType::kF32; };
  return kernels;
}

GemmKernels weights_gemm(Isa isa, WeightEncoding encoding) {
  GemmKernels kernels = f32_gemm(isa);
  kernels.encoding = encoding;
  if (encoding == WeightEncoding::kIntegers) {
    kernels.kind = GemmKind::kWeights8;
    kernels.block = ANNEAL_BY_ISA(isa, weights8_block);
  } else if (encoding == WeightEncoding::kU4) {
    kernels.kind = GemmKind::kWeights4;
    kernels.block = ANNEAL_BY_ISA(isa, weights4_block);
  } else {
    kernels.kind = GemmKind::kCodes;
    kernels.block = ANNEAL_BY_ISA(isa, codes_block);
  }
  return kernels;
}

GemmKernels half_weights_gemm(Isa isa, DataType half) {
  GemmKernels kernels = f32_gemm(isa);
  const bool is_f16 = half == DataType::kF16;
  kernels.kind = is_f16 ? GemmKind::kWeightsF16 : GemmKind::kWeightsBf16;
  kernels.block =
      is_f16 ? ANNEAL_BY_ISA(isa, weights_f16_block) : ANNEAL_BY_ISA(isa, weights_bf16_block);
  return kernels;
}

GemmKernels int8_gemm(Isa isa) {
  if (isa == Isa::kFull) return vnni_gemm();
  GemmKernels kernels;
  ANNEAL_BY_ISA(isa, tile_shape)(kernels.tile_rows, kernels.tile_columns);
  kernels.kind = GemmKind::kI16;
  kernels.elements_per_lane = 2;
  kernels.block =
      isa == Isa::kAvx2 && has_avx_vnni() ? avx_vnni_block : ANNEAL_BY_ISA(isa, i16_block);
  kernels.fetch = ANNEAL_BY_ISA(isa, fetch_i16);
  return kernels;
}

GemmKernels gemm_of(DataType operands, Isa isa) {
  if (is_8bit(operands)) return int8_gemm(isa);
  return operands == DataType::kBF16 && computes_bf16(isa) ? dpbf16_gemm() : f32_gemm(isa);
}

bool GemmKernels::reads(DataType storage) const {
  switch (kind) {
    case GemmKind::kF32:
    case GemmKind::kWeights8:
    case GemmKind::kWeights4:
    case GemmKind::kCodes:
    case GemmKind::kWeightsF16:
    case GemmKind::kWeightsBf16:
      return storage == DataType::kF32;
    case GemmKind::kU8S8:
      return storage == DataType::kU8;
    case GemmKind::kBf16:
      return storage == DataType::kBF16;
    case GemmKind::kI16:
      return false;
  }
  return false;
}

}  // namespace anneal::cpu
#endif
