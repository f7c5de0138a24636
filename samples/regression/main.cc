// A surface from a small network, on the CPU and on a GPU: whether both draw the same one, and from
// how many points on the GPU is faster.
//
//   regression [--device cuda|cuda:N|emulated] [--target sm_90] [--model FILE] [--out FILE]
//              [--no-times]
//
// The results go to FILE as JSON, which draw.py draws.
#include <anneal/anneal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "measure.h"
#include "results.h"

namespace {

constexpr int kSide = 200;
constexpr int64_t kPoints = kSide * kSide;
constexpr double kRange = 3, kMostDifference = 1e-5;

constexpr char kUsage[] =
    "usage: regression [OPTIONS]\n"
    "  --device DEVICE  cuda, cuda:N or emulated (default: emulated)\n"
    "  --target TARGET  the architecture of the GPU (default: sm_90)\n"
    "  --model FILE     default: samples/regression/peaks.onnx\n"
    "  --out FILE       the results (default: regression.json)\n"
    "  --no-times       measure no times\n";

struct Arguments {
  std::string device = "emulated", target = "sm_90";
  std::string model = "samples/regression/peaks.onnx", out = "regression.json";
  bool no_times = false;

  bool is_emulated() const { return device.starts_with("emulated"); }
  int device_number() const {
    const size_t colon = device.find(':');
    return colon == std::string::npos ? 0 : std::atoi(device.c_str() + colon + 1);
  }
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    std::string* const value = flag == "--device"   ? &arguments.device
                               : flag == "--target" ? &arguments.target
                               : flag == "--model"  ? &arguments.model
                               : flag == "--out"    ? &arguments.out
                                                    : nullptr;
    if (flag == "--no-times")
      arguments.no_times = true;
    else if (value != nullptr && i + 1 < argc)
      *value = argv[++i];
    else
      throw std::invalid_argument("\"" + std::string(flag) +
                                  "\" is unknown, or its value is missing\n" + kUsage);
  }
  return arguments;
}

double peaks(double x, double y) {
  const double circle = std::exp(-x * x - y * y);
  return 3 * (1 - x) * (1 - x) * std::exp(-x * x - (y + 1) * (y + 1)) -
         10 * (x / 5 - x * x * x - std::pow(y, 5)) * circle -
         std::exp(-(x + 1) * (x + 1) - y * y) / 3;
}

// x and y of every point of the grid, x running fastest.
std::vector<float> grid() {
  const auto at = [](int i) { return static_cast<float>(kRange * (2.0 * i / (kSide - 1) - 1)); };
  std::vector<float> xy;
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column) xy.insert(xy.end(), {at(column), at(row)});
  return xy;
}

// Two profiles: kernels for few points, and kernels for many.
std::shared_ptr<const anneal::Engine> build(const Arguments& arguments, const std::string& target,
                                            const std::string& device) {
  const auto points = [](int64_t least, int64_t opt, int64_t most) {
    return anneal::Profile{
        .min = {{"xy", {least, 2}}}, .opt = {{"xy", {opt, 2}}}, .max = {{"xy", {most, 2}}}};
  };
  anneal::BuildOptions options;
  options.targets = {target};
  options.profiles = {points(1, 100, 1000), points(1, kPoints, kPoints)};
  options.allow_fallback = false;  // all layers run on the GPU, or the build fails
  anneal::BuiltEngine built = anneal::build_engine(arguments.model, options);
  const auto bytes = std::make_shared<std::vector<std::byte>>(std::move(built.bytes));
  auto engine = anneal::Engine::load(*bytes, bytes, {.device = device});
  for (const std::string& warning : engine->load_warnings())
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  return engine;
}

std::vector<float> heights_of(const std::shared_ptr<const anneal::Engine>& engine,
                              const std::vector<float>& xy) {
  anneal::ExecutionContext context(engine);
  context.set_input("xy", anneal::view(xy, {kPoints, 2}));
  context.run();
  for (const std::string& warning : context.run_warnings())
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  const std::span<float> heights = context.output("z").span<float>();
  return {heights.begin(), heights.end()};
}

