#include "anneal/core/isa.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <iostream>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

// The environment is read once, so each case runs in a process of its own, which prints what it
// saw.
[[noreturn]] void report(const char* cap) {
  setenv("ANNEAL_MAX_ISA", cap, 1);
  try {
    const Isa most = max_isa();
    setenv("ANNEAL_MAX_ISA", "full", 1);
    std::cerr << "cap " << to_string(most) << " again " << to_string(max_isa()) << " within "
              << (current_isa() <= most) << " hwy " << hwy::SupportedTargets();
  } catch (const Error& error) {
    std::cerr << (error.code() == ErrorCode::kInvalidArgument) << " " << error.what();
  }
  std::exit(0);
}

class IsaDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(IsaDeathTest, TheCapIsReadOnceAndHolds) {
  for (const char* cap : {"baseline", "avx2", "avx512", "full"}) {
    const std::string expected =
        std::string("cap ") + cap + " again " + cap + " within 1 hwy [0-9]+";
    EXPECT_EXIT(report(cap), testing::ExitedWithCode(0), expected);
  }
}

TEST_F(IsaDeathTest, AWrongCapIsRefused) {
  for (const char* cap : {"AVX2", "sse", "avx512 ", "1"})
    EXPECT_EXIT(report(cap), testing::ExitedWithCode(0), "1 ANNEAL_MAX_ISA is \"");
}

[[noreturn]] void exit_with_hwy_check(const char* cap, int64_t forbidden) {
  setenv("ANNEAL_MAX_ISA", cap, 1);
  max_isa();
  std::exit((hwy::SupportedTargets() & forbidden) == 0 ? 0 : 1);
}

TEST_F(IsaDeathTest, HighwayObeysTheCap) {
  const int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
  EXPECT_EXIT(exit_with_hwy_check("baseline", avx512 | HWY_AVX2 | HWY_SSE4 | HWY_SSSE3),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with_hwy_check("avx2", avx512), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with_hwy_check("avx512", HWY_AVX3_DL), testing::ExitedWithCode(0), "");
}

TEST(Isa, NamesAreInOrder) {
  EXPECT_EQ(to_string(Isa::kBaseline), "baseline");
  EXPECT_EQ(to_string(Isa::kAvx2), "avx2");
  EXPECT_EQ(to_string(Isa::kAvx512), "avx512");
  EXPECT_EQ(to_string(Isa::kFull), "full");
  EXPECT_LT(Isa::kBaseline, Isa::kAvx2);
  EXPECT_LE(current_isa(), max_isa());
}

}  // namespace
}  // namespace anneal
