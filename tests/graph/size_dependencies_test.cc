// Sizes that depend on values: who finds them, who needs them, and what becomes of them when a pass
// learns more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "anneal/graph/graph.h"
#include "anneal/graph/text/text.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names_in_order(const Graph& graph) {
  std::vector<std::string> names;
  for (const LayerId id : graph.order()) names.push_back(graph.layer(id).name);
  return names;
}

ValueId only_output(const Graph& graph, LayerId id) { return graph.layer(id).outputs.at(0); }

// mask -> found: i64[2, found.size1] -> count: the contents [2 * found.size1]
struct Counted {
  Graph graph;
  ValueId mask = graph.add_input("mask", {DataType::kBool, {4, 5}});
  LayerId found = graph.add({.name = "found", .op = NonZero{}, .inputs = {mask}});
  Size size = graph.value(only_output(graph, found)).type().shape[1];
  LayerId count = graph.add(
      {.name = "count", .op = SizeTensor{.elements = {graph.sizes().mul(size, 2)}}, .inputs = {}});
};

TEST(SizeDependencies, AWriterRunsBehindTheFinder) {
  Counted c;
  c.graph.mark_output(only_output(c.graph, c.count), "count");
  EXPECT_THAT(names_in_order(c.graph), ElementsAre("found", "count"));
  // A replacement has a later id than the layers behind it.
  const LayerId replacement =
      c.graph.add({.name = "replacement",
                   .op = NonZero{},
                   .inputs = {c.mask},
                   .output_types = {c.graph.value(only_output(c.graph, c.found)).type()}});
  c.graph.replace_layer(c.found, replacement);
  c.graph.erase_unused();
  EXPECT_THAT(names_in_order(c.graph), ElementsAre("replacement", "found", "count"));
  verify(c.graph);
}

TEST(SizeDependencies, TheFinderLivesAsLongAsAWriter) {
  Counted c;
  c.graph.mark_output(c.mask, "mask");
  c.graph.mark_output(only_output(c.graph, c.count), "count");
  c.graph.erase_unused();
  EXPECT_THAT(names_in_order(c.graph), ElementsAre("found", "count"));
  c.graph.replace_output(
      1, c.graph.add_constant("two", Tensor::of<int64_t>(DataType::kI64, {1}, {{int64_t{2}}})));
  c.graph.erase_unused();
  EXPECT_THAT(names_in_order(c.graph), IsEmpty());
}

TEST(SizeDependencies, WhatReplacesTheFinderSaysTheSize) {
  Counted c;
  c.graph.mark_output(only_output(c.graph, c.count), "count");
  const std::vector<int64_t> tuples = {1, 0, 2, 4, 3, 3};
  c.graph.replace_uses(
      only_output(c.graph, c.found),
      c.graph.add_constant("tuples", Tensor::of<int64_t>(DataType::kI64, {2, 3}, tuples)));
  c.graph.refine();
  c.graph.erase_unused();
  EXPECT_THAT(names_in_order(c.graph), ElementsAre("count"));
  EXPECT_THAT(to_string(c.graph), HasSubstr("count = SizeTensor() elements=[6]"));
  verify(c.graph);
}

constexpr std::string_view kPadded = R"g(
graph g(x: f32[N,3], by: i64[4])
  padded = Pad(x, by, f32{0}) mode=constant
  y = Pointwise(padded) program="(f32)->(f32) exp($0)"
  return y
)g";

TEST(SizeDependencies, ASizeThatFollowsFromOthersNowDoesSoEverywhere) {
  Graph graph = parse_graph(kPadded);
  const ValueId padded = graph.find_value("padded");
  const Size rows = graph.value(padded).type().shape[0];
  const LayerId count = graph.add(
      {.name = "count", .op = SizeTensor{.elements = {graph.sizes().add(rows, 1)}}, .inputs = {}});
  graph.mark_output(only_output(graph, count), "count");
  verify(graph);
  const std::vector<int64_t> pads = {1, 0, 2, 0};
  graph.replace_uses(graph.find_value("by"),
                     graph.add_constant("pads", Tensor::of<int64_t>(DataType::kI64, {4}, pads)));
  graph.refine();
  EXPECT_EQ(to_string(graph.value(padded).type(), graph.sizes()), "f32[N + 3,3]");
  EXPECT_THAT(to_string(graph), HasSubstr("count = SizeTensor() elements=[N + 4]"));
  verify(graph);
  // Now nothing but the input is needed to write it.
  graph.replace_output(0, graph.find_value("x"));
  graph.erase_unused();
  EXPECT_THAT(names_in_order(graph), ElementsAre("count"));
}

TEST(SizeDependencies, ABodyNeedsTheFinderOutside) {
  Graph graph = parse_graph(R"g(
graph g(mask: bool[4,5], c: bool[])
  body yes(k: bool[])
    return k
  end
  found = NonZero(mask)
  picked = If(c, c) then_body=0 else_body=0
  return picked
)g");
  const Size size = graph.value(graph.find_value("found")).type().shape[1];
  Graph& body = graph.bodies()[0];
  body.mark_output(
      only_output(body, body.add({.name = "count", .op = SizeTensor{{size}}, .inputs = {}})),
      "count");
  const LayerId picked = graph.value(graph.find_value("picked")).producer;
  const LayerId both = graph.add(
      {.name = "both", .op = graph.layer(picked).op, .inputs = graph.layer(picked).inputs});
  graph.replace_output(0, graph.layer(both).outputs[0]);
  graph.mark_output(graph.layer(both).outputs[1], "count");
  graph.erase_unused();
  EXPECT_THAT(names_in_order(graph), ElementsAre("found", "both"));
  verify(graph);
}

TEST(SizeDependencies, VerifyRefusesASizeThatNobodyFinds) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DataType::kF32, {graph.sizes().symbol("N")}});
  graph.mark_output(x, "x");
  const LayerId count =
      graph.add({.name = "count", .op = SizeTensor{{graph.sizes().symbol("lost")}}, .inputs = {}});
  graph.mark_output(only_output(graph, count), "count");
  EXPECT_THAT(error_of([&] { verify(graph); }),
              HasSubstr("layer \"count\" (SizeTensor): no layer before it finds the size lost of "
                        "its elements"));
}

}  // namespace
}  // namespace anneal
