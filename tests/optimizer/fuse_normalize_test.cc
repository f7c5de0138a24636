// What looks like a normalization at random points, where a comparison for equality is false.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

// y is x / mean(x * x), which is no norm, where the condition of `inputs` holds; else `other`.
std::string net_of(const std::string& condition, const std::string& inputs) {
  return "graph net(x: f32[4,16], other: f32[4,16])\n"
         "  s = Pointwise(x) program=\"(f32)->(f32) mul($0,$0)\"\n"
         "  m = Reduce(s, i64{1}) kind=mean keepdims=true\n"
         "  d = Pointwise(x, m) program=\"(f32,f32)->(f32) div($0,$1)\"\n"
         "  c = Pointwise(" +
         inputs + ") program=\"" + condition +
         "\"\n"
         "  y = Pointwise(c, d, other) program=\"(bool,f32,f32)->(f32) select($0,$1,$2)\"\n"
         "  return y\n";
}

// Whole numbers, many of which are equal in both.
Tensor whole_numbers(int step) {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i) * step % 7);
  return Tensor::of<float>(DataType::kF32, {4, 16}, values);
}

TEST(FuseNormalize, AComparisonReadsTheInputItself) {
  const std::vector<std::pair<std::string, std::string>> conditions = {
      {"(f32,f32)->(bool) eq($0,$1)", "x, other"},
      {"(f32)->(bool) eq($0,3f32)", "x"},
      {"(f32)->(bool) eq(mul($0,2f32),6f32)", "x"},
      {"(f32)->(bool) bool($0)", "x"},
      {"(f32)->(bool) le(abs(sub($0,3f32)),0f32)", "x"},
      {"(f32)->(bool) le(abs(sub($0,3f32)),0.00001f32)", "x"},
      {"(f32)->(bool) and(le($0,3f32),le(3f32,$0))", "x"},
      {"(f32)->(bool) lt(abs(sign(sub($0,3f32))),0.5f32)", "x"},
      {"(f32)->(bool) eq($0,3f32)", "other"},
  };
  const std::vector<Tensor> inputs = {whole_numbers(3), whole_numbers(5)};
  for (const auto& [condition, read] : conditions) {
    Graph graph = parse_graph(net_of(condition, read));
    const Tensor wanted = evaluate(graph, inputs)[0];
    run_pipeline(graph, default_pipeline(), {});
    const Tensor got = evaluate(graph, inputs)[0];
    for (size_t i = 0; i < 64; ++i)
      ASSERT_NEAR(got.as<float>()[i], wanted.as<float>()[i], 1e-5) << condition << ", " << i;
  }
}

// By what x is divided, of layers "m" (of x, keepdims) and "d".
struct Divisor {
  std::string mean;  // "Reduce(...)" of s
  std::string square, root;
};

// x / root(m(square(x))), optimized or not.
std::vector<Tensor> normalized(const Divisor& divisor, const Tensor& x, bool optimize) {
  Graph graph = parse_graph(
      "graph net(x: f32[6,16])\n"
      "  s = Pointwise(x) program=\"(f32)->(f32) " +
      divisor.square + "\"\n  m = Reduce(s, i64{1}) kind=" + divisor.mean +
      " keepdims=true\n  y = Pointwise(x, m) program=\"(f32,f32)->(f32) div($0," + divisor.root +
      ")\"\n  return y\n");
  if (optimize) run_pipeline(graph, default_pipeline(), {});
  return evaluate(graph, std::vector<Tensor>{x});
}

// Rows of zeros, of small numbers down to 1e-10, and of numbers near 1.
Tensor rows_of_all_sizes() {
  std::vector<float> values(96);
  const float scales[] = {0, 1e-10F, 1e-7F, 1e-5F, 1e-3F, 1};
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = scales[i / 16] * (static_cast<float>(i * 7 % 16) - 6.5F);
  return Tensor::of<float>(DataType::kF32, {6, 16}, values);
}

