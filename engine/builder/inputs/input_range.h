// InputRange: the integers that the readers of an input accept.
#pragma once
#include <cstdint>
#include <vector>

namespace anneal {

enum class InputRole : uint8_t {
  kNumber,  // no layer limits it
  kIndex,   // of a table, or a position or length: in a range that its readers accept
  kPlace,   // an index of where layers write: those of one row differ
  kSize,    // decides sizes
  kMask,    // 0 or 1
};

// If an input decides sizes or numbers of iterations: the width of its range above the least.
inline constexpr int64_t kMostDecidedSteps = 8;

// The integers that an input may hold, both ends included.
struct InputRange {
  int64_t low = 0, high = 0;
  InputRole role = InputRole::kNumber;
  std::vector<int64_t> markers = {};  // numbers that layers look for, as the tokens of an image
  bool operator==(const InputRange&) const = default;
};

}  // namespace anneal
