// An application that links both libraries has one run time: one pool of threads, one budget.
#include <anneal/anneal.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

namespace {

constexpr const char* kModel = "samples/glyphs/glyphs.onnx";

// Cores that this process may use. Without options, Anneal has as many threads, the caller
// included.
ptrdiff_t cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

ptrdiff_t threads_now() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

class OneRunTime : public testing::Test {
 protected:
  // Workers live as long as the process. Threads that read samples have ended after a call.
  void expect_few_threads(const char* after) const {
    EXPECT_LE(threads_now() - before_, cores() - 1) << "after " << after;
  }

  const std::string folder_ = testing::TempDir();
  const std::shared_ptr<const anneal::Dataset> samples_ = anneal::subset(
      anneal::open_dataset("samples/glyphs", anneal::find_data_format("samples/glyphs"),
                           anneal::onnx_inputs(kModel)),
      "first:60");

 private:
  const ptrdiff_t before_ = threads_now();
};

TEST_F(OneRunTime, RunningCalibratingAndTuningShareTheirThreads) {
  const std::string path = folder_ + "/one_run_time.engine";
  anneal::build_engine(kModel, path);
  expect_few_threads("build_engine()");

  const auto engine = anneal::Engine::load(path, {.device = "cpu", .threads = 0});
  anneal::ExecutionContext context(engine, {.threads = 0});
  const anneal::TensorInfo& input = engine->inputs()[0];
  for (int64_t i = 0; i < 4; ++i) {
    const auto sample = samples_->read(i);
    context.set_input(input.name, sample.at(0).tensor.view());
    context.run();
  }
  expect_few_threads("run()");

  anneal::calibrate(kModel, samples_);
  expect_few_threads("calibrate()");

  anneal::BuildOptions options;
  options.tuning.budget = 50;
  anneal::tune(kModel, samples_, anneal::make_metric("top1"),
               folder_ + "/one_run_time_tuned.engine", options);
  expect_few_threads("tune()");
  context.run();
  expect_few_threads("run() again");
}

// libbuilder throws what libengine's type is, and gives tensors that libengine takes.
TEST_F(OneRunTime, ErrorsOfTheBuilderAreCaughtAsTheEngines) {
  try {
    anneal::build_engine("no/such/model.onnx", folder_ + "/none.engine");
    FAIL() << "the model does not exist";
  } catch (const anneal::Error& error) {
    EXPECT_EQ(error.code(), anneal::ErrorCode::kIo);
  }
}

bool is_loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find("/" + library) != std::string::npos;
}

// The code of the emulated device starts a compiler: it is no part of libengine.
TEST_F(OneRunTime, TheEmulatedDeviceIsLoadedWhenItIsAskedFor) {
  EXPECT_TRUE(is_loaded("libengine.so"));
  EXPECT_FALSE(is_loaded("libanneal_emulated.so"));
  const std::string path = folder_ + "/emulated.engine";
  anneal::build_engine(kModel, path, {.targets = {"emulated"}});
  EXPECT_TRUE(is_loaded("libanneal_emulated.so"));
  const auto engine = anneal::Engine::load(path, {.device = "emulated"});
  anneal::ExecutionContext context(engine);
  const auto sample = samples_->read(0);
  context.set_input(engine->inputs()[0].name, sample.at(0).tensor.view());
  context.run();
  EXPECT_EQ(context.output(engine->outputs()[0].name).dims.rank(), 2);
}

}  // namespace
