// What each precision costs and buys: a model in f32, bf16, f16, in 8 bits by each way to
// calibrate, and in the mixes that tuning finds, on labelled samples. A table, and a picture of it.
//
//   accuracy_vs_latency [MODEL.onnx DATA [FOLDER [MAX_DROP]]]
//
// DATA is what `anneal eval --data` takes, with a dataset.json beside it where it needs flags
// (docs/data.md). Engines, frontier.svg and, built with librsvg, frontier.png go to FOLDER.
#include <anneal/anneal.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
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
  anneal::Precision is_in = anneal::Precision::kF32;  // all of it, unless it was tuned
  const anneal::FrontierPoint* tuned_as = nullptr;
  std::shared_ptr<const anneal::Engine> engine{};
  std::vector<double> milliseconds{};  // of single inferences
  double per_second = 0;               // inferences, one on each core
  std::vector<anneal::SampleScore> scores{};
  anneal::FrontierPoint point{};
};

// Many a model is called model.onnx, in a folder that has its name.
std::string name_of(const std::string& model) {
  const fs::path path = fs::absolute(model);
  return path.stem() == "model" ? path.parent_path().filename().string() : path.stem().string();
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
  for (const anneal::TensorInfo& output : engine->outputs()) names.push_back(output.name);
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

void print(const std::vector<Variant>& variants, size_t samples, const std::string& kind) {
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
  std::printf("accuracy on %zu samples %s; one thread, batch 1\n", samples, kind.c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 || argc > 5) {
    std::printf("usage: accuracy_vs_latency [MODEL.onnx DATA [FOLDER [MAX_DROP]]]\n");
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
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
  if (argc > 4) {
    char* end = nullptr;
    tuning.budget = std::strtod(argv[4], &end);
    if (end == argv[4] || *end != '\0')
      throw std::invalid_argument("MAX_DROP is a number of points, such as 0.5");
  }
  tuning.progress = [](const anneal::TuneProgress& at) {
    char share[16];
    std::snprintf(share, sizeof(share), "%3.0f %%", 100 * at.share);
    tell("tuning: " + std::string(share) + ", " + at.what);
    return true;
  };
  const anneal::Frontier tuned =
      anneal::tune_onnx(model, samples, folder + "/tuned.engine", tuning);

  // What one can ask for without tuning.
  std::vector<Variant> variants;
  const auto add = [&](std::string name, anneal::PrecisionOptions precision,
                       anneal::Precision is_in = anneal::Precision::kF32,
                       const anneal::FrontierPoint* tuned_as = nullptr) {
    variants.push_back({std::move(name), std::move(precision), is_in, tuned_as});
  };
  add("f32", {});
  add("bf16", {.bf16 = true}, anneal::Precision::kBF16);
  add("f16", {.f16 = true}, anneal::Precision::kF16);
  using enum anneal::RangeMethod;
  for (const anneal::RangeMethod method : {kMinMax, kEntropy, kPercentile, kMse, kAuto}) {
    const std::string name(to_string(method));
    tell("calibrating: " + name);
    anneal::PrecisionOptions precision{.int8 = true};
    precision.ranges = std::make_shared<const anneal::CalibrationTable>(
        anneal::calibrate_onnx(model, parts.calibrate, {.method = method, .threads = 1}));
    add("int8 " + name, std::move(precision), anneal::Precision::kI8);
  }
  for (const anneal::FrontierPoint& point : tuned.points)
    if (&point == &tuned.points[tuned.chosen] ||
        (point.is_on_frontier && point.name.starts_with("mix")))
      add("tuned " + point.name, anneal::precision_of(tuned, point), {}, &point);

  for (Variant& variant : variants) {
    tell("building and judging: " + variant.name);
    std::string file = folder + "/" + variant.name + ".engine";
    std::ranges::replace(file, ' ', '-');
    anneal::BuildOptions options;
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
  shown.model = name_of(model);
  shown.points.clear();
  for (Variant& variant : variants) {
    anneal::FrontierPoint& point = variant.point;
    // f32 loses nothing against itself, whatever the samples.
    const anneal::DropInterval drop =
        &variant == &variants[0] ? anneal::DropInterval{}
                                 : anneal::drop_of(*metric, variant.scores, variants[0].scores);
    std::vector<const anneal::SampleScore*> scores;
    for (const anneal::SampleScore& each : variant.scores) scores.push_back(&each);
    point.name = variant.name;
    point.confirmed = {static_cast<int64_t>(scores.size()), metric->score(scores), drop.drop,
                       drop.low, drop.high};
    point.search = *point.confirmed;
    point.milliseconds = variant.milliseconds[variant.milliseconds.size() / 2];
    point.milliseconds_p99 = variant.milliseconds[variant.milliseconds.size() * 99 / 100];
    point.precisions.assign(tuned.groups.size(), variant.is_in);
    if (variant.tuned_as != nullptr) point.precisions = variant.tuned_as->precisions;
    // What was tuned, and f32 at the end of it.
    point.is_on_frontier = variant.tuned_as != nullptr || variant.name == "f32";
    shown.points.push_back(point);
  }
  print(variants, static_cast<size_t>(parts.confirm->size()), anneal::what_confirms(tuned));
  std::ranges::stable_sort(shown.points, {}, &anneal::FrontierPoint::milliseconds);
  anneal::claim_scores(shown);
  const std::string& chosen = tuned.points[tuned.chosen].name;
  for (size_t i = 0; i < shown.points.size(); ++i)
    if (shown.points[i].name == "tuned " + chosen) shown.chosen = i;

  const std::string svg = anneal::frontier_svg(shown), picture = folder + "/frontier";
  // Beside its place, then renamed: whole or not at all.
  if (!(std::ofstream(picture + ".svg.new") << svg).flush())
    throw std::runtime_error("cannot write " + picture + ".svg");
  fs::rename(picture + ".svg.new", picture + ".svg");
  std::printf("\n%s.svg shows it\n", picture.c_str());
  const std::string why_not = png_of(svg, picture + ".png");
  if (why_not.empty()) {
    std::printf("%s.png, too\n", picture.c_str());
  } else {
    std::printf("no PNG: %s\n", why_not.c_str());
  }
  std::printf(
      "%s, of %s, is the fastest that lost at most %g points of the samples searched with\n",
      (folder + "/tuned.engine").c_str(), chosen.c_str(), tuned.budget);
  for (const std::string& warning : tuned.warnings) std::printf("warning: %s\n", warning.c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "\naccuracy_vs_latency: %s\n", error.what());
  return 1;
}
