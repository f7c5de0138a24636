// Arithmetic of whole numbers that counts blocks and aligns sizes.
#pragma once
#include <concepts>
#include <type_traits>

namespace anneal {

// a / b, rounded up. Does not overflow. REQUIRES: b > 0
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  const std::common_type_t<A, B> dividend = a, divisor = b;
  return dividend / divisor + (dividend % divisor > 0 ? 1 : 0);
}

// The least multiple of `to` that is at least `a`. REQUIRES: a >= 0, to > 0, and it is in range
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> align_up(A a, B to) {
  return ceil_div(a, to) * to;
}

}  // namespace anneal
