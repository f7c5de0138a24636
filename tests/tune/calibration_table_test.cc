#include "anneal/optimizer/calibration_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/precision/fingerprint.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

CalibrationTable example() {
  CalibrationTable table{
      .model = "a \"model\"", .fingerprint = 0x12ab, .samples = 3, .symmetric = true};
  table.tensors["conv_1"] = {-1.5F, 2.7182817F, -3, 3, "mse"};
  table.tensors["with space \\ \"quote\"\n"] = {0, 1e-30F, 0, 3e38F, "minmax"};
  table.layers["conv"] = {true, 0.25F, 0.125F};
  table.layers["product \"q\""] = {false, 0, 0};
  table.biases["conv"] = {0.1F, -2e-30F, 0};
  table.exponents["conv_1"] = {0, -3, 30};
  return table;
}

TEST(CalibrationTable, ComesBackFromText) {
  EXPECT_EQ(parse_calibration_table(to_string(example())), example());
}

TEST(CalibrationTable, MethodsOfApplicationsAreOneWord) {
  CalibrationTable table;
  table.tensors["x"] = {.min = 0, .max = 1, .seen_min = 0, .seen_max = 1, .method = ""};
  EXPECT_EQ(parse_calibration_table(to_string(table)).tensors.at("x").method, "given");
  table.tensors["x"].method = "by hand";
  EXPECT_EQ(parse_calibration_table(to_string(table)).tensors.at("x").method, "by-hand");
}

TEST(CalibrationTable, IsEditedByHand) {
  const CalibrationTable table = parse_calibration_table(
      "# mine\r\n\r\nanneal calibration 1\n#more\n  0 1 0 2 by-hand \"x\"  \n");
  ASSERT_EQ(table.tensors.size(), 1u);
  EXPECT_EQ(table.tensors.at("x"), (TensorRange{0, 1, 0, 2, "by-hand"}));
  EXPECT_EQ(table.fingerprint, 0u);
  EXPECT_TRUE(table.layers.empty() && table.biases.empty() && table.exponents.empty());
  EXPECT_EQ(parse_calibration_table("anneal calibration 1\nlayer \"c\" mse\n").layers.at("c"),
            (LayerQuantization{.fits_weights = true}));
}

TEST(CalibrationTable, RefusesWhatItIsNot) {
  const auto refusal = [](const std::string& lines) {
    return error_of([&] { parse_calibration_table("anneal calibration 1\n" + lines); });
  };
  EXPECT_THAT(error_of([] { parse_calibration_table(""); }), testing::HasSubstr("empty"));
  EXPECT_THAT(error_of([] { parse_calibration_table("\xff\xd8"); }), testing::HasSubstr("line 1"));
  EXPECT_THAT(refusal("0 1 0 1 mse"), testing::HasSubstr("line 2: a name in quotes"));
  EXPECT_THAT(refusal("0 x 0 1 mse \"a\""), testing::HasSubstr("\"x\""));
  EXPECT_THAT(refusal("0 nan 0 1 mse \"a\""), testing::HasSubstr("finite"));
  EXPECT_THAT(refusal("0 1e99 0 1 mse \"a\""), testing::HasSubstr("1e99"));
  EXPECT_THAT(refusal("2 1 0 1 mse \"a\""), testing::HasSubstr("begins at 2"));
  EXPECT_THAT(refusal("0 1 0 1 mse \"a"), testing::HasSubstr("not closed"));
  EXPECT_THAT(refusal("0 1 0 1 mse \"a\\x1\""), testing::HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal("0 1 0 1 mse \"a\" b"), testing::HasSubstr("too many fields"));
  EXPECT_THAT(refusal("0 1 0 1 mse \"a\"\n0 1 0 1 mse \"a\""),
              testing::HasSubstr("line 3: tensor \"a\" occurs twice"));
  EXPECT_THAT(refusal("0 1 3 2 mse \"a\""), testing::HasSubstr("extremes begin at 3"));
  EXPECT_THAT(refusal("zero-points 3"), testing::HasSubstr("zero points are to be 0"));
  EXPECT_THAT(refusal("samples -5"), testing::HasSubstr("fewer than 0"));
  EXPECT_THAT(refusal("layer \"a\""), testing::HasSubstr("too soon"));
  EXPECT_THAT(refusal("layer mse"), testing::HasSubstr("a name in quotes"));
  EXPECT_THAT(refusal("layer \"a\" least"), testing::HasSubstr("not \"least\""));
  EXPECT_THAT(refusal("layer \"a\" mse 0.1"), testing::HasSubstr("too soon"));
  EXPECT_THAT(refusal("layer \"a\" mse 0.1 inf"), testing::HasSubstr("finite"));
  EXPECT_THAT(refusal("layer \"a\" mse 1 2 3"), testing::HasSubstr("too many fields"));
  EXPECT_THAT(refusal("layer \"a\" mse\nlayer \"a\" mse"), testing::HasSubstr("line 3: layer"));
  EXPECT_THAT(refusal("bias \"a\""), testing::HasSubstr("too soon"));
  EXPECT_THAT(refusal("bias \"a\" 1 nan"), testing::HasSubstr("finite"));
  EXPECT_THAT(refusal("bias \"a\" 1 b"), testing::HasSubstr("\"b\""));
  EXPECT_THAT(refusal("bias \"a\" 1\nbias \"a\" 1"), testing::HasSubstr("occurs twice"));
  EXPECT_THAT(refusal("equalize \"a\""), testing::HasSubstr("too soon"));
  EXPECT_THAT(refusal("equalize \"a\" 0.5"), testing::HasSubstr("\"0.5\""));
  EXPECT_THAT(refusal("equalize \"a\" 0 31"), testing::HasSubstr("from -30 to 30"));
  EXPECT_THAT(refusal("equalize \"a\" -2147483648"), testing::HasSubstr("from -30 to 30"));
  EXPECT_THAT(refusal("equalize \"a\" 99999999999"), testing::HasSubstr("99999999999"));
  EXPECT_THAT(refusal("equalize \"a\" 1\nequalize \"a\" 1"), testing::HasSubstr("twice"));
  EXPECT_THAT(refusal("model \"a\" xyz"), testing::HasSubstr("\"xyz\""));
}

TEST(CalibrationTable, BelongsToItsModel) {
  const Graph graph = parse_graph(
      "graph g(x: f32[2,2])\n  const w: f32[2,2] = {1, 2, 3, 4}\n  y = MatMul(x, w)\n"
      "  return y\n");
  const Graph other = parse_graph(
      "graph h(x: f32[2,2])\n  const w: f32[2,2] = {1, 2, 3, 5}\n  y = MatMul(x, w)\n"
      "  return y\n");
  EXPECT_NE(fingerprint(graph, 1), fingerprint(other, 1));
  CalibrationTable table;
  table.tensors["x"] = {0, 1, 0, 1, "mse"};
  table.fingerprint = fingerprint(graph, 1);
  check_belongs(table, graph, 1);
  EXPECT_THAT(error_of([&] { check_belongs(table, other, 1); }),
              testing::HasSubstr("was made for another model"));
  table.fingerprint = 0;
  check_belongs(table, other, 1);
  table.tensors.clear();
  table.tensors["z"] = {0, 1, 0, 1, "mse"};
  EXPECT_THAT(error_of([&] { check_belongs(table, graph, 1); }),
              testing::HasSubstr("none of its 1 tensors"));
}

}  // namespace
}  // namespace anneal
