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

}  // namespace
}  // namespace anneal::testing
