// From an ONNX model to an engine, by the public interface in C++ and C.
#include "anneal/engine/onnx/onnx_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "anneal/core/file.h"
#include "anneal/core/files/temporary_folder.h"
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
  std::vector<std::string> warnings = build_engine(kModel, options).report.warnings;
  // A CPU without VNNI has one more.
  std::erase_if(warnings, [](const std::string& warning) {
    return warning.starts_with("cpu has no VNNI here, so int8 may be as slow as f32");
  });
  EXPECT_THAT(warnings,
              testing::ElementsAre(HasSubstr("set calibration.samples or precision.ranges")));
}

TEST(OnnxBuilder, BestIsWhatTheTargetsComputeFaster) {
  const auto bytes = [](std::set<Precision> types, bool best, const std::string& target,
                        bool with_samples = false) {
    BuildOptions options;
    options.targets = {target};
    options.precision.types = std::move(types);
    options.precision.best = best;
    if (with_samples) options.calibration.samples = images(8);
    return build_engine(kModel, options).bytes;
  };
  const auto f16 = bytes({Precision::kF16}, false, "emulated");
  EXPECT_EQ(bytes({}, true, "emulated"), f16);
  EXPECT_EQ(bytes({Precision::kBF16}, true, "emulated"),
            bytes({Precision::kBF16}, false, "emulated"));
  EXPECT_EQ(bytes({}, true, "emulated", true),
            bytes({Precision::kF16, Precision::kI8}, false, "emulated", true));
  BuildOptions plain;
  plain.targets = {"cpu:baseline"};
  plain.precision.best = true;
  const BuiltEngine built = build_engine(kModel, plain);
  EXPECT_THAT(built.report.warnings,
              testing::ElementsAre(HasSubstr("the best precision is f32 for cpu:baseline")));
  EXPECT_EQ(built.bytes, bytes({}, false, "cpu:baseline"));
}

TEST(OnnxBuilder, ComparesEngines) {
  const auto engine = [](const std::string& target, bool f16 = false) {
    BuildOptions options;
    options.targets = {target};
    if (f16) options.precision.types = {Precision::kF16};
    return Engine::load(build_engine(kModel, options).bytes, nullptr,
                        {.device = target == "reference" ? "cpu" : target});
  };
  const auto a = engine("cpu"), reference = engine("reference");
  const auto sample = images(1)->read(0);
  for (const auto& inputs : {sample, std::vector<SampleTensor>{}}) {
    const std::string same = compare_engines(a, reference, inputs);
    EXPECT_THAT(same, HasSubstr("\"first_diverging\":null"));
    EXPECT_THAT(same, HasSubstr("\"is_output\":true"));
    EXPECT_THAT(same, HasSubstr(".reference\""));
    EXPECT_THAT(same, testing::Not(HasSubstr("\"agrees\":false")));
  }
  EXPECT_THAT(compare_engines(engine("emulated", true), reference, sample),
              HasSubstr("\"first_diverging\":null"))
      << "of f16";
  EXPECT_THAT(compare_engines(a, reference, sample, 1, 0, 0), HasSubstr("\"agrees\":false"));
  EXPECT_THAT(error_of([&] { compare_engines(a, nullptr); }), HasSubstr("null"));
  EXPECT_THAT(error_of([&] {
                compare_engines(a, a, {{"no", sample[0].tensor}});
              }),
              HasSubstr("there is no input \"no\"; there are image"));
  EXPECT_THAT(error_of([&] {
                compare_engines(a, a, {sample[0], sample[0]});
              }),
              HasSubstr("given twice"));
  BuildOptions both;
  both.targets = {"reference", "cpu"};
  EXPECT_THAT(error_of([&] { build_engine(kModel, both); }), HasSubstr("alone"));
}

