// The steps that a graph's layers become in a plan, and that the engine's results equal those of
// the reference.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/optimizer/random_graph.h"

namespace anneal::testing {

using StepsByOp = std::map<std::string, size_t>;

// Transfers count under their own name.
inline StepsByOp steps_by_op(const Plan& plan) {
  StepsByOp steps;
  for (const Step& step : plan.steps)
    ++steps[std::string(step.kernel == kTransfer ? kTransfer : to_string(step.op))];
  return steps;
}

inline void expect_steps(const Graph& graph, const std::string& target, const StepsByOp& expected,
                         const BuilderParts& without = {}) {
  GraphBuildOptions options;
  options.without = without;
  options.targets = {target};
  const EngineFile file = build(graph.clone(), options);
  EXPECT_EQ(steps_by_op(file.plans[0]), expected) << to_string(file.plans[0]);

  const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
  const auto engine = make_engine(load_engine_file(*bytes, bytes), {.device = target});
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = random_inputs(graph, 1);
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine->inputs()[i].name, inputs[i].view());
  context.run();
  const std::vector<float> got = elements(context.output(graph.outputs()[0].name));
  const std::vector<float> want = elements(evaluate(graph, inputs)[0].view());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-3 * (1 + std::abs(want[i]))) << i;
}

}  // namespace anneal::testing
