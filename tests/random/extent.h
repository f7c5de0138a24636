// Sizes of random graphs: one number for each binding of the open sizes.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

namespace anneal::random_graphs {

// The number of different sizes of its inputs that each graph runs with: the optimal, the smallest
// and the largest, and others between these.
inline constexpr int kBindings = 4;
inline constexpr int kOptimal = 0, kSmallest = 1, kLargest = 2;

// An expression of open sizes, known by its value in each binding.
struct Extent {
  std::array<int64_t, kBindings> in = {};

  Extent() = default;
  Extent(int64_t number) { in.fill(number); }
  bool constant() const { return *this == Extent(in[0]); }
  bool is(int64_t number) const { return *this == Extent(number); }
  int64_t least() const { return *std::ranges::min_element(in); }
  int64_t largest() const { return *std::ranges::max_element(in); }
  bool operator==(const Extent&) const = default;
};

template <class F>
Extent combine(const Extent& a, const Extent& b, F f) {
  Extent result;
  for (size_t i = 0; i < kBindings; ++i) result.in[i] = f(a.in[i], b.in[i]);
  return result;
}
inline Extent operator+(const Extent& a, const Extent& b) {
  return combine(a, b, [](int64_t x, int64_t y) { return x + y; });
}
inline Extent operator-(const Extent& a, const Extent& b) {
  return combine(a, b, [](int64_t x, int64_t y) { return x - y; });
}
inline Extent operator*(const Extent& a, const Extent& b) {
  return combine(a, b, [](int64_t x, int64_t y) { return x * y; });
}
// REQUIRES: a >= 0, b > 0.
inline Extent operator/(const Extent& a, const Extent& b) {
  return combine(a, b, [](int64_t x, int64_t y) { return x / y; });
}
inline bool divides(const Extent& b, const Extent& a) {
  for (size_t i = 0; i < kBindings; ++i)
    if (b.in[i] <= 0 || a.in[i] % b.in[i] != 0) return false;
  return true;
}

using Extents = std::vector<Extent>;

inline Extent product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), Extent(1),
                         [](const Extent& a, const Extent& b) { return a * b; });
}

}  // namespace anneal::random_graphs