TEST(OnnxBuilder, AProfileIsByNameOrOfTheOnlyInput) {
  BuildOptions named, only;
  named.profiles = {{.min = {{"image", {1, 1, 32, 32}}}, .max = {{"image", {8, 1, 32, 32}}}}};
  only.profiles = {{.min = {{"", {1, 1, 32, 32}}}, .max = {{"", {8, 1, 32, 32}}}}};
  const BuiltEngine built = build_engine(kModel, named);
  EXPECT_EQ(build_engine(kModel, only).bytes, built.bytes);
  const auto engine = Engine::load(built.bytes, nullptr, {.device = "cpu"});
  EXPECT_EQ(engine->inputs()[0].max_dims[0], 8);
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

TEST(OnnxBuilder, RefusesNumbersOutOfRange) {
  const double nan = std::nan("");
  const auto error = [](const BuildOptions& options) {
    return error_of([&] { build_engine(kModel, options); });
  };
  BuildOptions options;
  options.precision.max_layer_error = static_cast<float>(nan);
  EXPECT_THAT(error(options), HasSubstr("precision.max_layer_error is nan"));
  options = {};
  options.self_check.most_work = -1;
  EXPECT_THAT(error(options), HasSubstr("self_check.most_work is -1"));
  options = {};
  options.tuning.budget = nan;
  EXPECT_THAT(error(options), HasSubstr("tuning.budget is nan"));
  options = {};
  options.tuning.most_groups = 0;
  EXPECT_THAT(error(options), HasSubstr("tuning.most_groups is 0"));
  options = {};
  options.calibration.method = static_cast<RangeMethod>(99);
  EXPECT_THAT(error(options), HasSubstr("calibration.method is no RangeMethod"));
  options = {};
  options.calibration.equalize = static_cast<FitChoice>(99);
  EXPECT_THAT(error(options), HasSubstr("calibration.equalize is no FitChoice"));
  options = {};
  options.precision.types = {static_cast<Precision>(99)};
  EXPECT_THAT(error(options), HasSubstr("precision.types has 99, which is no Precision"));
  options = {};
  options.precision.layers = {{".*", static_cast<Precision>(99)}};
  EXPECT_THAT(error(options), HasSubstr("precision.layers has 99"));
  const char* const no_path = nullptr;
  EXPECT_THAT(error_of([&] { build_engine(no_path); }), HasSubstr("invalid_model"));
}

TEST(OnnxBuilder, ErrorsOfRangesNameTheInput) {
  const auto refused = [](const Profile& profile) -> std::pair<std::string, int64_t> {
    BuildOptions options;
    options.profiles = {profile};
    try {
      build_engine(kModel, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return {error.port(), error.dims().empty() ? 0 : error.dims()[0]};
    }
    return {};
  };
  const Dims four{4, 1, 32, 32}, two{2, 1, 32, 32}, flat{2, 1024};
  const auto is_of = [](const char* port, int64_t batch) {
    return testing::Pair(std::string(port), batch);
  };
  EXPECT_THAT(refused({.min = {{"image", four}}, .max = {{"image", two}}}), is_of("image", 2));
  EXPECT_THAT(refused({.opt = {{"image", flat}}}), is_of("image", 2));
  EXPECT_THAT(refused({.opt = {{"picture", four}}}), is_of("picture", 4));
}

TEST(OnnxBuilder, TheLogGetsStepsAndWarnings) {
  std::string told;
  BuildOptions options;
  options.log = [&](Severity severity, std::string_view text) {
    told.append(severity == Severity::kWarning ? "warning: " : "info: ").append(text).append("\n");
  };
  options.precision.types = {Precision::kI8};
  int reported = 0;
  options.progress = [&](const Progress&) { return ++reported > 0; };
  build_engine(kModel, options);
  EXPECT_THAT(told, testing::AllOf(HasSubstr("info: importing the model\n"),
                                   HasSubstr("info: choosing kernels for cpu\n"),
                                   HasSubstr("warning: int8 is allowed, but no layer")));
  EXPECT_GT(reported, 0);
  told.clear();
  calibrate(kModel, images(2), options);
  EXPECT_THAT(told, HasSubstr("info: calibrating: "));
}

TEST(OnnxBuilder, TheModelIsNoPlaceForItsEngine) {
  const std::string path = file_in_temp("anneal_own_model_");
  fs::copy_file(kModel, path);
  const std::string wanted = "the engine would replace the model";
  EXPECT_THAT(error_of([&] { build_engine(path, path); }), HasSubstr(wanted));
  EXPECT_THAT(error_of([&] { tune(path, images(20), make_metric("cosine"), path); }),
              HasSubstr(wanted));
  EXPECT_EQ(read_file(path).bytes.size(), read_file(kModel).bytes.size());
  fs::remove(path);
}

TEST(OnnxBuilder, AMetricHasANumberForEverySampleInF32) {
  BuildOptions options;
  options.tuning.modelled_times = true;
  const auto judge = [](const Answer& answer) { return answer.sample == "3" ? std::nan("") : 1.; };
  EXPECT_THAT(error_of([&] { tune(kModel, images(20), mean_metric("m", "", judge), options); }),
              testing::AllOf(HasSubstr("the metric m gives no number"), HasSubstr("\"3\"")));
}

TEST(OnnxBuilder, SamplesMayBeInMemory) {
  std::vector<std::vector<SampleTensor>> samples;
  for (int64_t i = 0; i < 4; ++i) samples.push_back(images(4)->read(i));
  EXPECT_EQ(to_string(calibrate(kModel, make_dataset(samples)).table),
            to_string(calibrate(kModel, images(4)).table));
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
  FrontierPoint foreign;
  foreign.name = "foreign";
  EXPECT_THAT(error_of([&] { precision_of(tuned.frontier, foreign); }),
              HasSubstr("the point \"foreign\" has precisions for 0 groups"));
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
  // Errors about a range have its input and sizes.
  range.name = "image";
  range.max[0] = 0;
  EXPECT_TRUE(build().empty());
  EXPECT_EQ(error_.code, ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.port, "image");
  EXPECT_EQ(error_.rank, 4);
  range.rank = 9;
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("ranges of \"image\": a rank of 9"));
  EXPECT_STREQ(error_.port, "image");
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

TEST_F(CBuilder, TakesTheBestPrecision) {
  options_.int8 = 0;
  options_.best = 1;
  options_.targets = "emulated";
  BuildOptions options;
  options.targets = {"emulated"};
  options.precision.types = {Precision::kF16, Precision::kI8};
  options.calibration.samples = images(8);
  EXPECT_EQ(build(), build_engine(kModel, options).bytes) << error_.message;
}

TEST_F(CBuilder, StoresWeightsInIntegers) {
  options_.int8 = 0;
  options_.sample_count = 0;
  options_.weight_format = "int4:16";
  BuildOptions options;
  options.precision.weight_format = "int4:16";
  EXPECT_EQ(build(), build_engine(kModel, options).bytes) << error_.message;
  EXPECT_LT(build().size(), build_engine(kModel).bytes.size());
  options_.weight_format = "int5";
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("weight format \"int5\""));
}

TEST_F(CBuilder, ChoosesKernelsByTimes) {
  options_.int8 = 0;
  options_.sample_count = 0;
  const TemporaryFolder folder("anneal-c-times");
  const std::string times = folder.path() + "/cpu.times";
  options_.time_kernels = 1;
  options_.timing_cache = times.c_str();
  options_.optimization_level = 1;
  const std::vector<std::byte> built = build();
  EXPECT_FALSE(built.empty()) << error_.message;
  EXPECT_TRUE(std::filesystem::exists(times));
  // All times are in the file now.
  options_.time_kernels = 0;
  EXPECT_EQ(build(), built);
  BuildOptions options;
  options.timing_cache = times;
  EXPECT_EQ(build_engine(kModel, options).bytes, built);
  for (const int64_t level : {-1, 6}) {
    options_.optimization_level = level;
    EXPECT_TRUE(build().empty());
    EXPECT_THAT(error_.message, HasSubstr("give 1 to 5"));
  }
}

TEST_F(CBuilder, ReadsStates) {
  options_.states = "image=scores";
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("\"image=scores\": the output is f32"));
  options_.states = "h=next,past.*=present.*";
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("\"h=next\": the model has no such input"));
  options_.states = "image=scores,h";
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("the state \"h\" is not INPUT=OUTPUT"));
  options_.states = "image=scores,image=h";
  EXPECT_TRUE(build().empty());
  EXPECT_THAT(error_.message, HasSubstr("the input \"image\" has two states"));
}

