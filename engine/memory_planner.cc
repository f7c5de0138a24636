#include "anneal/engine/memory_planner.h"

#include <algorithm>
#include <numeric>

#include "anneal/core/integer.h"

namespace anneal {
namespace {

struct PlacedInterval {
  uint64_t begin, end;
  uint32_t first, last;
};

// The lowest aligned offset where `bytes` fit beside all of `placed` that live at the same time.
// placed is ordered by begin.
uint64_t lowest_gap(const std::vector<PlacedInterval>& placed, const Lifetime& lifetime,
                    uint64_t bytes) {
  uint64_t offset = 0;
  for (const PlacedInterval& other : placed) {
    if (other.last < lifetime.first || lifetime.last < other.first) continue;
    if (other.begin >= offset + bytes) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

// Buffers in the order given, each at the lowest gap.
Placement place_in_order(std::span<const Lifetime> lifetimes, const std::vector<uint32_t>& order) {
  Placement placement{std::vector<uint64_t>(lifetimes.size()), 0};
  std::vector<PlacedInterval> placed;  // ordered by begin
  placed.reserve(lifetimes.size());
  for (const uint32_t index : order) {
    const Lifetime& lifetime = lifetimes[index];
    const uint64_t bytes = align_up(std::max<uint64_t>(lifetime.bytes, 1), kArenaAlignment);
    const uint64_t offset = lowest_gap(placed, lifetime, bytes);
    placement.offsets[index] = offset;
    placement.total = std::max(placement.total, offset + bytes);
    const PlacedInterval entry{offset, offset + bytes, lifetime.first, lifetime.last};
    const auto at = std::lower_bound(
        placed.begin(), placed.end(), entry,
        [](const PlacedInterval& a, const PlacedInterval& b) { return a.begin < b.begin; });
    placed.insert(at, entry);
  }
  return placement;
}

template <class Key>
std::vector<uint32_t> ordered_by(std::span<const Lifetime> lifetimes, const Key& key) {
  std::vector<uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return key(lifetimes[a]) > key(lifetimes[b]); });
  return order;
}

// Placing again costs the square of the number of buffers, and shapes are bound while a user waits.
int rounds_for(size_t buffers) {
  constexpr size_t kMostRounds = 48, kMostWork = 4'000'000;
  return static_cast<int>(
      std::min(kMostRounds, kMostWork / std::max<size_t>(1, buffers * buffers)));
}

}  // namespace

uint64_t most_live_bytes(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<uint64_t, int64_t>> changes;  // at a step: bytes that come or go
  for (const Lifetime& lifetime : lifetimes) {
    const auto bytes = static_cast<int64_t>(lifetime.bytes);
    changes.emplace_back(lifetime.first, bytes);
    changes.emplace_back(uint64_t{lifetime.last} + 1, -bytes);
  }
  // Buffers that end at a step count before buffers that begin: negative changes sort first.
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, most = 0;
  for (const auto& [step, change] : changes) {
    live += change;
    most = std::max(most, live);
  }
  return static_cast<uint64_t>(most);
}

Placement place(std::span<const Lifetime> lifetimes) {
  std::vector<Lifetime> rounded(lifetimes.begin(), lifetimes.end());
  for (Lifetime& lifetime : rounded)
    lifetime.bytes = align_up(std::max<uint64_t>(lifetime.bytes, 1), kArenaAlignment);
  const uint64_t bound = most_live_bytes(rounded);

  std::vector<uint32_t> order = ordered_by(rounded, [](const Lifetime& at) { return at.bytes; });
  Placement best = place_in_order(rounded, order);
  const auto take_better = [&](Placement&& placement) {
    if (placement.total < best.total) best = std::move(placement);
    return best.total <= bound;
  };
  if (best.total <= bound) return best;
  int rounds = rounds_for(lifetimes.size());
  if (rounds > 0 && take_better(place_in_order(rounded, ordered_by(rounded, [](const Lifetime& at) {
                                                 return std::pair(at.last - at.first, at.bytes);
                                               }))))
    return best;

  // Whatever ends highest was placed too late: it goes first, and all are placed again.
  Placement tried = place_in_order(rounded, order);
  for (; rounds > 0; --rounds) {
    const auto highest = std::find_if(order.begin(), order.end(), [&](uint32_t index) {
      return tried.offsets[index] + rounded[index].bytes == tried.total;
    });
    std::rotate(order.begin(), highest, highest + 1);
    tried = place_in_order(rounded, order);
    if (take_better(Placement(tried))) break;
  }
  return best;
}

}  // namespace anneal
