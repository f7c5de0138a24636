// Graphs that verify() must refuse: what the verbs allow between passes, and a pass forgot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/error.h"
#include "anneal/graph/graph.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

std::string refusal(const Graph& graph) {
  try {
    verify(graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.what();
  }
  return "accepted";
}

Graph chain() {
  return parse_graph(R"g(
graph g(x: f32[N,4], z: f32[3,4])
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  b = Softmax(a) axis=1
  return b
)g");
}

TEST(Verify, Accepts) { EXPECT_EQ(refusal(chain()), "accepted"); }

TEST(Verify, Cycle) {
  Graph graph = chain();
  graph.replace_uses(graph.find_value("x"), graph.find_value("b"));
  EXPECT_THAT(refusal(graph), HasSubstr("cycle"));
}

TEST(Verify, StaleTypes) {
  Graph graph = chain();
  graph.set_input_shape(graph.find_value("x"), {3, 4});
  EXPECT_THAT(refusal(graph), HasSubstr("layer \"a\" (Pointwise): value \"a\" is f32[N,4], "
                                        "inference says f32[3,4]"));
  graph.refine();
  EXPECT_EQ(refusal(graph), "accepted");
}

TEST(Verify, ReplacedByAnotherShape) {
  Graph graph = chain();
  graph.replace_uses(graph.find_value("x"), graph.find_value("z"));
  EXPECT_THAT(refusal(graph), HasSubstr("\"a\" is f32[N,4]"));
  graph.refine();
  EXPECT_EQ(refusal(graph), "accepted");
}

TEST(Verify, InferenceRefuses) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[2,3], y: f32[3,4], z: f32[5,4])
  m = MatMul(x, y)
  return m
)g");
  graph.replace_uses(graph.find_value("y"), graph.find_value("z"));
  EXPECT_THAT(refusal(graph), HasSubstr("layer \"m\" (MatMul): inner sizes 3 and 5 differ"));
}

TEST(Verify, UseOfAnErasedValue) {
  Graph graph = chain();
  const ValueId a = graph.find_value("a"), z = graph.find_value("z");
  graph.replace_uses(graph.find_value("b"), z);
  graph.erase_unused();
  graph.replace_uses(z, a);
  EXPECT_THAT(refusal(graph), HasSubstr("nothing produces value \"a\""));
}

TEST(Verify, Bodies) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[N])
  body inner(c: f32[N])
    d = Pointwise(c) program="(f32)->(f32) exp($0)"
    return d
  end
  return x
)g");
  EXPECT_EQ(refusal(graph), "accepted");
  Graph& body = graph.bodies()[0];
  body.replace_uses(body.find_value("c"), body.find_value("d"));
  EXPECT_THAT(refusal(graph), HasSubstr("body \"inner\": "));
}

}  // namespace
}  // namespace anneal
