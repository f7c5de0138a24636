// From an ONNX model to an engine, by the public interface in C++ and C.
#include "anneal/engine/onnx/onnx_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "anneal/core/file.h"
#include "anneal/engine/onnx/c_builder.h"
#include "anneal/engine/run/engine.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kModel = "samples/glyphs/glyphs.onnx";

std::vector<std::byte> model_bytes() {
  const FileBytes file = read_file(kModel);
  return {file.bytes.begin(), file.bytes.end()};
}

void draw(int64_t i, std::span<float> pixels) {
  std::mt19937 random(static_cast<unsigned>(i));
  std::uniform_real_distribution<float> uniform;
  for (float& pixel : pixels) pixel = uniform(random);
}

std::shared_ptr<const Dataset> images(int64_t count) {
  return make_dataset(count, [](int64_t i) {
    std::vector<float> pixels(32 * 32);
    draw(i, pixels);
    return std::vector<SampleTensor>{
        {"image", Tensor::of<float>(DataType::kF32, {1, 1, 32, 32}, pixels)}};
  });
}

std::string file_in_temp(const std::string& name) {
  return (fs::temp_directory_path() / (name + std::to_string(::getpid()))).string();
}

TEST(OnnxBuilder, FromAPathAndFromMemoryItIsTheSame) {
  const std::string path = file_in_temp("anneal_onnx_builder_");
  const BuiltEngine built = build_engine(model_bytes());
  const BuildReport report = build_engine(kModel, path);
  const FileBytes file = read_file(path);
  EXPECT_EQ(built.bytes, std::vector<std::byte>(file.bytes.begin(), file.bytes.end()));
  EXPECT_EQ(report.engine_bytes, built.bytes.size());
  EXPECT_EQ(report.plans.at(0).steps.size(), built.report.plans.at(0).steps.size());
  EXPECT_GT(report.plans.at(0).run_bytes, 0u);
  EXPECT_FALSE(report.passes.empty());
  EXPECT_EQ(onnx_inputs(kModel).at(0).name, "image");
  EXPECT_EQ(onnx_inputs(model_bytes()).at(0).dims, onnx_inputs(kModel).at(0).dims);
  fs::remove(path);
}

TEST(OnnxBuilder, CalibratesInTheBuildAsInACall) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  options.calibration.samples = images(8);
  const BuiltEngine built = build_engine(kModel, options);
  bool is_int8 = false;
  for (const BuildDecision& decision : built.report.plans[0].decisions)
    is_int8 |= decision.text.find("int8") != std::string::npos;
  EXPECT_TRUE(is_int8);
  const Calibration found = calibrate(model_bytes(), options.calibration.samples, options);
  EXPECT_EQ(found.table.samples, 8);
  options.precision.ranges = found.table;
  EXPECT_EQ(build_engine(kModel, options).bytes, built.bytes);
  options.precision.ranges = {};
  options.calibration.samples = nullptr;
  EXPECT_THAT(build_engine(kModel, options).report.warnings,
              testing::ElementsAre(HasSubstr("set calibration.samples or precision.ranges")));
}

TEST(OnnxBuilder, AProfileIsByNameOrOfTheOnlyInput) {
  BuildOptions named, only;
  named.profiles = {{.min = {{"image", {1, 1, 32, 32}}}, .max = {{"image", {8, 1, 32, 32}}}}};
  only.profiles = {{.min = {{"", {1, 1, 32, 32}}}, .max = {{"", {8, 1, 32, 32}}}}};
  const BuiltEngine built = build_engine(kModel, named);
  EXPECT_EQ(build_engine(kModel, only).bytes, built.bytes);
  const auto engine = Engine::load(built.bytes, nullptr, {.device = "cpu"});
  EXPECT_EQ(engine->inputs()[0].max_dims[0], 8);
  named.profiles.push_back({});
  EXPECT_THAT(error_of([&] { build_engine(kModel, named); }),
              testing::AllOf(testing::StartsWith("unsupported"), HasSubstr("2 profiles")));
}

TEST(OnnxBuilder, ProgressGrowsAndCancels) {
  BuildOptions options;
  double last = 0;
  int told = 0;
  options.progress = [&](const Progress& at) {
    EXPECT_GE(at.share, last);
    EXPECT_LE(at.share, 1);
    last = at.share;
    return ++told < 20;
  };
  const std::string path = file_in_temp("anneal_cancelled_");
  EXPECT_THAT(error_of([&] { build_engine(kModel, path, options); }),
              testing::StartsWith("cancelled"));
  EXPECT_EQ(told, 20);
  EXPECT_FALSE(fs::exists(path));
}

