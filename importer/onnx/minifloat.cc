#include "anneal/importer/onnx/minifloat.h"

#include <cmath>
#include <limits>

#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

// number_of() explains the types of 8 bits.
uint8_t code_of(float number, WeightEncoding encoding) {
  if (encoding == WeightEncoding::kE5M2) return static_cast<uint8_t>(to_f16(number).bits >> 8);
  if (encoding == WeightEncoding::kE4M3) {
    const unsigned bits = to_f16(number / 256).bits;
    return static_cast<uint8_t>((bits >> 8 & 0x80) | (bits >> 7 & 0x7f));
  }
  const auto numbers = numbers_of_4_bits(encoding);
  size_t code = 0;
  while (code + 1 < numbers.size() && numbers[code] != std::abs(number)) ++code;
  return static_cast<uint8_t>(code | (std::signbit(number) ? 8 : 0));
}

}  // namespace

float Minifloat::number(unsigned code) const {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const unsigned sign_bit = has_sign ? 1U << (exponent_bits + fraction_bits) : 0;
  const unsigned magnitude = code & ~sign_bit, all = (1U << (exponent_bits + fraction_bits)) - 1;
  const unsigned fraction = magnitude & ((1U << fraction_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> fraction_bits);
  const float sign = (code & sign_bit) != 0 ? -1.0F : 1.0F;
  if (specials == Specials::kZeroNan && code == sign_bit) return kNan;
  if (specials == Specials::kLastNan && magnitude == all) return kNan;
  if (specials == Specials::kIeee && exponent == (1 << exponent_bits) - 1)
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : kNan;
  // Numbers without a fraction have no subnormal ones, either.
  const bool is_normal = exponent != 0 || fraction_bits == 0;
  const unsigned digits = fraction + (is_normal ? 1U << fraction_bits : 0);
  const int power = (is_normal ? exponent : 1) - bias - fraction_bits;
  return sign * std::ldexp(static_cast<float>(digits), power);
}

double Minifloat::largest() const {
  const unsigned all = (1U << (exponent_bits + fraction_bits)) - 1;
  if (specials == Specials::kLastNan) return number(all - 1);
  if (specials == Specials::kIeee) return number(all - (1U << fraction_bits));
  return number(all);
}

double Minifloat::least_normal() const { return std::ldexp(1.0, 1 - bias); }

std::optional<Minifloat> minifloat(int32_t element_type) {
  using anneal_onnx::TensorProto;
  using Specials = Minifloat::Specials;
  switch (element_type) {
    case TensorProto::FLOAT8E4M3FN:
      return Minifloat{4, 3, 7, Specials::kLastNan};
    case TensorProto::FLOAT8E4M3FNUZ:
      return Minifloat{4, 3, 8, Specials::kZeroNan};
    case TensorProto::FLOAT8E5M2:
      return Minifloat{5, 2, 15, Specials::kIeee};
    case TensorProto::FLOAT8E5M2FNUZ:
      return Minifloat{5, 2, 16, Specials::kZeroNan};
    case TensorProto::FLOAT4E2M1:
      return Minifloat{2, 1, 1, Specials::kNone};
    case TensorProto::FLOAT8E8M0:
      return Minifloat{8, 0, 127, Specials::kLastNan, false};
    default:
      return std::nullopt;
  }
}

std::optional<WeightEncoding> weight_encoding(int32_t element_type) {
  using anneal_onnx::TensorProto;
  if (element_type == TensorProto::FLOAT8E4M3FN) return WeightEncoding::kE4M3;
  if (element_type == TensorProto::FLOAT8E5M2) return WeightEncoding::kE5M2;
  if (element_type == TensorProto::FLOAT4E2M1) return WeightEncoding::kE2M1;
  return std::nullopt;
}

std::optional<Tensor> codes_of(const Tensor& numbers, WeightEncoding encoding) {
  NewTensor made = allocate_tensor(DataType::kU8, numbers.dims());
  std::byte* to = made.data.data();
  for (const float number : numbers.as<float>()) {
    if (!std::isfinite(number)) return std::nullopt;
    *to++ = std::byte{code_of(number, encoding)};
  }
  return made.tensor;
}

}  // namespace anneal
