// Well-known networks on the CPU: the steps that remain, and that the results stay.
#include "anneal/tests/optimizer/networks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "anneal/tests/engine/expect_steps.h"

namespace anneal::testing {
namespace {

// Nothing is copied for a concat; only convolutions of unlike windows share Fire's input.
TEST(Networks, SqueezeNet) {
  expect_steps(squeezenet(), "cpu", {{"Conv", 26}, {"Pool", 3}, {"Reduce", 1}});
}

// 57 convolutions: in each of 9 blocks the three of 1x1 that read its input are one.
TEST(Networks, GoogLeNet) {
  expect_steps(googlenet(), "cpu", {{"Conv", 39}, {"MatMul", 1}, {"Pool", 13}, {"Reduce", 1}});
}

// A layer: queries, keys and values; attention; its output; a norm; two products; a norm.
TEST(Networks, Bert) {
  expect_steps(bert(2), "cpu", {{"Attention", 2}, {"MatMul", 8}, {"Normalize", 4}});
}

// Its scale, shift and SiLU included; no copy around it, though convolutions may lie channels-last.
TEST(Networks, GroupNorm) {
  for (const GroupNormStyle style :
       {GroupNormStyle::kOp, GroupNormStyle::kInstance, GroupNormStyle::kWrittenOut})
    expect_steps(group_norm_block(style), "cpu", {{"Conv", 3}, {"Normalize", 2}, {"Reduce", 1}});
}

// What the builder leaves out costs steps or general kernels, and no results.
TEST(Networks, GoogLeNetWithoutPartsOfTheBuilder) {
  expect_steps(googlenet(), "cpu",
               {{"Concat", 9}, {"Conv", 39}, {"MatMul", 1}, {"Pool", 13}, {"Reduce", 1}},
               {.placement = true});
  expect_steps(googlenet(), "cpu", {{"Conv", 39}, {"MatMul", 1}, {"Pool", 13}, {"Reduce", 1}},
               {.kernel_choice = true});
}

size_t values_in_other_order(const EngineFile& file) {
  return static_cast<size_t>(std::ranges::count_if(file.plans[0].slots, [](const Slot& slot) {
    return slot.storage == Storage::kArena &&
           dims_of(slot.strides) != row_major_strides(dims_of(slot.type.shape));
  }));
}

TEST(Networks, WithoutLayoutsValuesAreRowMajor) {
  expect_steps(googlenet(), "cpu", {{"Conv", 39}, {"MatMul", 1}, {"Pool", 13}, {"Reduce", 1}},
               {.layouts = true});
  GraphBuildOptions options;
  options.without.layouts = true;
  EXPECT_EQ(values_in_other_order(build(googlenet(), options)), 0);
  EXPECT_GT(values_in_other_order(build(googlenet())), 0);
}

TEST(Networks, WithoutChoiceKernelsAreTheMostGeneralFastOnes) {
  const EngineFile chosen = build(googlenet());
  GraphBuildOptions options;
  options.without.kernel_choice = true;
  const EngineFile general = build(googlenet(), options);
  std::set<std::string> convs, best;
  for (const Step& step : general.plans[0].steps)
    if (std::holds_alternative<Conv>(step.op)) convs.insert(step.kernel);
  for (const Step& step : chosen.plans[0].steps)
    if (std::holds_alternative<Conv>(step.op)) best.insert(step.kernel);
  EXPECT_EQ(convs, std::set<std::string>{"cpu.conv.nhwc"});
  EXPECT_NE(convs, best);
}

}  // namespace
}  // namespace anneal::testing
