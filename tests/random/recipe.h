// What a random graph is made from. The same recipe gives the same graph on every machine.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace anneal::random_graphs {

enum class Kind : uint8_t { kFixed, kOpen, kRange, kControl, kHalf, kQuantized };
inline constexpr Kind kAllKinds[] = {Kind::kFixed,   Kind::kOpen, Kind::kRange,
                                     Kind::kControl, Kind::kHalf, Kind::kQuantized};
std::string_view to_string(Kind kind);  // "open"
std::optional<Kind> kind_from_name(std::string_view name);

// A step draws its numbers from the seed and its own number, and chooses its operands by their
// names: the others stay as they were when it is left out.
struct Recipe {
  uint64_t seed = 0;
  Kind kind = Kind::kFixed;
  // What makes the graph smaller, for reduction:
  std::set<int> left_out = {};          // steps, from 0
  std::set<std::string> outputs = {};   // the only ones; empty: all
  std::set<std::string> bypassed = {};  // nodes, by their first output, that an input replaces
  int64_t largest_size = 1 << 20;       // of what is drawn for an axis
  bool constant_symbols = false;        // no size is open
};

}  // namespace anneal::random_graphs
