#include "anneal/kernels/cuda/code/cubin.h"

#include <gmock/gmock.h>

#include <string>

#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/code/nvrtc.h"

namespace anneal::cuda {
namespace {

constexpr char kProgram[] = R"(
extern "C" __global__ void __launch_bounds__(256) plain(const float* x, float* y) {
  __shared__ float s[100];
  s[threadIdx.x % 100] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[99 - threadIdx.x % 100];
}
// 64 values that are all needed to the end do not fit into the 32 registers that are left.
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * 32 + threadIdx.x];
#pragma unroll
  for (int k = 0; k < 3; ++k)
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 7) % 64] + v[(i * 5 + k) % 64];
#pragma unroll
  for (int i = 0; i < 64; ++i) y[i * 32 + threadIdx.x] = v[i];
}
)";

class CubinTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!nvrtc_library().table) GTEST_SKIP() << nvrtc_library().why_not;
    cubin_ = nvrtc_compiler().compile(kProgram, GetParam());
  }
  std::vector<std::byte> cubin_;
};
INSTANTIATE_TEST_SUITE_P(Architectures, CubinTest, testing::Values(80, 86, 89, 90, 100, 120),
                         testing::PrintToStringParamName());

TEST_P(CubinTest, TellsWhatFunctionsTake) {
  ASSERT_TRUE(is_whole_cubin(cubin_));
  const auto functions = resources_of(cubin_);
  ASSERT_EQ(functions.size(), 2u);
  const FunctionResources &plain = functions[0], &spilling = functions[1];
  EXPECT_EQ(plain.name, "plain");
  EXPECT_EQ(plain.shared_bytes, 400);
  EXPECT_EQ(plain.stack_bytes, 0);
  EXPECT_EQ(plain.most_threads, 256);
  EXPECT_GE(plain.registers, 6);
  EXPECT_LE(plain.registers, 24);
  EXPECT_EQ(spilling.name, "spilling");
  EXPECT_EQ(spilling.shared_bytes, 0);
  EXPECT_EQ(spilling.most_threads, 1024);
  // Of multiprocessors with 1536 threads only one such block is resident, which gives 64 registers.
  const bool small = GetParam() == 86 || GetParam() == 89 || GetParam() == 120;
  EXPECT_EQ(spilling.registers, small ? 64 : 32);
  EXPECT_GT(spilling.stack_bytes, 0);
  EXPECT_GT(spilling.code_bytes, plain.code_bytes);
}

TEST_P(CubinTest, DamageIsRefusedOrHarmless) {
  for (size_t size = 0; size < cubin_.size(); size += 7)
    EXPECT_FALSE(is_whole_cubin(std::span(cubin_).first(size))) << size;
  for (size_t at = 0; at < cubin_.size(); ++at) {
    for (const std::byte bits : {std::byte{1}, std::byte{0xff}}) {
      auto wrong = cubin_;
      wrong[at] ^= bits;
      if (is_whole_cubin(wrong)) resources_of(wrong);
    }
  }
}

TEST(Cubin, WhatIsNone) {
  EXPECT_FALSE(is_whole_cubin({}));
  EXPECT_FALSE(is_whole_cubin(std::vector<std::byte>(4096)));
}

}  // namespace
}  // namespace anneal::cuda
