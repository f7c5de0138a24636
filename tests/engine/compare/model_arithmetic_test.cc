#include "anneal/engine/compare/model_arithmetic.h"

#include <gtest/gtest.h>

#include <string>

#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

Arithmetic of(const std::string& inputs, const std::string& body) {
  return arithmetic_of(parse_graph("graph g(" + inputs + ")\n" + body));
}

TEST(ModelArithmetic, Table) {
  EXPECT_EQ(of("x: i32[2,3]", "  y = Transpose(x) permutation=[1,0]\n  return y as y\n"),
            Arithmetic::kInteger);
  EXPECT_EQ(of("x: f32[2,3]", "  y = ArgReduce(x) axis=1\n  return y as y\n"), Arithmetic::kFloat);
  EXPECT_EQ(of("x: i8[2,3]", "  const s: f32[] = {0.5}\n  y = Dequantize(x, s)\n  return y as y\n"),
            Arithmetic::kFloat);
}

TEST(ModelArithmetic, QuantizedMeansAProductBetweenDequantizeAndQuantize) {
  const std::string scale = "  const s: f32[] = {0.5}\n  const w: f32[3,3] = random(1)\n";
  const std::string in = "x: f32[2,3]";
  const std::string quantize = " = Quantize(x, s) dtype=i8\n";
  EXPECT_EQ(of(in, scale + "  q" + quantize +
                       "  d = Dequantize(q, s)\n  m = MatMul(d, w)\n"
                       "  p = Quantize(m, s) dtype=i8\n  y = Dequantize(p, s)\n  return y as y\n"),
            Arithmetic::kQuantized);
  // Other layers may stand between.
  EXPECT_EQ(of(in, scale + "  q" + quantize +
                       "  d = Dequantize(q, s)\n  t = Softmax(d) axis=1\n  m = MatMul(t, w)\n"
                       "  u = Softmax(m) axis=1\n  p = Quantize(u, s) dtype=i8\n"
                       "  y = Dequantize(p, s)\n  return y as y\n"),
            Arithmetic::kQuantized);
  // Nothing is quantized after the product.
  EXPECT_EQ(of(in, scale + "  q" + quantize +
                       "  d = Dequantize(q, s)\n  m = MatMul(d, w)\n  return m as y\n"),
            Arithmetic::kFloat);
  // Nothing is dequantized before it.
  EXPECT_EQ(of(in, scale + "  m = MatMul(x, w)\n  q = Quantize(m, s) dtype=i8\n"
                           "  y = Dequantize(q, s)\n  return y as y\n"),
            Arithmetic::kFloat);
  // No product at all.
  EXPECT_EQ(of(in, scale + "  q" + quantize +
                       "  d = Dequantize(q, s)\n  t = Softmax(d) axis=1\n"
                       "  p = Quantize(t, s) dtype=i8\n  y = Dequantize(p, s)\n  return y as y\n"),
            Arithmetic::kFloat);
}

}  // namespace
}  // namespace anneal
