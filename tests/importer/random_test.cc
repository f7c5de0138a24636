// Random numbers: the documented generator, its distributions, and the same numbers in every run.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::HasSubstr;

using Build = std::function<void(ModelBuilder&)>;

// With an input x of these dims, all zeros.
std::vector<double> numbers(const std::vector<int64_t>& dims, const Build& build) {
  ModelBuilder model(22);
  model.input(
      "x", dims.size() == 2 ? std::vector<std::string>{"N", "M"} : std::vector<std::string>{"N"});
  model.output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  const Tensor x = allocate_tensor(DataType::kF32, Dims(std::span<const int64_t>(dims))).tensor;
  return numbers_of(evaluate(graph, {{x}})[0]);
}

struct Moments {
  double mean, variance;
};
Moments moments_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, squares / count};
}

// As its authors write it.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

TEST(Random, UniformNumbersAreThoseOfSplitMix64) {
  const auto got = numbers({5, 7}, [](ModelBuilder& m) {
    auto& node = m.node("RandomUniformLike", {"x"}, {"y"});
    set(node, "seed", 1.0F);
    set(node, "low", -2.0F);
    set(node, "high", 6.0F);
  });
  ASSERT_EQ(got.size(), 35u);
  SplitMix64 generator(0x3f800000);
  for (const double value : got)
    EXPECT_EQ(value, static_cast<double>(generator.next() >> 40) * 0x1p-24 * 8 - 2);
}

TEST(Random, NormalNumbersHaveTheirMoments) {
  const auto got = numbers({100, 200}, [](ModelBuilder& m) {
    auto& node = m.node("RandomNormalLike", {"x"}, {"y"});
    set(node, "mean", 3.0F);
    set(node, "scale", 0.5F);
  });
  const auto [mean, variance] = moments_of(got);
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(variance, 0.25, 0.01);
  for (const double value : got) ASSERT_LT(std::abs(value - 3), 3.0);
  EXPECT_EQ(numbers({100, 200},
                    [](ModelBuilder& m) {
                      auto& node = m.node("RandomNormalLike", {"x"}, {"y"});
                      set(node, "mean", 3.0F);
                      set(node, "scale", 0.5F);
                    }),
            got);
}

TEST(Random, NodesWithoutASeedDiffer) {
  const auto difference = numbers({1000}, [](ModelBuilder& m) {
    m.node("RandomUniformLike", {"x"}, {"a"});
    m.node("RandomUniformLike", {"x"}, {"b"});
    m.node("Sub", {"a", "b"}, {"y"});
  });
  EXPECT_NEAR(moments_of(difference).variance, 1.0 / 6, 0.02);
}

TEST(Random, ShapesAndTypesAreAttributes) {
  const auto model = [](const char* op, int type) {
    ModelBuilder built(22);
    built.output("y");
    auto& node = built.node(op, {}, {"y"});
    set(node, "shape", std::vector<int64_t>{2, 3});
    set(node, "dtype", int64_t{type});
    return output_type(import_bytes(built.bytes(), "").graph);
  };
  EXPECT_EQ(model("RandomNormal", TensorProto::FLOAT16), "f16[2,3]");
  EXPECT_EQ(model("RandomUniform", TensorProto::DOUBLE), "f64[2,3]");
  EXPECT_THAT(error_of([&] { model("RandomUniform", TensorProto::INT32); }),
              HasSubstr("numbers of i32"));
}

TEST(Random, BernoulliDrawsOnesAsOftenAsAsked) {
  const auto got = numbers({20000}, [](ModelBuilder& m) {
    m.floats("p", {}, {0.3F});
    m.node("Add", {"x", "p"}, {"probability"});
    set(m.node("Bernoulli", {"probability"}, {"y"}), "dtype", int64_t{TensorProto::INT32});
  });
  EXPECT_NEAR(moments_of(got).mean, 0.3, 0.01);
  for (const double value : got) ASSERT_TRUE(value == 0 || value == 1);
}

TEST(Random, MultinomialDrawsClassesByTheirWeights) {
  const auto got = numbers({3, 4}, [](ModelBuilder& m) {
    m.floats("logs", {1, 4}, {std::log(1.0F), std::log(2.0F), -100.0F, std::log(5.0F)});
    m.node("Add", {"x", "logs"}, {"weights"});
    auto& node = m.node("Multinomial", {"weights"}, {"y"});
    set(node, "sample_size", int64_t{8000});
    set(node, "seed", 3.0F);
  });
  ASSERT_EQ(got.size(), 3u * 8000);
  std::vector<double> counts(4);
  for (const double value : got) counts.at(static_cast<size_t>(value)) += 1.0 / 24000;
  EXPECT_NEAR(counts[0], 0.125, 0.01);
  EXPECT_NEAR(counts[1], 0.25, 0.01);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3], 0.625, 0.01);
}

}  // namespace
}  // namespace anneal
