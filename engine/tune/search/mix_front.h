// The choice of a precision for each group: all mixes that no other mix beats, from the
// measurements of each group alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace anneal {

// The time and the error that one choice for a group adds.
struct ChoiceCost {
  double milliseconds = 0;
  double output_error = 0;  // >= 0
};

struct Mix {
  std::vector<uint8_t> choices;  // of each group
  double milliseconds = 0, output_error = 0;
};

// groups: the choices of each, at most 256. Returns the mixes by rising time and falling
// output_error, without those that are as slow and as inaccurate as another: the multiple-choice
// knapsack problem for every budget at once. Above `most` mixes, those in between are thinned out
// and the ends kept, so that the rest is near the front. The same on every machine. REQUIRES: no
// group without choices; most >= 2
std::vector<Mix> mix_front(std::span<const std::vector<ChoiceCost>> groups, size_t most = 4096);

}  // namespace anneal
