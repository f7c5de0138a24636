// Division of integers as programs define it: by 0 it gives 0, and the least number by -1 wraps.
#pragma once
#include <concepts>
#include <type_traits>
#include <utility>

namespace anneal {

// The quotient, cut towards 0, and the rest, of a's sign.
template <std::integral T>
std::pair<T, T> divide(T a, T b) {
  using U = std::make_unsigned_t<T>;
  if (b == 0) return {0, 0};
  if (std::is_signed_v<T> && b == static_cast<T>(-1))
    return {static_cast<T>(U{0} - static_cast<U>(a)), 0};
  return {static_cast<T>(a / b), static_cast<T>(a % b)};
}

// The rest of b's sign.
template <std::integral T>
T floor_modulo(T a, T b) {
  const T rest = divide(a, b).second;
  return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
}

}  // namespace anneal
