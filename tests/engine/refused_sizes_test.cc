// Sizes that a model cannot have: the run refuses them, and says which inputs gave them.
#include <gmock/gmock.h>

#include "anneal/importer/importer.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Engine> engine_of_model(const ModelBuilder& model) {
  return engine_of(build(import_bytes(model.bytes(), "").graph, {}));
}

std::string error_for(ExecutionContext& context, const std::vector<Tensor>& inputs) {
  return error_of([&] {
    for (size_t i = 0; i < inputs.size(); ++i)
      context.set_input(i == 0 ? "x" : "y", inputs[i].view());
    context.run();
  });
}

TEST(RefusedSizes, ASizeThatFollowsFromALaterInput) {
  ModelBuilder model;
  model.input("x", {"m"}).input("y", {"n"}).output("z");
  set(model.node("Concat", {"x", "x"}, {"a"}), "axis", int64_t{0});
  set(model.node("Concat", {"y", "y", "y", "y"}, {"b"}), "axis", int64_t{0});
  model.node("Add", {"a", "b"}, {"z"});
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = random_f32({6}, 1), y = random_f32({3}, 2), wrong = random_f32({5}, 3);
  const auto z = run(context, *engine, {x, y}).at("z");
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(z[i], x.as<float>()[i % 6] + y.as<float>()[i % 3]);
  EXPECT_THAT(
      error_for(context, {wrong, y}),
      HasSubstr("input \"x\" has shape [5], the engine expects [2*n]: axis 0 is 5 instead of "
                "6: n is 3 in input \"y\""));
}

TEST(RefusedSizes, SizesThatNoSymbolSolves) {
  ModelBuilder model;
  model.input("x", {"1", "1", "s"}).output("z").floats("k", {1, 1, 3}, {1, 2, 3});
  auto& conv = model.node("Conv", {"x", "k"}, {"half"});
  set(conv, "strides", std::vector<int64_t>{2});
  set(conv, "pads", std::vector<int64_t>{1, 1});
  set(model.node("Concat", {"half", "half"}, {"whole"}), "axis", int64_t{2});
  set(model.node("Concat", {"whole", "x"}, {"both"}), "axis", int64_t{1});
  model.node("Abs", {"both"}, {"z"});
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  EXPECT_EQ(run(context, *engine, {random_f32({1, 1, 6}, 1)}).at("z").size(), 12);
  EXPECT_THAT(
      error_for(context, {random_f32({1, 1, 5}, 1)}),
      HasSubstr("the model requires the sizes 2*((s + 1)//2) and s to be equal, but they are 6 "
                "and 5: s is 5 in input \"x\""));
}

// The output of the convolution has the channels beside each other, and so a negative stride too.
TEST(RefusedSizes, AnInputSmallerThanTheWindow) {
  ModelBuilder model;
  model.input("x", {"1", "2", "s"}).output("z");
  model.floats("k", {2, 2, 4}, std::vector<float>(16, 1));
  model.node("Conv", {"x", "k"}, {"z"});
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  EXPECT_EQ(run(context, *engine, {random_f32({1, 2, 4}, 1)}).at("z").size(), 2);
  EXPECT_THAT(error_for(context, {random_f32({1, 2, 2}, 1)}),
              HasSubstr("dims [1,2,-1] have a negative size: an input is too small"));
}

// Concat with itself and Slice: each level has the size before it several times.
TEST(RefusedSizes, AnExpressionBeyondTheLimitIsFoundByTheRun) {
  ModelBuilder model;
  model.input("x", {"n"}).output("z");
  model.integers("first", {1}).integers("end", {100}).integers("axis", {0});
  std::string last = "x";
  for (int level = 0; level < 24; ++level) {
    const std::string both = "both" + std::to_string(level), cut = "cut" + std::to_string(level);
    set(model.node("Concat", {last, last}, {both}), "axis", int64_t{0});
    model.node("Slice", {both, "first", "end", "axis"}, {cut});
    last = cut;
  }
  model.node("Abs", {last}, {"z"});
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  EXPECT_EQ(run(context, *engine, {random_f32({3}, 1)}).at("z").size(), 99);
  EXPECT_EQ(run(context, *engine, {random_f32({1}, 1)}).at("z").size(), 1);
}

}  // namespace
}  // namespace anneal::testing
