// Floats of 8 and 4 bits, by tables of their numbers and by the nearest number of a table.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "anneal/importer/onnx/minifloat.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const std::vector<int> kTypes = {TensorProto::FLOAT8E4M3FN, TensorProto::FLOAT8E4M3FNUZ,
                                 TensorProto::FLOAT8E5M2, TensorProto::FLOAT8E5M2FNUZ,
                                 TensorProto::FLOAT4E2M1};

// Of the tables in ONNX's documentation, "Float stored in 8 bits" and "Float stored in 4 bits".
TEST(Minifloats, CodesAreThoseOfTheDocumentation) {
  const auto number = [](int type, unsigned code) { return minifloat(type)->number(code); };
  constexpr int kFn = TensorProto::FLOAT8E4M3FN, kFnuz = TensorProto::FLOAT8E4M3FNUZ;
  constexpr int k52 = TensorProto::FLOAT8E5M2, k52Fnuz = TensorProto::FLOAT8E5M2FNUZ;
  constexpr int kScale = TensorProto::FLOAT8E8M0;
  EXPECT_EQ(number(kFn, 0x7E), 448);
  EXPECT_EQ(number(kFn, 0x01), std::ldexp(1.0, -9));
  EXPECT_EQ(number(kFn, 0xB8), -1);
  EXPECT_TRUE(std::signbit(number(kFn, 0x80)));
  EXPECT_TRUE(std::isnan(number(kFn, 0x7F)) && std::isnan(number(kFn, 0xFF)));
  EXPECT_EQ(number(kFnuz, 0x7F), 240);
  EXPECT_EQ(number(kFnuz, 0x01), std::ldexp(1.0, -10));
  EXPECT_EQ(number(kFnuz, 0x40), 1);
  EXPECT_TRUE(std::isnan(number(kFnuz, 0x80)));
  EXPECT_EQ(number(k52, 0x7B), 57344);
  EXPECT_EQ(number(k52, 0x01), std::ldexp(1.0, -16));
  EXPECT_EQ(number(k52, 0xFC), -kInf);
  EXPECT_TRUE(std::isnan(number(k52, 0x7D)));
  EXPECT_EQ(number(k52Fnuz, 0x7F), 57344);
  EXPECT_EQ(number(k52Fnuz, 0x01), std::ldexp(1.0, -17));
  EXPECT_TRUE(std::isnan(number(k52Fnuz, 0x80)));
  EXPECT_EQ(number(kScale, 127), 1);
  EXPECT_EQ(number(kScale, 0), std::ldexp(1.0, -127));
  EXPECT_EQ(number(kScale, 254), std::ldexp(1.0, 127));
  EXPECT_TRUE(std::isnan(number(kScale, 255)));
  EXPECT_EQ(minifloat(kFn)->largest(), 448);
  EXPECT_EQ(minifloat(kFnuz)->largest(), 240);
  EXPECT_EQ(minifloat(k52)->largest(), 57344);
  EXPECT_EQ(minifloat(TensorProto::FLOAT4E2M1)->largest(), 6);
  EXPECT_EQ(minifloat(TensorProto::FLOAT), std::nullopt);
}

// The number nearest to x, of two the one with the even code, as what is beyond the largest one.
double nearest(const Minifloat& type, double x, bool saturates) {
  if (std::isnan(x)) return x;
  const double largest = type.largest();
  if (saturates && std::abs(x) >= largest) return std::copysign(largest, x);
  if (std::isinf(x)) return type.specials == Minifloat::Specials::kIeee ? x : std::nan("");
  double best = 0, least = kInf;
  unsigned best_code = 0;
  const unsigned codes = 1U << (type.bits() - 1);
  for (unsigned code = 0; code <= codes; ++code) {
    // What follows the largest number decides which numbers become the largest one.
    const bool is_next = !(static_cast<double>(type.number(code)) <= largest);
    const double number = is_next ? largest + (largest - static_cast<double>(type.number(code - 2)))
                                  : static_cast<double>(type.number(code));
    const double off = std::abs(std::abs(x) - number);
    if (off < least || (off == least && code % 2 == 0 && best_code % 2 == 1)) {
      least = off;
      best = is_next ? kInf : number;
      best_code = code;
    }
    if (is_next) break;
  }
  if (best == kInf && type.specials != Minifloat::Specials::kIeee) return std::nan("");
  return std::copysign(best, x);
}

