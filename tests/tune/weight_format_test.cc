// BuildOptions::precision.weight_format: weights in integers of 8 or 4 bits.
#include "anneal/optimizer/precision/weight_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/engine/run/engine.h"
#include "anneal/optimizer/precision/fit_weights.h"
#include "anneal/optimizer/precision/quantized_weights.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

constexpr int64_t kWords = 600, kWidth = 256, kHidden = 512;

std::vector<float> normals(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(random) / 16;
  return numbers;
}

// Embeddings, two layers and a product by the embeddings: a small language model without attention.
std::vector<std::byte> model(unsigned seed = 0) {
  ModelBuilder m;
  m.input("words", {"N"}, anneal_onnx::TensorProto::INT64).output("scores");
  m.floats("table", {kWords, kWidth}, normals(kWords * kWidth, seed + 1));
  m.floats("up", {kWidth, kHidden}, normals(kWidth * kHidden, seed + 2));
  m.floats("down", {kHidden, kWidth}, normals(kHidden * kWidth, seed + 3));
  m.node("Gather", {"table", "words"}, {"rows"}, "embed");
  m.node("MatMul", {"rows", "up"}, {"wide"}, "up_layer");
  m.node("Relu", {"wide"}, {"positive"}, "relu");
  m.node("MatMul", {"positive", "down"}, {"narrow"}, "down_layer");
  m.node("Add", {"narrow", "rows"}, {"sum"}, "residual");
  m.node("Transpose", {"table"}, {"swapped"}, "swap");
  m.node("MatMul", {"sum", "swapped"}, {"scores"}, "head");
  return m.bytes();
}

BuiltEngine built(const std::string& format, std::vector<LayerPrecision> layers = {},
                  const std::string& target = "cpu") {
  BuildOptions options;
  options.targets = {target};
  options.precision.weight_format = format;
  options.precision.layers = std::move(layers);
  return build_engine(model(), options);
}

std::vector<float> scores(const std::vector<std::byte>& engine, int64_t words) {
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < words; ++i) chosen.push_back(i * 37 % kWords);
  ExecutionContext context(Engine::load(engine, nullptr, {.device = "cpu"}));
  const Tensor input = Tensor::of<int64_t>(DataType::kI64, {words}, chosen);
  context.set_input("words", input.view());
  context.run();
  const auto numbers = context.output("scores").span<float>();
  return {numbers.begin(), numbers.end()};
}

// The root mean square of the differences, divided by that of `want`.
double difference(const std::vector<float>& want, const std::vector<float>& got) {
  double squares = 0, differences = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    squares += double{want[i]} * want[i];
    differences += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
  }
  return std::sqrt(differences / squares);
}

std::vector<std::string> decisions(const BuiltEngine& engine) {
  std::vector<std::string> texts;
  for (const BuildDecision& decision : engine.report.plans.at(0).decisions)
    if (decision.stage == "quantize_weights")
      texts.push_back(decision.subject + ": " + decision.text);
  return texts;
}

TEST(WeightFormat, IsATypeAndTheLengthOfBlocks) {
  EXPECT_EQ(parse_weight_format("").bits, 0);
  EXPECT_EQ(parse_weight_format("int4").block, 32);
  EXPECT_EQ(parse_weight_format("int8").bits, 8);
  EXPECT_EQ(parse_weight_format("int8").block, 0);
  EXPECT_EQ(parse_weight_format("int8:128").block, 128);
  for (const char* text : {"int2", "4", "int4:", "int4:8", "int4:33", "int4:64x", "int4:-64",
                           "int4:99999999999999999999", ":32", "int4 "})
    EXPECT_THAT(error_of([&] { parse_weight_format(text); }),
                HasSubstr(std::string("weight format \"") + text + "\""))
        << text;
}

