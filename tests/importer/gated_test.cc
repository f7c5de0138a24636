// Operators of com.microsoft with gates and scales. Each gives what several plain operators give.
#include <gmock/gmock.h>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

using Names = std::vector<std::string>;

TEST(GatedAdd, AddsWhatTheGateLets) {
  const std::vector<FloatInput> inputs = {{"a", {2, 3, 4}}, {"b", {2, 3, 4}}, {"gate", {2, 3, 1}}};
  expect_same(
      inputs,
      [](ModelBuilder& m) {
        microsoft(m, "GatedAdd", {"a", "b", "gate"});
      },
      [](ModelBuilder& m) {
        m.node("Mul", {"b", "gate"}, {"product"});
        m.node("Add", {"a", "product"}, {"y"});
      });
  const auto error = [&](const Names& names) {
    return error_of(
        [&] { values_of(inputs, [&](ModelBuilder& m) { microsoft(m, "GatedAdd", names); }); });
  };
  EXPECT_THAT(error({"a", "b", "a"}), HasSubstr("a gate of one element"));
  EXPECT_THAT(error({"a", "b", "gate", "a"}), HasSubstr("gate_weight"));
}

TEST(ScaledSiLU, ScalesBefore) {
  for (const bool has_scale : {true, false})
    expect_same(
        {{"x", {2, 5}}, {"scale", {}}},
        [&](ModelBuilder& m) {
          set(microsoft(m, "ScaledSiLU", {"x", has_scale ? "scale" : ""}), "alpha", 1.5F);
        },
        [&](ModelBuilder& m) {
          m.floats("alpha", {}, {1.5F});
          m.node("Mul", {"x", has_scale ? "scale" : "alpha"}, {"z"});
          m.node("Swish", {"z"}, {"y"});
        });
}

// The reduced types round z, its sigmoid and the result.
TEST(ScaledSiLU, RoundsEachStep) {
  const auto cast = [](ModelBuilder& m, const std::string& from, const std::string& to, int type) {
    set(m.node("Cast", {from}, {to}), "to", int64_t{type});
  };
  constexpr int kF16 = anneal_onnx::TensorProto::FLOAT16, kF32 = anneal_onnx::TensorProto::FLOAT;
  const auto one = values_of({{"x", {500}}}, [&](ModelBuilder& m) {
    cast(m, "x", "h", kF16);
    set(microsoft(m, "ScaledSiLU", {"h"}, {"s"}), "alpha", 1.7F);
    cast(m, "s", "y", kF32);
  });
  const auto several = values_of({{"x", {500}}}, [&](ModelBuilder& m) {
    m.floats("alpha", {}, {1.7F});
    cast(m, "x", "h", kF16);
    cast(m, "h", "h32", kF32);
    m.node("Mul", {"h32", "alpha"}, {"z32"});
    cast(m, "z32", "z", kF16);
    m.node("Sigmoid", {"z"}, {"open"});
    m.node("Mul", {"z", "open"}, {"s"});
    cast(m, "s", "y", kF32);
  });
  EXPECT_EQ(one, several);
}

}  // namespace
}  // namespace anneal