// Numbers of the type, the middles between them, what is next to those, and more.
std::vector<float> hard_numbers(const Minifloat& type) {
  std::vector<float> numbers = {0, 1e-30F, 1e9F, std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
  const unsigned codes = 1U << (type.bits() - 1);
  for (unsigned code = 0; code + 1 < codes; ++code) {
    const float here = type.number(code), next = type.number(code + 1);
    if (!std::isfinite(here)) continue;
    const float middle = std::isfinite(next) ? (here + next) / 2 : here * 1.01F;
    for (const float number : {here, middle, std::nextafter(middle, 0.0F),
                               std::nextafter(middle, 1e9F), here + (middle - here) * 0.7F})
      numbers.push_back(number);
  }
  numbers.push_back(static_cast<float>(type.largest() * 1.5));
  const size_t positive = numbers.size();
  for (size_t i = 0; i < positive; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

void expect_numbers(const std::vector<double>& got, const std::vector<float>& inputs,
                    const Minifloat& type, bool saturates, double scale = 1) {
  ASSERT_EQ(got.size(), inputs.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto quotient = static_cast<float>(inputs[i] / scale);
    const double want = nearest(type, quotient, saturates) * scale;
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got[i])) << inputs[i] << " became " << got[i];
    else
      EXPECT_EQ(got[i], want) << inputs[i];
  }
}

// Four bits have no NaN.
std::vector<float> without_nan(std::vector<float> numbers) {
  std::erase_if(numbers, [](float number) { return std::isnan(number); });
  return numbers;
}

TEST(Minifloats, QuantizeLinearTakesTheNearest) {
  for (const int type : kTypes)
    for (const bool saturates : {true, false}) {
      SCOPED_TRACE(std::to_string(type) + (saturates ? "" : " without saturation"));
      const Minifloat real = *minifloat(type);
      if (real.specials == Minifloat::Specials::kNone && !saturates) continue;
      const std::vector<float> numbers = without_nan(hard_numbers(real));
      const auto got = values_of({{"x", {1}}}, [&](ModelBuilder& m) {
        m.floats("n", {static_cast<int64_t>(numbers.size())}, numbers).floats("one", {}, {1});
        m.small_integers("zero", {}, type, {0});
        set(m.node("QuantizeLinear", {"n", "one", "zero"}, {"q"}), "saturate", int64_t{saturates});
        m.node("DequantizeLinear", {"q", "one", "zero"}, {"y"});
      });
      expect_numbers(got, numbers, real, saturates);
    }
}

TEST(Minifloats, CastTakesTheNearestAndBack) {
  for (const int type : kTypes) {
    SCOPED_TRACE(type);
    const Minifloat real = *minifloat(type);
    std::vector<float> numbers = hard_numbers(real);
    if (real.specials == Minifloat::Specials::kNone) numbers = without_nan(numbers);
    const auto by = [&](bool like) {
      return values_of({{"x", {1}}}, [&](ModelBuilder& m) {
        m.floats("n", {static_cast<int64_t>(numbers.size())}, numbers);
        m.small_integers("like", {}, type, {0});
        if (like)
          m.node("CastLike", {"n", "like"}, {"q"});
        else
          set(m.node("Cast", {"n"}, {"q"}), "to", int64_t{type});
        set(m.node("Cast", {"q"}, {"y"}), "to", int64_t{TensorProto::FLOAT});
      });
    };
    for (const bool like : {false, true}) expect_numbers(by(like), numbers, real, true);
  }
}

// By the passes and kernels of an engine, with a scale whose reciprocal is no f32.
TEST(Minifloats, EnginesTakeTheNearest) {
  constexpr float kScale = 0.37F;
  for (const int type : kTypes) {
    SCOPED_TRACE(type);
    const Minifloat real = *minifloat(type);
    std::vector<float> numbers = without_nan(hard_numbers(real));
    for (float& number : numbers) number *= kScale;
    ModelBuilder model(25);
    model.input("x", {"N"}).output("y");
    model.floats("scale", {}, {kScale}).small_integers("zero", {}, type, {0});
    model.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"});
    model.node("DequantizeLinear", {"q", "scale", "zero"}, {"y"});
    const auto engine =
        testing::engine_of(build(import_bytes(model.bytes(), "").graph, GraphBuildOptions{}));
    ExecutionContext context(engine);
    const Dims dims = {static_cast<int64_t>(numbers.size())};
    const auto got =
        testing::run(context, *engine, {Tensor::of<float>(DataType::kF32, dims, numbers)});
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_EQ(got.at("y")[i],
                static_cast<float>(nearest(real, numbers[i] / kScale, true)) * kScale)
          << numbers[i];
  }
}

TEST(Minifloats, ScalesAreOfAnAxisOrOfBlocks) {
  const Minifloat type = *minifloat(TensorProto::FLOAT8E4M3FN);
  const std::vector<float> numbers = {0.3F, 100, -7, 1.7F, 900, -0.001F, 33, 2};
  const auto quantized = [&](const std::vector<int64_t>& dims, const std::vector<float>& scales,
                             int64_t axis, int64_t block) {
    return values_of({{"x", {1}}}, [&](ModelBuilder& m) {
      m.floats("n", {2, 4}, numbers).floats("scale", dims, scales);
      for (const char* op : {"QuantizeLinear", "DequantizeLinear"}) {
        const bool first = op[0] == 'Q';
        auto& node = first ? m.node(op, {"n", "scale"}, {"q"}) : m.node(op, {"q", "scale"}, {"y"});
        set(node, "axis", axis);
        if (block > 0) set(node, "block_size", block);
        if (first) set(node, "output_dtype", int64_t{TensorProto::FLOAT8E4M3FN});
      }
    });
  };
  const auto expect_scales = [&](const std::vector<double>& got, const std::vector<float>& scales) {
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], nearest(type, numbers[i] / scales[i], true) * scales[i]) << i;
  };
  expect_scales(quantized({2}, {0.5, 3}, 0, 0), {0.5, 0.5, 0.5, 0.5, 3, 3, 3, 3});
  expect_scales(quantized({4}, {0.5, 3, 2, 4}, 1, 0), {0.5, 3, 2, 4, 0.5, 3, 2, 4});
  expect_scales(quantized({2, 2}, {0.5, 3, 2, 4}, 1, 2), {0.5, 0.5, 3, 3, 2, 2, 4, 4});
  EXPECT_THAT(error_of([&] {
                quantized({2, 3}, {1, 1, 1, 1, 1, 1}, 1, 2);
              }),
              HasSubstr("axis 1 of the scale has 3 elements, not 2"));
  EXPECT_THAT(error_of([&] {
                quantized({2, 2}, {1, 1, 1, 1}, 1, INT64_MAX);
              }),
              HasSubstr("axis 1 of the scale has 2 elements, not 1"));
}