QuantizedBlock in_4_bits(const std::vector<float>& weights, DataType scale_type = DataType::kF32) {
  std::vector<float> memory(kMostBlocksAtOnce * weights.size());
  std::vector<int8_t> integers(weights.size());
  QuantizedBlock made;
  const auto length = std::ssize(weights);
  quantize_blocks({.weights = weights.data(), .stride = 1, .count = 1, .length = length},
                  kLimitsOf4Bits, scale_type, memory, integers.data(), length, &made);
  double error = 0, square = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_GE(integers[i], -8);
    EXPECT_LE(integers[i], 7);
    error += std::pow(double{weights[i]} - double{made.scale} * integers[i], 2);
    square += std::pow(weights[i], 2);
  }
  EXPECT_NEAR(made.error, error, 1e-6 * square);
  EXPECT_NEAR(made.square, square, 1e-6 * square);
  return made;
}

TEST(WeightFormat, FourBitsFindTheGridOfTheWeightsAndBeatTheLargest) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> steps(-8, 7);
  std::vector<float> weights = {-8 * 0.3F};
  for (int i = 0; i < 31; ++i) weights.push_back(static_cast<float>(steps(random)) * 0.3F);
  EXPECT_LT(in_4_bits(weights).error, 1e-10);
  for (float& weight : weights) weight = -weight;
  EXPECT_LT(in_4_bits(weights).error, 1e-10);
  double fitted = 0, by_largest = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    weights = normals(32, seed);
    float most = 0;
    for (const float weight : weights) most = std::max(most, std::abs(weight));
    const double error = in_4_bits(weights).error;
    const double other = rounding_error(weights, most / 7, kLimitsOf4Bits);
    EXPECT_LE(error, other * 1.0001) << seed;
    fitted += error, by_largest += other;
  }
  EXPECT_LT(fitted, 0.8 * by_largest);
  EXPECT_EQ(in_4_bits(std::vector<float>(32)).scale, 1);
}

// Of all magnitudes and lengths, also those whose squares f32 does not have.
TEST(WeightFormat, BlocksOfAnyMagnitude) {
  for (const int exponent : {-148, -130, -126, -70, 0, 70, 126})
    for (const size_t count : {1, 7, 16, 33}) {
      std::vector<float> weights = normals(count, 3);
      for (float& weight : weights) weight = std::ldexp(weight, exponent - 2);
      double square = 0;
      for (const float weight : weights) square += std::pow(weight, 2);
      EXPECT_LE(in_4_bits(weights).error, exponent < -126 ? square : 0.02 * square)
          << exponent << " " << count;
    }
  const QuantizedBlock half = in_4_bits(normals(32, 4), DataType::kBF16);
  EXPECT_EQ(half.scale, to_f32(to_bf16(half.scale)));
}

TEST(WeightFormat, RowsAndColumnsGiveTheSameIntegersAndHalvesHaveHalfScales) {
  constexpr int64_t kRows = 37, kDepth = 64;
  std::vector<float> rows = normals(kRows * kDepth, 5), columns(rows.size());
  std::vector<uint16_t> halves(rows.size());
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t k = 0; k < kDepth; ++k) {
      const auto at = static_cast<size_t>(row * kDepth + k);
      halves[at] = to_f16(rows[at]).bits;
      rows[at] = to_f32(Float16{halves[at]});
      columns[static_cast<size_t>(k * kRows + row)] = rows[at];
    }
  for (const int bits : {4, 8}) {
    const QuantizedRows one =
        quantize_rows(Tensor::of<float>(DataType::kF32, {kRows, kDepth}, rows), false, bits, 32, 1);
    const QuantizedRows other = quantize_rows(
        Tensor::of<float>(DataType::kF32, {kDepth, kRows}, columns), true, bits, 32, 3);
    const QuantizedRows half = quantize_rows(
        Tensor::of<uint16_t>(DataType::kF16, {kRows, kDepth}, halves), false, bits, 32, 2);
    EXPECT_EQ(other.integers, one.integers);
    EXPECT_EQ(other.scales, one.scales);
    EXPECT_EQ(other.error, one.error);
    EXPECT_EQ(half.scales.dtype(), DataType::kF16);
    EXPECT_NEAR(half.error, one.error, 0.01 * one.error);
    // A row alone becomes the same: blocks that are fitted together do not depend on each other.
    for (const int64_t row : {int64_t{0}, int64_t{20}, kRows - 1}) {
      const auto all = std::span<const float>(rows);
      const QuantizedRows alone =
          quantize_rows(Tensor::of<float>(DataType::kF32, {1, kDepth},
                                          all.subspan(static_cast<size_t>(row * kDepth), kDepth)),
                        false, bits, 32, 1);
      EXPECT_TRUE(std::ranges::equal(
          alone.integers.as<int8_t>(),
          one.integers.as<int8_t>().subspan(static_cast<size_t>(row * kDepth), kDepth)));
    }
    EXPECT_GT(one.error, bits == 4 ? 0.02 : 0.001);
    EXPECT_LT(one.error, bits == 4 ? 0.1 : 0.008);
  }
}

