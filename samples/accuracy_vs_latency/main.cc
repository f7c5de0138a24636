// What each precision costs and buys: a model in f32, bf16, f16, in 8 bits by each way to
// calibrate, and in the mixes that tuning finds, on labelled samples. A table, and a picture of it.
//
//   accuracy_vs_latency [MODEL.onnx DATA [FOLDER [MAX_DROP]]]
//
// DATA is what `anneal eval --data` takes, with a dataset.json beside it where it needs flags
// (docs/data.md). Engines, frontier.svg and, built with librsvg, frontier.png go to FOLDER.
#include <anneal/engine/run/engine.h>
#include <anneal/engine/tune/onnx_calibration.h>
#include <anneal/engine/tune/onnx_tuning.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "png_of.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kMillisecondsPerRound = 60;
constexpr int kRounds = 8;
constexpr double kThroughputSeconds = 0.4;

// One line that changes, on a terminal.
void tell(const std::string& what) {
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K%s", what.c_str());
}

struct Variant {
  std::string name;
  anneal::PrecisionOptions precision;
  anneal::Precision is_in = anneal::Precision::kF32;  // all of it
  std::shared_ptr<const anneal::Engine> engine{};
  std::vector<double> milliseconds{};  // of single inferences
  double per_second = 0;               // inferences, one on each core
  std::vector<anneal::SampleScore> scores{};
  anneal::FrontierPoint point{};
};

// What tuning tried of that name; it calibrates as "auto" does.
const anneal::FrontierPoint* tuned_point(const anneal::Frontier& tuned, const std::string& name) {
  const std::string known = name == "int8 auto" ? "int8" : name;
  const auto found = std::ranges::find(tuned.points, known, &anneal::FrontierPoint::name);
  return found == tuned.points.end() ? nullptr : &*found;
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void feed(anneal::ExecutionContext& context, const std::vector<anneal::SampleTensor>& sample) {
  for (const anneal::SampleTensor& each : sample) context.set_input(each.input, each.tensor.view());
}

anneal::Tensor copy_of(const anneal::TensorView& view) {
  auto fresh = anneal::Tensor::allocate(view.dtype, view.dims);
  std::copy_n(view.data, fresh.data.size(), fresh.data.data());
  return fresh.tensor;
}

// All samples, one at a time, judged by the metric.
std::vector<anneal::SampleScore> judged(const std::shared_ptr<const anneal::Engine>& engine,
                                        const anneal::Dataset& samples,
                                        const anneal::Metric& metric) {
  anneal::ExecutionContext context(engine);
  std::vector<std::string> names;
  for (const anneal::Port& output : engine->outputs()) names.push_back(output.name);
  std::vector<anneal::SampleScore> scores;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const auto sample = samples.read(i);
    feed(context, sample);
    context.run();
    std::vector<anneal::Tensor> outputs;
    for (const std::string& name : names) outputs.push_back(copy_of(context.output(name)));
    scores.push_back(metric.judge({samples.name(i), samples.label(i), names, outputs, {}}));
  }
  return scores;
}

// In turn, so that what else the machine does meets all alike.
void time_all(std::vector<Variant>& variants, const std::vector<anneal::SampleTensor>& sample) {
  std::vector<anneal::ExecutionContext> contexts;
  for (Variant& variant : variants) {
    contexts.emplace_back(variant.engine);
    feed(contexts.back(), sample);
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
  for (Variant& variant : variants) std::ranges::sort(variant.milliseconds);
}

double per_second(const Variant& variant, const std::vector<anneal::SampleTensor>& sample) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<long> runs(cores);
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < cores; ++i)
      threads.emplace_back([&, i] {
        anneal::ExecutionContext context(variant.engine);
        feed(context, sample);
        long done = 0;
        for (; milliseconds_since(start) < 1000 * kThroughputSeconds; ++done) context.run();
        runs[i] = done;
      });
  }
  long all = 0;
  for (const long each : runs) all += each;
  return static_cast<double>(all) / (milliseconds_since(start) / 1000);
}

std::string size_text(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), bytes < 1000000 ? "%.0f kB" : "%.1f MB",
                static_cast<double>(bytes) / (bytes < 1000000 ? 1e3 : 1e6));
  return text;
}

