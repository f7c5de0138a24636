// Floats of 8 and 4 bits, whose tensors are f32 here, with the same numbers.
#pragma once
#include <cstdint>
#include <optional>

#include "anneal/core/tensor.h"
#include "anneal/graph/op/weight_encoding.h"

namespace anneal {

// A sign if there is one, an exponent and a fraction, from the highest bit on.
struct Minifloat {
  enum class Specials : uint8_t {
    kIeee,     // the largest exponent has infinities and NaN
    kLastNan,  // all bits of exponent and fraction: NaN
    kZeroNan,  // -0: NaN
    kNone
  };
  int exponent_bits, fraction_bits, bias;
  Specials specials;
  bool has_sign = true;

  int bits() const { return (has_sign ? 1 : 0) + exponent_bits + fraction_bits; }
  float number(unsigned code) const;  // NaN and infinities included. REQUIRES: code < 2^bits()
  double largest() const;             // of the finite numbers
  double least_normal() const;        // below it, numbers are as far from each other as above it
};

// element_type: a number of ONNX's TensorProto.DataType. nullopt: of another type.
std::optional<Minifloat> minifloat(int32_t element_type);

// The encoding that weights of this type keep; none of the FNUZ forms and of FLOAT8E8M0.
std::optional<WeightEncoding> weight_encoding(int32_t element_type);

// u8, a code in each byte. nullopt: a number is not finite. REQUIRES: f32 numbers of an encoding of
// FLOAT8E4M3FN, FLOAT8E5M2 or FLOAT4E2M1
std::optional<Tensor> codes_of(const Tensor& numbers, WeightEncoding encoding);

}  // namespace anneal