// Scales and integers of numbers whose squares leave f32, or whose scales leave f16.
TEST(WeightFormat, HugeAndTinyWeightsKeepTheirRelativeError) {
  constexpr int64_t kDepth = 64;
  for (const int bits : {4, 8})
    for (const float size : {3e38F, 1e25F, 1.0F, 1e-25F, 1e-37F, 0.0F}) {
      std::vector<float> row = normals(kDepth, 7);
      for (float& weight : row) weight *= size;
      row[5] = size;
      const QuantizedRows made =
          quantize_rows(Tensor::of<float>(DataType::kF32, {1, kDepth}, row), false, bits, 32, 1);
      EXPECT_LT(made.error, bits == 4 ? 0.2 : 0.02) << size;
      double error = 0, square = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        const double real = made.integers.as<int8_t>()[k] * double{made.scales.as<float>()[k / 32]};
        error += (real - row[k]) * (real - row[k]);
        square += double{row[k]} * row[k];
      }
      EXPECT_NEAR(square > 0 ? std::sqrt(error / square) : 0, made.error, 1e-3) << size;
    }
  // A scale of f16 is a multiple of 2^-24, and the reported error says what that costs.
  for (const float size : {1e-3F, 1e-5F, 1e-6F}) {
    std::vector<uint16_t> row;
    std::vector<double> wanted;
    for (const float weight : normals(kDepth, 8)) {
      row.push_back(to_f16(16 * weight * size).bits);
      wanted.push_back(double{to_f32(Float16{row.back()})});
    }
    const QuantizedRows made =
        quantize_rows(Tensor::of<uint16_t>(DataType::kF16, {1, kDepth}, row), false, 8, 64, 1);
    const double scale = double{to_f32(Float16{made.scales.as<Float16>()[0].bits})};
    double error = 0, square = 0;
    for (size_t k = 0; k < wanted.size(); ++k) {
      const double off = made.integers.as<int8_t>()[k] * scale - wanted[k];
      error += off * off, square += wanted[k] * wanted[k];
    }
    EXPECT_NEAR(std::sqrt(error / square), made.error, 1e-4) << size;
  }
}

TEST(WeightFormat, TuneTakesNone) {
  BuildOptions options;
  options.precision.weight_format = "int4";
  const auto samples = make_dataset(4, [](int64_t) {
    return std::vector<SampleTensor>{
        {"words", Tensor::of<int64_t>(DataType::kI64, {1}, std::vector<int64_t>{1})}};
  });
  EXPECT_THAT(error_of([&] { tune(model(), samples, nullptr, options); }),
              HasSubstr("leave precision.weight_format empty"));
}

TEST(WeightFormat, EnginesAreSmallAndNearF32) {
  const BuiltEngine floats = built("");
  const auto weights = static_cast<double>(kWords * kWidth + 2 * kWidth * kHidden);
  struct Expected {
    const char* format;
    double bits, least, most;  // of a weight; of the difference
  };
  for (const auto& [format, bits, least, most] :
       {Expected{"int8", 8.3, 0.001, 0.02}, Expected{"int8:32", 9.1, 0.001, 0.02},
        Expected{"int4", 5.1, 0.02, 0.25}, Expected{"int4:64", 4.6, 0.02, 0.25}}) {
    const BuiltEngine engine = built(format);
    EXPECT_LT(static_cast<double>(engine.bytes.size()), weights * bits / 8 + 30000) << format;
    for (const int64_t words : {1, 5, 40}) {
      const double off = difference(scores(floats.bytes, words), scores(engine.bytes, words));
      EXPECT_GT(off, least) << format << " " << words;
      EXPECT_LT(off, most) << format << " " << words;
    }
    EXPECT_THAT(decisions(engine), Contains(HasSubstr("up_layer: stores weights in"))) << format;
    EXPECT_THAT(engine.report.self_check.outcome, HasSubstr(std::string(format) + " weights"));
    EXPECT_TRUE(engine.report.warnings.empty()) << format;
    EXPECT_EQ(built(format).bytes, engine.bytes) << format;
  }
}

