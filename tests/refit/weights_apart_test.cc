// Engines whose weights are in a file of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "anneal/core/bytes.h"
#include "anneal/core/file.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/refit/networks.h"

namespace anneal::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

BuildOptions apart() {
  BuildOptions options;
  options.weights_path = "anything";  // calls in memory write no file
  return options;
}

class WeightsApart : public ::testing::Test {
 protected:
  WeightsApart() { fs::create_directories(folder_); }
  ~WeightsApart() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const Bytes& bytes) const {
    write_file_atomically(path(name), bytes);
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("anneal_weights_apart_" + std::to_string(::getpid()));
};

std::vector<float> run(const std::shared_ptr<const Engine>& engine) {
  ExecutionContext context(engine);
  const std::vector<float> image = drawn(7, 432);
  context.set_input("image", view(image, {1, 3, 12, 12}));
  context.run();
  const auto scores = context.output("scores").span<float>();
  return {scores.begin(), scores.end()};
}

std::vector<float> results_of_build(unsigned seed) {
  return run(Engine::load(build_engine(model(seed)).bytes, nullptr, {.device = "cpu"}));
}

TEST_F(WeightsApart, OneEngineServesSeveralFilesOfWeights) {
  write("old.onnx", model(kOld));
  write("new.onnx", model(kNew));
  BuildOptions options;
  options.weights_path = path("old.weights");
  const BuildReport built = build_engine(path("old.onnx"), path("net.engine"), options);
  EXPECT_LT(built.engine_bytes, built.weight_bytes);
  options.weights_path = path("new.weights");
  const BuildReport report = refit_engine(path("net.engine"), path("new.onnx"), "", options);
  EXPECT_EQ(report.weights, report.changed_weights);
  for (const bool map : {true, false}) {
    const auto load = [&](const std::string& weights) {
      return Engine::load(path("net.engine"),
                          {.device = "cpu", .map = map, .weights = path(weights)});
    };
    EXPECT_EQ(run(load("old.weights")), results_of_build(kOld));
    EXPECT_EQ(run(load("new.weights")), results_of_build(kNew));
  }
  const FileBytes engine = read_file(path("net.engine"));
  EXPECT_EQ(run(Engine::load(engine.bytes, engine.owner,
                             {.device = "cpu", .weights = path("new.weights")})),
            results_of_build(kNew));
}

// Neither the model nor the engine is lost to a file of weights of the same name.
TEST_F(WeightsApart, AFileHasOneUse) {
  write("old.onnx", model(kOld));
  BuildOptions options;
  for (const std::string name : {"net.engine", "./net.engine", "old.onnx"}) {
    options.weights_path = path(name);
    EXPECT_THAT(error_of([&] { build_engine(path("old.onnx"), path("net.engine"), options); }),
                HasSubstr("the weights would replace the"));
    EXPECT_FALSE(fs::exists(path("net.engine")));
  }
  options.weights_path = path("old.weights");
  build_engine(path("old.onnx"), path("net.engine"), options);
  for (const std::string name : {"net.engine", "new.engine"}) {
    options.weights_path = path(name);
    EXPECT_THAT(error_of([&] {
                  refit_engine(path("net.engine"), path("old.onnx"), path("new.engine"), options);
                }),
                HasSubstr("the weights would replace the engine"));
  }
  EXPECT_EQ(read_file(path("old.onnx")).bytes.size(), model(kOld).size());
}

TEST_F(WeightsApart, InMemoryTheEngineStays) {
  const BuiltEngine old = build_engine(model(kOld), apart());
  ASSERT_FALSE(old.weights.empty());
  const BuiltEngine refitted = refit_engine(old.bytes, model(kNew), apart());
  EXPECT_TRUE(refitted.bytes == old.bytes);
  EXPECT_TRUE(refit_engine(old.bytes, model(kOld), apart()).weights == old.weights);
  write("new.weights", refitted.weights);
  EXPECT_EQ(
      run(Engine::load(old.bytes, nullptr, {.device = "cpu", .weights = path("new.weights")})),
      results_of_build(kNew));
}