void print(const std::vector<Variant>& variants, size_t samples) {
  std::printf("\n%-16s %8s  %-18s %9s %9s %12s %9s %9s\n", "", "top-1", "drop (95 %)", "p50 ms",
              "p99 ms", "inferences/s", "file", "memory");
  for (const Variant& variant : variants) {
    const anneal::MeasuredScore& score = *variant.point.confirmed;
    char drop[64];
    std::snprintf(drop, sizeof(drop), "%.2f (%.2f to %.2f)", score.drop, score.drop_low,
                  score.drop_high);
    std::printf("%-16s %6.2f %%  %-18s %9.3f %9.3f %12.0f %9s %9s\n", variant.name.c_str(),
                score.score, variant.name == "f32" ? "" : drop, variant.point.milliseconds,
                variant.point.milliseconds_p99, variant.per_second,
                size_text(variant.point.engine_bytes).c_str(),
                size_text(variant.point.memory_bytes).c_str());
  }
  std::printf("accuracy on %zu samples that nothing was chosen by; one thread, batch 1\n", samples);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string model = argc > 1 ? argv[1] : "samples/glyphs/glyphs.onnx";
  const std::string data = argc > 2 ? argv[2] : "samples/glyphs";
  const std::string folder = argc > 3 ? argv[3] : "build/demo/accuracy_vs_latency";
  fs::create_directories(folder);

  const auto samples =
      anneal::open_dataset(data, anneal::find_data_format(data), anneal::onnx_inputs(model));
  const anneal::TuneSamples parts = anneal::split_samples(samples);
  const auto metric = anneal::make_metric("top1");

  // The mixes, each from f32 to 8 bits layer by layer.
  anneal::OnnxTuneOptions tuning;
  tuning.metric = metric;
  tuning.threads = 1;
  if (argc > 4) tuning.budget = std::stod(argv[4]);
  tuning.progress = [](const anneal::TuneProgress& at) {
    char share[16];
    std::snprintf(share, sizeof(share), "%3.0f %%", 100 * at.share);
    tell("tuning: " + std::string(share) + ", " + at.what);
  };
  const anneal::Frontier tuned =
      anneal::tune_onnx(model, samples, folder + "/tuned.engine", tuning);

  // What one can ask for without tuning.
  std::vector<Variant> variants;
  const auto add = [&](std::string name, anneal::PrecisionOptions precision,
                       anneal::Precision is_in = anneal::Precision::kF32) {
    variants.push_back({std::move(name), std::move(precision), is_in});
  };
  add("f32", {});
  add("bf16", {.bf16 = true}, anneal::Precision::kBF16);
  add("f16", {.f16 = true}, anneal::Precision::kF16);
  for (const char* method : {"minmax", "entropy", "percentile", "mse", "auto"}) {
    tell("calibrating: " + std::string(method));
    anneal::PrecisionOptions precision{.int8 = true};
    precision.ranges = std::make_shared<const anneal::CalibrationTable>(
        anneal::calibrate_onnx(model, parts.calibrate, {.method = method, .threads = 1}));
    add(std::string("int8 ") + method, std::move(precision), anneal::Precision::kI8);
  }
  for (const anneal::FrontierPoint& point : tuned.points)
    if (point.is_on_frontier || &point == &tuned.points[tuned.chosen])
      if (point.name.starts_with("mix")) add(point.name, anneal::precision_of(tuned, point));

  for (Variant& variant : variants) {
    tell("building and judging: " + variant.name);
    std::string file = folder + "/" + variant.name + ".engine";
    std::ranges::replace(file, ' ', '-');
    anneal::OnnxBuildOptions options;
    options.precision = variant.precision;
    anneal::build_engine(model, file, options);
    variant.engine = anneal::Engine::load(file, {.device = "cpu"});
    variant.point.engine_bytes = fs::file_size(file);
    variant.scores = judged(variant.engine, *parts.confirm, *metric);
  }
  tell("measuring");
  const auto sample = parts.confirm->read(0);
  time_all(variants, sample);
  for (Variant& variant : variants) variant.per_second = per_second(variant, sample);
  tell("");

  // As a frontier, for the picture.
  anneal::Frontier shown = tuned;
  shown.model = fs::path(model).stem().string();
  shown.points.clear();
  for (Variant& variant : variants) {
    anneal::FrontierPoint& point = variant.point;
    const anneal::DropInterval drop = anneal::drop_of(*metric, variant.scores, variants[0].scores);
    std::vector<const anneal::SampleScore*> scores;
    for (const anneal::SampleScore& each : variant.scores) scores.push_back(&each);
    point.name = variant.name;
    point.confirmed = {static_cast<int64_t>(scores.size()), metric->score(scores), drop.drop,
                       drop.low, drop.high};
    point.search = *point.confirmed;
    point.milliseconds = variant.milliseconds[variant.milliseconds.size() / 2];
    point.milliseconds_p99 = variant.milliseconds[variant.milliseconds.size() * 99 / 100];
    point.precisions.assign(tuned.groups.size(), variant.is_in);
    if (const auto* known = tuned_point(tuned, variant.name)) {
      point.precisions = known->precisions;
      point.is_on_frontier = known->is_on_frontier;
    }
    shown.points.push_back(point);
  }
  print(variants, static_cast<size_t>(parts.confirm->size()));
  std::ranges::stable_sort(shown.points, {}, &anneal::FrontierPoint::milliseconds);
  const anneal::FrontierPoint& chosen = tuned.points[tuned.chosen];
  for (size_t i = 0; i < shown.points.size(); ++i)
    if (tuned_point(tuned, shown.points[i].name) == &chosen) shown.chosen = i;

  const std::string svg = anneal::frontier_svg(shown), picture = folder + "/frontier";
  std::ofstream(picture + ".svg") << svg;
  std::printf("\n%s.svg shows it\n", picture.c_str());
  const std::string why_not = png_of(svg, picture + ".png");
  if (why_not.empty()) {
    std::printf("%s.png, too\n", picture.c_str());
  } else {
    std::printf("no PNG: %s\n", why_not.c_str());
  }
  std::printf("%s is the engine that loses at most %g points: %s\n",
              (folder + "/tuned.engine").c_str(), tuned.budget, chosen.name.c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "\naccuracy_vs_latency: %s\n", error.what());
  return 1;
}
