// Which kernels a build may choose: --exact and --skip-kernel; and an engine whose kernel is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kConv = R"(graph g(x: f32[1,32,20,20])
  const w: f32[32,32,3,3] = random(1)
  y = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  return y
)";
constexpr std::string_view kWinograd = "cpu.conv.winograd";

std::string kernel_of(const EngineFile& file) { return file.plans[0].steps.back().kernel; }

TEST(KernelChoice, ExactLeavesOutWhatMayChangeNumerics) {
  EXPECT_EQ(kernel_of(build_text(kConv)), kWinograd);
  GraphBuildOptions options;
  options.passes.exact = true;
  EXPECT_NE(kernel_of(build_text(kConv, options)), kWinograd);
}

// One after the other, down to the reference.
TEST(KernelChoice, SkippedKernelsAreNotChosen) {
  GraphBuildOptions options;
  std::string kernel = kernel_of(build_text(kConv));
  while (kernel != "cpu.conv.reference") {
    options.skip_kernels.push_back(kernel);
    kernel = kernel_of(build_text(kConv, options));
    ASSERT_THAT(options.skip_kernels, Not(Contains(kernel)));
  }
  EXPECT_THAT(options.skip_kernels, Contains("cpu.conv.nhwc"));
}

TEST(KernelChoice, ThereMustBeAKernelToSkip) {
  GraphBuildOptions options;
  options.skip_kernels = {"cpu.conv.nosuch"};
  try {
    build_text(kConv, options);
    FAIL() << "built";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("no kernel \"cpu.conv.nosuch\""));
  }
}

TEST(KernelChoice, AMissingKernelIsReplacedByAnExactOneIfThePlanIsExact) {
  for (const bool exact : {false, true}) {
    GraphBuildOptions options;
    options.passes.exact = exact;
    EngineFile file = build_text(kConv, options);
    EXPECT_EQ(file.plans[0].is_exact, exact);
    file.plans[0].steps.back().kernel = "cpu.conv.gone";
    const auto engine = engine_of(file);
    const auto names_winograd = HasSubstr(std::string(kWinograd));
    ASSERT_THAT(engine->load_warnings(), ElementsAre(HasSubstr("instead of cpu.conv.gone")));
    if (exact)
      EXPECT_THAT(engine->load_warnings()[0], Not(names_winograd));
    else
      EXPECT_THAT(engine->load_warnings()[0], names_winograd);
  }
}

}  // namespace
}  // namespace anneal::testing