TEST(WeightFormat, ProductsInBodiesReadIntegers) {
  ModelBuilder m;
  m.input("x", {"N", std::to_string(kWidth)}).input("c", {}, anneal_onnx::TensorProto::BOOL);
  m.output("y");
  m.floats("w", {kWidth, kHidden}, normals(kWidth * kHidden, 1));
  auto& choice = m.node("If", {"c"}, {"y"}, "choice");
  for (const char* op : {"Relu", "Neg"}) {
    auto& attribute = *choice.add_attribute();
    attribute.set_name(op == std::string_view("Relu") ? "then_branch" : "else_branch");
    attribute.set_type(anneal_onnx::AttributeProto::GRAPH);
    auto& body = *attribute.mutable_g();
    body.set_name(op);
    const std::string product = std::string(op) + "_product", result = std::string(op) + "_result";
    ModelBuilder::fill(*body.add_node(), "MatMul", {"x", "w"}, {product}, product);
    ModelBuilder::fill(*body.add_node(), op, {product}, {result}, result);
    body.add_output()->set_name(result);
  }
  BuildOptions options;
  const size_t floats = build_engine(m.bytes(), options).bytes.size();
  options.precision.weight_format = "int8";
  const BuiltEngine engine = build_engine(m.bytes(), options);
  EXPECT_TRUE(engine.report.warnings.empty()) << engine.report.warnings[0];
  EXPECT_LT(static_cast<double>(engine.bytes.size()), 0.5 * static_cast<double>(floats));
}

TEST(WeightFormat, LayersKeepFloatsOnRequest) {
  const BuiltEngine engine = built("int4", {{"up_layer|head", Precision::kF32}});
  EXPECT_THAT(
      decisions(engine),
      AllOf(Contains(HasSubstr("up_layer: its weights stay floats: f32 was asked for")),
            Contains(HasSubstr("down_layer: stores weights in 4 bits, with blocks of 32"))));
  // The product by the table reads floats, so its rows are gathered as floats, too.
  EXPECT_THAT(decisions(engine), Contains(HasSubstr("embed: its table stays floats")));
}

TEST(WeightFormat, ExcludesExactResultsAndInt8) {
  BuildOptions options;
  options.precision.weight_format = "int4";
  options.exact = true;
  EXPECT_THAT(error_of([&] { build_engine(model(), options); }),
              HasSubstr("a weight format and exact results exclude each other"));
  options.exact = false;
  options.precision.types = {Precision::kI8};
  EXPECT_THAT(error_of([&] { build_engine(model(), options); }),
              HasSubstr("int8 stores weights in 8 bits itself"));
  options.precision.types = {};
  options.precision.weight_format = "int3";
  EXPECT_THAT(error_of([&] { build_engine(model(), options); }),
              HasSubstr("weight format \"int3\""));
}

TEST(WeightFormat, ATargetWithoutAKernelKeepsFloatsAndTheReportWarns) {
  const BuiltEngine engine = built("int4", {}, "cpu:baseline");
  EXPECT_THAT(engine.report.warnings,
              Contains(AllOf(HasSubstr("the plan for cpu:baseline has no weights in integers"),
                             HasSubstr("layer \""))));
}

TEST(WeightFormat, RefittingQuantizesTheNewWeights) {
  BuildOptions options;
  options.precision.weight_format = "int4";
  options.self_check.run = false;  // refitting does not repeat it
  const std::vector<std::byte> old = build_engine(model(), options).bytes;
  EXPECT_TRUE(refit_engine(old, model(10)).bytes == build_engine(model(10), options).bytes);
}

}  // namespace
}  // namespace anneal
