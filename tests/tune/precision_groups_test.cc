// Which layers share a precision, and which steps of a plan are theirs.
#include "anneal/engine/tune/search/precision_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/tune/search/step_times.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

using testing::ElementsAre;

// a -> (b, c) -> concat -> d; d + a in a sum with a gate; e by itself.
Graph network() {
  return parse_graph(R"G(graph g(x: f32[1,4,8,8])
  const w: f32[4,4,1,1] = random(1)
  const v: f32[4,8,1,1] = random(2)
  a = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  r = Pointwise(a) program="(f32)->(f32) max($0,0f32)"
  b = Conv(r, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  c = Conv(r, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  k = Concat(b, c) axis=1
  d = Conv(k, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  f = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  s = Pointwise(d, f) program="(f32,f32)->(f32) add($0,$1)"
  e = Conv(s, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return e
)G");
}

std::vector<std::vector<std::string>> layers_of(const std::vector<PrecisionGroup>& groups) {
  std::vector<std::vector<std::string>> layers;
  for (const PrecisionGroup& group : groups) layers.push_back(group.layers);
  return layers;
}

TEST(PrecisionGroups, ShareWhatIsStoredOnceOrMeets) {
  const auto groups = precision_groups(network(), 100);
  // a and f read x; f and d meet in a sum; b and c read r and meet in a concat.
  ASSERT_THAT(layers_of(groups),
              ElementsAre(ElementsAre("a", "d", "f"), ElementsAre("b", "c"), ElementsAre("e")));
  EXPECT_EQ(groups[0].name, "a and 2 more");
  EXPECT_EQ(groups[2].name, "e");
  EXPECT_NE(groups[0].why, "");
  EXPECT_EQ(groups[2].why, "");
  EXPECT_TRUE(groups[2].can_be_int8);
}

TEST(PrecisionGroups, AGateIsNoBranch) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[1,4,8,8], y: f32[1,4,1,1])
  const w: f32[4,4,1,1] = random(1)
  a = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  b = Conv(y, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  m = Pointwise(a, b) program="(f32,f32)->(f32) mul($0,$1)"
  return m
)G");
  EXPECT_THAT(layers_of(precision_groups(graph, 100)),
              ElementsAre(ElementsAre("a"), ElementsAre("b")));
}

TEST(PrecisionGroups, NeighboursAreJoinedWhereThereAreTooMany) {
  const auto groups = precision_groups(network(), 2);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(layers_of(precision_groups(network(), 1)),
              ElementsAre(ElementsAre("a", "b", "c", "d", "f", "e")));
}

TEST(PrecisionGroups, ProductsOfComputedOperandsAreNot8Bit) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[4,4], y: f32[4,4])
  a = MatMul(x, y)
  return a
)G");
  const auto groups = precision_groups(graph, 10);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_FALSE(groups[0].can_be_int8);
}

TEST(StepTimes, EveryStepIsInTheGroupOfItsLayer) {
  const auto groups = precision_groups(network(), 100);
  const EngineFile file = build(network());
  const auto of_steps = groups_of_steps(file.plans[0], groups);
  ASSERT_EQ(of_steps.size(), file.plans[0].steps.size());
  std::vector<int> steps(groups.size());
  for (const size_t group : of_steps) {
    ASSERT_LT(group, groups.size());
    ++steps[group];
  }
  for (const int count : steps) EXPECT_GE(count, 1);
  const auto times = modelled_step_times(file.plans[0]);
  ASSERT_EQ(times.size(), of_steps.size());
  for (const double time : times) EXPECT_GT(time, 0);
}

}  // namespace
}  // namespace anneal