TEST(OnnxBuilder, TunesInMemory) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  options.tuning.budget = 100;
  options.tuning.modelled_times = true;
  options.tuning.most_groups = 2;
  const TunedEngine tuned = tune(kModel, images(20), make_metric("cosine"), options);
  EXPECT_FALSE(tuned.frontier.points.empty());
  EXPECT_FALSE(tuned.was_resumed);
  BuildOptions again;
  again.precision = precision_of(tuned.frontier, tuned.frontier.points[tuned.frontier.chosen]);
  again.self_check.run = false;
  EXPECT_EQ(build_engine(kModel, again).bytes, tuned.bytes);
  EXPECT_THAT(error_of([&] { tune(kModel, images(20), nullptr, options); }),
              HasSubstr("tuning needs a metric"));
  EXPECT_THAT(error_of([&] { tune(kModel, nullptr, make_metric("cosine"), options); }),
              HasSubstr("the dataset is null"));
}

int32_t read_image(void* argument, int64_t i, const char* input, const anneal_tensor* memory) {
  EXPECT_STREQ(input, "image");
  EXPECT_EQ(memory->rank, 4);
  draw(i, {static_cast<float*>(memory->data), 32 * 32});
  return i < *static_cast<int64_t*>(argument) ? 0 : 1;
}

class CBuilder : public testing::Test {
 protected:
  int64_t readable_ = 8;
  anneal_error error_ = {};
  anneal_build_options options_ = {};
  void SetUp() override {
    error_.size = sizeof(error_);
    options_.size = sizeof(options_);
    options_.int8 = 1;
    options_.sample_count = 8;
    options_.read_sample = read_image;
    options_.sample_argument = &readable_;
  }
  std::vector<std::byte> build() {
    const auto model = model_bytes();
    void* engine = nullptr;
    uint64_t bytes = 0;
    if (anneal_build_memory(model.data(), model.size(), &options_, &engine, &bytes, &error_) != 0)
      return {};
    const auto* at = static_cast<const std::byte*>(engine);
    std::vector<std::byte> built(at, at + bytes);
    anneal_build_free(engine);
    return built;
  }
};

TEST_F(CBuilder, BuildsWithCalibrationAsCppDoes) {
  BuildOptions options;
  options.precision.types = {Precision::kI8};
  options.calibration.samples = images(8);
  EXPECT_EQ(build(), build_engine(kModel, options).bytes) << error_.message;
  anneal_input_range range = {};
  range.size = sizeof(range);
  range.rank = 4;
  for (auto* dims : {range.min, range.opt, range.max})
    for (int axis = 0; axis < 4; ++axis) dims[axis] = axis < 2 ? 1 : 32;
  range.max[0] = 8;
  options_.ranges = &range;
  options_.range_count = 1;
  options.profiles = {{.opt = {{"", {1, 1, 32, 32}}}, .max = {{"", {8, 1, 32, 32}}}}};
  EXPECT_EQ(build(), build_engine(kModel, options).bytes) << error_.message;
}

TEST_F(CBuilder, RefusesWhatItCannotRead) {
  readable_ = 3;
  EXPECT_TRUE(build().empty());
  EXPECT_EQ(error_.code, ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("read_sample failed for sample"));
  options_.sample_count = 0;
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("int8 needs samples"));
  options_.size = 0;
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("set size to sizeof(anneal_build_options)"));
  EXPECT_EQ(anneal_build("no.onnx", "x.engine", nullptr, &error_), ANNEAL_IO);
  EXPECT_EQ(anneal_build(nullptr, "x.engine", nullptr, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(anneal_build("no.onnx", "x.engine", nullptr, nullptr), ANNEAL_IO);
}

// A program of an older header has a shorter struct.
TEST_F(CBuilder, TakesAShorterStruct) {
  options_.size = offsetof(anneal_build_options, fp16);
  EXPECT_EQ(build(), build_engine(kModel).bytes) << error_.message;
}

TEST_F(CBuilder, IsCancelledByItsProgress) {
  options_.progress = [](void*, const char*, double) -> int32_t { return 1; };
  EXPECT_TRUE(build().empty());
  EXPECT_EQ(error_.code, ANNEAL_CANCELLED);
}

}  // namespace
}  // namespace anneal
