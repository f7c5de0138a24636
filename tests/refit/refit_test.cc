// refit_engine(): an engine with the weights of another model is the engine that a build of that
// model makes, and everything else is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "anneal/core/file.h"
#include "anneal/engine/builder/replay/plan_difference.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/refit/networks.h"

namespace anneal::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

EngineFile loaded(const Bytes& bytes) { return load_engine_file(bytes, nullptr); }

std::vector<float> results_of(const Bytes& engine_bytes) {
  const auto engine = Engine::load(engine_bytes, nullptr, {.device = "cpu"});
  ExecutionContext context(engine);
  const std::vector<float> image = drawn(7, 432);
  context.set_input("image", view(image, {1, 3, 12, 12}));
  context.run();
  const auto scores = context.output("scores").span<float>();
  return {scores.begin(), scores.end()};
}

// The same engine as the build makes, and another one than before.
BuildReport expect_as_built(const BuildOptions& options) {
  const Bytes old = build_engine(model(kOld), options).bytes;
  const BuiltEngine refitted = refit_engine(old, model(kNew));
  EXPECT_TRUE(refitted.bytes == build_engine(model(kNew), options).bytes);
  EXPECT_FALSE(refitted.bytes == old);
  EXPECT_TRUE(refit_engine(old, model(kOld)).bytes == old);
  return refitted.report;
}

TEST(Refit, GivesTheEngineThatABuildGives) {
  const BuildReport report = expect_as_built({});
  EXPECT_EQ(report.changed_weights, 6u);
  EXPECT_EQ(report.weights, 7u);  // the axes of the mean stay
  EXPECT_EQ(report.changed_literals, 0u);
  EXPECT_EQ(report.plans.size(), 1u);
  EXPECT_EQ(results_of(refit_engine(build_engine(model(kOld)).bytes, model(kNew)).bytes),
            results_of(build_engine(model(kNew)).bytes));
}

TEST(Refit, CountsTheWeightsThatChanged) {
  ModelBuilder one = network(kOld);
  const std::vector<float> bias = drawn(50, 32);
  for (auto& tensor : *one.graph().mutable_initializer())
    if (tensor.name() == "b2") std::ranges::copy(bias, tensor.mutable_float_data()->begin());
  const Bytes old = build_engine(model(kOld)).bytes;
  const BuiltEngine refitted = refit_engine(old, one.bytes());
  EXPECT_EQ(refitted.report.changed_weights, 1u);
  EXPECT_GT(refitted.report.weights, 1u);
  EXPECT_EQ(refit_engine(old, model(kOld)).report.changed_weights, 0u);
}

TEST(Refit, InSixteenBits) {
  for (const Precision half : {Precision::kF16, Precision::kBF16}) {
    BuildOptions options;
    options.precision.types = {half};
    options.self_check.run = false;
    expect_as_built(options);
  }
}

TEST(Refit, WithPackedWeights) {
  BuildOptions options;
  options.pack_weights = true;
  expect_as_built(options);
  EXPECT_FALSE(loaded(build_engine(model(kOld), options).bytes).packed.empty());
}

TEST(Refit, WithAnOpenBatch) {
  BuildOptions options;
  options.profiles = {{.min = {{"", {1, 3, 12, 12}}}, .max = {{"", {8, 3, 12, 12}}}}};
  const NetworkForm form{.batch = "N"};
  const Bytes old = build_engine(model(kOld, form), options).bytes;
  EXPECT_TRUE(refit_engine(old, model(kNew, form)).bytes ==
              build_engine(model(kNew, form), options).bytes);
}

TEST(Refit, WithOptionsThatChangeThePlan) {
  BuildOptions options;
  options.exact = true;
  options.skip_passes = {"fuse_epilogue"};
  options.targets = {"cpu:avx2", "cpu:baseline"};
  expect_as_built(options);
  options = {};
  options.only_passes = {"fold_constants", "fuse_pointwise"};
  options.skip_kernels = {"cpu.conv.winograd"};
  expect_as_built(options);
}

