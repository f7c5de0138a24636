// Weights in 16 bits, and their loss.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "anneal/core/float16.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/precision/product_norms.h"

namespace anneal {

inline constexpr uint32_t kLeastNormalF16 = 0x38800000;  // 2^-14, as the bits of f32

// The number of f16 or bf16 that is nearest to the value, as to_f16() and to_bf16() round it.
// Inline, since builds round each weight of a model several times.
inline float in_half(float value, DataType half) {
  const auto bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  constexpr uint32_t kOverflow = 0x477ff000, kInfinity = 0x7f800000;
  if (half == DataType::kF16) {
    if (magnitude < kLeastNormalF16 || magnitude >= kOverflow) return to_f32(to_f16(value));
    return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffU);
  }
  if (magnitude >= kInfinity) return to_f32(to_bf16(value));
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & ~0xffffU);
}

// The bits of that number.
inline uint16_t half_bits(float value, DataType half) {
  const auto bits = std::bit_cast<uint32_t>(in_half(value, half));
  if (half == DataType::kBF16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t magnitude = bits & 0x7fffffff;
  constexpr uint32_t kInfinity = 0x7f800000;
  if (magnitude < kLeastNormalF16 || magnitude >= kInfinity) return to_f16(value).bits;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | (magnitude - (112U << 23)) >> 13);
}

// Whether rounding to f16 or bf16 surely costs no channel more than this, relative, as the root of
// mean squares, and leaves all weights finite. By bounds: false may mean that nothing is known.
bool are_kept_by(const ProductNorms& norms, DataType half, double most);

// Why the product's weights would suffer from 16 bits, for people; empty if they do not.
// norms: of these weights; null if they are unknown. threads: 0: one per core. REQUIRES: weights
// are f32
std::string why_weights_suffer(const Graph& graph, LayerId id, const Tensor& weights,
                               DataType dtype, const ProductNorms* norms, int threads = 1);

// The type of 16 bits that has all of the numbers; nullopt: neither has. threads: 0: one per core.
std::optional<DataType> half_of_numbers(std::span<const float> numbers, int threads);

// f32 rounded to f16 or bf16, and f16 or bf16 as f32. threads: as above.
Tensor in_16_bits(const Tensor& floats, DataType half, int threads = 1);
Tensor in_32_bits(const Tensor& halves, int threads = 1);
// Whether no element of a tensor of f32, f16 or bf16 is infinite or NaN.
bool are_all_finite(const Tensor& floats, int threads = 1);
// Whether the f32 numbers are those of a tensor of 16 bits, and of as many elements.
bool are_numbers_of(const Tensor& floats, const Tensor& halves, int threads = 1);

}  // namespace anneal
