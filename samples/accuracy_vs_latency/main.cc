// The accuracy and the speed of each precision: a model in f32, bf16, f16, in 8 bits by each method
// of calibration, and in the mixes that tuning finds, on labelled samples. A table, and a picture.
//
//   accuracy_vs_latency [MODEL.onnx DATA [FOLDER [MAX_DROP]]]
//
// DATA is what `anneal eval --data` takes, with a dataset.json beside it where it needs flags
// (docs/data.md). The engines, frontier.svg and frontier.png go to FOLDER.
#include <anneal/anneal.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.h"
#include "report.h"
#include "variant.h"

namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model = "samples/glyphs/glyphs_wide.onnx";
  std::string data = "samples/glyphs";
  std::string folder = "build/demo/accuracy_vs_latency";
  double max_drop = 0.5;  // points of accuracy
};

// Samples for calibration and for the search at most, so that both take seconds; the others
// confirm.
constexpr int64_t kMostCalibrated = 100, kMostSearched = 400;

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  if (argc > 1) arguments.model = argv[1];
  if (argc > 2) arguments.data = argv[2];
  if (argc > 3) arguments.folder = argv[3];
  if (argc > 4) {
    char* end = nullptr;
    arguments.max_drop = std::strtod(argv[4], &end);
    if (end == argv[4] || *end != '\0')
      throw std::invalid_argument("MAX_DROP is a number of points, such as 0.5");
  }
  return arguments;
}

// Many a model is called model.onnx, in a folder that has its name.
std::string name_of(const std::string& model) {
  const fs::path path = fs::absolute(model);
  return path.stem() == "model" ? path.parent_path().filename().string() : path.stem().string();
}

// One line that changes, on a terminal.
void show_progress(const std::string& text) {
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K%s", text.c_str());
}

// The mixes, each from f32 to 8 bits layer by layer. Writes FOLDER/tuned.engine.
anneal::Frontier tune(const Arguments& arguments,
                      const std::shared_ptr<const anneal::Dataset>& samples,
                      const std::shared_ptr<const anneal::Metric>& metric, int64_t calibrated,
                      int64_t searched) {
  anneal::BuildOptions options;
  options.tuning.calibrate_samples = calibrated;
  options.tuning.search_samples = searched;
  options.tuning.budget = arguments.max_drop;
  options.threads = 1;
  options.progress = [](const anneal::Progress& at) {
    char share[16];
    std::snprintf(share, sizeof(share), "%3.0f %%", 100 * at.share);
    show_progress("tuning: " + std::string(share) + ", " + at.what);
    return true;
  };
  return anneal::tune(arguments.model, samples, metric, arguments.folder + "/tuned.engine",
                      options);
}

// f32 first; then the precisions that need no tuning; then the points that tuning found.
std::vector<Variant> variants_of(const std::string& model, const anneal::Frontier& tuned,
                                 const std::shared_ptr<const anneal::Dataset>& calibrating) {
  std::vector<Variant> variants;
  variants.push_back({"f32", {}});
  variants.push_back({"bf16", {.types = {anneal::Precision::kBF16}}, anneal::Precision::kBF16});
  variants.push_back({"f16", {.types = {anneal::Precision::kF16}}, anneal::Precision::kF16});
  using enum anneal::RangeMethod;
  for (const anneal::RangeMethod method : {kMinMax, kEntropy, kPercentile, kMse, kAuto}) {
    const std::string name(to_string(method));
    show_progress("calibrating: " + name);
    anneal::BuildOptions options;
    options.calibration.method = method;
    options.threads = 1;
    options.precision.types = {anneal::Precision::kI8};
    options.precision.ranges = anneal::calibrate(model, calibrating, options).table;
    variants.push_back({"int8 " + name, options.precision, anneal::Precision::kI8});
  }
  for (const anneal::FrontierPoint& point : tuned.points)
    if (&point == &tuned.points[tuned.chosen] ||
        (point.is_on_frontier && point.name.starts_with("mix")))
      variants.push_back({"tuned " + point.name, anneal::precision_of(tuned, point), {}, &point});
  return variants;
}

void build(Variant& variant, const Arguments& arguments) {
  std::string file = arguments.folder + "/" + variant.name + ".engine";
  std::ranges::replace(file, ' ', '-');
  anneal::BuildOptions options;
  options.precision = variant.precision;
  anneal::build_engine(arguments.model, file, options);
  variant.engine = anneal::Engine::load(file, {.device = "cpu"});
  variant.point.engine_bytes = fs::file_size(file);
}

void run(const Arguments& arguments) {
  fs::create_directories(arguments.folder);
  const auto samples =
      anneal::open_dataset(arguments.data, anneal::find_data_format(arguments.data),
                           anneal::onnx_inputs(arguments.model));
  const auto metric = anneal::make_metric("top1");
  const int64_t calibrated = std::min(samples->size() / 5, kMostCalibrated);
  const int64_t searched = std::min(samples->size() * 3 / 10, kMostSearched);
  // As tune() divides them: the rest confirms.
  const auto calibrating = anneal::subset(samples, "hash:" + std::to_string(calibrated));
  const auto confirming = anneal::subset(
      samples, "holdout:" + std::to_string(calibrated) + ",holdout:" + std::to_string(searched));
  const anneal::Frontier tuned = tune(arguments, samples, metric, calibrated, searched);

  std::vector<Variant> variants = variants_of(arguments.model, tuned, calibrating);
  for (Variant& variant : variants) {
    show_progress("building and judging: " + variant.name);
    build(variant, arguments);
    variant.scores = judge(variant.engine, *confirming, *metric);
  }
  show_progress("measuring");
  measure_speed(variants, confirming->read(0));
  show_progress("");

  compare_scores(variants, *metric);
  print_table(variants, tuned.turned_down == 0 ? "held out from the search"
                                               : "that also turned down faster mixes");
  const std::string picture = arguments.folder + "/frontier";
  write_pictures(as_frontier(variants, tuned, name_of(arguments.model)), picture);
  std::printf("\n%s.png and %s.svg show accuracy against latency\n", picture.c_str(),
              picture.c_str());
  std::printf(
      "%s/tuned.engine (%s) is the fastest engine that lost at most %g points on the "
      "samples of the search\n",
      arguments.folder.c_str(), tuned.points[tuned.chosen].name.c_str(), tuned.budget);
  for (const std::string& warning : tuned.warnings) std::printf("warning: %s\n", warning.c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 || argc > 5) {
    std::printf("usage: accuracy_vs_latency [MODEL.onnx DATA [FOLDER [MAX_DROP]]]\n");
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
  run(parse(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "\naccuracy_vs_latency: %s\n", error.what());
  return 1;
}