TEST(Refit, ForAGpu) {
  BuildOptions options;
  options.targets = {"emulated", "cpu"};
  expect_as_built(options);
}

// The functions are the same, so not even their machine code is made anew: a byte of it that
// nothing would compile is there again.
TEST(Refit, MachineCodeIsKept) {
  if (!cuda::nvrtc_library().table) GTEST_SKIP() << "NVRTC is not installed";
  BuildOptions options;
  options.targets = {"sm_90", "cpu"};
  const Bytes old = build_engine(model(kOld), options).bytes;
  EXPECT_TRUE(refit_engine(old, model(kNew)).bytes == build_engine(model(kNew), options).bytes);
  EngineFile marked = loaded(old);
  ASSERT_FALSE(marked.plans[0].code.empty());
  marked.plans[0].code.at(marked.plans[0].code.size() / 2) ^= std::byte{1};
  const Bytes refitted = refit_engine(save(marked), model(kNew)).bytes;
  EXPECT_TRUE(loaded(refitted).plans[0].code == marked.plans[0].code);
  EXPECT_FALSE(loaded(refit_engine(old, model(kNew)).bytes).plans[0].code == marked.plans[0].code);
  // Another literal is another text.
  const Bytes changed = model(kNew, {.slope = 0.3F});
  EXPECT_TRUE(refit_engine(old, changed).bytes == build_engine(changed, options).bytes);
}

TEST(Refit, ALiteralOfAProgramMayChange) {
  const Bytes old = build_engine(model(kOld)).bytes;
  const Bytes changed = model(kOld, {.slope = 0.3F});
  const BuiltEngine refitted = refit_engine(old, changed);
  EXPECT_GT(refitted.report.changed_literals, 0u);
  EXPECT_TRUE(refitted.bytes == build_engine(changed).bytes);
}

CalibrationTable table(unsigned seed, bool corrects_bias) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  options.calibration.correct_bias = corrects_bias ? FitChoice::kOn : FitChoice::kOff;
  return calibrate(model(seed), samples(8), options).table;
}

TEST(Refit, InEightBitsItKeepsTheRanges) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  options.self_check.run = false;
  options.precision.ranges = table(kOld, false);
  const Bytes old = build_engine(model(kOld), options).bytes;
  EXPECT_TRUE(refit_engine(old, model(kOld)).bytes == old);
  CalibrationTable of_any_model = *options.precision.ranges;
  of_any_model.fingerprint = 0;
  options.precision.ranges = of_any_model;
  const Bytes refitted = refit_engine(old, model(kNew)).bytes;
  EXPECT_TRUE(refitted == build_engine(model(kNew), options).bytes);
  // And once more.
  EXPECT_TRUE(refit_engine(refitted, model(kNew + 100)).bytes ==
              build_engine(model(kNew + 100), options).bytes);
}

TEST(Refit, CorrectionsOfBiasesAreOfTheOldWeights) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  options.self_check.run = false;
  options.precision.ranges = table(kOld, true);
  ASSERT_FALSE(options.precision.ranges->biases.empty());
  const Bytes old = build_engine(model(kOld), options).bytes;
  EXPECT_TRUE(refit_engine(old, model(kOld)).bytes == old);
  CalibrationTable without = *options.precision.ranges;
  without.fingerprint = 0;
  for (auto& [layer, bias] : without.biases) std::ranges::fill(bias, 0.0F);
  options.precision.ranges = without;
  EXPECT_TRUE(refit_engine(old, model(kNew)).bytes == build_engine(model(kNew), options).bytes);
}