// As NVFP4 and MXFP4 have them: numbers of 4 bits, two in a byte, with scales of 8 bits.
TEST(Minifloats, ScalesMayBeOfEightBits) {
  const auto dequantized = [](int scale_type, bool has_output_type) {
    return values_of({{"x", {1}}}, [&](ModelBuilder& m) {
      m.small_integers("w", {2, 4}, TensorProto::FLOAT4E2M1, {0x10, 0x32, 0x54, 0xF6});
      m.small_integers("codes", {2, 2}, scale_type, {0x38, 0x40, 0x30, 0x48});
      m.floats("one", {}, {1});
      const bool is_power = scale_type == TensorProto::FLOAT8E8M0;
      if (!is_power) m.node("DequantizeLinear", {"codes", "one"}, {"scale"});
      auto& node = m.node("DequantizeLinear", {"w", is_power ? "codes" : "scale"}, {"y"});
      set(node, "axis", int64_t{1});
      set(node, "block_size", int64_t{2});
      if (has_output_type) set(node, "output_dtype", int64_t{TensorProto::FLOAT});
    });
  };
  // The scales are 1, 2, 0.5 and 4.
  EXPECT_THAT(dequantized(TensorProto::FLOAT8E4M3FN, false),
              ElementsAre(0, 0.5, 2, 3, 1, 1.5, 16, -24));
  const auto powers = dequantized(TensorProto::FLOAT8E8M0, true);
  EXPECT_EQ(powers[2], std::ldexp(1.0, 0x40 - 127));
  EXPECT_EQ(powers[7], -std::ldexp(6.0, 0x48 - 127));
  EXPECT_THAT(error_of([&] { dequantized(TensorProto::FLOAT8E8M0, false); }),
              HasSubstr("float8e8m0 without \"output_dtype\""));
}

