// Intervals of the numbers that a value may hold, and their propagation through programs.
#pragma once
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/graph/program/program.h"

namespace anneal {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Both ends included. Wide, never wrong, but for the rounding of floats.
struct ValueInterval {
  double low = -kInfinity, high = kInfinity;

  static ValueInterval of(DataType dtype);  // all that the type can hold
  bool is_finite() const;
  bool is_point() const { return low == high; }
  bool has(double value) const { return low <= value && value <= high; }
  bool operator==(const ValueInterval&) const = default;
};
// Weights with more elements are not looked through: they are no tables of indices.
inline constexpr int64_t kMostWeightElements = 1 << 20;
ValueInterval interval_of(const Tensor& weight);
ValueInterval united(const ValueInterval& a, const ValueInterval& b);

// The known facts of a value's elements. port: they are elements of that input of the plan, perhaps
// in another type; -1: of none.
struct ValueRange {
  ValueInterval range;
  int port = -1;
};
ValueRange united(const ValueRange& a, const ValueRange& b);

// How programs use the elements of an input, by input of the plan.
struct PortUse {
  bool is_tested = false;        // 1 - x, or taken for a boolean
  bool is_compared = false;      // x == 0 or x == 1
  bool is_factor = false;        // of computed numbers
  std::set<int64_t> looked_for;  // x == 32000, as for the place of an image; not all of many
  std::optional<ValueInterval>
      within;  // of the indices, or other known numbers, that it is compared to
};
using PortUses = std::map<int, PortUse>;

// The ranges of the results. dims: of the output, by axis; -1 where it is not known.
std::vector<ValueRange> program_ranges(const Program& program, std::span<const ValueRange> inputs,
                                       std::span<const int64_t> dims, PortUses& uses);

}  // namespace anneal