TEST(Refit, LayersThatTheSelfCheckTookBackStayInF32) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  // A range that is far too small: the check takes the layer back.
  CalibrationTable bad = table(kOld, false);
  bad.layers.clear();
  ASSERT_TRUE(bad.tensors.contains("r1"));
  bad.tensors.at("r1").max = 1e-3F;
  options.precision.ranges = bad;
  const BuiltEngine old = build_engine(model(kOld), options);
  ASSERT_FALSE(old.report.self_check.back_to_f32.empty());
  EXPECT_TRUE(refit_engine(old.bytes, model(kOld)).bytes == old.bytes);
  const BuiltEngine refitted = refit_engine(old.bytes, model(kNew));
  EXPECT_EQ(refitted.report.self_check.back_to_f32.size(),
            old.report.self_check.back_to_f32.size());
  const Plan plan = loaded(refitted.bytes).plans[0];
  size_t back = 0, told = 0;
  for (const Decision& decision : plan.decisions) {
    back += decision.text.starts_with("goes back to f32");
    told += decision.text.find("refit replaced the weights") != std::string::npos;
  }
  EXPECT_EQ(back, old.report.self_check.back_to_f32.size());
  EXPECT_EQ(told, 1u);
}

// A line of a timing cache in which the slowest kernel is the fastest.
std::string with_slowest_first(const std::string& line) {
  size_t slowest = std::string::npos;
  double most = -1;
  for (size_t at = line.find('=', line.rfind('\t')); at != std::string::npos;
       at = line.find('=', at + 1)) {
    const double microseconds = std::strtod(line.c_str() + at + 1, nullptr);
    if (microseconds > most) most = microseconds, slowest = at;
  }
  if (slowest == std::string::npos) return line;
  const size_t end = line.find(' ', slowest);
  return line.substr(0, slowest) + "=0.01" + (end == std::string::npos ? "" : line.substr(end));
}

// Times that no machine measures choose kernels that the table does not.
TEST(Refit, KernelsThatWereChosenByTimeStay) {
  const std::string cache =
      (fs::temp_directory_path() / ("anneal_refit_times_" + std::to_string(::getpid()))).string();
  BuildOptions options;
  options.time_kernels = true;
  options.timing_cache = cache;
  options.threads = 1;
  build_engine(model(kOld), options);
  std::ifstream from(cache);
  std::string text, line;
  while (std::getline(from, line))
    text +=
        (line.find('\t') == std::string::npos || line.starts_with("#") ? line
                                                                       : with_slowest_first(line)) +
        "\n";
  from.close();
  std::ofstream(cache) << text;
  options.time_kernels = false;
  const Bytes old = build_engine(model(kOld), options).bytes;
  const Bytes timed = build_engine(model(kNew), options).bytes;
  fs::remove(cache);
  const auto kernels = [](const Bytes& bytes) {
    const EngineFile file = loaded(bytes);
    std::vector<std::string> names;
    for (const Step& step : file.plans[0].steps) names.push_back(step.kernel);
    return names;
  };
  EXPECT_NE(kernels(old), kernels(build_engine(model(kOld)).bytes));
  const Bytes refitted = refit_engine(old, model(kNew)).bytes;
  EXPECT_EQ(kernels(refitted), kernels(old));
  EXPECT_TRUE(refitted == timed);
}

std::string refusal(const Bytes& new_model) {
  static const Bytes old = build_engine(model(kOld)).bytes;
  return error_of([&] { refit_engine(old, new_model); });
}

TEST(Refit, RefusesOtherModelsByName) {
  EXPECT_THAT(refusal(model(kNew, {.input = "picture"})),
              AllOf(StartsWith("invalid_model"), HasSubstr("\"image\""), HasSubstr("\"picture\"")));
  EXPECT_THAT(
      refusal(model(kNew, {.side = "14"})),
      AllOf(StartsWith("invalid_model"), HasSubstr("f32[1,3,12,12]"), HasSubstr("f32[1,3,14,14]")));
  EXPECT_THAT(refusal(model(kNew, {.channels = 24})),
              AllOf(StartsWith("invalid_model"), HasSubstr("\"conv1\""), HasSubstr("f32[16,3,3,3]"),
                    HasSubstr("f32[24,3,3,3]"), HasSubstr("build an engine from this model")));
  EXPECT_THAT(refusal(model(kNew, {.has_extra_node = true})),
              AllOf(StartsWith("invalid_model"), HasSubstr("\"extra\"")));
  ModelBuilder renamed = network(kNew);
  renamed.graph().mutable_node(2)->set_name("other");
  EXPECT_THAT(refusal(renamed.bytes()),
              AllOf(StartsWith("invalid_model"), HasSubstr("conv2"), HasSubstr("other")));
  ModelBuilder other_op = network(kNew);
  other_op.graph().mutable_node(1)->set_op_type("Sigmoid");
  EXPECT_THAT(refusal(other_op.bytes()),
              AllOf(StartsWith("invalid_model"), HasSubstr("layer \"conv1\"")));
}

