// The planner's promises, on random sets of lifetimes and on small ones worked out by hand.
#include "anneal/engine/memory_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace anneal {
namespace {

uint64_t rounded(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// most_live_bytes() the long way.
uint64_t lower_bound(const std::vector<Lifetime>& lifetimes) {
  uint64_t most = 0;
  for (const Lifetime& at : lifetimes) {
    uint64_t live = 0;
    for (const Lifetime& other : lifetimes)
      if (other.first <= at.first && at.first <= other.last) live += other.bytes;
    most = std::max(most, live);
  }
  return most;
}

std::vector<Lifetime> in_whole_lines(std::vector<Lifetime> lifetimes) {
  for (Lifetime& lifetime : lifetimes) lifetime.bytes = rounded(lifetime.bytes);
  return lifetimes;
}

TEST(MemoryPlanner, PlacesNothing) {
  const Placement placement = place({});
  EXPECT_TRUE(placement.offsets.empty());
  EXPECT_EQ(placement.total, 0u);
}

TEST(MemoryPlanner, ReusesMemoryOfBuffersThatNeverMeet) {
  const std::vector<Lifetime> chain = {{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}, {1000, 3, 4}};
  EXPECT_EQ(place(chain).total, 2 * rounded(1000));
}

TEST(MemoryPlanner, FillsTheGapUnderALargeBuffer) {
  // Two large buffers that never meet share a place; the small one lives through both.
  const std::vector<Lifetime> lifetimes = {{64, 0, 9}, {640, 0, 4}, {640, 5, 9}};
  const Placement placement = place(lifetimes);
  EXPECT_EQ(placement.offsets[1], placement.offsets[2]);
  EXPECT_EQ(placement.total, 704u);
}

TEST(MemoryPlanner, EmptyBuffersGetAPlaceOfTheirOwn) {
  const std::vector<Lifetime> lifetimes = {{0, 0, 5}, {0, 0, 5}};
  const Placement placement = place(lifetimes);
  EXPECT_NE(placement.offsets[0], placement.offsets[1]);
}

// Largest first needs 12, 9 and 14 units for these; what lives at one step takes one less.
TEST(MemoryPlanner, TriesOtherOrdersWhereLargestFirstWastes) {
  const std::vector<std::vector<Lifetime>> cases = {
      {{4, 3, 4}, {3, 2, 4}, {5, 1, 1}, {4, 1, 3}},
      {{2, 2, 4}, {3, 1, 1}, {1, 1, 2}, {2, 2, 4}, {3, 1, 3}},
      {{4, 1, 3}, {4, 1, 1}, {5, 3, 4}, {1, 3, 5}, {3, 0, 1}, {2, 1, 2}},
  };
  for (std::vector<Lifetime> lifetimes : cases) {
    for (Lifetime& lifetime : lifetimes) lifetime.bytes *= kArenaAlignment;
    EXPECT_EQ(place(lifetimes).total, most_live_bytes(lifetimes));
  }
}

TEST(MemoryPlanner, ThousandsOfBuffersArePlacedAtOnce) {
  std::vector<Lifetime> lifetimes;
  for (uint32_t i = 0; i < 5000; ++i) lifetimes.push_back({1 + i * 7919 % 10007, i, i + i % 13});
  const uint64_t bound = most_live_bytes(lifetimes);
  EXPECT_LE(place(lifetimes).total, bound * 3 / 2);
}

TEST(MemoryPlanner, NeverOverlapsAndStaysNearTheBound) {
  double ratios = 0;
  std::mt19937 random(7);
  const auto draw = [&](uint32_t limit) {
    return std::uniform_int_distribution<uint32_t>(0, limit)(random);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes(1 + draw(60));
    for (Lifetime& lifetime : lifetimes) {
      lifetime.first = draw(40);
      lifetime.last = lifetime.first + draw(10);
      lifetime.bytes = draw(3) == 0 ? draw(100000) : draw(500);
    }
    const Placement placement = place(lifetimes);
    ASSERT_EQ(placement.offsets.size(), lifetimes.size());
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_EQ(placement.offsets[i] % kArenaAlignment, 0u);
      EXPECT_LE(placement.offsets[i] + lifetimes[i].bytes, placement.total);
      for (size_t j = 0; j < i; ++j) {
        const bool meet =
            lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
        const bool apart = placement.offsets[i] + lifetimes[i].bytes <= placement.offsets[j] ||
                           placement.offsets[j] + lifetimes[j].bytes <= placement.offsets[i];
        EXPECT_TRUE(!meet || apart) << "round " << round << ": " << i << " and " << j;
      }
    }
    EXPECT_EQ(most_live_bytes(lifetimes), lower_bound(lifetimes)) << "round " << round;
    const double ratio = static_cast<double>(placement.total) /
                         static_cast<double>(most_live_bytes(in_whole_lines(lifetimes)));
    EXPECT_GE(ratio, 1) << "round " << round;
    EXPECT_LE(ratio, 1.3) << "round " << round;
    ratios += ratio / 200;
    EXPECT_EQ(place(lifetimes).offsets, placement.offsets) << "the same lifetimes, the same places";
  }
  EXPECT_LE(ratios, 1.02) << "on average";
}

}  // namespace
}  // namespace anneal
