#include "anneal/engine/memory_planner.h"

#include <algorithm>
#include <numeric>

namespace anneal {
namespace {

struct Placed {
  uint64_t begin, end;
  uint32_t first, last;
};

uint64_t align_up(uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// The lowest aligned offset where `bytes` fit beside all of `placed` that live at the same time.
// placed is ordered by begin.
uint64_t lowest_gap(const std::vector<Placed>& placed, const Lifetime& lifetime, uint64_t bytes) {
  uint64_t offset = 0;
  for (const Placed& other : placed) {
    if (other.last < lifetime.first || lifetime.last < other.first) continue;
    if (other.begin >= offset + bytes) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

}  // namespace

Placement place(std::span<const Lifetime> lifetimes) {
  std::vector<uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  Placement placement{std::vector<uint64_t>(lifetimes.size()), 0};
  std::vector<Placed> placed;  // ordered by begin
  placed.reserve(lifetimes.size());
  for (const uint32_t index : order) {
    const Lifetime& lifetime = lifetimes[index];
    const uint64_t bytes = align_up(std::max<uint64_t>(lifetime.bytes, 1));
    const uint64_t offset = lowest_gap(placed, lifetime, bytes);
    placement.offsets[index] = offset;
    placement.total = std::max(placement.total, offset + bytes);
    const Placed entry{offset, offset + bytes, lifetime.first, lifetime.last};
    const auto at =
        std::lower_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    placed.insert(at, entry);
  }
  return placement;
}

}  // namespace anneal
