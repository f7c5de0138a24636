// Faults of precision, each of another kind: without the self-check the result is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/engine/self_check/planted_fault.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;

const PrecisionOptions kF16{.types = {Precision::kF16}}, kBF16{.types = {Precision::kBF16}},
    kInt8{.types = {Precision::kI8}};

// Random numbers, scaled and moved.
Tensor noise(const Dims& dims, float scale, float offset = 0, uint32_t seed = 1) {
  const Tensor random = random_f32(dims, seed);
  std::vector<float> values;
  for (const float value : random.as<float>()) values.push_back(offset + scale * value);
  return Tensor::of<float>(DataType::kF32, dims, values);
}

Tensor with_outlier(const Dims& dims, float outlier) {
  const Tensor random = random_f32(dims, 1);
  std::vector<float> values(random.as<float>().begin(), random.as<float>().end());
  values[3] = outlier;
  return Tensor::of<float>(DataType::kF32, dims, values);
}

constexpr std::string_view kTwoProducts = R"txt(
graph two(x: f32[4,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w)
  y = MatMul(a, v)
  return y
)txt";

constexpr std::string_view kOpenSum = R"txt(
size N in 1..200000 opt 64
graph sums(x: f32[N,8])
  const v: f32[8,16] = random(2)
  a = MatMul(x, x) transpose_a=true
  y = MatMul(a, v)
  return y
)txt";

constexpr std::string_view kLongSum = R"txt(
graph long(ones: f32[4,4096], x: f32[4096,8])
  const v: f32[8,16] = random(2)
  s = MatMul(ones, x)
  y = MatMul(s, v)
  return y
)txt";

constexpr std::string_view kPower = R"txt(
graph power(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w)
  p = Pointwise(a) program="(f32)->(f32) pow($0,4f32)"
  y = MatMul(p, v)
  return y
)txt";

constexpr std::string_view kCancels = R"txt(
graph cancels(x: f32[8,64], z: f32[8,64])
  const w: f32[64,32] = random(1)
  const u: f32[64,32] = random(3)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w) epilogue="(f32)->(f32) add($0,15000f32)"
  b = MatMul(z, u) epilogue="(f32)->(f32) add($0,15000f32)"
  d = Pointwise(a, b) program="(f32,f32)->(f32) sub($0,$1)"
  y = MatMul(d, v)
  return y
)txt";

constexpr std::string_view kSine = R"txt(
graph fourier(x: f32[64,3])
  const b: f32[3,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, b) epilogue="(f32)->(f32) sin(mul($0,6.2831855f32))"
  y = MatMul(a, v)
  return y
)txt";

constexpr std::string_view kExponential = R"txt(
graph exponentials(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w)
  m = Reduce(a, i64{1}) kind=max
  e = Pointwise(a, m) program="(f32,f32)->(f32) exp(mul(sub($0,$1),0.5f32))"
  y = MatMul(e, v)
  return y, a
)txt";

constexpr std::string_view kIndex = R"txt(
graph indices(x: f32[200,4])
  const w: f32[4,1] = {100, 10, 1, 0.1}
  const t: f32[1000,8] = random(3)
  const v: f32[8,8] = random(4)
  i = MatMul(x, w) epilogue="(f32)->(i64) i64($0)"
  r = Reshape(i, i64{200})
  g = Gather(t, r) axis=0
  y = MatMul(g, v)
  return y
)txt";

constexpr std::string_view kDivisor = R"txt(
graph divides(x: f32[8,4])
  const w: f32[4,1] = {1, 2, 3, 4}
  a = MatMul(x, w)
  y = Pointwise(a) program="(f32)->(f32) div(0.000001f32,$0)"
  return y
)txt";

constexpr std::string_view kLogarithm = R"txt(
graph logs(x: f32[8,4])
  const w: f32[4,4] = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}
  a = MatMul(x, w)
  y = Pointwise(a) program="(f32)->(f32) log($0)"
  return y
)txt";

constexpr std::string_view kVariance = R"txt(
graph norm(x: f32[8,4])
  const w: f32[4,4] = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}
  const v: f32[4,16] = random(2)
  a = MatMul(x, w)
  n = Normalize(a) axes=[1]
  y = MatMul(n, v)
  return y
)txt";

constexpr std::string_view kScores = R"txt(
graph attention(q: f32[1,2,16,8], k: f32[1,2,16,8], v: f32[1,2,16,8])
  s = MatMul(q, k) transpose_b=true
  p = Softmax(s) axis=3
  y = MatMul(p, v)
  return y
)txt";

constexpr std::string_view kComparison = R"txt(
graph compares(x: f32[64,2])
  const w: f32[2,1] = {1, -1}
  d = MatMul(x, w)
  y = Pointwise(d) program="(f32)->(f32) select(lt($0,0f32),-1f32,1f32)"
  return y
)txt";

constexpr std::string_view kTopK = R"txt(
graph sorts(x: f32[64,2])
  const w: f32[2,1] = {1, -1}
  const t: f32[64,8] = random(3)
  d = MatMul(x, w)
  r = Reshape(d, i64{64})
  s, i = TopK(r, i64{8}) axis=0
  y = Gather(t, i) axis=0
  return y
)txt";

