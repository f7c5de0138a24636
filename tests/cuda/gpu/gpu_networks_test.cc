// Well-known networks on a GPU target: the same steps as on the CPU, and the transfers of their
// inputs and outputs.
#include <gtest/gtest.h>

#include "anneal/graph/text/text.h"
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

// A convolution with the bias, and a shuffle.
TEST(GpuNetworks, ConvTransposeWithABias) {
  expect_steps(parse_graph(R"txt(
graph up(x: f32[1,8,5,5])
  const w: f32[8,4,2,2] = random(1)
  const b: f32[4,1,1] = random(2)
  y = ConvTranspose(x, w; b) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] output_padding=[0,0] epilogue="(f32,f32)->(f32) max(add($0,$1),0f32)"
  return y
)txt"),
               "emulated", {{"Conv", 1}, {"Transpose", 1}, {"transfer", 2}});
}

}  // namespace
}  // namespace anneal::testing
