// Weights of a product in 4 bits, as MatMul::b_has_4_bits describes them.
#pragma once
#include <optional>

#include "anneal/core/tensor.h"

namespace anneal {

struct FourBitWeights {
  Tensor codes;                 // u8[N,K/2]
  Tensor scales;                // f32[N or 1,G]
  std::optional<Tensor> zeros;  // u8, of the scales' shape; none: all are 8
};

// integers: of 8 bits, [K,N], or [N,K] if transposed. scales and zeros: [G,N or 1], likewise
// transposed; zeros may be null and have the type of the integers. None if two integers differ by
// more than 15, K is odd, or a zero point does not fit u8 then.
std::optional<FourBitWeights> in_4_bits(const Tensor& integers, const Tensor& scales,
                                        const Tensor* zeros, bool transposed);

// u8[N,K] of codes[N,K/2].
Tensor unpacked_4_bits(const Tensor& codes);

}  // namespace anneal
