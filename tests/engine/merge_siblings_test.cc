// What engines make of layers that read one input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

std::vector<Conv> convolutions(const Plan& plan) {
  std::vector<Conv> all;
  for (const Step& step : plan.steps)
    if (const auto* conv = std::get_if<Conv>(&step.op)) all.push_back(*conv);
  return all;
}

void expect_like_reference(std::string_view text, const EngineFile& file) {
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const std::vector<Tensor> inputs = {random_f32({1, 24, 9, 7}, seed)};
    const auto got = run(context, *engine, inputs), wanted = reference(text, inputs);
    for (const auto& [name, values] : wanted)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], 1e-4 * (1 + std::abs(values[i]))) << name;
  }
}

TEST(MergeSiblings, TheOneByOnesOfAnInceptionBlockAreOneLayer) {
  const EngineFile file = build_text(kInceptionBlock);
  const auto found = convolutions(file.plans[0]);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_THAT(found, Contains(Field(&Conv::split, std::vector<int64_t>{16, 12, 8})));
  EXPECT_THAT(file.plans[0].decisions,
              Contains(AllOf(Field(&Decision::stage, "merge_siblings"),
                             Field(&Decision::subject, "c_single"),
                             Field(&Decision::refused, false), Field(&Decision::saved_launches, 2),
                             Field(&Decision::saved_bytes, 2 * 24 * 9 * 7 * 4))));
  expect_like_reference(kInceptionBlock, file);
}

TEST(MergeSiblings, KernelsOfDifferentSizesStayApartAndSayWhy) {
  const EngineFile file = build_text(kFireBlock);
  EXPECT_EQ(convolutions(file.plans[0]).size(), 3u);
  EXPECT_THAT(
      file.plans[0].decisions,
      Contains(AllOf(Field(&Decision::stage, "merge_siblings"),
                     Field(&Decision::subject, "c_expand3"), Field(&Decision::refused, true),
                     Field(&Decision::text, HasSubstr("9 times its arithmetic")))));
  expect_like_reference(kFireBlock, file);
}

TEST(MergeSiblings, ASkippedPassMergesNothing) {
  GraphBuildOptions options;
  options.passes.skip = {"merge_siblings"};
  EXPECT_EQ(convolutions(build_text(kInceptionBlock, options).plans[0]).size(), 6u);
}

}  // namespace
}  // namespace anneal::testing