TEST_F(WeightsApart, PackedWeightsAreInTheirFile) {
  BuildOptions options = apart();
  options.pack_weights = true;
  const BuiltEngine old = build_engine(model(kOld), options);
  const BuiltEngine refitted = refit_engine(old.bytes, model(kNew), options);
  write("new.weights", refitted.weights);
  const auto source = WeightsSource{WeightsSource::kApart, read_file(path("new.weights"))};
  const FileBytes engine{old.bytes, std::make_shared<int>()};
  EXPECT_FALSE(load_engine_file(engine.bytes, engine.owner, nullptr, {}, source).packed.empty());
  for (const bool map : {true, false})
    EXPECT_EQ(run(Engine::load(old.bytes, nullptr,
                               {.device = "cpu", .map = map, .weights = path("new.weights")})),
              results_of_build(kNew));
}

TEST_F(WeightsApart, WrongPairsAreRefused) {
  const BuiltEngine old = build_engine(model(kOld), apart());
  BuildOptions exact = apart();
  exact.exact = true;
  exact.skip_passes = {"fuse_epilogue"};
  const BuiltEngine other = build_engine(model(kOld), exact);
  const Bytes whole = build_engine(model(kOld)).bytes;
  write("old.weights", old.weights);
  write("other.weights", other.weights);
  write("whole.engine", whole);
  const auto error = [&](const Bytes& engine, const std::string& weights) {
    return error_of([&] {
      Engine::load(engine, nullptr,
                   {.device = "cpu", .weights = weights.empty() ? "" : path(weights)});
    });
  };
  EXPECT_THAT(error(old.bytes, ""), AllOf(StartsWith("invalid_argument"), HasSubstr("--weights"),
                                          HasSubstr("EngineOptions::weights")));
  EXPECT_THAT(error(old.bytes, "other.weights"),
              AllOf(StartsWith("incompatible_plan"), HasSubstr("belong to another engine")));
  EXPECT_THAT(error(whole, "old.weights"),
              AllOf(StartsWith("invalid_argument"), HasSubstr("has its weights")));
  EXPECT_THAT(error(old.bytes, "whole.engine"),
              AllOf(StartsWith("incompatible_plan"), HasSubstr("file of weights")));
  EXPECT_THAT(error(old.bytes, "missing.weights"), StartsWith("io"));
  EXPECT_EQ(error(old.bytes, "old.weights"), "");
}

TEST_F(WeightsApart, AnEngineThatMustChangeIsRefused) {
  const BuiltEngine old = build_engine(model(kOld), apart());
  EXPECT_THAT(
      error_of([&] { refit_engine(old.bytes, model(kNew, {.slope = 0.4F}), apart()); }),
      AllOf(StartsWith("invalid_model"), HasSubstr("needs another engine"), HasSubstr("scalar")));
  // A new engine beside the new weights is another matter.
  write("net.engine", old.bytes);
  write("new.onnx", model(kNew, {.slope = 0.4F}));
  BuildOptions options;
  EXPECT_THAT(
      error_of([&] { refit_engine(path("net.engine"), path("new.onnx"), path("n"), options); }),
      HasSubstr("weights_path"));
  options.weights_path = path("new.weights");
  refit_engine(path("net.engine"), path("new.onnx"), path("new.engine"), options);
  const auto engine =
      Engine::load(path("new.engine"), {.device = "cpu", .weights = path("new.weights")});
  EXPECT_EQ(run(engine), run(Engine::load(build_engine(model(kNew, {.slope = 0.4F})).bytes, nullptr,
                                          {.device = "cpu"})));
}

// Equal weights, and weights that are one number, are stored without changes.
TEST_F(WeightsApart, WeightsThatAreEqualByChanceMayDifferInAnotherModel) {
  const auto with_biases = [](float first, float second) {
    ModelBuilder made = network(kOld, {.channels = 32});
    for (auto& tensor : *made.graph().mutable_initializer()) {
      if (tensor.name() != "b1" && tensor.name() != "b2") continue;
      for (float& each : *tensor.mutable_float_data())
        each = tensor.name() == "b1" ? first : second;
      if (first != second) tensor.mutable_float_data()->Set(3, first + second);
    }
    return made.bytes();
  };
  const BuiltEngine old = build_engine(with_biases(0, 0), apart());
  const BuiltEngine refitted = refit_engine(old.bytes, with_biases(1, 2), apart());
  write("new.weights", refitted.weights);
  EXPECT_EQ(
      run(Engine::load(old.bytes, nullptr, {.device = "cpu", .weights = path("new.weights")})),
      run(Engine::load(build_engine(with_biases(1, 2)).bytes, nullptr, {.device = "cpu"})));
}

