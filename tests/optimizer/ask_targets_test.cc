// What targets say of a joined layer decides whether it is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kGraph = R"txt(
graph g(x: f32[5,6], i: i64[3], w: f32[6,4])
  a = Gather(x, i)
  b = Pointwise(a) program="(f32)->(f32) exp($0)"
  c = MatMul(b, w)
  d = Pointwise(c) program="(f32)->(f32) tanh($0)"
  return d
)txt";

std::vector<PassRecord> run(Graph& graph, AskTargets ask, std::string pass = "fuse_epilogue") {
  PassOptions options;
  options.only = {std::move(pass)};
  options.ask_targets = std::move(ask);
  return run_pipeline(graph, default_pipeline(), options);
}

bool has_epilogue(const NewLayer& layer) { return !layer.epilogues.empty(); }

TEST(AskTargets, UnaskedOnlyWhatComputesTakesAnEpilogue) {
  Graph graph = parse_graph(kGraph);
  run(graph, {});
  EXPECT_EQ(graph.layer_count(), 3u);
}

TEST(AskTargets, WelcomeOnesAreJoined) {
  Graph graph = parse_graph(kGraph);
  run(graph, [](const Graph&, const NewLayer&) { return std::string(); });
  EXPECT_EQ(graph.layer_count(), 2u);
}

TEST(AskTargets, ARefusalIsRecordedWithItsReason) {
  Graph graph = parse_graph(kGraph);
  const auto records = run(graph, [](const Graph&, const NewLayer& layer) {
    return std::holds_alternative<Gather>(layer.op) && has_epilogue(layer) ? "cpu: an epilogue"
                                                                           : std::string();
  });
  EXPECT_EQ(graph.layer_count(), 3u);
  bool told = false;
  for (const PassRecord& record : records)
    if (record.subject == "a" && record.refused) {
      told = true;
      EXPECT_THAT(record.text, HasSubstr("not joined with \"b\": cpu: an epilogue"));
    }
  EXPECT_TRUE(told);
}

// A product without a kernel of its own is no worse off with an epilogue; what moves elements on a
// reference kernel would interpret it.
TEST(AskTargets, OfWhatHasNoKernelAnywayOnlyWhatComputesIsJoined) {
  Graph graph = parse_graph(kGraph);
  run(graph, [](const Graph&, const NewLayer&) { return std::string("no kernel at all"); });
  EXPECT_EQ(graph.layer_count(), 3u);
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    EXPECT_EQ(layer.epilogues.empty(), !std::holds_alternative<MatMul>(layer.op)) << layer.name;
  }
}

// The second group is large, so its parts are erased at once, and with them what the first group
// had merged in vain. The third group has the weights of the first.
TEST(AskTargets, WeightsOfARefusedLayerMayBeMergedAgain) {
  Graph graph = parse_graph(R"txt(
graph g(p: f32[2,64], q: f32[2,512], r: f32[2,64])
  const w: f32[64,64] = random(1)
  const v: f32[64,64] = random(2)
  const t: f32[512,512] = random(3)
  const u: f32[512,512] = random(4)
  a = MatMul(p, w)
  b = MatMul(p, v)
  c = MatMul(q, t)
  d = MatMul(q, u)
  e = MatMul(r, w)
  f = MatMul(r, v)
  return a, b, c, d, e, f
)txt");
  run(
      graph,
      [](const Graph&, const NewLayer& layer) {
        return layer.name == "a" ? "no kernel" : std::string();
      },
      "merge_siblings");
  EXPECT_EQ(graph.layer_count(), 4u);
}

}  // namespace
}  // namespace anneal