std::vector<PlantedFault> planted_faults() {
  std::vector<PlantedFault> faults = {
      {.name = "ProductOfALargeInputOverflows",
       .text = kTwoProducts,
       .layer = "y",
       .precision = with_table(kF16, {"a", "x"}),
       .inputs = {ramp({4, 64}, 0, 3e4)}},
      {.name = "TableOf8BitsIsTooNarrow",
       .text = kTwoProducts,
       .layer = "y",
       .precision = with_table(kInt8, {"a", "x"}, 2),
       .inputs = {noise({4, 64}, 1)}},
      {.name = "TableOf8BitsIsTooWide",
       .text = kTwoProducts,
       .layer = "a",
       .precision = with_table(kInt8, {"a", "x"}, 900),
       .inputs = {noise({4, 64}, 1)}},
      {.name = "TableOf8BitsHidesAnOutlier",
       .text = kTwoProducts,
       .layer = "a",
       .precision = with_table(kInt8, {"x"}, 3),
       .inputs = {with_outlier({4, 64}, 50)}},
      {.name = "SumOverAnOpenAxisOverflowsAtTheLargestSize",
       .text = kOpenSum,
       .layer = "y",
       .precision = with_table(kF16, {"a", "x"}),
       .inputs = {noise({200000, 8}, 1)},
       .draws = true},
      {.name = "LongSumPasses65504",
       .text = kLongSum,
       .layer = "y",
       .precision = with_table(kF16, {"ones", "x", "s"}),
       .inputs = {ramp({4, 4096}, 1, 1), ramp({4096, 8}, 10, 30)}},
      {.name = "PowerOverflows",
       .text = kPower,
       .layer = "y",
       .precision = with_table(kF16, {"a", "p", "x"}),
       .inputs = {noise({8, 64}, 3)}},
      {.name = "SumCancels",
       .text = kCancels,
       .layer = "d",
       .precision = with_table(kF16, {"a", "b"}, 16000),
       .inputs = {noise({8, 64}, 1), noise({8, 64}, 4)}},
      {.name = "SumCancelsInBf16",
       .text = kCancels,
       .layer = "a",
       .precision = kBF16,
       .inputs = {noise({8, 64}, 1), noise({8, 64}, 4)},
       .wrong = 0.5},
      {.name = "SineOfLargeNumbers",
       .text = kSine,
       .layer = "a",
       .precision = with_table(kF16, {"x"}, 0.001F),
       .inputs = {ramp({64, 3}, 0, 300)}},
      {.name = "ExponentialOfLargeNumbers",
       .text = kExponential,
       .layer = "a",
       .precision = with_table(kBF16, {"x", "a"}, 0.001F),
       .inputs = {ramp({8, 64}, -60, 60)}},
      {.name = "IndicesAreMadeByAProduct",
       .text = kIndex,
       .layer = "i",
       .precision = with_table(kBF16, {"x"}, 0),
       .inputs = {ramp({200, 4}, 0, 8.9F)}},
      {.name = "DivisorIsTiny",
       .text = kDivisor,
       .layer = "a",
       .precision = with_table(kF16, {"x", "a"}),
       .inputs = {ramp({8, 4}, 1e-8F, 2e-7F)}},
      {.name = "LogarithmOfNumbersNear1",
       .text = kLogarithm,
       .layer = "a",
       .precision = with_table(kBF16, {"x", "a"}, 2),
       .inputs = {ramp({8, 4}, 1, 1.01F)}},
      {.name = "NormalizationOfATinyVariance",
       .text = kVariance,
       .layer = "a",
       .precision = with_table(kF16, {"x", "a"}, 2000),
       .inputs = {noise({8, 4}, 0.2F, 1000)}},
      {.name = "AttentionOfLargeScores",
       .text = kScores,
       .layer = "s",
       .precision = kBF16,
       .inputs = {noise({1, 2, 16, 8}, 1, 10), noise({1, 2, 16, 8}, 0.3F, 20, 2),
                  noise({1, 2, 16, 8}, 1, 0, 3)}},
      {.name = "ComparisonTurns",
       .text = kComparison,
       .layer = "d",
       .precision = with_table(kBF16, {"x"}, 1100),
       .inputs = {noise({64, 2}, 1, 1000)}},
      {.name = "OrderOfTopKTurns",
       .text = kTopK,
       .layer = "d",
       .precision = with_table(kBF16, {"x"}, 1100),
       .inputs = {noise({64, 2}, 1, 1000)}},
  };
  return faults;
}

class PlantedFaults : public ::testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaults, AreMended) {
  const PlantedFault& fault = GetParam();
  EXPECT_GT(loss(built(fault, false).file, fault), fault.wrong);
  const CheckedBuild made = built(fault);
  EXPECT_LT(loss(made.file, fault), fault.right) << made.check.outcome;
  std::vector<std::string> layers;
  for (const auto& [name, why] : made.check.back_to_f32) layers.push_back(name);
  EXPECT_THAT(layers, Contains(fault.layer)) << made.check.outcome;
  EXPECT_EQ(made.check.warning, "");
  EXPECT_TRUE(std::ranges::any_of(made.file.plans.at(0).decisions, [&](const Decision& decision) {
    return decision.stage == kSelfCheck && decision.subject == fault.layer &&
           decision.text.starts_with("goes back to f32: ");
  }));
}

std::string name_of(const ::testing::TestParamInfo<PlantedFault>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(SelfCheck, PlantedFaults, ::testing::ValuesIn(planted_faults()), name_of);

}  // namespace
}  // namespace anneal::testing
