// A wrong rule among the passes is found by name.
#include <gtest/gtest.h>

#include "anneal/cli/commands/bisect_command.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

// Drops the second input of every addition.
bool lose_addend(Graph& graph, PassRun& run) {
  return sweep(graph, run, [](Graph& graph, LayerId id, PassRun& run) {
    const Layer& layer = graph.layer(id);
    const auto* op = std::get_if<Pointwise>(&layer.op);
    if (!op || !(op->program == parse_program("(f32,f32)->(f32) add($0,$1)"))) return false;
    const std::string name = layer.name;
    graph.replace_uses(layer.outputs[0], layer.inputs[0]);
    run.did(name, "loses an addend");
    return true;
  });
}

TEST(Bisect, NamesAPlantedWrongRule) {
  const Graph graph = parse_graph(R"txt(
graph g(x: f32[2,8])
  const w: f32[8,4] = random(1)
  const b: f32[4] = random(2)
  m = MatMul(x, w)
  s = Pointwise(m, b) program="(f32,f32)->(f32) add($0,$1)"
  r = Reshape(s, i64{2, 4})
  y = Softmax(r) axis=1
  return y
)txt");
  std::vector<Pass> passes(default_pipeline().begin(), default_pipeline().end());
  BisectFlags flags;
  flags.model = "m.onnx";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(bisect(graph, flags, passes), kSuccess);
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("no rewrite does harm"),
            std::string::npos);

  // After the passes of shapes and constants, before those that fuse.
  const auto place = std::find_if(passes.begin(), passes.end(),
                                  [](const Pass& pass) { return pass.name == "remove_identity"; });
  ASSERT_NE(place, passes.end());
  passes.insert(place, {"lose_addend", "plants a fault", true, lose_addend});
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(bisect(graph, flags, passes), kDifferent);
  const std::string told = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(told.find("pass lose_addend, its rewrite 1 of 1"), std::string::npos) << told;
  EXPECT_NE(told.find("\"s\": loses an addend"), std::string::npos) << told;
  EXPECT_NE(told.find("s = Pointwise(m, b)"), std::string::npos) << told;
}

}  // namespace
}  // namespace anneal
