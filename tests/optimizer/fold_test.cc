// Folding across control flow, which golden cases cannot run.
#include <gtest/gtest.h>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

TEST(Fold, BodiesOwnTheConstantsThatTheyCapture) {
  Graph graph = parse_graph(R"G(graph g(x: f32[2,2], n: i64[])
  const h: f16[2,2] = {1, 2, 3, 4}
  body b(i: i64[], c: bool[], s: f32[2,2], v: f32[2,2])
    t = Transpose(v) permutation=[1,0]
    p = MatMul(s, t)
    return c, p
  end
  w = Pointwise(h) program="(f16)->(f32) $0"
  y = Loop(n, _, x, w) body=0 carried=1
  return y
)G");
  const PassOptions options;
  PassRun run(options);
  ASSERT_TRUE(fold_constants(graph, run));
  verify(graph);
  Graph& body = graph.bodies()[0];
  ASSERT_TRUE(fold_constants(body, run));
  verify(graph);
  ASSERT_EQ(body.layer_count(), 1u);
  const Tensor* weights = body.constant(body.layer(body.layers()[0]).inputs[1]);
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->as<float>()[1], 3.F);
  EXPECT_FALSE(fold_constants(graph, run));
}

// A division of what may be negative is no size; without it, Range's length is one.
TEST(Pipeline, SizesThatARewriteShowsAreKnown) {
  Graph graph = parse_graph(R"G(size m
graph g(x: f32[m,3])
  const one: i64[] = {1}
  l = SizeTensor() elements=[m - 2] scalar=true
  d = Pointwise(l, one) program="(i64,i64)->(i64) div($0,$1)"
  r = Range(i64[]{0}, d, i64[]{1})
  return r, x
)G");
  ASSERT_NE(graph.sizes().text(graph.value(graph.find_value("r")).type().shape), "[max(m - 2, 0)]");
  run_pipeline(graph, default_pipeline(), {});
  EXPECT_EQ(graph.sizes().text(graph.value(graph.outputs()[0].value).type().shape),
            "[max(m - 2, 0)]");
}

}  // namespace
}  // namespace anneal
