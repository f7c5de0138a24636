// Transposition of 4 x 4 numbers of 32 bits in registers.
#pragma once
#include <cstdint>
#include <cstring>

namespace anneal::cpu {

using FourNumbers [[gnu::vector_size(16)]] = uint32_t;

// to[k * to_step + i] = from[i * from_step + k] for i, k < 4. Number: float, int32_t or uint32_t.
template <class Number>
inline void transpose_square(const Number* from, int64_t from_step, Number* to, int64_t to_step) {
  static_assert(sizeof(Number) == sizeof(uint32_t));
  const auto row = [&](int64_t i) {
    FourNumbers numbers;
    std::memcpy(&numbers, from + i * from_step, sizeof numbers);
    return numbers;
  };
  const FourNumbers a = row(0), b = row(1), c = row(2), d = row(3);
  const FourNumbers low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const FourNumbers high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const FourNumbers low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const FourNumbers high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const FourNumbers columns[4] = {__builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5),
                                  __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7),
                                  __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5),
                                  __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7)};
  for (int64_t k = 0; k < 4; ++k) std::memcpy(to + k * to_step, &columns[k], sizeof columns[k]);
}

}  // namespace anneal::cpu
