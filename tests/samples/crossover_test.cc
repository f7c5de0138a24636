// find_crossover() of samples/regression.
#include <gtest/gtest.h>

#include <vector>

#include "results.h"

namespace {

struct Case {
  std::vector<double> cpu, gpu;  // at 1, 10, 100 points
  bool is_found;
  int64_t cpu_wins = 0, gpu_wins = 0;
  double points = 0;
};

TEST(Crossover, IsWhereTheGpuBeginsToWin) {
  const Case cases[] = {
      {{1, 10, 100}, {5, 5, 5}, true, 1, 10, 5},
      {{1, 10, 100}, {50, 50, 50}, true, 10, 100, 50},
      {{1, 1, 4}, {2, 2, 2}, true, 10, 100, 31.6227766},
      {{1, 10, 100}, {10, 10, 10}, true, 10, 100, 10},      // equal is not faster
      {{3, 1, 100}, {2, 2, 2}, true, 10, 100, 14.1421356},  // an early win does not count
      {{1, 10, 100}, {200, 200, 200}, false},               // never
      {{1, 10, 100}, {0.5, 5, 50}, false},                  // always
      {{}, {}, false},
  };
  for (const Case& each : cases) {
    std::vector<BatchTime> times;
    int64_t points = 1;
    for (size_t i = 0; i < each.cpu.size(); ++i, points *= 10)
      times.push_back({.points = points, .cpu = each.cpu[i], .gpu = each.gpu[i]});
    const auto found = find_crossover(times, &BatchTime::gpu);
    ASSERT_EQ(found.has_value(), each.is_found);
    if (!found) continue;
    EXPECT_EQ(found->cpu_wins, each.cpu_wins);
    EXPECT_EQ(found->gpu_wins, each.gpu_wins);
    EXPECT_NEAR(found->points, each.points, 1e-6 * each.points);
  }
}

}  // namespace