// Small convolutions in bf16 have scales per channel where these make weights on a grid exact: w1
// is exact with or without them.
TEST_F(WeightsApart, ScalesOfSmallConvolutionsMayBecomeOnes) {
  const auto on_grid = [](float step) {
    ModelBuilder made = network(kOld);
    int k = 0;
    for (auto& tensor : *made.graph().mutable_initializer())
      if (tensor.name() == "w1")
        for (float& each : *tensor.mutable_float_data())
          each = step * static_cast<float>(++k * 37 % 255 - 127);
    return made.bytes();
  };
  BuildOptions options = apart();
  options.precision.types = {Precision::kBF16};
  options.self_check.run = false;
  const BuiltEngine old = build_engine(on_grid(0.0078125F), options);
  const BuiltEngine refitted = refit_engine(old.bytes, on_grid(0.0091F), apart());
  write("new.weights", refitted.weights);
  options.weights_path.clear();
  EXPECT_EQ(
      run(Engine::load(old.bytes, nullptr, {.device = "cpu", .weights = path("new.weights")})),
      run(Engine::load(build_engine(on_grid(0.0091F), options).bytes, nullptr, {.device = "cpu"})));
}

void recompute_crcs(Bytes& bytes) {
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 12, 4);
  if (20 + uint64_t{24} * count > bytes.size()) return;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t offset = 0, size = 0;
    std::memcpy(&offset, bytes.data() + 20 + 24 * i + 8, 8);
    std::memcpy(&size, bytes.data() + 20 + 24 * i + 16, 8);
    if (offset > bytes.size() || size > bytes.size() - offset) continue;
    const uint32_t crc = crc32c(std::span(bytes).subspan(offset, size));
    std::memcpy(bytes.data() + 20 + 24 * i + 4, &crc, 4);
  }
  const uint32_t crc = crc32c(std::span(bytes).subspan(20, 24 * count), count);
  std::memcpy(bytes.data() + 16, &crc, 4);
}

std::string load_error(const Bytes& engine, const Bytes& weights) {
  return error_of([&] {
    const auto owner = std::make_shared<std::pair<Bytes, Bytes>>(engine, weights);
    load_engine_file(owner->first, owner, nullptr, {},
                     {WeightsSource::kApart, {owner->second, owner}});
  });
}

TEST_F(WeightsApart, DamagedFilesAreRefused) {
  BuildOptions options = apart();
  options.pack_weights = true;
  const BuiltEngine built = build_engine(model(kOld), options);
  const Bytes& weights = built.weights;
  EXPECT_EQ(load_error(built.bytes, weights), "");
  for (size_t size = 0; size < weights.size(); size += size < 300 ? 1 : weights.size() / 200)
    EXPECT_THAT(
        load_error(built.bytes, Bytes(weights.begin(), weights.begin() + static_cast<long>(size))),
        StartsWith("incompatible_plan"))
        << size;
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const size_t at = i < 200 ? static_cast<size_t>(i) : random() % weights.size();
    Bytes damaged = weights;
    damaged[at] ^= std::byte{1} << (random() % 8);
    EXPECT_THAT(load_error(built.bytes, damaged), StartsWith("incompatible_plan")) << at;
  }
}

// With right checksums: numbers may be any, sizes and shapes may not.
TEST_F(WeightsApart, ForgedFilesDoNoHarm) {
  BuildOptions options = apart();
  options.pack_weights = true;
  const BuiltEngine built = build_engine(model(kOld), options);
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    Bytes forged = built.weights;
    for (int k = 0; k < 3; ++k)
      forged[random() % (i % 2 == 0 ? 400 : forged.size())] = static_cast<std::byte>(random());
    recompute_crcs(forged);
    const std::string error = error_of([&] {
      const std::string file = path("forged.weights");
      write("forged.weights", forged);
      run(Engine::load(built.bytes, nullptr, {.device = "cpu", .weights = file}));
    });
    if (!error.empty()) {
      EXPECT_THAT(error, StartsWith("incompatible_plan"));
    }
  }
}

}  // namespace
}  // namespace anneal::testing
