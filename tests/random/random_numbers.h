// Random numbers that are the same on every machine.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace anneal::random_graphs {

// SplitMix64's output function.
inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
inline uint64_t mixed(uint64_t a, uint64_t b) { return mixed(mixed(a) ^ b); }
inline uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  for (const char c : text) hash = mixed(hash, static_cast<unsigned char>(c));
  return hash;
}

class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : state_(mixed(seed)) {}
  uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15u); }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
  }
  // Nearly normal: a sum of uniform numbers, cut at 3.5.
  double normal() {
    double sum = 0;
    for (int i = 0; i < 7; ++i) sum += uniform(-1, 1);
    return sum / 2;
  }
  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace anneal::random_graphs
