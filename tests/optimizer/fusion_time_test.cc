// Joining layers takes time in proportion to their number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

// Elementwise layers, each of which reads the one before it and a near one.
Graph braid(int layers) {
  Graph graph;
  std::vector<ValueId> values = {graph.add_input("x", {DataType::kF32, {8}})};
  ProgramBuilder builder;
  const Reg a = builder.input(0, DataType::kF32), b = builder.input(1, DataType::kF32);
  const Program program = builder.finish(builder.apply(Opcode::kMax, a, b), DataType::kF32);
  for (int i = 0; i < layers; ++i) {
    const size_t near = values.size() - 1 - std::min<size_t>(values.size() - 1, i * 7 % 11);
    const LayerId added = graph.add({.name = fmt::format("v{}", i),
                                     .op = Pointwise{program},
                                     .inputs = {values.back(), values[near]}});
    values.push_back(graph.layer(added).outputs[0]);
  }
  graph.mark_output(values.back(), "y");
  return graph;
}

double seconds_to_join(int layers) {
  Graph graph = braid(layers);
  const PassOptions options;
  PassRun run(options);
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(fuse_pointwise(graph, run));
  EXPECT_LT(graph.layer_count(), static_cast<size_t>(layers) / 8);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(FusionTime, IsLinear) {
  const double few = seconds_to_join(500), many = seconds_to_join(8000);
  EXPECT_LT(many, 80 * few);  // 16 times; it were 256 times if each join walked the graph
}

}  // namespace
}  // namespace anneal
