// What looks like a normalization at random points, where a comparison for equality is false.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace anneal
