// Engines that should be equal agree; where they differ, the first tensor is named, with its error.
#include "anneal/engine/compare/compare_engines.h"
#include "anneal/engine/run/make_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "anneal/engine/plan.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Engine> reference_engine(std::string_view text) {
  GraphBuildOptions options;
  options.reference = true;
  return testing::engine_of(testing::build_text(text, options));
}

std::shared_ptr<const Engine> engine(std::string_view text) {
  return testing::engine_of(testing::build_text(text));
}

// No tensor goes into another layer.
std::shared_ptr<const Engine> unfused(std::string_view text) {
  GraphBuildOptions options;
  options.passes.skip = {std::string(kAllPasses)};
  return testing::engine_of(testing::build_text(text, options));
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  result.replace(result.find(from), from.size(), to);
  return result;
}

TEST(TensorError, IsOfAllElements) {
  const auto of = [](std::vector<float> values) {
    const auto count = static_cast<int64_t>(values.size());
    return Tensor::of<float>(DataType::kF32, {count}, values);
  };
  const Tensor one = of({3, -4}), same = of({3, -4}), tenth = of({3.3f, -4.4f}), zero = of({0, 0});
  EXPECT_TRUE(std::isinf(tensor_error(one.view(), same.view()).sqnr_db));
  EXPECT_EQ(tensor_error(one.view(), same.view()).cosine, 1);
  EXPECT_EQ(tensor_error(one.view(), same.view()).scale, 4);
  EXPECT_NEAR(tensor_error(tenth.view(), one.view()).sqnr_db, 20, 1e-4);
  EXPECT_NEAR(tensor_error(tenth.view(), one.view()).cosine, 1, 1e-7);
  EXPECT_EQ(tensor_error(zero.view(), one.view()).cosine, 0);
  EXPECT_EQ(tensor_error(zero.view(), zero.view()).cosine, 1);
  const Tensor wild = of({3, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_TRUE(std::isinf(tensor_error(wild.view(), one.view()).sqnr_db)) << "NaN is left out";
  EXPECT_EQ(tensor_error(of({}).view(), of({}).view()).cosine, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor nothing = of({nan, nan});
  for (const Tensor* other : {&one, &nothing}) {
    EXPECT_TRUE(std::isnan(tensor_error(nothing.view(), other->view()).sqnr_db));
    EXPECT_TRUE(std::isnan(tensor_error(nothing.view(), other->view()).cosine));
  }
}

TEST(CompareEngines, OptimizedAgreesWithTheReference) {
  for (const std::string_view text : {testing::kConvNet, testing::kDynamicNet}) {
    const auto a = engine(text), b = reference_engine(text);
    for (const Step& step : plan_of(*b).steps)
      EXPECT_THAT(step.kernel, ::testing::AnyOf(HasSubstr("reference"), "sizes"));
    std::vector<Tensor> inputs;
    for (const TensorInfo& port : a->inputs()) {
      Dims dims = port.dims;
      for (int axis = 0; axis < dims.rank(); ++axis) dims[axis] = dims[axis] < 0 ? 3 : dims[axis];
      inputs.push_back(testing::random_f32(dims, 1));
    }
    const EngineComparison comparison = compare_tensors(a, b, inputs, {});
    EXPECT_GE(comparison.tensors.size(), a->outputs().size());
    for (const ComparedTensor& tensor : comparison.tensors)
      EXPECT_EQ(tensor.comparison.why, "") << tensor.name;
    EXPECT_EQ(comparison.only_a, 0u);
  }
}

constexpr std::string_view kRow = R"txt(
graph row(x: f32[2,30])
  a = Cumulative(x, i64[]{1})
  b = Pointwise(a) program="(f32)->(f32) mul($0,3f32)"
  c = Softmax(b) axis=1
  d = Softmax(c) axis=0
  return d as y
)txt";

TEST(CompareEngines, NamesTheFirstDifference) {
  const auto a = unfused(replaced(kRow, "3f32", "3.01f32"));
  const auto b = unfused(kRow);
  const std::vector<Tensor> inputs = {testing::random_f32({2, 30}, 1)};
  const EngineComparison comparison = compare_tensors(a, b, inputs, {});
  ASSERT_EQ(comparison.tensors.size(), 4u);
  EXPECT_EQ(comparison.tensors[0].name, "a");
  EXPECT_EQ(comparison.tensors[0].comparison.why, "");
  EXPECT_EQ(comparison.tensors[1].name, "b");
  EXPECT_THAT(comparison.tensors[1].comparison.why, HasSubstr("60 of 60 elements differ"));
  EXPECT_NEAR(comparison.tensors[1].comparison.max_rel, 0.01 / 3, 1e-5);
  EXPECT_EQ(comparison.tensors[1].step_a, "b");
  EXPECT_NE(comparison.tensors[1].kernel_a, "");
  EXPECT_NE(comparison.tensors[1].alone->why, "") << "b differs by itself";
  EXPECT_NE(comparison.tensors[2].comparison.why, "");
  EXPECT_EQ(comparison.tensors[2].alone->why, "") << "c inherits";
  const EngineComparison loose = compare_tensors(a, b, inputs, {.rtol = 0.1, .atol = 0.0});
  for (const ComparedTensor& tensor : loose.tensors) {
    EXPECT_EQ(tensor.comparison.why, "");
    EXPECT_FALSE(tensor.alone);
  }
}

constexpr std::string_view kRounded = R"txt(
graph rounded(x: f32[4])
  const s: f32[] = {1}
  const z: u8[] = {0}
  a = Pointwise(x) program="(f32)->(f32) mul($0,2f32)"
  q = Quantize(a, s, z) axis=0 dtype=u8
  d = Dequantize(q, s, z) axis=0
  y = Pointwise(d) program="(f32)->(f32) mul($0,10f32)"
  return y
)txt";

TEST(CompareEngines, TellsAFlipAtATieFromADifference) {
  const auto b = unfused(kRounded);
  const std::vector<Tensor> inputs = {
      Tensor::of<float>(DataType::kF32, {4}, {{1.25f, 3.5f, 2.25f, 4.5f}})};
  const auto quantized = [&](std::string_view factor) {
    const auto a = unfused(replaced(kRounded, "$0,2f32", factor));
    for (ComparedTensor& tensor : compare_tensors(a, b, inputs, {}).tensors)
      if (tensor.name == "q") return tensor;
    throw std::runtime_error("no tensor q");
  };
  const ComparedTensor flipped = quantized("$0,2.0000002f32");
  ASSERT_TRUE(flipped.rounding);
  EXPECT_EQ(flipped.rounding->differing, 2);
  EXPECT_EQ(flipped.rounding->at_ties, 2);
  EXPECT_EQ(flipped.rounding->most_quanta, 1);
  EXPECT_LT(flipped.rounding->widest_tie, 1e-6);
  EXPECT_EQ(flipped.alone->why, "") << "of what B rounds A makes the same";

  const ComparedTensor wrong = quantized("$0,2.6f32");
  EXPECT_EQ(wrong.rounding->differing, 4);
  EXPECT_EQ(wrong.rounding->at_ties, 0);
  EXPECT_EQ(wrong.rounding->most_quanta, 3);
  EXPECT_EQ(quantized("$0,2f32").rounding->differing, 0);
}

TEST(CompareEngines, RoundingWithoutItsSourceIsAtNoTie) {
  const auto of = [](std::vector<uint8_t> values) {
    return Tensor::of<uint8_t>(DataType::kU8, {2}, values);
  };
  const Rounding rounding = rounding_of(of({1, 2}).view(), of({1, 3}).view(), nullptr, nullptr);
  EXPECT_EQ(rounding.differing, 1);
  EXPECT_EQ(rounding.at_ties, 0);
}

TEST(CompareEngines, LittleMemoryTakesMoreRunsAndSaysTheSame) {
  const auto a = engine(replaced(kRow, "3f32", "3.01f32")), b = reference_engine(kRow);
  const std::vector<Tensor> inputs = {testing::random_f32({2, 30}, 1)};
  const EngineComparison at_once = compare_tensors(a, b, inputs, {});
  for (const size_t most : {size_t{1}, size_t{300}, size_t{500}}) {
    const EngineComparison one_by_one = compare_tensors(a, b, inputs, {.most_bytes = most});
    ASSERT_EQ(one_by_one.tensors.size(), at_once.tensors.size());
    EXPECT_EQ(one_by_one.only_b, at_once.only_b);
    for (size_t i = 0; i < at_once.tensors.size(); ++i) {
      EXPECT_EQ(one_by_one.tensors[i].name, at_once.tensors[i].name);
      EXPECT_EQ(one_by_one.tensors[i].comparison.why, at_once.tensors[i].comparison.why);
    }
  }
}

TEST(CompareEngines, ShapesThatDifferAreADifference) {
  const auto a = engine(replaced(kRow, "d = Softmax(c) axis=0", "d = Reduce(c, i64{1}) kind=sum"));
  const auto b = engine(kRow);
  const EngineComparison comparison = compare_tensors(a, b, {testing::random_f32({2, 30}, 1)}, {});
  EXPECT_THAT(comparison.tensors.back().comparison.why, HasSubstr("shape [2,1]"));
}

TEST(CompareEngines, OtherInputsAreRefused) {
  const auto a = engine(kRow), b = engine(replaced(kRow, "x: f32[2,30]", "x: f32[2,3,10]"));
  const auto c = engine(testing::kDynamicNet);
  for (const auto& other : {b, c}) {
    try {
      compare_tensors(a, other, {testing::random_f32({2, 30}, 1)}, {});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("different inputs"));
    }
  }
}

}  // namespace
}  // namespace anneal