// A program of an older header has a shorter struct.
TEST_F(CBuilder, TakesAShorterStruct) {
  options_.size = offsetof(anneal_build_options, fp16);
  EXPECT_EQ(build(), build_engine(kModel).bytes) << error_.message;
}

TEST_F(CBuilder, LogsAndReadsLibraries) {
  std::string told;
  options_.log = [](void* argument, anneal_severity severity, const char* text) {
    if (severity == ANNEAL_INFO) *static_cast<std::string*>(argument) += text;
  };
  options_.log_argument = &told;
  EXPECT_FALSE(build().empty());
  EXPECT_THAT(told, HasSubstr("importing the model"));
  options_.library_count = 1;
  EXPECT_TRUE(build().empty());
  EXPECT_EQ(error_.code, ANNEAL_INVALID_ARGUMENT);
  const char* const libraries[] = {"/nowhere/k.so"};
  options_.libraries = libraries;
  EXPECT_TRUE(build().empty());
  EXPECT_EQ(error_.code, ANNEAL_IO);
  EXPECT_THAT(error_.message, HasSubstr("/nowhere/k.so"));
}

TEST_F(CBuilder, IsCancelledByItsProgress) {
  options_.progress = [](void*, const char*, double) -> int32_t { return 1; };
  EXPECT_TRUE(build().empty());
  EXPECT_EQ(error_.code, ANNEAL_CANCELLED);
}

}  // namespace
}  // namespace anneal
