// Which kernels a build may choose: --exact and --skip-kernel; an engine whose kernel does not
// exist any more; and products that read the model's 8-bit weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/core/isa.h"
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

// A layer of a binarized network: an even number of -1 and 1 is often 0, which has no sign.
TEST(KernelChoice, SumsOfWholeNumbersThatDecideAreExact) {
  constexpr std::string_view kBinary = R"txt(graph g(x: f32[1,32,20,20])
  const i: i8[32,32,3,3] = random(1)
  w = Pointwise(i) program="(i8)->(f32) select(lt(f32($0),0f32),-1f32,1f32)"
  signs = Pointwise(x) program="(f32)->(f32) select(lt($0,0f32),-1f32,1f32)"
  c = Conv(signs, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  y = Pointwise(c) program="(f32)->(f32) sign($0)"
  return y
)txt";
  const std::vector<Tensor> inputs = {random_f32({1, 32, 20, 20}, 2)};
  const EngineFile file = build_text(kBinary);
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  EXPECT_EQ(run(context, *engine, inputs), reference(kBinary, inputs));
  EXPECT_NE(kernel_of(file), kWinograd);

  GraphBuildOptions options;
  options.passes.skip = {"keep_exact_sums"};
  EXPECT_EQ(kernel_of(build_text(kBinary, options)), kWinograd) << "nothing else keeps it out";
}

TEST(KernelChoice, ThereMustBeAKernelToSkip) {
  GraphBuildOptions options;
  options.skip_kernels = {"cpu.conv.nosuch"};
  try {
    build_text(kConv, options);
    FAIL() << "built";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
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

// By columns with zero points, by blocks along rows of the weights, and what the first gives by
// weights of one scale.
constexpr std::string_view kProducts = R"text(size N in 1..200 opt 2
graph g(x: f32[N,256])
  const w: i8[256,300] = random(1)
  const s: f32[300] = random(2)
  const v: u8[260,256] = random(3)
  const t: f32[260,8] = random(4)
  const z: u8[260,8] = random(5)
  const u: i8[300,70] = random(6)
  const b: f32[300] = random(7)
  columns = Dequantize(w, s) axis=1
  a = MatMul(x, columns; b) epilogue="(f32,f32)->(f32) max(add($0,$1),0f32)"
  blocks = Dequantize(v, t, z) axis=1 block_size=32
  y = MatMul(x, blocks) transpose_b=true
  one = Dequantize(u, f32[]{0.5})
  c = MatMul(a, one)
  return c, y
)text";

std::vector<std::string> product_kernels(const EngineFile& file) {
  std::vector<std::string> kernels;
  for (const Step& step : file.plans[0].steps)
    if (std::holds_alternative<MatMul>(step.op)) kernels.push_back(step.kernel);
  return kernels;
}

constexpr const char* kConverting = "cpu.matmul.quantized_weights";
// The kernel of f32 by integers in groups of 16 that is not exact.
const char* summing() {
  return current_isa() == Isa::kFull ? "cpu.matmul.split_rows" : kConverting;
}

// To 1e-5 of the largest number of each output.
void expect_near(const std::map<std::string, std::vector<float>>& got,
                 const std::map<std::string, std::vector<float>>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, want] : wanted) {
    const std::vector<float>& have = got.at(name);
    ASSERT_EQ(have.size(), want.size());
    float largest = 0;
    for (const float number : want) largest = std::max(largest, std::abs(number));
    for (size_t i = 0; i < have.size(); ++i)
      ASSERT_NEAR(have[i], want[i], 1e-5F * largest) << name << "[" << i << "]";
  }
}

TEST(QuantizedWeights, StayInTheEngineAndGiveWhatTheReferenceGives) {
  for (const bool exact : {false, true}) {
    GraphBuildOptions options;
    options.passes.exact = exact;
    options.passes.cached_weight_bytes = 0;
    const EngineFile file = build_text(kProducts, options);
    const char* const integers = exact ? kConverting : summing();
    EXPECT_THAT(product_kernels(file), ElementsAre(integers, integers, kConverting));
    constexpr size_t kIntegers = 256 * 300 + 260 * 256 + 300 * 70;
    EXPECT_LT(save(file).size(), kIntegers * 3 / 2);
    const auto engine = engine_of(file);
    ExecutionContext context(engine, {});
    for (const int64_t rows : {1, 2, 3, 8, 9, 100}) {
      const std::vector<Tensor> inputs = {random_f32({rows, 256}, 8)};
      const auto wanted = reference(kProducts, inputs);
      expect_near(run(context, *engine, inputs), wanted);
    }
  }
}

// Floats of 8 bits with a scale for each column, or one; floats of 4 bits in blocks; integers of 2
// bits. Random codes are small.
constexpr std::string_view kCodes = R"text(graph g(x: f32[2,256])
  const w: u8[256,300] = random(1)
  const s: f32[300] = random(2)
  const v: u8[260,256] = random(3)
  const t: f32[260,8] = random(4)
  const u: u8[70,256] = random(5)
  const q: u8[30,64] = random(6)
  const z: u8[30,4] = random(7)
  const p: f32[30,4] = random(8)
  columns = Dequantize(w, s) axis=1 encoding=e4m3
  a = MatMul(x, columns)
  blocks = Dequantize(v, t) axis=1 block_size=32 encoding=e2m1
  b = MatMul(x, blocks) transpose_b=true
  one = Dequantize(u, f32[]{0.5}) encoding=e5m2
  swapped = Transpose(one) permutation=[1,0]
  c = MatMul(x, swapped)
  d = MatMul(x, q, _, z, p) transpose_b=true b_encoding=u2
  return a, b, c, d
)text";