TEST(Refit, RefusesWrongFiles) {
  const Bytes old = build_engine(model(kOld)).bytes;
  EXPECT_THAT(error_of([&] { refit_engine(old, old); }),
              AllOf(StartsWith("invalid_model"), HasSubstr("is an engine")));
  EXPECT_THAT(error_of([&] { refit_engine(model(kOld), model(kNew)); }),
              AllOf(StartsWith("incompatible_plan"), HasSubstr("not an engine file")));
  EngineFile file = loaded(old);
  file.recipe = "";
  EXPECT_THAT(error_of([&] { refit_engine(save(file), model(kNew)); }),
              AllOf(StartsWith("incompatible_plan"), HasSubstr("no recipe")));
  for (const char* damaged : {"{", "[]", "{\"version\":2}", "{\"version\":1}", "null",
                              "{\"version\":1,\"targets\":[3]}"}) {
    file.recipe = damaged;
    EXPECT_THAT(error_of([&] { refit_engine(save(file), model(kNew)); }),
                AllOf(StartsWith("incompatible_plan"), HasSubstr("recipe is damaged")))
        << damaged;
  }
}

class NamedOperator final : public CustomOperator {
 public:
  NamedOperator() : CustomOperator({}) {}
  std::vector<Type> infer(const Custom&, const InferInputs&) const override { return {}; }
  const CustomKernels& kernels() const override { throw Error(ErrorCode::kInternal, "no kernels"); }
};

// Engine and model are read with a library each.
TEST(Refit, OperatorsOfLibrariesAreComparedByTheirNames) {
  const auto plan_of_version = [](int64_t version) {
    Plan plan;
    plan.steps.push_back({.name = "clip",
                          .op = Custom{.type = "SoftClip",
                                       .version = version,
                                       .definition = std::make_shared<const NamedOperator>()}});
    return plan;
  };
  EXPECT_EQ(plan_difference(plan_of_version(1), plan_of_version(1)), "");
  EXPECT_THAT(plan_difference(plan_of_version(1), plan_of_version(2)), HasSubstr("layer \"clip\""));
}

TEST(Refit, TheOutputMayBeTheEngine) {
  const fs::path folder =
      fs::temp_directory_path() / ("anneal_refit_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string engine = folder / "net.engine", onnx = folder / "new.onnx";
  write_file_atomically(onnx, model(kNew));
  write_file_atomically(engine, build_engine(model(kOld)).bytes);
  EXPECT_THAT(error_of([&] { refit_engine(engine, onnx, onnx); }),
              HasSubstr("would replace the model"));
  EXPECT_THAT(error_of([&] { refit_engine(engine, onnx, ""); }), HasSubstr("name a new engine"));
  const BuildReport report = refit_engine(engine, onnx, engine);
  const FileBytes bytes = read_file(engine);
  EXPECT_TRUE(std::ranges::equal(bytes.bytes, build_engine(model(kNew)).bytes));
  EXPECT_EQ(report.engine_bytes, bytes.bytes.size());
  // A model that does not fit does not change the engine.
  write_file_atomically(onnx, model(kNew, {.channels = 24}));
  EXPECT_THAT(error_of([&] { refit_engine(engine, onnx, engine); }), HasSubstr("does not fit"));
  EXPECT_TRUE(std::ranges::equal(read_file(engine).bytes, build_engine(model(kNew)).bytes));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace anneal::testing