// The operators that NVIDIA's Model Optimizer writes.
TEST(Minifloats, OperatorsOfTensorRtAreThoseOfE4M3) {
  const std::vector<float> numbers = {0.3F, 100, -7, 1.7F, 900, -0.001F};
  const auto got = values_of({{"x", {1}}}, [&](ModelBuilder& m) {
    m.floats("n", {6}, numbers).floats("scale", {}, {0.7F});
    m.node("TRT_FP8QuantizeLinear", {"n", "scale"}, {"q"}).set_domain("trt");
    m.node("TRT_FP8DequantizeLinear", {"q", "scale"}, {"y"}).set_domain("trt");
  });
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(got[i],
              static_cast<float>(
                  nearest(*minifloat(TensorProto::FLOAT8E4M3FN), numbers[i] / 0.7F, true) * 0.7F))
        << i;
}

TEST(Minifloats, AreMovedAndThenDequantized) {
  const auto got = values_of({{"x", {1}}}, [](ModelBuilder& m) {
    m.small_integers("w", {2, 2}, TensorProto::FLOAT8E5M2, {0x3C, 0x40, 0x44, 0xBC});
    m.floats("half", {}, {0.5}).integers("flat", {4});
    m.node("Transpose", {"w"}, {"t"});
    m.node("Reshape", {"t", "flat"}, {"r"});
    m.node("DequantizeLinear", {"r", "half"}, {"y"});
  });
  EXPECT_THAT(got, ElementsAre(0.5, 2, 1, -0.5));
}

TEST(Minifloats, BodiesKnowTheTypesThatTheyCapture) {
  const auto branches = [](const char* op) {
    return [op](ModelBuilder& m) {
      m.small_integers("w", {2}, TensorProto::FLOAT8E5M2, {0x3C, 0xC0}).floats("half", {}, {0.5});
      m.node("Size", {"x"}, {"n"});
      set(m.node("Cast", {"n"}, {"c"}), "to", int64_t{TensorProto::BOOL});
      auto& node = m.node("If", {"c"}, {"y"});
      for (const char* name : {"then_branch", "else_branch"}) {
        auto* branch = node.add_attribute();
        branch->set_name(name);
        branch->set_type(anneal_onnx::AttributeProto::GRAPH);
        ModelBuilder::fill(*branch->mutable_g()->add_node(), op, {"w", "half"}, {"r"});
        branch->mutable_g()->add_output()->set_name("r");
      }
    };
  };
  EXPECT_THAT(values_of({{"x", {1}}}, branches("DequantizeLinear")), ElementsAre(0.5, -1));
  EXPECT_THAT(error_of([&] {
                values_of({{"x", {1}}}, branches("Mul"));
              }),
              HasSubstr("an input of float8e5m2"));
}

TEST(Minifloats, OtherOperatorsAndOutputsAreRefused) {
  const auto refusal = [](const Build& build) {
    return error_of([&] {
      values_of({{"x", {4}}}, [&](ModelBuilder& m) {
        m.floats("one", {}, {1}).small_integers("zero", {}, TensorProto::FLOAT8E5M2, {0});
        build(m);
      });
    });
  };
  EXPECT_THAT(refusal([](ModelBuilder& m) {
                m.node("QuantizeLinear", {"x", "one", "zero"}, {"y"});
              }),
              HasSubstr("graph output, once in \"y\": the element type float8e5m2"));
  EXPECT_THAT(refusal([](ModelBuilder& m) {
                m.node("QuantizeLinear", {"x", "one", "zero"}, {"q"});
                m.node("Identity", {"q"}, {"i"});
                m.node("Add", {"i", "x"}, {"y"});
              }),
              HasSubstr("an input of float8e5m2"));
  EXPECT_THAT(refusal([](ModelBuilder& m) {
                set(m.node("Cast", {"x"}, {"q"}), "to", int64_t{TensorProto::FLOAT8E8M0});
                set(m.node("Cast", {"q"}, {"y"}), "to", int64_t{TensorProto::FLOAT});
              }),
              HasSubstr("a cast to float8e8m0"));
}

}  // namespace
}  // namespace anneal
