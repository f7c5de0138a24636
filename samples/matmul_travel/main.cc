// One matrix product on the CPU, on the GPU with data that stays there, and on the GPU with copies
// each time. README.md has the options.
#include <anneal/anneal.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "count.h"
#include "measure.h"
#include "product.h"
#include "report.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: matmul_travel [--device cpu|cuda|emulated] [--sizes N,...] [--types f32,f16]\n"
    "                     [--seconds S] [--out FILE.json] [--anneal COMMAND]\n";
constexpr size_t kCopiedBytes = size_t{256} << 20;  // beyond every cache

struct Arguments {
  std::string device, out, anneal;  // anneal: the command that counts
  std::vector<int64_t> sizes = {};
  std::vector<std::string> types = {};
  double seconds = 0;
};

std::vector<std::string> parts(std::string_view text) {
  std::vector<std::string> found;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    found.emplace_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return found;
}

template <class T>
T number(const std::string& text, T least, T most, const char* flag) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least) ||
      !(value <= most))
    throw std::invalid_argument(std::string(flag) + " does not take \"" + text + "\"");
  return value;
}

void check_words(const std::vector<std::string>& words, const std::vector<std::string>& allowed,
                 const char* flag) {
  for (const std::string& word : words)
    if (std::ranges::find(allowed, word) == allowed.end())
      throw std::invalid_argument(std::string(flag) + " does not take \"" + word + "\"");
}

Arguments parse(int argc, char** argv) {
  std::map<std::string, std::string> given = {
      {"--device", "cpu"},    {"--out", "matmul_travel.json"},
      {"--anneal", "anneal"}, {"--types", "f32,f16"},
      {"--seconds", "120"},   {"--sizes", ""}};
  for (int i = 1; i < argc; i += 2) {
    if (!given.contains(argv[i]))
      throw std::invalid_argument("unknown option " + std::string(argv[i]));
    if (i + 1 == argc) throw std::invalid_argument(std::string(argv[i]) + " needs a value");
    given[argv[i]] = argv[i + 1];
  }
  Arguments arguments{given["--device"], given["--out"], given["--anneal"]};
  check_words({arguments.device}, {"cpu", "cuda", "emulated"}, "--device");
  arguments.types = parts(given["--types"]);
  check_words(arguments.types, {"f32", "f16"}, "--types");
  arguments.seconds = number<double>(given["--seconds"], 0.1, 1e6, "--seconds");
  if (given["--sizes"].empty())
    given["--sizes"] =
        arguments.device == "emulated" ? "64,128" : "64,128,256,512,1024,2048,4096,8192";
  for (const std::string& each : parts(given["--sizes"]))
    arguments.sizes.push_back(number<int64_t>(each, 1, 8192, "--sizes"));
  return arguments;
}

// "Intel(R) Xeon(R) Processor, ": as Linux names it.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2) + ", ";
  return {};
}

class Travel {
 public:
  explicit Travel(const Arguments& arguments)
      : arguments_(arguments),
        folder_(fs::canonical("/proc/self/exe").parent_path()),
        limit_(arguments.seconds) {
    report_.device = arguments.device;
    report_.seconds = arguments.seconds;
  }

  // Whether every product was right.
  bool run() {
    if (arguments_.device == "emulated") {
      std::printf("The emulated device counts bytes instead of time.\n");
    } else {
      report_.ceilings["cpu"].bytes_per_second = copy_speed_of_cpu(kCopiedBytes);
    }
    if (arguments_.device == "cuda") open_gpu();
    for (const int64_t size : arguments_.sizes)
      for (const std::string& type : arguments_.types) {
        Operands operands(size, type == "f32" ? anneal::DataType::kF32 : anneal::DataType::kF16);
        if (arguments_.device == "emulated")
          count(size, type, operands);
        else
          measure(size, type, operands);
        report_.write(arguments_.out);
      }
    report_.is_complete = true;
    report_.write(arguments_.out);
    print_end();
    return report_.failed.empty();
  }

 private:
  static Product product_of(int64_t size, const std::string& type, Kernel kernel,
                            const std::string& target) {
    return {size, type == "f32" ? anneal::DataType::kF32 : anneal::DataType::kF16, kernel, target};
  }

  void open_gpu() {
    // Anneal opens the driver first, in all places that it knows.
    const ProductEngine first =
        make_engine(product_of(64, "f32", Kernel::kAnneal, "cuda"), folder_);
    report_.machines["gpu"] = first.engine->device();
    has_gpu_ = true;
    const CopySpeeds speeds = copy_speeds_of_gpu(kCopiedBytes, limit_.all() * kShareOfCopies);
    Ceilings& limits = report_.ceilings["gpu"];
    limits.bytes_per_second = speeds.memory;
    limits.to_gpu = speeds.to_gpu;
    limits.from_gpu = speeds.from_gpu;
    std::printf("GPU: %s\n     copies: %.0f GB/s within its memory, %.1f to it, %.1f from it\n",
                report_.machines["gpu"].c_str(), speeds.memory / 1e9, speeds.to_gpu / 1e9,
                speeds.from_gpu / 1e9);
  }

  void measure(int64_t size, const std::string& type, Operands& operands) {
    if (const ProductEngine engine = attempt(size, type, Kernel::kAnneal, "cpu"); engine.engine) {
      report_.machines["cpu"] = cpu_name() + engine.engine->device();
      time({type, size, "cpu", "anneal", "host", engine.step_kernel},
           [&](Measurement& result) { measure_in_host_memory(engine, operands, limit_, result); });
    }
    if (!has_gpu_) return;
    for (const Kernel kernel :
         {Kernel::kAnneal, Kernel::kLibrary, Kernel::kTiled, Kernel::kNaive}) {
      const ProductEngine engine = attempt(size, type, kernel, "cuda");
      if (!engine.engine) continue;
      const std::string name = to_string(kernel);
      time({type, size, "gpu", name, "stays", engine.step_kernel},
           [&](Measurement& result) { measure_in_gpu_memory(engine, operands, limit_, result); });
      time({type, size, "gpu", name, "copied", engine.step_kernel},
           [&](Measurement& result) { measure_in_host_memory(engine, operands, limit_, result); });
    }
  }

