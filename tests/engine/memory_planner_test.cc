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

// The most bytes that live at one step: no placement can do with less.
uint64_t lower_bound(const std::vector<Lifetime>& lifetimes) {
  uint64_t most = 0;
  for (const Lifetime& at : lifetimes) {
    uint64_t live = 0;
    for (const Lifetime& other : lifetimes)
      if (other.first <= at.first && at.first <= other.last) live += rounded(other.bytes);
    most = std::max(most, live);
  }
  return most;
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

TEST(MemoryPlanner, NeverOverlapsAndStaysNearTheBound) {
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
    EXPECT_LE(placement.total, 2 * lower_bound(lifetimes)) << "round " << round;
    EXPECT_EQ(place(lifetimes).offsets, placement.offsets) << "the same lifetimes, the same places";
  }
}

}  // namespace
}  // namespace anneal
