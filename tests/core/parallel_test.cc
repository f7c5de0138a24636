#include "anneal/core/parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {
std::atomic<int> allocations{0};
}  // namespace

// Not inlined, because the compiler would take new and free for a mismatched pair.
__attribute__((noinline)) void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace anneal {
namespace {

// More workers than cores, so that teams of several threads are tested on any machine.
class Parallel : public testing::Test {
 protected:
  void SetUp() override { set_worker_budget(kBudget); }
  static constexpr int kBudget = 5;
};

// Runs for_ranges and returns how often each item was visited.
std::vector<int> visits(ThreadTeam& team, int64_t items, int64_t grain) {
  std::vector<std::atomic<int>> counts(static_cast<size_t>(items));
  std::atomic<bool> sound{true};
  team.for_ranges(items, grain, [&](int64_t begin, int64_t end) {
    if (begin < 0 || begin >= end || end > items) sound = false;
    if (end - begin < std::min(grain, items)) sound = false;
    for (int64_t i = begin; i < end; ++i) counts[static_cast<size_t>(i)].fetch_add(1);
  });
  EXPECT_TRUE(sound) << items << " items, grain " << grain;
  return {counts.begin(), counts.end()};
}

TEST_F(Parallel, HardwareThreadsAreWhatTheSystemGrants) {
  EXPECT_GE(hardware_threads(), 1);
  EXPECT_LE(hardware_threads(), static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_EQ(hardware_threads(), hardware_threads());
}

TEST_F(Parallel, RangesCoverAllItemsOnce) {
  for (int threads : {0, 1, 2, 3, 6}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.size(), std::max(1, threads));
    for (int64_t items : {1, 2, 7, 23, 27, 129, 1000, 4099})
      for (int64_t grain : {1, 3, 64, 5000})
        EXPECT_EQ(visits(team, items, grain), std::vector<int>(static_cast<size_t>(items), 1))
            << threads << " threads, " << items << " items, grain " << grain;
  }
}

TEST_F(Parallel, NothingToDoCallsNothing) {
  ThreadTeam team(3);
  for (int64_t items : {int64_t{0}, int64_t{-1}, INT64_MIN})
    team.for_ranges(items, 1, [](int64_t, int64_t) { FAIL(); });
}

TEST_F(Parallel, HugeCountsDoNotOverflow) {
  ThreadTeam team(4);
  std::atomic<uint64_t> sum{0};
  team.for_ranges(INT64_MAX, 1, [&](int64_t begin, int64_t end) {
    sum.fetch_add(static_cast<uint64_t>(end - begin));
  });
  EXPECT_EQ(sum, static_cast<uint64_t>(INT64_MAX));
}

TEST_F(Parallel, SeveralThreadsReallyWork) {
  ThreadTeam team(2);
  ASSERT_EQ(team.size(), 2);
  // Each body waits for the other one to have begun.
  std::atomic<int> begun{0};
  team.for_ranges(2, 1, [&](int64_t, int64_t) {
    begun.fetch_add(1);
    while (begun.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 2);
}

TEST_F(Parallel, EachThreadBeginsWithTheSameShareEveryTime) {
  for (int threads : {2, 3, 5}) {
    ThreadTeam team(threads);
    ASSERT_EQ(team.size(), threads);
    EXPECT_EQ(team.thread(), 0) << "outside of a body";
    for (int time = 0; time < 20; ++time) {
      // Each body waits for the other ones to have begun.
      std::vector<int> thread_of(static_cast<size_t>(threads), -1);
      std::atomic<int> begun{0};
      team.for_ranges(threads, 1, [&](int64_t begin, int64_t) {
        thread_of[static_cast<size_t>(begin)] = team.thread();
        ThreadTeam other(1);
        EXPECT_EQ(other.thread(), 0);
        other.for_ranges(3, 1, [&](int64_t, int64_t) { EXPECT_EQ(other.thread(), 0); });
        begun.fetch_add(1);
        while (begun.load() < threads) std::this_thread::yield();
      });
      for (int thread = 0; thread < threads; ++thread)
        EXPECT_EQ(thread_of[static_cast<size_t>(thread)], thread);
      EXPECT_EQ(team.thread(), 0);
    }
  }
}

TEST_F(Parallel, BodiesAtOneTimeHaveDifferentThreads) {
  ThreadTeam team(4);
  ASSERT_EQ(team.size(), 4);
  std::array<std::atomic<bool>, 4> busy{};
  std::atomic<int> shared{0}, visited{0};
  // Uneven ranges, so that threads take those of others.
  for (int time = 0; time < 200; ++time)
    team.for_ranges(97, 1, [&](int64_t begin, int64_t end) {
      const auto thread = static_cast<size_t>(team.thread());
      if (thread >= busy.size() || busy[thread].exchange(true)) return void(shared.fetch_add(1));
      for (std::atomic<int> i{0}; i < (begin < 24 ? 1000 : 5);) i.fetch_add(1);
      visited.fetch_add(static_cast<int>(end - begin));
      busy[thread] = false;
    });
  EXPECT_EQ(shared, 0);
  EXPECT_EQ(visited, 200 * 97);
}

TEST_F(Parallel, TheFirstExceptionReachesTheCaller) {
  for (int threads : {1, 2, 6}) {
    ThreadTeam team(threads);
    for (int64_t bad : {0, 13, 128}) {
      try {
        team.for_ranges(129, 1, [&](int64_t begin, int64_t end) {
          if (begin <= bad && bad < end) throw std::runtime_error("item " + std::to_string(bad));
        });
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "item " + std::to_string(bad));
      }
      EXPECT_THROW(team.for_ranges(129, 1, [](int64_t, int64_t) { throw 1; }), int);
      EXPECT_EQ(visits(team, 129, 1), std::vector<int>(129, 1)) << "the team works on";
    }
  }
}

TEST_F(Parallel, NestedRangesRunOnTheirThreadAlone) {
  for (int threads : {1, 4}) {
    ThreadTeam team(threads);
    std::atomic<int> visited{0};
    team.for_ranges(23, 1, [&](int64_t begin, int64_t end) {
      const auto self = std::this_thread::get_id();
      const auto inner = [&](int64_t from, int64_t to) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        visited.fetch_add(static_cast<int>(to - from));
      };
      for (int64_t i = begin; i < end; ++i) team.for_ranges(7, 1, inner);
      ThreadTeam own(4);
      EXPECT_EQ(own.size(), 1);
      own.for_ranges(3, 1, inner);
    });
    EXPECT_GE(visited, 23 * 7 + 3);
  }
}

TEST_F(Parallel, TeamsShareTheBudgetAndGiveItBack) {
  {
    ThreadTeam first(4);
    ThreadTeam second(4);
    ThreadTeam third(4);
    EXPECT_EQ(first.size(), 4);
    EXPECT_EQ(second.size(), 3);
    EXPECT_EQ(third.size(), 1);
    EXPECT_EQ(visits(third, 27, 1), std::vector<int>(27, 1));
  }
  EXPECT_EQ(ThreadTeam(100).size(), kBudget + 1);
  ThreadTeam held(3);
  set_worker_budget(1);
  EXPECT_EQ(ThreadTeam(4).size(), 1);
  EXPECT_EQ(visits(held, 129, 1), std::vector<int>(129, 1));
  set_worker_budget(0);
  EXPECT_EQ(ThreadTeam(4).size(), 1);
}

TEST_F(Parallel, ManyTeamsOnManyThreads) {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller)
    callers.emplace_back([caller] {
      for (int round = 0; round < 40; ++round) {
        ThreadTeam team(1 + (caller + round) % 4);
        for (int call = 0; call < 5; ++call) {
          const int64_t items = 1 + (caller * 7 + round * 13 + call) % 129;
          std::atomic<int64_t> sum{0};
          team.for_ranges(items, 2, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) sum.fetch_add(i);
          });
          EXPECT_EQ(sum, items * (items - 1) / 2);
        }
        if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ThreadTeam(100).size(), kBudget + 1) << "all workers came back";
}

TEST_F(Parallel, ResultsOfWorkersAreVisibleWithoutAtomics) {
  ThreadTeam team(3);
  std::vector<int64_t> squares(4099);
  for (int round = 0; round < 200; ++round) {
    team.for_ranges(4099, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) squares[static_cast<size_t>(i)] += i * i;
    });
    if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (int64_t i = 0; i < 4099; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], 200 * i * i);
}

TEST_F(Parallel, ForRangesAllocatesNothing) {
  ThreadTeam team(3);
  std::atomic<int64_t> sum{0};
  const int before = allocations;
  for (int round = 0; round < 100; ++round)
    team.for_ranges(129, 1, [&](int64_t begin, int64_t end) { sum.fetch_add(end - begin); });
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 12900);
}

}  // namespace
}  // namespace anneal
