// Operators of libraries of kernels in half precision, on the emulated device, and of a library
// that was compiled with an older header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/tests/engine/custom/custom_models.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CustomKernel, ReducedPrecisionsKeepItsTypes) {
  ModelBuilder model;
  model.input("x", {"8", "64"}).output("y");
  model.floats("w", {64, 64}, std::vector<float>(64 * 64, 0.01F));
  model.node("MatMul", {"x", "w"}, {"product"});
  auto& node = custom_node(model, "Scale", {"product"}, {"scaled"});
  set(node, "alpha", 2.0F);
  model.node("MatMul", {"scaled", "w"}, {"y"});
  GraphBuildOptions options = options_for("emulated");
  options.passes.precision.types = {Precision::kF16};
  const EngineFile file = build(imported(model), options);
  bool has_half = false;
  for (const Step& step : file.plans[0].steps) {
    const auto dtype = [&](uint32_t slot) { return file.plans[0].slots[slot].type.dtype; };
    for (const uint32_t slot : step.inputs) has_half |= dtype(slot) == DataType::kF16;
    if (!std::holds_alternative<Custom>(step.op)) continue;
    EXPECT_EQ(dtype(step.inputs[0]), DataType::kF32);
    EXPECT_EQ(dtype(step.outputs[0]), DataType::kF32);
  }
  EXPECT_TRUE(has_half);
}

// MatMul, the operator, MatMul; results are near x, times 2.
ModelBuilder between_products(const std::string& op, bool only_f32 = false) {
  ModelBuilder model;
  model.input("x", {"8", "64"}).output("y");
  std::vector<float> identity(64 * 64, 0);
  for (size_t i = 0; i < 64; ++i) identity[i * 65] = 1;
  model.floats("w", {64, 64}, identity);
  model.node("MatMul", {"x", "w"}, {"product"});
  auto& node = custom_node(model, op, {"product"}, {"made"}, "node1");
  if (only_f32) set(node, "only_f32", int64_t{1});
  model.node("MatMul", {"made", "w"}, {"y"});
  return model;
}

// On the emulated device, which computes in both types, as a GPU does; without CUDA source it is
// the CPU that runs the operator.
TEST(CustomKernel, AKernelForHalfPrecisionGetsIt) {
  struct Expected {
    const char* op;
    Precision precision;
    bool only_f32;
    anneal_dtype dtype;
  };
  for (const Expected& each :
       {Expected{"Half", Precision::kF16, false, ANNEAL_F16},
        {"HalfOnCpu", Precision::kF16, false, ANNEAL_F16},
        {"HalfOnCpu", Precision::kBF16, false, ANNEAL_BF16},
        {"Half", Precision::kBF16, false, ANNEAL_F32},   // it takes f16 alone
        {"Half", Precision::kF16, true, ANNEAL_F32}}) {  // create() refuses it
    GraphBuildOptions options = options_for("emulated");
    options.passes.precision.types = {each.precision};
    const EngineFile file = build(imported(between_products(each.op, each.only_f32)), options);
    for (const Step& step : file.plans[0].steps) {
      if (!std::holds_alternative<Custom>(step.op)) continue;
      const auto dtype = [&](uint32_t slot) { return file.plans[0].slots[slot].type.dtype; };
      EXPECT_EQ(dtype(step.inputs[0]), static_cast<DataType>(each.dtype)) << each.op;
      EXPECT_EQ(dtype(step.outputs[0]), static_cast<DataType>(each.dtype)) << each.op;
    }
    const auto engine = loaded(file, "emulated");
    ExecutionContext context(engine);
    std::vector<float> values;
    for (int i = 0; i < 8 * 64; ++i) values.push_back(1 + static_cast<float>(i) / 512);
    const Tensor x = Tensor::of<float>(DataType::kF32, {8, 64}, values);
    kernel_record().run_dtype = 0;
    const std::vector<float> y = run_one(context, x);
    EXPECT_EQ(kernel_record().run_dtype, each.dtype) << each.op;
    // Two roundings to 8 bits at the most.
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(y[i], 2 * values[i],
                  2 * values[i] * (each.precision == Precision::kF16 ? 2e-3 : 1.2e-2));
  }
}

// An f32 that a comparison reads, or that leaves the model, is not made a half.
TEST(CustomKernel, AKernelForHalfPrecisionStaysF32WhereItsResultMust) {
  ModelBuilder model;
  model.input("x", {"8", "64"}).output("made");
  model.floats("w", {64, 64}, std::vector<float>(64 * 64, 0.01F));
  model.node("MatMul", {"x", "w"}, {"product"});
  custom_node(model, "Half", {"product"}, {"made"}, "node1");
  GraphBuildOptions options = options_for("emulated");
  options.passes.precision.types = {Precision::kF16};
  const EngineFile file = build(imported(model), options);
  for (const Step& step : file.plans[0].steps) {
    if (!std::holds_alternative<Custom>(step.op)) continue;
    EXPECT_EQ(file.plans[0].slots[step.inputs[0]].type.dtype, DataType::kF32);
  }
}

TEST(CustomKernel, AKernelThatRefusesHalfPrecisionStaysF32) {
  GraphBuildOptions options = options_for("emulated");
  options.passes.precision.types = {Precision::kF16};
  const EngineFile file = build(imported(between_products("Promises")), options);
  for (const Step& step : file.plans[0].steps) {
    if (!std::holds_alternative<Custom>(step.op)) continue;
    EXPECT_EQ(file.plans[0].slots[step.inputs[0]].type.dtype, DataType::kF32);
  }
  std::string why;
  for (const Decision& decision : file.plans[0].decisions)
    if (decision.subject == "node1" && decision.stage == "assign_precision") why = decision.text;
  EXPECT_THAT(why, HasSubstr("infer() of test.Promises says: only f32"));
}

