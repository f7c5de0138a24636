// Well-known networks: what is left of their layers on the CPU and on a GPU target, and that the
// results stay.
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/optimizer/networks.h"
#include "anneal/tests/optimizer/random_graph.h"

namespace anneal::testing {
namespace {

struct Expected {
  const char* name;
  Graph (*make)();
  const char* target;
  std::map<std::string, size_t> steps;  // by op
};

std::map<std::string, size_t> steps_by_op(const Plan& plan) {
  std::map<std::string, size_t> steps;
  for (const Step& step : plan.steps)
    ++steps[step.kernel == kTransfer ? std::string(kTransfer) : std::string(name(step.op))];
  return steps;
}

class Networks : public ::testing::TestWithParam<Expected> {};

TEST_P(Networks, AreReducedToTheseSteps) {
  const Expected& expected = GetParam();
  const Graph graph = expected.make();
  BuildOptions options;
  options.targets = {expected.target};
  const EngineFile file = build(graph.clone(), options);
  EXPECT_EQ(steps_by_op(file.plans[0]), expected.steps) << to_text(file.plans[0]);

  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = random_inputs(graph, 1);
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine->inputs()[i].name, inputs[i].view());
  context.run();
  const std::vector<float> got = elements(context.output("y"));
  const std::vector<float> want = elements(evaluate(graph, inputs)[0].view());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-3 * (1 + std::abs(want[i]))) << i;
}

Graph bert2() { return bert(2); }

const Expected kExpected[] = {
    {"SqueezeNetCpu", squeezenet, "cpu", {{"Conv", 26}, {"Pool", 3}, {"Reduce", 1}}},
    {"GoogLeNetCpu", googlenet, "cpu", {{"Conv", 39}, {"MatMul", 1}, {"Pool", 13}, {"Reduce", 1}}},
    {"BertCpu", bert2, "cpu", {{"Attention", 2}, {"MatMul", 8}, {"Normalize", 4}}},
};

INSTANTIATE_TEST_SUITE_P(All, Networks, ::testing::ValuesIn(kExpected),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace anneal::testing
