#include "anneal/engine/tune/search/mix_front.h"

#include <gtest/gtest.h>

#include <random>

namespace anneal {
namespace {

using Groups = std::vector<std::vector<ChoiceCost>>;

Groups some_groups(unsigned seed, size_t count) {
  std::mt19937 random(seed);
  // Small whole numbers: many mixes tie.
  std::uniform_int_distribution<int> number(0, 6), choices(1, 4);
  Groups groups(count);
  for (auto& group : groups)
    for (int k = choices(random); k > 0; --k)
      group.push_back({static_cast<double>(number(random)), static_cast<double>(number(random))});
  return groups;
}

// The least output_error in at most that time, by trying all.
double least_damage(const Groups& groups, double milliseconds) {
  double least = 1e9;
  std::vector<size_t> at(groups.size());
  for (;;) {
    double time = 0, output_error = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      time += groups[i][at[i]].milliseconds;
      output_error += groups[i][at[i]].output_error;
    }
    if (time <= milliseconds) least = std::min(least, output_error);
    size_t i = 0;
    while (i < groups.size() && ++at[i] == groups[i].size()) at[i++] = 0;
    if (i == groups.size()) return least;
  }
}

TEST(MixFront, IsTheBestForEveryBudget) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Groups groups = some_groups(seed, 5);
    const std::vector<Mix> front = mix_front(groups);
    for (double time = 0; time <= 30; ++time) {
      double found = 1e9;
      for (const Mix& mix : front)
        if (mix.milliseconds <= time) found = std::min(found, mix.output_error);
      EXPECT_EQ(found, least_damage(groups, time)) << "seed " << seed << ", time " << time;
    }
  }
}

TEST(MixFront, MixesAreWhatTheyClaimAndInOrder) {
  const Groups groups = some_groups(1, 12);
  const std::vector<Mix> front = mix_front(groups);
  ASSERT_GT(front.size(), 3u);
  for (size_t k = 0; k < front.size(); ++k) {
    double time = 0, output_error = 0;
    ASSERT_EQ(front[k].choices.size(), groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      time += groups[i].at(front[k].choices[i]).milliseconds;
      output_error += groups[i].at(front[k].choices[i]).output_error;
    }
    EXPECT_EQ(time, front[k].milliseconds);
    EXPECT_EQ(output_error, front[k].output_error);
    if (k == 0) continue;
    EXPECT_GT(front[k].milliseconds, front[k - 1].milliseconds);
    EXPECT_LT(front[k].output_error, front[k - 1].output_error);
  }
}

TEST(MixFront, KeepsItsEndsWhenThinned) {
  const Groups groups = some_groups(3, 14);
  const std::vector<Mix> whole = mix_front(groups), thinned = mix_front(groups, 5);
  ASSERT_GT(whole.size(), 5u);
  ASSERT_LE(thinned.size(), 5u);
  EXPECT_EQ(thinned.front().milliseconds, whole.front().milliseconds);
  EXPECT_EQ(thinned.back().output_error, whole.back().output_error);
}

TEST(MixFront, OfNoGroupsIsOneEmptyMix) {
  const std::vector<Mix> front = mix_front({});
  ASSERT_EQ(front.size(), 1u);
  EXPECT_TRUE(front[0].choices.empty());
}

}  // namespace
}  // namespace anneal
