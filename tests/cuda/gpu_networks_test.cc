// Well-known networks on a GPU target: the same steps as on the CPU, and the transfers of their
// inputs and outputs.
#include <gtest/gtest.h>

#include "anneal/tests/engine/expect_steps.h"
#include "anneal/tests/optimizer/networks.h"

namespace anneal::testing {
namespace {

TEST(GpuNetworks, SqueezeNet) {
  expect_steps(squeezenet(), "emulated",
               {{"Conv", 26}, {"Pool", 3}, {"Reduce", 1}, {"transfer", 2}});
}

TEST(GpuNetworks, GoogLeNet) {
  expect_steps(googlenet(), "emulated",
               {{"Conv", 39}, {"MatMul", 1}, {"Pool", 13}, {"Reduce", 1}, {"transfer", 2}});
}

TEST(GpuNetworks, Bert) {
  expect_steps(bert(2), "emulated",
               {{"Attention", 2}, {"MatMul", 8}, {"Normalize", 4}, {"transfer", 3}});
}

// Its scale, shift and SiLU included; no copy around it, though convolutions may lie channels-last.
TEST(GpuNetworks, GroupNorm) {
  for (const GroupNormStyle style :
       {GroupNormStyle::kOp, GroupNormStyle::kInstance, GroupNormStyle::kWrittenOut})
    expect_steps(group_norm_block(style), "emulated",
                 {{"Conv", 3}, {"Normalize", 2}, {"Reduce", 1}, {"transfer", 2}});
}

}  // namespace
}  // namespace anneal::testing
