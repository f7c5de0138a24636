#include "report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "write_png.h"

namespace {

namespace fs = std::filesystem;

std::string size_text(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), bytes < 1000000 ? "%.0f kB" : "%.1f MB",
                static_cast<double>(bytes) / (bytes < 1000000 ? 1e3 : 1e6));
  return text;
}

// Users expect 8 bits to be faster. Where they are not, the table alone leaves them in doubt.
void print_speed_of_int8(const std::vector<Variant>& variants) {
  const Variant* fastest = nullptr;
  for (const Variant& variant : variants)
    if (variant.uniform == anneal::Precision::kI8 &&
        (!fastest || variant.point.milliseconds < fastest->point.milliseconds))
      fastest = &variant;
  if (!fastest) return;
  const double times = fastest->point.milliseconds / variants[0].point.milliseconds;
  if (times < 1) return;
  std::printf(
      "8 bits are not faster than f32 here: the fastest 8-bit engine takes %.2f times as "
      "long.\n",
      times);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni") == 0)
    std::printf("This CPU lacks AVX-512 VNNI, whose instructions multiply 8-bit numbers.\n");
#endif
  std::printf("`anneal run ENGINE --input random --profile` shows the time of each layer.\n");
}

}  // namespace

void compare_scores(std::vector<Variant>& variants, const anneal::Metric& metric) {
  for (Variant& variant : variants) {
    // f32 loses nothing against itself, whatever the samples.
    const anneal::DropInterval drop =
        &variant == &variants[0] ? anneal::DropInterval{}
                                 : anneal::drop_of(metric, variant.scores, variants[0].scores);
    std::vector<const anneal::SampleScore*> scores;
    for (const anneal::SampleScore& each : variant.scores) scores.push_back(&each);
    variant.point.confirmed = {static_cast<int64_t>(scores.size()), metric.score(scores), drop.drop,
                               drop.low, drop.high};
  }
}

void print_table(const std::vector<Variant>& variants, const std::string& samples) {
  std::printf("\n%-16s %8s  %-18s %9s %9s %12s %9s %9s\n", "", "top-1", "drop (95 %)", "p50 ms",
              "p99 ms", "inferences/s", "file", "memory");
  for (const Variant& variant : variants) {
    const anneal::MeasuredScore& score = *variant.point.confirmed;
    char drop[64];
    std::snprintf(drop, sizeof(drop), "%.2f (%.2f to %.2f)", score.drop, score.drop_low,
                  score.drop_high);
    std::printf("%-16s %6.2f %%  %-18s %9.3f %9.3f %12.0f %9s %9s\n", variant.name.c_str(),
                score.score, variant.name == "f32" ? "" : drop, variant.point.milliseconds,
                variant.point.milliseconds_p99, variant.inferences_per_second,
                size_text(variant.point.engine_bytes).c_str(),
                size_text(variant.point.memory_bytes).c_str());
  }
  std::printf("accuracy on %zu samples %s; latency of one thread at batch 1\n",
              variants[0].scores.size(), samples.c_str());
  print_speed_of_int8(variants);
}

anneal::Frontier as_frontier(const std::vector<Variant>& variants, const anneal::Frontier& tuned,
                             const std::string& model) {
  anneal::Frontier shown = tuned;
  shown.model = model;
  shown.points.clear();
  for (const Variant& variant : variants) {
    anneal::FrontierPoint point = variant.point;
    point.name = variant.name;
    point.search = *point.confirmed;
    if (variant.tuned != nullptr) {
      point.precisions = variant.tuned->precisions;
    } else {
      point.precisions.assign(tuned.groups.size(), variant.uniform);
    }
    // The line joins the tuned engines, with f32 at its end.
    point.is_on_frontier = variant.tuned != nullptr || variant.name == "f32";
    shown.points.push_back(point);
  }
  std::ranges::stable_sort(shown.points, {}, &anneal::FrontierPoint::milliseconds);
  // A point on the line claims the least score of it and of all slower points on it.
  double least = 100;
  for (auto point = shown.points.rbegin(); point != shown.points.rend(); ++point) {
    point->claimed.reset();
    if (!point->is_on_frontier) continue;
    least = std::min(least, point->confirmed->score);
    point->claimed = least;
  }
  const std::string chosen = "tuned " + tuned.points[tuned.chosen].name;
  for (size_t i = 0; i < shown.points.size(); ++i)
    if (shown.points[i].name == chosen) shown.chosen = i;
  return shown;
}

void write_pictures(const anneal::Frontier& frontier, const std::string& path) {
  const std::string svg = anneal::to_string(frontier, anneal::FrontierForm::kSvg);
  if (!(std::ofstream(path + ".svg.new") << svg).flush())
    throw std::runtime_error("cannot write " + path + ".svg");
  fs::rename(path + ".svg.new", path + ".svg");
  write_png(svg, path + ".png.new");
  fs::rename(path + ".png.new", path + ".png");
}
