// Engines of several optimization profiles: each runs as an engine that was built for it alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "anneal/engine/plan.h"
#include "anneal/engine/profiles.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/refit/networks.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const NetworkForm kOpen{.batch = "N", .side = "S"};

Profile images(const Dims& least, const Dims& best, const Dims& most) {
  return {{{"image", least}}, {{"image", best}}, {{"image", most}}};
}

// Of one size, of a range, and of a range that has the others.
const std::vector<Profile> kThree = {
    images({1, 3, 12, 12}, {1, 3, 12, 12}, {1, 3, 12, 12}),
    images({1, 3, 8, 8}, {4, 3, 16, 16}, {8, 3, 16, 16}),
    images({1, 3, 4, 4}, {2, 3, 40, 40}, {64, 3, 40, 40}),
};
// Inputs for each, and the profile that takes them best.
const std::vector<std::pair<Dims, size_t>> kInputs = {
    {{1, 3, 12, 12}, 0}, {{2, 3, 12, 12}, 1}, {{8, 3, 16, 16}, 1}, {{9, 3, 16, 16}, 2},
    {{1, 3, 40, 40}, 2}, {{64, 3, 4, 4}, 2},  {{1, 3, 12, 12}, 0}, {{3, 3, 9, 9}, 1},
};

BuildOptions options_of(const std::vector<Profile>& profiles) {
  BuildOptions options;
  options.profiles = profiles;
  return options;
}

Tensor image(const Dims& dims, unsigned seed) {
  return Tensor::of<float>(DataType::kF32, dims, drawn(seed, static_cast<size_t>(count(dims))));
}

std::vector<float> run(ExecutionContext& context, const Tensor& input) {
  context.set_input("image", input.view());
  context.run();
  const auto scores = context.output("scores").span<float>();
  return {scores.begin(), scores.end()};
}

TEST(Profiles, RunAsEnginesOfTheirOwn) {
  const Bytes bytes = model(kOld, kOpen);
  for (const std::string& target : {std::string("cpu"), std::string("emulated")}) {
    BuildOptions options = options_of(kThree);
    options.targets = {target};
    const BuiltEngine all = build_engine(bytes, options);
    ASSERT_EQ(all.report.plans.size(), 3u);
    ExecutionContext context(Engine::load(all.bytes, nullptr, {.device = target}));
    std::vector<std::unique_ptr<ExecutionContext>> alone;
    for (const Profile& profile : kThree) {
      options.profiles = {profile};
      alone.push_back(std::make_unique<ExecutionContext>(
          Engine::load(build_engine(bytes, options).bytes, nullptr, {.device = target})));
    }
    unsigned seed = 0;
    for (const auto& [dims, profile] : kInputs) {
      const Tensor input = image(dims, ++seed);
      EXPECT_EQ(run(context, input), run(*alone[profile], input)) << to_string(dims);
      EXPECT_EQ(plan_of(context).profile, profile) << to_string(dims);
    }
  }
}

TEST(Profiles, StoreWeightsOnce) {
  const Bytes bytes = model(kOld, kOpen);
  BuildOptions options = options_of(kThree);
  options.pack_weights = true;
  const EngineFile all = load_engine_file(build_engine(bytes, options).bytes, nullptr);
  std::vector<size_t> weights, packed;
  for (const Profile& profile : kThree) {
    options.profiles = {profile};
    const EngineFile one = load_engine_file(build_engine(bytes, options).bytes, nullptr);
    weights.push_back(one.weights.size());
    packed.push_back(one.packed.size());
  }
  // Kernels of other sizes may read a weight in another form.
  EXPECT_LE(all.weights.size(), *std::ranges::max_element(weights) + 1);
  EXPECT_GE(all.weights.size(), *std::ranges::max_element(weights));
  EXPECT_LT(all.packed.size(), packed[0] + packed[1] + packed[2]);
}

TEST(Profiles, TheOneThatIsNamedRuns) {
  const auto engine =
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr);
  ExecutionContext context(engine, {.profile = 2});
  const Tensor input = image({1, 3, 12, 12}, 1);
  run(context, input);
  EXPECT_EQ(plan_of(context).profile, 2u);
  ExecutionContext small(engine, {.profile = 0});
  small.set_input("image", image({2, 3, 12, 12}, 1).view());
  EXPECT_THAT(error_of([&] { small.run(); }), HasSubstr("image"));
  EXPECT_THAT(error_of([&] { ExecutionContext(engine, {.profile = 3}); }),
              HasSubstr("there is no profile 3: this engine has 3, counted from 0"));
  EXPECT_THAT(error_of([&] { ExecutionContext(engine, {.profile = -2}); }),
              HasSubstr("profile is -2"));
}

