// An application that links both libraries has one run time: one pool of threads, one budget.
#include <anneal/anneal.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
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

// Threads that run, beside the main one, and the most since the count began.
std::atomic<ptrdiff_t> threads_now = 0, most_threads = 0;

struct Start {
  void* (*routine)(void*);
  void* argument;
};

void* counted_thread(void* given) {
  const auto start = *std::unique_ptr<Start>(static_cast<Start*>(given));
  void* const result = start.routine(start.argument);
  --threads_now;
  return result;
}

}  // namespace

// Replaces the system's function: every thread of the process is counted, from its creation to the
// end of its routine.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*routine)(void*), void* argument) {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  auto start = std::make_unique<Start>(routine, argument);
  const ptrdiff_t now = ++threads_now;
  ptrdiff_t most = most_threads;
  while (now > most && !most_threads.compare_exchange_weak(most, now)) {
  }
  const int failed = real(thread, attributes, counted_thread, start.get());
  if (failed)
    --threads_now;
  else
    start.release();
  return failed;
}

namespace {

class OneRunTime : public testing::Test {
 protected:
  // `call` starts at most `workers` threads beside the caller.
  template <class Call>
  void expect_workers(const char* name, ptrdiff_t workers, const Call& call) const {
    most_threads = threads_now.load();
    call();
    EXPECT_LE(most_threads - before_, workers) << "during " << name;
  }

  static constexpr ptrdiff_t kReader = 1;  // of samples, with data_threads = 1

  void run_samples(const anneal::Engine& engine, anneal::ExecutionContext& context) const {
    for (int64_t i = 0; i < 4; ++i) {
      const auto sample = samples_->read(i);
      context.set_input(engine.inputs()[0].name, sample.at(0).tensor.view());
      context.run();
    }
  }

  const std::string folder_ = testing::TempDir();
  const std::shared_ptr<const anneal::Dataset> samples_ = anneal::subset(
      anneal::open_dataset("samples/glyphs", anneal::find_data_format("samples/glyphs"),
                           anneal::onnx_inputs(kModel)),
      "first:60");

 private:
  const ptrdiff_t before_ = threads_now;
};

// First, while the process has no workers yet: they live as long as the process.
TEST_F(OneRunTime, OneThreadMeansNoWorkers) {
  anneal::BuildOptions options{.threads = 1, .data_threads = 1};
  options.precision.types = {anneal::Precision::kF16, anneal::Precision::kI8};
  options.calibration.samples = samples_;
  const std::string path = folder_ + "/one_thread.engine";
  expect_workers("build_engine() with calibration and self-check", kReader, [&] {
    EXPECT_TRUE(anneal::build_engine(kModel, path, options).self_check.is_compared);
  });
  expect_workers("load() and run()", 0, [&] {
    const auto engine = anneal::Engine::load(path, {.device = "cpu", .threads = 1});
    anneal::ExecutionContext context(engine, {.threads = 1});
    run_samples(*engine, context);
  });
  options.tuning.budget = 50;
  expect_workers("tune()", kReader, [&] {
    anneal::tune(kModel, samples_, anneal::make_metric("top1"), folder_ + "/tuned.engine", options);
  });
}

TEST_F(OneRunTime, RunningCalibratingAndTuningShareTheirThreads) {
  const ptrdiff_t workers = cores() - 1, readers = cores();
  const std::string path = folder_ + "/one_run_time.engine";
  expect_workers("build_engine()", workers, [&] { anneal::build_engine(kModel, path); });
  const auto engine = anneal::Engine::load(path, {.device = "cpu", .threads = 0});
  anneal::ExecutionContext context(engine, {.threads = 0});
  expect_workers("run()", workers, [&] { run_samples(*engine, context); });
  expect_workers("calibrate()", workers + readers, [&] { anneal::calibrate(kModel, samples_); });
  anneal::BuildOptions options;
  options.tuning.budget = 50;
  expect_workers("tune()", workers + readers, [&] {
    anneal::tune(kModel, samples_, anneal::make_metric("top1"), folder_ + "/tuned.engine", options);
  });
  expect_workers("run() again", workers, [&] { context.run(); });
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