void compare(Results& results) {
  double squares = 0;
  for (size_t i = 0; i < results.truth.size(); ++i) {
    const double error = double{results.cpu[i]} - results.truth[i];
    squares += error * error;
    results.largest_error = std::max(results.largest_error, std::fabs(error));
    const double difference = std::fabs(double{results.cpu[i]} - results.gpu[i]);
    if (!std::isfinite(difference))
      throw std::runtime_error("the height of point " + std::to_string(i) + " is not finite");
    results.largest_difference = std::max(results.largest_difference, difference);
  }
  results.rms_error = std::sqrt(squares / static_cast<double>(results.truth.size()));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

void print_crossover(const std::vector<BatchTime>& times, const std::optional<Crossover>& crossover,
                     double BatchTime::*gpu, const char* data) {
  if (crossover)
    std::printf(
        "crossover, %s: the GPU is faster from about %.0f points on "
        "(the CPU wins at %lld, the GPU at %lld)\n",
        data, crossover->points, static_cast<long long>(crossover->cpu_wins),
        static_cast<long long>(crossover->gpu_wins));
  else
    std::printf("crossover, %s: none, the %s is faster at %lld points\n", data,
                times.back().*gpu < times.back().cpu ? "GPU" : "CPU",
                static_cast<long long>(times.back().points));
}

void measure(Results& results, const std::shared_ptr<const anneal::Engine>& cpu,
             const std::shared_ptr<const anneal::Engine>& gpu, const Arguments& arguments,
             const std::vector<float>& xy) {
  results.times = measure_times(cpu, gpu, arguments.device, arguments.device_number(), xy);
  std::printf("\n%8s %12s %12s %20s\n", "points", "CPU us", "GPU us", "GPU us, data there");
  for (const BatchTime& time : results.times)
    std::printf("%8lld %12.1f %12.1f %20.1f\n", static_cast<long long>(time.points), time.cpu,
                time.gpu, time.gpu_resident);
  results.crossover = find_crossover(results.times, &BatchTime::gpu);
  results.crossover_resident = find_crossover(results.times, &BatchTime::gpu_resident);
  print_crossover(results.times, results.crossover, &BatchTime::gpu, "data in host memory");
  print_crossover(results.times, results.crossover_resident, &BatchTime::gpu_resident,
                  "data in the GPU's memory");
}

int run(const Arguments& arguments) {
  const auto cpu = build(arguments, "cpu", "cpu");
  const auto gpu =
      build(arguments, arguments.is_emulated() ? "emulated" : arguments.target, arguments.device);
  const std::vector<float> xy = grid();
  Results results{.device = arguments.device,
                  .cpu_name = cpu->device(),
                  .gpu_name = gpu->device(),
                  .machine = cpu_model(),
                  .cores = std::thread::hardware_concurrency(),
                  .side = kSide,
                  .range = kRange};
  for (size_t i = 0; i < xy.size(); i += 2)
    results.truth.push_back(static_cast<float>(peaks(xy[i], xy[i + 1])));
  results.cpu = heights_of(cpu, xy);
  results.gpu = heights_of(gpu, xy);
  compare(results);
  const bool is_equal = results.largest_difference < kMostDifference;
  std::printf("CPU: %s\nGPU: %s\n", results.cpu_name.c_str(), results.gpu_name.c_str());
  std::printf("network against the formula: rms error %.4f, largest error %.3f\n",
              results.rms_error, results.largest_error);
  std::printf("largest difference between CPU and GPU at %lld points: %.2g, %s 1e-5\n",
              static_cast<long long>(kPoints), results.largest_difference,
              is_equal ? "below" : "not below");
  write_json(results, arguments.out);  // even if measuring fails
  if (arguments.is_emulated()) {
    std::printf("no times: those of the emulated device have no meaning\n");
  } else if (!arguments.no_times) {
    measure(results, cpu, gpu, arguments, xy);
    write_json(results, arguments.out);
  }
  std::printf("%s has the surfaces%s\n", arguments.out.c_str(),
              results.times.empty() ? "" : " and the times");
  return is_equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  return run(parse(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "regression: %s\n", error.what());
  return 1;
}
