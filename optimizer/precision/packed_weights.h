// Weights of a product in codes of a few bits, as MatMul::b_encoding describes them.
#pragma once
#include <optional>

#include "anneal/core/tensor.h"
#include "anneal/graph/graph.h"
#include "anneal/graph/op/weight_encoding.h"
#include "anneal/optimizer/precision/product_norms.h"

namespace anneal {

struct PackedWeights {
  WeightEncoding encoding = WeightEncoding::kU4;
  Tensor codes;                 // u8[N,bytes]
  Tensor scales;                // f32[N or 1,G]
  std::optional<Tensor> zeros;  // u8, of the scales' shape; none: all are the middle
};

// integers: of 8 bits, [K,N], or [N,K] if transposed. scales and zeros: [G,N or 1], likewise
// transposed; zeros may be null and have the type of the integers. In 2 bits if no two integers
// differ by more than 3, else in 4 bits if none differ by more than 15, and pieces of `piece`
// integers of K, which divides it, fill their bytes. Else none, or if a zero point does not fit u8
// then. threads: 0: one per core.
std::optional<PackedWeights> in_fewer_bits(const Tensor& integers, const Tensor& scales,
                                           const Tensor* zeros, bool transposed, int64_t piece,
                                           int threads = 1);

// codes: of floats, a byte each, laid out as the integers above. None if K is no multiple of the
// codes in a byte.
std::optional<PackedWeights> packed_floats(WeightEncoding encoding, const Tensor& codes,
                                           const Tensor& scales, bool transposed);

// The largest magnitude of a finite number; of integers before a zero point is subtracted. stored:
// that of the tensor, which kIntegers has.
double largest_number(WeightEncoding encoding, double stored);

// Whether it is a product by quantized weights of which codes, scales and zero points are constant.
bool has_constant_codes(const Graph& graph, LayerId product);
// Of such weights. REQUIRES: has_constant_codes()
ProductNorms norms_of_packed(const Graph& graph, LayerId product);

// u8[N,K] of codes[N,bytes].
Tensor unpacked_codes(const Tensor& codes, WeightEncoding encoding);

}  // namespace anneal
