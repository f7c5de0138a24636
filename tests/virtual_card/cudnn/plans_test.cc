// Heuristics, plans and their JSON in the fake cuDNN, without a card.
#include <gmock/gmock.h>

#include <cstdlib>

#include "anneal/tests/virtual_card/cudnn/refusals.h"

namespace anneal::fake_cudnn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Made graph_named(const std::string& name) {
  for (const RightGraph& right : right_graphs())
    if (right.name == name) return right.make(fake_library());
  ADD_FAILURE() << name;
  return right_graphs()[0].make(fake_library());
}

TEST(FakeCudnnPlans, TheNumberOfConfigurationsDependsOnThePattern) {
  const Made h100 = properties(fake_library());
  const auto count = [&](const std::string& name) {
    return configs_of(heuristics(graph_named(name), &h100)).size();
  };
  EXPECT_EQ(count("convolution"), 8u);
  EXPECT_EQ(count("convolution, bias, ReLU"), 7u);
  EXPECT_EQ(count("product"), 3u);
  EXPECT_EQ(count("attention"), 2u);
  const Made a100 = properties(fake_library(), property_text(800));
  EXPECT_THAT(configs_of(heuristics(graph_named("convolution, bias, ReLU"), &a100)), SizeIs(6));
  EXPECT_THAT(configs_of(heuristics(graph_named("product"), &h100, CUDNN_HEUR_MODE_FALLBACK)),
              SizeIs(1));
}

TEST(FakeCudnnPlans, KeptKernelsNeedAlignedMemory) {
  const Library& l = fake_library();
  const Made h100 = properties(l);
  const auto of = [&](int64_t uid, const Sizes& dims) {
    return tensor(l, {.uid = uid,
                      .dims = dims,
                      .strides = channels_last(dims),
                      .type = CUDNN_DATA_HALF,
                      .alignment = 4});
  };
  const Made operation =
      convolution(of(1, {2, 8, 6, 6}), of(2, {16, 8, 3, 3}), of(3, {2, 16, 6, 6}), {});
  EXPECT_THAT(configs_of(heuristics(graph({&operation}), &h100)), SizeIs(3));
}

TEST(FakeCudnnPlans, WithoutADeviceOrAKernelThereAreNoneAndNoError) {
  const Library& l = fake_library();
  const Made alone = heuristics(graph_named("product"), nullptr);
  EXPECT_EQ(alone.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_THAT(configs_of(alone), IsEmpty());
  const Made x = tensor(l, {.uid = 1, .dims = {4, 4}}), y = tensor(l, {.uid = 2, .dims = {4, 4}});
  const Made relu = pointwise(CUDNN_POINTWISE_RELU_FWD, x, nullptr, y);
  const Made only = graph({&relu}), h100 = properties(l);
  const Made given = heuristics(only, &h100);
  EXPECT_EQ(given.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_THAT(configs_of(given), IsEmpty());
}

TEST(FakeCudnnPlans, EnginesHaveNotes) {
  const Made h100 = properties(fake_library());
  const auto configs = configs_of(heuristics(graph_named("convolution"), &h100));
  std::vector<std::vector<NumericalNote>> all;
  for (const Made& config : configs) {
    Made engine = engine_of(config);
    EXPECT_THAT(engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), SizeIs(1));
    all.push_back(engine.get<NumericalNote>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
    EXPECT_EQ(engine.status(), CUDNN_STATUS_SUCCESS) << engine.error();
  }
  EXPECT_THAT(all, Contains(Contains(CUDNN_NUMERICAL_NOTE_WINOGRAD)));
  EXPECT_THAT(all.back(), IsEmpty());
  Made compiled = engine_of(configs_of(heuristics(graph_named("attention"), &h100)).front());
  EXPECT_THAT(compiled.get<BehaviorNote>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE),
              ElementsAre(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION));
}

TEST(FakeCudnnPlans, AreSavedAndLoaded) {
  const Library& l = fake_library();
  const Made h100 = properties(l);
  for (const RightGraph& right : right_graphs())
    for (const Made& config : configs_of(heuristics(right.make(l), &h100))) {
      Made made = plan(config, &h100);
      ASSERT_EQ(made.status(), CUDNN_STATUS_SUCCESS) << made.error();
      const std::string json = json_of(made);
      Made loaded = loaded_plan(l, json, &h100);
      EXPECT_EQ(loaded.status(), CUDNN_STATUS_SUCCESS) << loaded.error();
      EXPECT_EQ(json_of(loaded), json);
      EXPECT_EQ(loaded.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE),
                made.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    }
}

TEST(FakeCudnnPlans, OfAnotherDeviceOrVersionAreRefused) {
  const Library& l = fake_library();
  const Made h100 = properties(l), a100 = properties(l, property_text(800));
  Made made = plan(configs_of(heuristics(graph_named("product"), &h100))[0], &h100);
  const std::string json = json_of(made);
  const Made elsewhere = loaded_plan(l, json, &a100);
  EXPECT_EQ(elsewhere.status(), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
  EXPECT_THAT(elsewhere.error(), HasSubstr("CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION"));
  EXPECT_EQ(loaded_plan(l, json, nullptr).status(), CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(loaded_plan(l, "{}", &h100).status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(loaded_plan(l, json.substr(0, json.size() / 2), &h100).status(),
            CUDNN_STATUS_BAD_PARAM);
  setenv("ANNEAL_FAKE_CUDNN_VERSION", "92000", 1);
  const Made later = loaded_plan(l, json, &h100);
  EXPECT_EQ(l.cudnnGetVersion(), 92000u);
  unsetenv("ANNEAL_FAKE_CUDNN_VERSION");
  EXPECT_EQ(later.status(), CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
  EXPECT_THAT(later.error(), HasSubstr("a plan of version 91900, the library is 92000"));
}

TEST(FakeCudnnPlans, AConfigurationOfAnotherGraphIsRefused) {
  const Library& l = fake_library();
  const Made h100 = properties(l), g = graph_named("product");
  Made engine(l, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g)
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, int64_t{10})
      .finalize();
  Made config(l, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine).finalize();
  EXPECT_EQ(config.status(), CUDNN_STATUS_SUCCESS) << config.error();
  const Made made = plan(config, &h100);
  EXPECT_EQ(made.status(), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(made.error(), HasSubstr("CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG"));
}

}  // namespace
}  // namespace anneal::fake_cudnn
