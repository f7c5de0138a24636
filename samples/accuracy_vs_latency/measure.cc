#include "measure.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMillisecondsPerRound = 60;
constexpr int kRounds = 8;
constexpr double kThroughputMilliseconds = 400;

const anneal::ContextOptions kOneThread = {.threads = 1};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void set_inputs(anneal::ExecutionContext& context,
                const std::vector<anneal::SampleTensor>& sample) {
  for (const anneal::SampleTensor& each : sample) context.set_input(each.input, each.tensor.view());
}

anneal::Tensor copy_of(const anneal::TensorView& view) {
  const auto elements = static_cast<size_t>(anneal::count(view.dims));
  return anneal::Tensor::copy_of(view.dtype, view.dims,
                                 {view.data, elements * anneal::size_of(view.dtype)});
}

void measure_latency(std::vector<Variant>& variants,
                     const std::vector<anneal::SampleTensor>& sample) {
  std::vector<anneal::ExecutionContext> contexts;
  for (Variant& variant : variants) {
    contexts.emplace_back(variant.engine, kOneThread);
    set_inputs(contexts.back(), sample);
    contexts.back().run();
    variant.point.memory_bytes = contexts.back().memory_bytes();
  }
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < variants.size(); ++i) {
      contexts[i].run();
      const auto start = Clock::now();
      while (milliseconds_since(start) < kMillisecondsPerRound) {
        const auto begin = Clock::now();
        contexts[i].run();
        variants[i].milliseconds.push_back(milliseconds_since(begin));
      }
    }
  for (Variant& variant : variants) {
    std::vector<double>& times = variant.milliseconds;
    std::ranges::sort(times);
    variant.point.milliseconds = times[times.size() / 2];
    variant.point.milliseconds_p99 = times[times.size() * 99 / 100];
  }
}

double throughput(const Variant& variant, const std::vector<anneal::SampleTensor>& sample) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<long> runs(cores);
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < cores; ++i)
      threads.emplace_back([&, i] {
        anneal::ExecutionContext context(variant.engine, kOneThread);
        set_inputs(context, sample);
        long done = 0;
        for (; milliseconds_since(start) < kThroughputMilliseconds; ++done) context.run();
        runs[i] = done;
      });
  }
  long all = 0;
  for (const long each : runs) all += each;
  return static_cast<double>(all) / (milliseconds_since(start) / 1000);
}

// Every `step`-th sample from `first` on.
void judge_every(const anneal::Engine& engine, anneal::ExecutionContext context,
                 const anneal::Dataset& samples, const anneal::Metric& metric, int64_t first,
                 int64_t step, std::vector<anneal::SampleScore>& scores) {
  std::vector<std::string> names;
  for (const anneal::TensorInfo& output : engine.outputs()) names.push_back(output.name);
  for (int64_t i = first; i < samples.size(); i += step) {
    const auto sample = samples.read(i);
    set_inputs(context, sample);
    context.run();
    std::vector<anneal::Tensor> outputs;
    for (const std::string& name : names) outputs.push_back(copy_of(context.output(name)));
    scores[static_cast<size_t>(i)] =
        metric.judge({samples.name(i), samples.label(i), names, outputs, {}});
  }
}

}  // namespace

std::vector<anneal::SampleScore> judge(const std::shared_ptr<const anneal::Engine>& engine,
                                       const anneal::Dataset& samples,
                                       const anneal::Metric& metric) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<anneal::SampleScore> scores(static_cast<size_t>(samples.size()));
  std::vector<std::future<void>> shares;
  for (int64_t i = 0; i < cores; ++i)
    shares.push_back(std::async(std::launch::async, [&, i] {
      judge_every(*engine, anneal::ExecutionContext(engine, kOneThread), samples, metric, i, cores,
                  scores);
    }));
  for (std::future<void>& share : shares) share.get();
  return scores;
}

void measure_speed(std::vector<Variant>& variants,
                   const std::vector<anneal::SampleTensor>& sample) {
  measure_latency(variants, sample);
  for (Variant& variant : variants) variant.inferences_per_second = throughput(variant, sample);
}