TEST(Profiles, ShapesThatNoneTakesAreRefused) {
  const BuildOptions options = options_of({images({1, 3, 8, 8}, {1, 3, 8, 8}, {4, 3, 8, 8}),
                                           images({1, 3, 16, 16}, {1, 3, 16, 16}, {1, 3, 32, 32})});
  ExecutionContext context(Engine::load(build_engine(model(kOld, kOpen), options).bytes, nullptr));
  const Tensor input = image({4, 3, 16, 16}, 1);
  context.set_input("image", input.view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              AllOf(HasSubstr("no profile of this engine takes inputs of these shapes"),
                    HasSubstr("input \"image\" [4,3,16,16]"),
                    HasSubstr("[1,3,8,8] to [4,3,8,8], [1,3,16,16] to [1,3,32,32]")));
  // Beyond the largest of all profiles.
  EXPECT_THAT(error_of([&] {
                context.set_input("image", image({5, 3, 8, 8}, 1).view());
              }),
              HasSubstr("from [1,3,8,8] to [4,3,32,32]"));
  EXPECT_EQ(run(context, image({1, 3, 20, 20}, 1)).size(), 10u) << "after a refusal";
}

TEST(Profiles, InputsAreThoseOfAllProfiles) {
  const auto engine =
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr);
  const TensorInfo& input = engine->inputs()[0];
  EXPECT_EQ(input.dims, (Dims{-1, 3, -1, -1}));
  EXPECT_EQ(input.min_dims, (Dims{1, 3, 4, 4}));
  EXPECT_EQ(input.max_dims, (Dims{64, 3, 40, 40}));
  EXPECT_THAT(input.dim_names, ElementsAre("N", "3", "S", "S"));
  EXPECT_EQ(engine->outputs()[0].dims, (Dims{-1, 10}));
}

TEST(Profiles, MemoryOfOthersIsFreedAtTheLimit) {
  const auto engine =
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr);
  const Tensor large = image({64, 3, 40, 40}, 1), small = image({8, 3, 16, 16}, 2);
  ExecutionContext alone(engine, {.profile = 2});
  const std::vector<float> expected = run(alone, large);
  // Enough for the largest shape, and not for the others beside it.
  ExecutionContext context(engine, {.max_memory = alone.memory_bytes() + 1000});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(run(context, large), expected);
    run(context, small);
    EXPECT_LE(context.memory_bytes(), alone.memory_bytes() + 1000);
  }
}

TEST(Profiles, TheNamedOneDecidesSizesThatAreLeftOut) {
  const auto engine =
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr);
  ExecutionContext(engine, {.profile = 0}).prepare({});
  EXPECT_THAT(error_of([&] { ExecutionContext(engine, {.profile = 1}).prepare({}); }),
              HasSubstr("no shape is given for input \"image\""));
}

TEST(Profiles, KeepMemoryThatTheApplicationSet) {
  ExecutionContext context(
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr));
  std::vector<float> scores(20);
  for (int round = 0; round < 3; ++round) {
    const auto seed = static_cast<unsigned>(round);
    // The memory of a switch is that of the last call, also if the other profile saw another.
    run(context, image({1, 3, 12, 12}, seed));
    const Tensor two = image({2, 3, 12, 12}, seed + 50);
    context.set_input("image", two.view());
    context.set_output("scores", view(scores, {2, 10}));
    context.run();
    EXPECT_EQ(context.output("scores").data, reinterpret_cast<std::byte*>(scores.data()));
    context.set_output("scores", TensorView());
    ExecutionContext fresh(
        Engine::load(build_engine(model(kOld, kOpen), options_of({kThree[1]})).bytes, nullptr));
    EXPECT_EQ(run(fresh, two), scores);
  }
}

