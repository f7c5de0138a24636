// The results of a program that may leave the range of its inputs.
#pragma once
#include <span>
#include <vector>

#include "anneal/graph/program/program.h"

namespace anneal {

// Whether a number may be far above, or far below, what a 16-bit float with a small exponent holds.
struct Growth {
  bool up = false, down = false;
  bool any() const { return up || down; }
  bool operator==(const Growth&) const = default;
};

// For each result, where inputs[i] describes input i. Large are literals beyond `most`, powers and
// exponentials unless `most` is nearly that of f32, and results of adding, multiplying, choosing or
// moving large values; a bounded function, a logarithm, a root or a clamp ends it. Products of
// ordinary numbers count as ordinary.
std::vector<Growth> growth_of(const Program& program, std::span<const Growth> inputs, float most);

}  // namespace anneal
