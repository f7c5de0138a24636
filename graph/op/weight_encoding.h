// How codes of a few bits stand for the numbers of quantized weights.
#pragma once
#include <cstdint>
#include <span>

namespace anneal {

enum class WeightEncoding : uint8_t {
  kIntegers,  // the integers of a tensor of 8 bits
  kU4,        // from 0 to 15
  kU2,        // from 0 to 3
  kE4M3,      // ONNX's FLOAT8E4M3FN
  kE5M2,      // ONNX's FLOAT8E5M2
  kE2M1,      // ONNX's FLOAT4E2M1
  kFp4,       // of bitsandbytes, as ONNX Runtime's MatMulBnb4 has it with quant_type 0
  kNf4,       // likewise with quant_type 1: "QLoRA: Efficient Finetuning of Quantized LLMs",
              // appendix E
};

constexpr int bits_of(WeightEncoding encoding) {
  using enum WeightEncoding;
  return encoding == kU2                                                   ? 2
         : encoding == kIntegers || encoding == kE4M3 || encoding == kE5M2 ? 8
                                                                           : 4;
}
constexpr int codes_in_byte(WeightEncoding encoding) { return 8 / bits_of(encoding); }
constexpr bool has_integers(WeightEncoding encoding) { return encoding <= WeightEncoding::kU2; }
constexpr bool has_float8(WeightEncoding encoding) {
  return encoding == WeightEncoding::kE4M3 || encoding == WeightEncoding::kE5M2;
}

// The number of each code. REQUIRES: kE2M1, kFp4 or kNf4
std::span<const float, 16> numbers_of_4_bits(WeightEncoding encoding);
// REQUIRES: !has_integers(encoding), and the code of a finite number
float number_of(WeightEncoding encoding, uint8_t code);

}  // namespace anneal
