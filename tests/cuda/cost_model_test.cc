// Floors are figures that choices depend on: tests/golden/roofline.txt holds them for all cards.
#include "anneal/kernels/cuda/cost/cost_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace anneal::cuda {
namespace {

const DeviceSpec& a100() { return *find_spec(80); }

TEST(Roofline, BytesOrFlops) {
  const double bandwidth = a100().bandwidth, launch = a100().launch_seconds;
  const Floor copy = floor_of(a100(), {.bytes = 1e9, .blocks = 108000, .threads_per_block = 256});
  EXPECT_DOUBLE_EQ(copy.seconds, launch + 1e9 / bandwidth);
  EXPECT_EQ(copy.imbalance, 1.0);
  const Floor matmul = floor_of(a100(), {.bytes = 1e6,
                                         .f32_flops = 1e9,
                                         .f16_tensor_flops = 1e12,
                                         .blocks = 1080,
                                         .threads_per_block = 128});
  EXPECT_DOUBLE_EQ(matmul.seconds,
                   launch + 1e9 / a100().f32_flops + 1e12 / a100().f16_tensor_flops);
}

TEST(Roofline, ResidentBlocks) {
  const auto resident = [](Work work) { return floor_of(a100(), work).resident_blocks; };
  EXPECT_EQ(resident({.threads_per_block = 1024}), 2);
  EXPECT_EQ(resident({.threads_per_block = 1}), 32) << "no more than 32 blocks";
  EXPECT_EQ(resident({.threads_per_block = 100}), 16) << "warps are whole";
  EXPECT_EQ(resident({.threads_per_block = 128, .shared_bytes_per_block = 40 * 1024}), 4);
  EXPECT_EQ(resident({.threads_per_block = 128, .shared_bytes_per_block = 163 * 1024}), 1);
  EXPECT_EQ(resident({.threads_per_block = 128, .shared_bytes_per_block = 163 * 1024 + 1}), 0);
  EXPECT_EQ(resident({.threads_per_block = 256, .registers_per_thread = 128}), 2);
  EXPECT_EQ(resident({.threads_per_block = 256, .registers_per_thread = 129}), 1);
  EXPECT_EQ(resident({.threads_per_block = 1024, .registers_per_thread = 65}), 0);
}

TEST(Roofline, TheLastWaveMayBeNearlyEmpty) {
  const auto floor = [](int64_t blocks) {
    return floor_of(a100(), {.f32_flops = 1e9, .blocks = blocks, .threads_per_block = 1024});
  };
  EXPECT_EQ(floor(108).imbalance, 1.0);
  EXPECT_DOUBLE_EQ(floor(109).imbalance, 2.0 * 108 / 109);
  EXPECT_DOUBLE_EQ(floor(1).imbalance, 108.0);
  EXPECT_EQ(floor(216).waves, 1);
  EXPECT_EQ(floor(217).waves, 2);
  EXPECT_GT(floor(109).arithmetic_seconds, 1.9 * floor(108).arithmetic_seconds);
}

TEST(Roofline, Golden) {
  struct Case {
    const char* name;
    Work work;
  };
  const Case cases[] = {
      {"copy of 64 MiB", {.bytes = 2.0 * (64 << 20), .blocks = 16384, .threads_per_block = 256}},
      {"relu of 1000 numbers",
       {.bytes = 8000, .f32_flops = 1000, .blocks = 4, .threads_per_block = 256}},
      {"f16 matmul 4096 x 4096 x 4096, tiles of 128 x 128",
       {.bytes = 3.0 * 4096 * 4096 * 2,
        .f16_tensor_flops = 2.0 * 4096 * 4096 * 4096,
        .blocks = 32 * 32,
        .threads_per_block = 128,
        .shared_bytes_per_block = 48 * 1024,
        .registers_per_thread = 200}},
      {"f32 matmul 197 x 768 x 768, tiles of 64 x 64",
       {.bytes = (197.0 * 768 * 2 + 768 * 768) * 4,
        .f32_flops = 2.0 * 197 * 768 * 768,
        .blocks = 4 * 12,
        .threads_per_block = 256,
        .shared_bytes_per_block = 16 * 1024,
        .registers_per_thread = 96}},
      {"a block of 128 KiB",
       {.blocks = 1, .threads_per_block = 32, .shared_bytes_per_block = 128 * 1024}},
  };
  std::ostringstream lines;
  for (const Case& each : cases) {
    lines << each.name << '\n';
    for (const DeviceSpec& spec : device_specs())
      lines << "  " << text_of(spec, floor_of(spec, each.work)) << '\n';
  }
  std::ostringstream expected;
  expected << std::ifstream("tests/golden/roofline.txt").rdbuf();
  EXPECT_EQ(lines.str(), expected.str());
}

}  // namespace
}  // namespace anneal::cuda
