#include "anneal/kernels/cuda/cost/rounded_constant.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "anneal/core/float16.h"

namespace anneal::cuda {

std::vector<std::byte> rounded_constant(std::span<const float> values, DataType dtype) {
  std::vector<std::byte> bytes(2 * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_f16 = dtype == DataType::kF16;
    const uint16_t bits = is_f16 ? to_f16(values[i]).bits : to_bf16(values[i]).bits;
    const float rounded = is_f16 ? to_f32(Float16{bits}) : to_f32(BFloat16{bits});
    if (!std::isfinite(rounded) || (rounded == 0) != (values[i] == 0)) return {};
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof(bits));
  }
  return bytes;
}

}  // namespace anneal::cuda