TEST(QuantizedWeights, StayCodesAndGiveWhatTheReferenceGives) {
  GraphBuildOptions options;
  options.passes.cached_weight_bytes = 0;
  const EngineFile file = build_text(kCodes, options);
  EXPECT_THAT(product_kernels(file),
              ::testing::UnorderedElementsAre(kConverting, kConverting, kConverting, summing()));
  EXPECT_EQ(product_kernels(file).size(), file.plans[0].steps.size());
  constexpr size_t kBytes = 256 * 300 + 260 * 256 / 2 + 70 * 256 + 30 * 64;
  EXPECT_LT(save(file).size(), kBytes * 3 / 2);
  const std::vector<Tensor> inputs = {random_f32({2, 256}, 8)};
  const auto engine = engine_of(file);
  ExecutionContext context(engine, {});
  const auto wanted = reference(kCodes, inputs);
  expect_near(run(context, *engine, inputs), wanted);
}

// As in NVFP4, where scales are floats of 8 bits with a scale of their own.
TEST(QuantizedWeights, StayCodesWithScalesThatAreComputed) {
  constexpr std::string_view kText = R"text(graph g(x: f32[1,256])
  const w: u8[260,256] = random(1)
  const t: u8[260,16] = random(2)
  s = Dequantize(t, f32[]{0.25}) encoding=e4m3
  v = Dequantize(w, s) axis=1 block_size=16 encoding=e2m1
  y = MatMul(x, v) transpose_b=true
  return y
)text";
  GraphBuildOptions options;
  options.passes.cached_weight_bytes = 0;
  options.passes.fold_budget_bytes = 1024;  // less than the scales take
  EXPECT_THAT(product_kernels(build_text(kText, options)), ElementsAre(kConverting));
}

// The range of a product by weights whose scales only a run knows is not known either.
TEST(QuantizedWeights, MayHaveScalesThatARunKnows) {
  constexpr std::string_view kText = R"text(graph g(x: f32[1,64], s: f32[32,2])
  const w: u8[32,32] = random(1)
  y = MatMul(x, w, _, _, s) transpose_b=true b_encoding=u4
  const v: f32[32,8] = random(2)
  z = MatMul(y, v)
  return z
)text";
  GraphBuildOptions options;
  options.passes.precision.types = {Precision::kF16};
  const auto engine = engine_of(build_text(kText, options));
  ExecutionContext context(engine, {});
  const std::vector<Tensor> inputs = {random_f32({1, 64}, 1), random_f32({32, 2}, 2)};
  EXPECT_EQ(run(context, *engine, inputs).at("z").size(), 8u);
}

// Codes that no product reads become floats, since only the reference reads them elsewhere.
TEST(QuantizedWeights, BecomeFloatsForOtherLayers) {
  constexpr std::string_view kText = R"text(graph g(x: f32[1,64])
  const w: u8[32,64] = random(1)
  v = Dequantize(w, f32[]{0.25}) encoding=e4m3
  y = Pointwise(x, v) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)text";
  GraphBuildOptions options;
  options.passes.fold_budget_bytes = 1024;
  const EngineFile file = build_text(kText, options);
  for (const Step& step : file.plans[0].steps)
    EXPECT_FALSE(std::holds_alternative<Dequantize>(step.op)) << step.name;
}

TEST(QuantizedWeights, StayWhereLowerPrecisionIsAllowed) {
  for (const Precision precision : {Precision::kF16, Precision::kBF16, Precision::kI8}) {
    GraphBuildOptions options;
    options.passes.cached_weight_bytes = 0;
    options.passes.precision.types = {precision};
    const auto kernels = product_kernels(build_text(kProducts, options));
    // Weights in blocks become floats for calibrated products.
    EXPECT_EQ(std::ranges::count_if(kernels,
                                    [](const std::string& kernel) {
                                      return kernel == kConverting || kernel == summing();
                                    }),
              precision == Precision::kI8 ? 2 : 3);
  }
}

TEST(QuantizedWeights, BecomeFloatsForManyRows) {
  std::string text(kProducts);
  text.replace(text.find("opt 2"), 5, "opt 150");
  GraphBuildOptions options;
  options.passes.cached_weight_bytes = 0;
  EXPECT_THAT(
      product_kernels(build_text(text, options)),
      ::testing::Each(::testing::AllOf(::testing::Ne(kConverting), ::testing::Ne(summing()))));
  options.passes.skip = {"keep_half_weights"};  // one matrix stands for numbers of f16
  EXPECT_THAT(product_kernels(build_text(text, options)), ::testing::Each("cpu.matmul.packed"));
}

}  // namespace
}  // namespace anneal::testing