// An epsilon counts where rows are small, so its place matters: in the mean, in the root, behind
// it, or in a sum.
TEST(FuseNormalize, AnEpsilonStaysInItsPlace) {
  const std::string square = "mul($0,$0)";
  const Tensor x = rows_of_all_sizes();
  for (const Divisor& divisor : std::vector<Divisor>{
           {"mean", square, "sqrt(add($1,1e-12f32))"},
           {"mean", square, "sqrt(add($1,1e-5f32))"},
           {"mean", square, "add(sqrt($1),1e-12f32)"},
           {"mean", square, "add(sqrt($1),1e-6f32)"},
           {"sum", square, "sqrt(add($1,1e-10f32))"},
           {"sum", square, "add(sqrt($1),1e-12f32)"},
           {"mean", "add(mul($0,$0),1e-8f32)", "sqrt($1)"},
           {"sum", "add(mul($0,$0),1e-12f32)", "sqrt($1)"},
           {"mean", "%0=add(abs($0),1e-6f32); mul(%0,%0)", "sqrt($1)"},
       }) {
    const Tensor wanted = normalized(divisor, x, false)[0], got = normalized(divisor, x, true)[0];
    for (size_t i = 0; i < 96; ++i) {
      const float want = wanted.as<float>()[i];
      if (std::isnan(want))
        ASSERT_TRUE(std::isnan(got.as<float>()[i])) << divisor.square << divisor.root << i;
      else
        ASSERT_NEAR(got.as<float>()[i], want, 2e-5 * (1 + std::abs(want)))
            << divisor.mean << " of " << divisor.square << ", " << divisor.root << ", " << i;
    }
  }
}

// The mean of (x - m)^2 + e, as in code for speech, is not the variance.
TEST(FuseNormalize, AnEpsilonInAVarianceStaysThere) {
  const std::string net =
      "graph net(x: f32[6,16])\n"
      "  m = Reduce(x, i64{1}) kind=mean keepdims=true\n"
      "  d = Pointwise(x, m) program=\"(f32,f32)->(f32) sub($0,$1)\"\n"
      "  s = Pointwise(d) program=\"(f32)->(f32) add(mul($0,$0),1e-6f32)\"\n"
      "  v = Reduce(s, i64{1}) kind=mean keepdims=true\n"
      "  y = Pointwise(d, v) program=\"(f32,f32)->(f32) div($0,sqrt($1))\"\n"
      "  return y\n";
  const std::vector<Tensor> inputs = {rows_of_all_sizes()};
  Graph graph = parse_graph(net);
  const Tensor wanted = evaluate(graph, inputs)[0];
  run_pipeline(graph, default_pipeline(), {});
  const Tensor got = evaluate(graph, inputs)[0];
  for (size_t i = 0; i < 96; ++i) ASSERT_NEAR(got.as<float>()[i], wanted.as<float>()[i], 2e-5) << i;
}

// Of a sum of squares there is less of it in the mean.
TEST(FuseNormalize, AnEpsilonInTheRootIsThatOfANorm) {
  const auto text_of = [](const std::string& kind, const std::string& epsilon) {
    Graph graph = parse_graph(
        "graph net(x: f32[6,16])\n"
        "  s = Pointwise(x) program=\"(f32)->(f32) mul($0,$0)\"\n"
        "  m = Reduce(s, i64{1}) kind=" +
        kind +
        " keepdims=true\n"
        "  y = Pointwise(x, m) program=\"(f32,f32)->(f32) div($0,sqrt(add($1," +
        epsilon + "f32)))\"\n  return y\n");
    run_pipeline(graph, default_pipeline(), {});
    return to_string(graph);
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(text_of("mean", "1e-12"), AllOf(HasSubstr("Normalize"), HasSubstr("epsilon=1e-12")));
  EXPECT_THAT(text_of("mean", "1e-4"), AllOf(HasSubstr("Normalize"), HasSubstr("epsilon=1e-04")));
  EXPECT_THAT(text_of("sum", "1e-5"), AllOf(HasSubstr("Normalize"), HasSubstr("epsilon=6.25e-07")));
}

}  // namespace
}  // namespace anneal