  // An engine, or none, with a sentence about it in the report.
  ProductEngine attempt(int64_t size, const std::string& type, Kernel kernel,
                        const std::string& target) {
    const std::string what =
        type + " " + std::to_string(size) + " " + (target == "cpu" ? "cpu" : to_string(kernel));
    if (limit_.left() < 0) {
      skip(what + ": no time is left");
      return {};
    }
    // Timing launches each of two kernels about 160 times (docs/kernel_timing.md), which takes too
    // long at large sizes.
    const double needed = kernel == Kernel::kLibrary
                              ? kLaunchesOfTiming * expected(type, size, "gpu", "anneal", "stays")
                              : 0;
    if (needed > limit_.left() * kMostOfRest) {
      skip(what + ": to time cuBLASLt's kernels takes too long for --seconds");
      return {};
    }
    try {
      ProductEngine engine = make_engine(product_of(size, type, kernel, target), folder_);
      if (kernel != Kernel::kLibrary || engine.step_kernel.starts_with("cublaslt")) return engine;
      skip(what + ": cuBLASLt is missing or not faster than " + engine.step_kernel);
    } catch (const anneal::Error& error) {
      skip(what + ": " + error.what());
    }
    return {};
  }

  // Measures and reports, unless one run and its warm-up would take too long.
  void time(Measurement result, const std::function<void(Measurement&)>& measure) {
    const double once =
        expected(result.type, result.size, result.device, result.kernel, result.data);
    const std::string what = result.type + " " + std::to_string(result.size) + " " + result.device +
                             " " + result.kernel + " " + result.data;
    if (2 * once > limit_.left() * kMostOfRest)
      return skip(what +
                  (limit_.left() < 0 ? ": no time is left" : ": takes too long for --seconds"));
    try {
      measure(result);
    } catch (const std::exception& error) {
      report_.failed.push_back(what + ": " + error.what());
      std::printf("failed: %s\n", report_.failed.back().c_str());
      return;
    }
    report_.add(result);
    std::printf("%s %5lld  %-3s %-7s %-6s %12.1f us %10.4g TFLOP/s  %s\n", result.type.c_str(),
                static_cast<long long>(result.size), result.device.c_str(), result.kernel.c_str(),
                result.data.c_str(), result.seconds * 1e6, result.flops() / 1e12,
                result.step_kernel.c_str());
    for (const std::string& warning : result.warnings)
      std::printf("warning: %s\n", warning.c_str());
    std::fflush(stdout);
  }

  // Seconds of a run, from the same series at the last size; 0: not known.
  double expected(const std::string& type, int64_t size, const std::string& device,
                  const std::string& kernel, const std::string& data) const {
    double seconds = 0;
    for (const Measurement& each : report_.measurements)
      if (each.type == type && each.device == device && each.kernel == kernel &&
          each.data == data) {
        const double ratio = static_cast<double>(size) / static_cast<double>(each.size);
        seconds = each.seconds * ratio * ratio * ratio;
      }
    return seconds;
  }

  void count(int64_t size, const std::string& type, Operands& operands) {
    for (const Kernel kernel : {Kernel::kNaive, Kernel::kTiled, Kernel::kAnneal}) {
      if (limit_.left() < 0) {
        skip(type + " " + std::to_string(size) + " " + to_string(kernel) + ": no time is left");
        continue;
      }
      Count counted = count_bytes(product_of(size, type, kernel, "emulated"), operands, folder_,
                                  arguments_.anneal);
      counted.type = type;
      report_.machines["gpu"] = "emulated";
      report_.counts.push_back(counted);
      std::printf(
          "%s %4lld %-6s bytes: %8lld copied %9lld global load %8lld store %9lld shared  %s\n",
          type.c_str(), static_cast<long long>(size), counted.kernel.c_str(),
          static_cast<long long>(counted.copied), static_cast<long long>(counted.global_load),
          static_cast<long long>(counted.global_store), static_cast<long long>(counted.shared),
          counted.step_kernel.c_str());
      std::fflush(stdout);
    }
  }

  void skip(const std::string& sentence) {
    report_.skipped.push_back(sentence);
    std::printf("skipped: %s\n", sentence.c_str());
  }

  void print_end() const {
    for (const Crossover& each : report_.crossovers()) {
      const std::string from =
          each.size > 0 ? "from " + std::to_string(each.size) + " on" : "at no measured size";
      std::printf("%s, %s, data %s: faster than the CPU %s\n", each.type.c_str(),
                  each.kernel.c_str(), each.data.c_str(), from.c_str());
    }
    std::printf("%s has the results\n", arguments_.out.c_str());
  }

  static constexpr double kShareOfCopies = 0.01;  // of the time, for each of three kinds
  static constexpr double kLaunchesOfTiming = 300, kMostOfRest = 0.6;

  Arguments arguments_;
  std::string folder_;  // of products.so and models/
  TimeLimit limit_;
  Report report_;
  bool has_gpu_ = false;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::printf("%s", kUsage);
    return 0;
  }
  return Travel(parse(argc, argv)).run() ? 0 : 1;
} catch (const std::invalid_argument& error) {
  std::fprintf(stderr, "matmul_travel: %s\n%s", error.what(), kUsage);
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "matmul_travel: %s\n", error.what());
  return 1;
}
