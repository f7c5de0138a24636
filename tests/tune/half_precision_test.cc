// Engines with 16 bits from f32 models: what they keep of them, and what stays f32.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/float16.h"
#include "anneal/engine/plan.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

GraphBuildOptions with_f16() {
  GraphBuildOptions options;
  options.passes.precision.types = {Precision::kF16};
  return options;
}

void add_range(GraphBuildOptions& options, const std::string& tensor, float min, float max) {
  CalibrationTable table;
  if (options.passes.precision.ranges) table = *options.passes.precision.ranges;
  table.tensors[tensor] = {min, max, min, max, "by hand"};
  options.passes.precision.ranges = std::make_shared<const CalibrationTable>(std::move(table));
}

std::vector<float> run_file(const EngineFile& file, const std::vector<Tensor>& inputs) {
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  return run(context, *engine, inputs).begin()->second;
}

std::string decisions(const EngineFile& file) {
  std::string text;
  for (const Decision& each : file.plans[0].decisions)
    if (each.stage == "assign_precision") text += each.subject + ": " + each.text + "\n";
  return text;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  float most = 0;
  for (const float value : want) most = std::max(most, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], relative * most) << i;
}

// Sums of the first product reach millions.
constexpr const char* kLargeNorm = R"G(graph g(x: f32[4,32])
  const w: f32[32,32] = random(1)
  const v: f32[32,32] = random(2)
  const u: f32[32,8] = random(3)
  a = MatMul(x, w)
  l = Pointwise(a) program="(f32)->(f32) mul($0,300000f32)"
  n = Normalize(l) axes=[1]
  m = MatMul(n, v)
  r = Pointwise(m) program="(f32)->(f32) max($0,0f32)"
  y = MatMul(r, u)
  return y
)G";

TEST(HalfPrecision, ALayerNormOverWhatF16CannotHoldIsRight) {
  const std::vector<Tensor> inputs = {random_f32({4, 32}, 1)};
  const auto want = reference(kLargeNorm, inputs).at("y");
  EngineFile file = build_text(kLargeNorm, with_f16());
  expect_near(run_file(file, inputs), want, 0.01);
  EXPECT_THAT(decisions(file), ::testing::HasSubstr("stores f32: it is normalized"));

  GraphBuildOptions options = with_f16();
  add_range(options, "l", -2e6f, 2e6f);
  add_range(options, "x", -3, 3);
  add_range(options, "n", -4, 4);
  add_range(options, "r", 0, 30);
  file = build_text(kLargeNorm, options);
  expect_near(run_file(file, inputs), want, 0.01);
  EXPECT_THAT(decisions(file), ::testing::HasSubstr("\"l\" reached 2e+06, and f16 ends at 65504"));
  EXPECT_THAT(decisions(file), ::testing::HasSubstr("m: computes with operands of f16"));
}

TEST(HalfPrecision, ATableLetsNormsReadF16) {
  GraphBuildOptions options = with_f16();
  add_range(options, "a", -3, 3);
  const auto text = R"G(graph g(x: f32[4,32])
  const w: f32[32,32] = random(1)
  a = MatMul(x, w)
  n = Normalize(a) axes=[1]
  y = MatMul(n, w)
  return y
)G";
  EXPECT_THAT(decisions(build_text(text, options)),
              ::testing::HasSubstr("a: computes with operands of f16, stores f16"));
  EXPECT_THAT(decisions(build_text(text, with_f16())), ::testing::HasSubstr("a: stores f32"));
}

// One weight is not finite, and those of the other channels lie on grids that scales would meet.
TEST(HalfPrecision, Bf16KeepsWhatIsNotFinite) {
  for (const char* bad : {"inf", "nan"}) {
    std::string text = R"G(graph g(x: f32[4,3])
  const w: f32[3,2] = {BAD, 0.37, 1, 0.74, 2, 2.59}
  y = MatMul(x, w)
  return y
)G";
    text.replace(text.find("BAD"), 3, bad);
    GraphBuildOptions options;
    options.passes.precision.types = {Precision::kBF16};
    const auto got = run_file(build_text(text, options), {random_f32({4, 3}, 1)});
    ASSERT_EQ(got.size(), 8u);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isfinite(got[i]), i % 2 == 1) << i;
  }
}

