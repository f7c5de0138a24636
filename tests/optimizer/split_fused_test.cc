// Fused layers are taken apart again, and the results are the same to the bit.
#include "anneal/optimizer/split_fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// After all passes, for targets that take every layer.
Graph optimized(std::string_view text) {
  Graph graph = parse_graph(text);
  PassOptions options;
  options.ask_targets = [](const Graph&, const NewLayer&) { return std::string(); };
  run_pipeline(graph, default_pipeline(), options);
  return graph;
}

std::vector<std::string> ops_of(const Graph& graph) {
  std::vector<std::string> ops;
  for (const LayerId id : graph.order()) ops.emplace_back(to_string(graph.layer(id).op));
  return ops;
}

std::vector<Tensor> results(const Graph& graph, const std::vector<Tensor>& inputs) {
  return evaluate(graph, inputs);
}

bool all(const std::string&) { return true; }

TEST(SplitFused, MergedSiblingsBecomeOneForEachOutput) {
  Graph graph = optimized(kInceptionBlock);
  const std::vector<Tensor> inputs = {random_f32({1, 24, 9, 7}, 1)};
  const std::vector<Tensor> before = results(graph, inputs);
  const auto split = split_fused(graph, all);
  verify(graph);
  EXPECT_EQ(results(graph, inputs), before);
  // Three convolutions of one input were merged; the others have epilogues.
  ASSERT_THAT(split, SizeIs(4));
  const auto siblings =
      std::ranges::find(split, 3u, [](const SplitLayer& each) { return each.parts.size(); });
  ASSERT_NE(siblings, split.end());
  EXPECT_THAT(siblings->parts,
              ElementsAre(siblings->layer, siblings->layer + "/part1", siblings->layer + "/part2"));
  for (const LayerId id : graph.layers()) {
    const Layer& layer = graph.layer(id);
    if (const auto* conv = std::get_if<Conv>(&layer.op)) {
      EXPECT_THAT(conv->split, IsEmpty());
    }
  }
  // What was siblings has its epilogue still.
  EXPECT_THAT(split_fused(graph, all), SizeIs(3));
}

TEST(SplitFused, AnEpilogueBecomesAPointwise) {
  constexpr std::string_view kNet = R"txt(
graph net(x: f32[5,16], r: f32[5,8])
  const w: f32[16,8] = random(1)
  const b: f32[8] = random(2)
  m = MatMul(x, w)
  s = Pointwise(m, b) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  y = Pointwise(s, r) program="(f32,f32)->(f32) add($0,$1)"
  return y
)txt";
  Graph graph = optimized(kNet);
  ASSERT_THAT(ops_of(graph), ElementsAre("MatMul"));
  const std::vector<Tensor> inputs = {random_f32({5, 16}, 1), random_f32({5, 8}, 2)};
  const std::vector<Tensor> before = results(graph, inputs);
  EXPECT_THAT(split_fused(graph, [](const std::string& name) { return name == "other"; }),
              IsEmpty());
  const auto split = split_fused(graph, all);
  verify(graph);
  ASSERT_EQ(split.size(), 1u);
  EXPECT_THAT(split[0].parts, ElementsAre(split[0].layer + "/product", split[0].layer));
  EXPECT_THAT(ops_of(graph), ElementsAre("MatMul", "Pointwise"));
  EXPECT_EQ(results(graph, inputs), before);
  EXPECT_THAT(split_fused(graph, all), IsEmpty());
}

}  // namespace
}  // namespace anneal::testing