// It was compiled with the first header, whose structs are shorter.
TEST(CustomKernel, AnOldLibraryRunsToday) {
  const std::string path = FROZEN_LIBRARY;
  const CustomOperators operators = load_kernel_libraries({&path, 1});
  ModelBuilder model;
  model.input("x", {"3", "4"}).output("y");
  custom_node(model, "Double", {"x"}, {"y"}, "node1").set_domain("frozen");
  for (const char* target : {"cpu", "emulated"}) {
    const auto engine =
        loaded(build(imported(model, operators), options_for(target)), target, operators);
    ExecutionContext context(engine);
    const Tensor x = tensor({3, 4});
    EXPECT_EQ(run_one(context, x), mapped(x, [](float value) { return 2 * value; })) << target;
  }
}

TEST(CustomKernel, ALibraryThatIsGivenTwiceIsWarnedOf) {
  ModelBuilder model;
  model.input("x", {"3", "4"}).output("y");
  custom_node(model, "Double", {"x"}, {"y"}, "node1").set_domain("frozen");
  const std::vector<std::byte> bytes = model.bytes();
  std::vector<std::string> logged;
  BuildOptions options;
  options.libraries = {FROZEN_LIBRARY, FROZEN_LIBRARY};
  options.log = [&](Severity severity, std::string_view text) {
    if (severity == Severity::kWarning) logged.emplace_back(text);
  };
  const auto says = ElementsAre(
      AllOf(HasSubstr("frozen.Double"), HasSubstr("\"frozen_kernels\" (version 1) is")));
  const BuiltEngine built = build_engine(OnnxModel(bytes), options);
  EXPECT_THAT(built.report.warnings, says);
  EXPECT_THAT(logged, says);
  const auto engine =
      Engine::load(built.bytes, nullptr, {.device = "cpu", .libraries = options.libraries});
  EXPECT_THAT(engine->load_warnings(), says);
}

TEST(CustomKernel, SeveralLaunchesShareAWorkspace) {
  for (const char* rows : {"300", "N"}) {
    const auto engine = engine_of(one_node("Total", rows), "emulated");
    EXPECT_THAT(kernels_of(*engine), Contains("cuda.custom.library"));
    ExecutionContext context(engine);
    for (const int64_t count : {int64_t{300}, int64_t{300}, int64_t{*rows == 'N' ? 7 : 300}}) {
      const std::vector<float> ones(static_cast<size_t>(count * 4), 0.5F);
      const std::vector<float> y =
          run_one(context, Tensor::of<float>(DataType::kF32, {count, 4}, ones));
      for (const float each : y) ASSERT_FLOAT_EQ(each, 1.0F / static_cast<float>(count * 4));
    }
  }
  const auto endless = engine_of(one_node("Endless"), "emulated");
  EXPECT_THAT(error_of([&] {
                ExecutionContext context(endless);
                run_one(context, tensor({3, 4}));
              }),
              AllOf(HasSubstr("test.Endless"), HasSubstr("1048576 launches")));
}

// The emulated device stands for a GPU; a card has never run this.
TEST(CustomKernel, TheEmulatedDeviceRunsTheCudaSource) {
  for (const char* rows : {"300", "N"}) {
    ModelBuilder model = scale_model(rows);
    const auto engine = engine_of(model, "emulated");
    EXPECT_THAT(kernels_of(*engine), Contains("cuda.custom.library"));
    ExecutionContext context(engine);
    for (int run = 0; run < 3; ++run) {
      const Tensor x = tensor({300, 4});
      EXPECT_EQ(run_one(context, x), mapped(x, scaled)) << rows;
    }
  }
}

TEST(CustomKernel, WithoutCudaSourceTheCpuRunsIt) {
  ModelBuilder model;
  model.input("x", {"3", "4"}).output("y");
  model.node("Neg", {"x"}, {"negative"});
  custom_node(model, "ScaleOnCpu", {"negative"}, {"scaled"}, "node1");
  model.node("Neg", {"scaled"}, {"y"});
  const EngineFile file = build(imported(model), options_for("emulated"));
  std::string why;
  for (const Decision& decision : file.plans[0].decisions)
    if (decision.stage == kFallback && decision.subject == "node1") why = decision.text;
  EXPECT_THAT(why, AllOf(HasSubstr("Custom runs on cpu"),
                         HasSubstr("library \"test_kernels\" has no CUDA source for "
                                   "test.ScaleOnCpu")));
  const auto engine = loaded(file, "emulated");
  ExecutionContext context(engine);
  const Tensor x = tensor({3, 4});
  EXPECT_EQ(run_one(context, x), mapped(x, [](float value) { return value; }));
  GraphBuildOptions strict = options_for("emulated");
  strict.allow_fallback = false;
  EXPECT_THAT(error_of([&] { build(imported(model), strict); }), HasSubstr("node1"));
}

TEST(CustomKernel, LaunchesAreChecked) {
  ModelBuilder model = one_node("TooManyThreads");
  const auto engine = engine_of(model, "emulated");
  EXPECT_THAT(error_of([&] {
                ExecutionContext context(engine);
                run_one(context, tensor({3, 4}));
              }),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("test.TooManyThreads"),
                    HasSubstr("2048x1x1 threads")));
}

}  // namespace
}  // namespace anneal::testing
