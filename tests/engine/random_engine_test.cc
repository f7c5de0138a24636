// Random graphs as engines: with and without passes they give what the reference gives.
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/optimizer/random_graph.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

constexpr uint32_t kGraphs = 600, kShards = 6;

struct Case {
  std::vector<Tensor> inputs, want;
};

// f32 outputs only: half precision is kept in f32 between layers on a CPU, and rounded at ports.
void expect_results(const Graph& graph, const Engine& engine, ExecutionContext& context,
                    const Case& each) {
  const auto& [inputs, want] = each;
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine.inputs()[i].name, inputs[i].view());
  context.run();
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<float> got = elements(context.output(graph.outputs()[i].name));
    const std::vector<float> expected = elements(want[i].view());
    ASSERT_EQ(got.size(), expected.size());
    float largest = 1;
    for (const float value : expected)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (size_t e = 0; e < expected.size(); ++e) {
      const bool equal = got[e] == expected[e] || (std::isnan(got[e]) && std::isnan(expected[e]));
      ASSERT_TRUE(equal || std::abs(got[e] - expected[e]) <= 3e-4f * largest)
          << "output " << i << " at " << e << ": " << got[e] << " instead of " << expected[e]
          << "\n"
          << to_string(graph) << to_string(plan_of(engine));
    }
  }
}

class RandomEngines : public ::testing::TestWithParam<uint32_t> {
  WorkerBudget budget_{1};
};

TEST_P(RandomEngines, GiveWhatTheReferenceGives) {
  constexpr Flavour flavours[] = {Flavour::kTame, Flavour::kNonFinite, Flavour::kOpenSizes};
  for (uint32_t seed = GetParam(); seed < kGraphs; seed += kShards) {
    SCOPED_TRACE(seed);
    const Flavour flavour = flavours[seed / kShards % std::size(flavours)];
    const Graph graph = random_graph(seed, flavour);
    if (graph.value(graph.inputs()[0]).type().dtype != DataType::kF32) continue;
    std::vector<Case> cases;
    for (uint32_t binding = 0; binding < (flavour == Flavour::kOpenSizes ? 3 : 1); ++binding) {
      const std::vector<Tensor> inputs = random_inputs(graph, seed, flavour, binding);
      cases.push_back({inputs, evaluate(graph, inputs)});
    }
    GraphBuildOptions as_it_is;
    as_it_is.passes.rewrite_limit = 0;
    for (const GraphBuildOptions& options : {GraphBuildOptions(), as_it_is}) {
      const auto engine = engine_of(build(graph.clone(), options));
      ExecutionContext context(engine), row_by_row(engine, {.threads = 2, .micro_batch = 1});
      for (const Case& each : cases) {
        expect_results(graph, *engine, context, each);
        if (plan_of(*engine).batch_split) expect_results(graph, *engine, row_by_row, each);
      }
    }
    if (HasFatalFailure()) return;
  }
}

// Engines of fixed batches, in parts of one row, and of three and one.
TEST_P(RandomEngines, GiveTheSameOfPartsOfABatch) {
  int split = 0;
  for (uint32_t seed = GetParam(); seed < kGraphs; seed += kShards) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed, Flavour::kBatch);
    if (graph.value(graph.inputs()[0]).type().dtype != DataType::kF32) continue;
    const EngineFile file = build(graph.clone());
    const auto engine = engine_of(file);
    if (!file.plans[0].batch_split) continue;
    ++split;
    const std::vector<Tensor> inputs = random_inputs(graph, seed, Flavour::kBatch);
    const Case each = {inputs, evaluate(graph, inputs)};
    for (const int64_t micro_batch : {1, 3}) {
      ExecutionContext context(engine, {.threads = 2, .micro_batch = micro_batch});
      expect_results(graph, *engine, context, each);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(split, 20);
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomEngines, ::testing::Range(0u, kShards));

}  // namespace
}  // namespace anneal::testing