TEST(Profiles, ResultsEndWhenInputsChange) {
  ExecutionContext context(
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr));
  run(context, image({1, 3, 12, 12}, 1));
  const Tensor other = image({2, 3, 12, 12}, 2);
  context.set_input("image", other.view());
  EXPECT_THAT(error_of([&] { context.output("scores"); }), HasSubstr("has no value yet"));
  EXPECT_EQ(context.output_dims("scores"), (Dims{2, 10}));
  EXPECT_THAT(error_of([&] { context.output("scores"); }), HasSubstr("has no value yet"));
  const std::vector<InputShape> shapes = {{"image", {64, 3, 40, 40}}};
  context.run();
  context.prepare(shapes);
  EXPECT_THAT(error_of([&] { context.output("scores"); }), HasSubstr("has no value yet"));
}

TEST(Profiles, RefitGivesTheEngineThatABuildGives) {
  for (const std::set<Precision>& types : {std::set<Precision>{}, {Precision::kF16}}) {
    BuildOptions options = options_of(kThree);
    options.precision.types = types;
    options.self_check.run = false;
    const Bytes old = build_engine(model(kOld, kOpen), options).bytes;
    EXPECT_TRUE(refit_engine(old, model(kNew, kOpen)).bytes ==
                build_engine(model(kNew, kOpen), options).bytes);
  }
}

size_t eight_bit_weights(const Bytes& bytes) {
  const EngineFile file = load_engine_file(bytes, nullptr);
  return static_cast<size_t>(std::ranges::count(
      file.weights, DataType::kI8, [](const Tensor& weight) { return weight.dtype(); }));
}

TEST(Profiles, WeightsApartStayApart) {
  BuildOptions options = options_of(kThree);
  options.weights_path = "anything";  // calls in memory write no file
  const BuiltEngine old = build_engine(model(kOld, kOpen), options);
  ASSERT_FALSE(old.weights.empty());
  BuildOptions refitting;
  refitting.weights_path = "anything";
  const BuiltEngine refitted = refit_engine(old.bytes, model(kNew, kOpen), refitting);
  EXPECT_TRUE(refitted.bytes == old.bytes) << "the engine stays, and only its weights change";
  const BuiltEngine built = build_engine(model(kNew, kOpen), options);
  EXPECT_TRUE(refitted.weights == built.weights);
  EXPECT_FALSE(refitted.weights == old.weights);
}

TEST(Profiles, ShareRangesOfOneCalibration) {
  BuildOptions options = options_of({images({1, 3, 12, 12}, {1, 3, 12, 12}, {1, 3, 12, 12}),
                                     images({1, 3, 8, 8}, {2, 3, 12, 12}, {4, 3, 16, 16})});
  options.precision.types = {Precision::kI8};
  options.calibration.samples = samples(8);
  const BuiltEngine built = build_engine(model(kOld, kOpen), options);
  EXPECT_TRUE(built.report.self_check.is_compared) << built.report.self_check.outcome;
  EXPECT_GT(eight_bit_weights(built.bytes), 0u);
  EXPECT_THAT(error_of([&] { tune(model(kOld, kOpen), samples(8), nullptr, options); }),
              HasSubstr("2 profiles: tune() measures one"));
}

TEST(Profiles, ALayerThatOneGivesBackToF32IsF32InAll) {
  // The first is too much work to compare; the second finds the range that is far too small.
  BuildOptions options = options_of({images({64, 3, 40, 40}, {64, 3, 40, 40}, {64, 3, 40, 40}),
                                     images({1, 3, 8, 8}, {1, 3, 8, 8}, {1, 3, 8, 8})});
  options.precision.types = {Precision::kI8};
  options.self_check.most_work = 2e7;
  CalibrationTable bad = calibrate(model(kOld, kOpen), samples(8), options).table;
  bad.layers.clear();
  bad.tensors.at("r1").max = 1e-3F;
  options.precision.ranges = bad;
  const BuiltEngine built = build_engine(model(kOld, kOpen), options);
  const auto& back = built.report.self_check.back_to_f32;
  ASSERT_FALSE(back.empty()) << built.report.self_check.outcome;
  for (const BuildPlan& plan : built.report.plans)
    EXPECT_TRUE(std::ranges::any_of(plan.decisions,
                                    [&](const BuildDecision& decision) {
                                      return decision.subject == back[0].name &&
                                             decision.text.starts_with("goes back to f32");
                                    }))
        << "profile " << plan.profile;
  // The refit builds with the precisions that the recipe keeps: the same bytes.
  EXPECT_TRUE(refit_engine(built.bytes, model(kOld, kOpen)).bytes == built.bytes);
}