// What the CPU stores has f16's values.
TEST(HalfPrecision, TheCpuRoundsWhatItStores) {
  std::string text = R"G(graph g(x: f32[4,16])
  const w: f32[16,16] = random(1)
  const v: f32[16,16] = IDENTITY
  a = MatMul(x, w)
  r = Pointwise(a) program="(f32)->(f32) tanh($0)"
  y = MatMul(r, v)
  return y
)G";
  std::string identity;
  for (int i = 0; i < 256; ++i)
    identity += fmt::format("{}{}", i == 0 ? "{" : ", ", i % 17 == 0 ? 1 : 0);
  text.replace(text.find("IDENTITY"), 8, identity + "}");
  const std::vector<Tensor> inputs = {random_f32({4, 16}, 1)};
  int rounded = 0;
  for (const float value : run_file(build_text(text), inputs))
    rounded += to_f32(to_f16(value)) != value;
  EXPECT_GT(rounded, 32);
  for (const float value : run_file(build_text(text, with_f16()), inputs))
    EXPECT_EQ(to_f32(to_f16(value)), value);
  GraphBuildOptions bf16;
  bf16.passes.precision.types = {Precision::kBF16};
  for (const float value : run_file(build_text(text, bf16), inputs))
    EXPECT_EQ(to_f32(to_bf16(value)), value);
}

// Rotary angles reach thousands, where numbers of 16 bits are whole units apart.
TEST(HalfPrecision, AnglesStayF32) {
  constexpr const char* kRotary = R"G(graph g(p: i64[1,1,8], q: f32[1,8,8], k: f32[1,8,8])
  const inv: f32[1,4,1] = {1, 0.1, 0.01, 0.001}
  f = Pointwise(p) program="(i64)->(f32) f32($0)"
  a = MatMul(inv, f)
  t = Transpose(a) permutation=[0,2,1]
  c = Concat(t, t) axis=2
  s = Pointwise(c) program="(f32)->(f32) sin($0)"
  u = Pointwise(q, s) program="(f32,f32)->(f32) mul($0,$1)"
  v = Pointwise(k, s) program="(f32,f32)->(f32) mul($0,$1)"
  y = MatMul(u, v) transpose_b=true
  return y
)G";
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 8; ++i) positions.push_back(5000 - i);
  const std::vector<Tensor> inputs = {Tensor::of<int64_t>(DataType::kI64, {1, 1, 8}, positions),
                                      random_f32({1, 8, 8}, 1), random_f32({1, 8, 8}, 2)};
  const auto want = run_file(build_text(kRotary), inputs);
  GraphBuildOptions bf16;
  bf16.passes.precision.types = {Precision::kBF16};
  for (const auto& options : {with_f16(), bf16}) {
    const EngineFile file = build_text(kRotary, options);
    expect_near(run_file(file, inputs), want, 0.02);
    EXPECT_THAT(decisions(file), ::testing::HasSubstr("takes the sine of"));
  }
}

TEST(HalfPrecision, AProductThatWeightsMakeLargeIsNotReadInF16) {
  constexpr const char* kLarge = R"G(graph g(x: f32[4,64])
  const w: f32[64,8] = random(1)
  const v: f32[8,8] = random(2)
  const big: f32[] = {1000}
  const small: f32[] = {0.001}
  l = Pointwise(w, big) program="(f32,f32)->(f32) mul($0,$1)"
  s = Pointwise(v, small) program="(f32,f32)->(f32) mul($0,$1)"
  a = MatMul(x, l)
  y = MatMul(a, s)
  return y
)G";
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>(i % 17 - 8) * 40);
  const std::vector<Tensor> inputs = {Tensor::of<float>(DataType::kF32, {4, 64}, values)};
  const EngineFile file = build_text(kLarge, with_f16());
  expect_near(run_file(file, inputs), run_file(build_text(kLarge), inputs), 0.01);
  EXPECT_THAT(decisions(file), ::testing::HasSubstr("may exceed the range of f16"));
}

}  // namespace
}  // namespace anneal::testing
