// The memory planner: the offset of each buffer in an arena, as a pure function of sizes and
// lifetimes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace anneal {

inline constexpr uint64_t kArenaAlignment = 64;

// A buffer that must exist from step `first` to step `last`, both included.
struct Lifetime {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;
};
struct Placement {
  std::vector<uint64_t> offsets;  // one per lifetime, multiples of kArenaAlignment
  uint64_t total = 0;             // bytes of the arena
};
// The most bytes that live at one step: no placement takes less.
uint64_t most_live_bytes(std::span<const Lifetime> lifetimes);
// Each buffer at the lowest gap free during its whole life; largest first. If that needs more than
// the buffers alive at one step, other orders are tried, and the best counts. Deterministic.
Placement place(std::span<const Lifetime> lifetimes);

}  // namespace anneal