TEST(Profiles, OutputsOfOtherRanksAreRefused) {
  ModelBuilder squeezed;
  squeezed.input("x", {"N", "4"});
  squeezed.node("Squeeze", {"x"}, {"y"}, "squeeze");
  squeezed.output("y");
  const auto fixed = [](const Dims& dims) { return Profile{.opt = {{"x", dims}}}; };
  EXPECT_THAT(error_of([&] {
                build_engine(squeezed.bytes(), options_of({fixed({1, 4}), fixed({7, 4})}));
              }),
              HasSubstr("output \"y\" is of rank 1 in profile 0 and of rank 2 in profile 1"));
}

TEST(Profiles, DifferInSizesAlone) {
  EXPECT_THAT(
      error_of([&] {
        build_engine(model(kOld, kOpen), options_of({kThree[0], images({1, 3}, {1, 3}, {1, 3})}));
      }),
      HasSubstr("shapes of \"image\": one profile has [1,3,12,12], another [1,3]"));
  const Bytes built = build_engine(model(kOld, kOpen), options_of(kThree)).bytes;
  const auto damaged = [&](const std::function<void(EngineFile&)>& damage) {
    EngineFile file = load_engine_file(built, nullptr);
    damage(file);
    const Bytes bytes = save(file);
    return error_of([&] { load_engine_file(bytes, nullptr); });
  };
  EXPECT_THAT(damaged([](EngineFile& file) { file.plans[2].profile = 1; }),
              HasSubstr("the plan for cpu, profile 1: its number is taken twice"));
  BuildOptions two = options_of({kThree[0], kThree[1]});
  two.targets = {"cpu", "cpu:avx2"};
  const Bytes in_order = build_engine(model(kOld, kOpen), two).bytes;
  EngineFile file = load_engine_file(in_order, nullptr);
  std::swap(file.plans[1], file.plans[2]);
  const Bytes swapped = save(file);
  EXPECT_THAT(error_of([&] { load_engine_file(swapped, nullptr); }),
              HasSubstr("it is not among the plans of its profile"));
  EXPECT_THAT(damaged([](EngineFile& file) { file.plans.erase(file.plans.begin()); }),
              HasSubstr("profile 1"));
  EXPECT_THAT(damaged([](EngineFile& file) {
                Plan& plan = file.plans[1];
                plan.slots[plan.inputs[0]].name = "picture";
              }),
              HasSubstr("\"picture\" is no input or output of the others"));
  EXPECT_THAT(damaged([](EngineFile& file) { file.plans[1].devices.push_back("cpu"); }),
              HasSubstr("it is for other devices"));
}

TEST(Profiles, ObserversAndTimesAreOfThePlanThatRuns) {
  const auto engine =
      Engine::load(build_engine(model(kOld, kOpen), options_of(kThree)).bytes, nullptr);
  ExecutionContext context(engine);
  const Tensor small = image({1, 3, 12, 12}, 1), large = image({30, 3, 40, 40}, 2);
  for (const Tensor* input : {&small, &large, &small}) {
    context.set_input("image", input->view());
    EXPECT_EQ(context.profile().size(), plan_of(context).steps.size());
  }
}

TEST(Profiles, AreChosenByTheirLargestInputs) {
  const std::vector<ProfileRange> ranges = {
      {{{1, 4}}, {{8, 64}}, 512}, {{{1, 4}}, {{8, 16}}, 128}, {{{1, 16}}, {{8, 16}}, 128}};
  const auto chosen = [&](const Dims& dims) {
    const std::vector<std::optional<Dims>> wanted = {dims};
    return choose_profile(ranges, wanted);
  };
  EXPECT_EQ(chosen({1, 16}), 1u) << "of equals the first";
  EXPECT_EQ(chosen({1, 17}), 0u);
  EXPECT_EQ(chosen({9, 16}), std::nullopt);
  EXPECT_EQ(chosen({4}), std::nullopt) << "of another rank";
  const std::vector<std::optional<Dims>> any = {std::nullopt};
  EXPECT_EQ(choose_profile(ranges, any), 1u);
}

}  // namespace
}  // namespace anneal::testing
