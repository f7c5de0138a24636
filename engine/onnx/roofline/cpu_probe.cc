// Measuring the ceilings of this CPU.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/onnx/roofline/ceilings.h"
#include "anneal/engine/onnx/roofline/cpu_loops.h"
#include "anneal/kernels/cpu/base/device.h"

namespace anneal {
namespace {

using ProbeClock = std::chrono::steady_clock;

constexpr size_t kMebi = size_t{1} << 20;
// Of all arrays in the memory: of less than eight times the last cache, it would keep a part.
constexpr size_t kLeastMemory = 128 * kMebi, kMostMemory = 2048 * kMebi, kTimesCache = 8;
constexpr double kRateSeconds = 0.15;   // for each arithmetic
constexpr double kStreamSeconds = 0.3;  // for each stream, which needs all cores at a time
constexpr int kFewestTimes = 20;
// A tenth of a millisecond, seldom interrupted; and a few of these.
constexpr int64_t kRounds = 20000;
constexpr int kLoops = 20;
// An assumption: the call of the kernel, and the start of the threads.
constexpr double kStartSeconds = 1e-6;

double seconds_since(ProbeClock::time_point begin) {
  return std::chrono::duration<double>(ProbeClock::now() - begin).count();
}

// body(thread) on all threads at a time, again and again: the shortest time from the start of the
// first thread to the end of the last, since what disturbs them only adds to it. A ThreadTeam would
// give the work of a thread that comes late to another one.
class TimedTogether {
 public:
  TimedTogether(int threads, std::function<void(int thread)> body)
      : threads_(threads),
        body_(std::move(body)),
        barrier_(threads),
        begins_(static_cast<size_t>(threads)) {}

  double shortest(double seconds) {
    seconds_ = seconds;
    std::vector<std::jthread> others;
    try {
      for (int thread = 1; thread < threads_; ++thread)
        others.emplace_back([this, thread] { repeat(thread); });
    } catch (const std::system_error&) {
      is_done_ = true;  // after the round for which the others wait
      for (auto missing = others.size(); missing < static_cast<size_t>(threads_); ++missing)
        barrier_.arrive_and_drop();
      fail(ErrorCode::kOutOfMemory, fmt::format("the system refuses {} threads", threads_));
    }
    repeat(0);
    return std::max(shortest_, kShortest);
  }

 private:
  static constexpr double kShortest = 1e-9;

  void repeat(int thread) {
    for (int i = 1;; ++i) {
      barrier_.arrive_and_wait();
      begins_[static_cast<size_t>(thread)] = ProbeClock::now();
      body_(thread);
      barrier_.arrive_and_wait();
      if (thread == 0) {
        const double took = seconds_since(*std::ranges::min_element(begins_));
        shortest_ = std::min(shortest_, took);
        spent_ += took;
        is_done_ = i >= kFewestTimes && spent_ >= seconds_;
      }
      barrier_.arrive_and_wait();
      if (is_done_) return;
    }
  }

  const int threads_;
  const std::function<void(int thread)> body_;
  std::barrier<> barrier_;
  std::vector<ProbeClock::time_point> begins_;  // of the round, by thread
  double seconds_ = 0, shortest_ = 1e30, spent_ = 0;
  bool is_done_ = false;  // the barrier orders it
};

// A data cache of the first processor.
struct CpuCache {
  int level = 0;
  size_t bytes = 0;
  size_t sharers = 1;  // processors
};

std::string line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The numbers in a list such as "0-3,8".
size_t count_in_list(const std::string& list) {
  int count = 0;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    int first = 0, last = 0;
    const int read = std::sscanf(list.substr(at, end - at).c_str(), "%d-%d", &first, &last);
    count += read == 2 ? std::max(last - first + 1, 1) : read == 1 ? 1 : 0;
    at = end + 1;
  }
  return static_cast<size_t>(std::max(count, 1));
}

// Beyond the first level, ascending. Where the system does not say, those of a common server.
std::vector<CpuCache> caches_of_system() {
  std::vector<CpuCache> caches;
  std::error_code ignored;
  const std::filesystem::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string type = line_of(entry.path() / "type"), size = line_of(entry.path() / "size");
    const std::string level = line_of(entry.path() / "level");
    unsigned long long number = 0;
    char unit = 'B';
    if (type.empty() || type == "Instruction" || level < "2" || level > "9") continue;
    if (std::sscanf(size.c_str(), "%llu%c", &number, &unit) < 1) continue;
    const size_t scale = unit == 'K' ? 1024 : unit == 'M' ? kMebi : 1;
    caches.push_back({level[0] - '0', static_cast<size_t>(number) * scale,
                      count_in_list(line_of(entry.path() / "shared_cpu_list"))});
  }
  std::ranges::sort(caches, {}, &CpuCache::level);
  if (caches.empty())
    caches = {{2, kMebi, 1}, {3, 16 * kMebi, static_cast<size_t>(hardware_threads())}};
  return caches;
}

using StreamMemory = std::unique_ptr<std::byte, decltype(&std::free)>;

StreamMemory stream_memory(size_t bytes) {
  StreamMemory memory(static_cast<std::byte*>(std::aligned_alloc(kStreamBlock, bytes)), &std::free);
  if (!memory) fail_out_of_memory();
  std::memset(memory.get(), 1, bytes);
  return memory;
}

// The two arrays of a thread, streamed piece by piece: a short piece is seldom interrupted.
class Streams {
 public:
  explicit Streams(size_t bytes_of_both)
      : piece_(blocks(std::min(bytes_of_both / 2, kLongestPiece))),
        pieces_(std::max(bytes_of_both / 2 / piece_, size_t{1})),
        passes_(pieces_ == 1 ? std::max(kBytesAtOnce / (2 * piece_), size_t{1}) : 1) {}

  size_t bytes_at_once() const { return 2 * piece_ * passes_; }
  // pass(from, to, bytes) goes once through both.
  template <class Pass>
  void stream(const Pass& pass) {
    if (!memory_) memory_ = stream_memory(2 * piece_ * pieces_);  // near the thread's core
    std::byte* const at = memory_.get() + 2 * piece_ * now_;
    now_ = (now_ + 1) % pieces_;
    for (size_t i = 0; i < passes_; ++i) pass(at, at + piece_, piece_);
  }

 private:
  static constexpr size_t kLongestPiece = 16 * kMebi, kBytesAtOnce = 256 * kMebi;
  static size_t blocks(size_t bytes) {
    return std::max(bytes / kStreamBlock, size_t{1}) * kStreamBlock;
  }

  size_t piece_, pieces_, passes_, now_ = 0;
  StreamMemory memory_{nullptr, &std::free};
};

// Bytes per second of all threads.
template <class Pass>
double streamed(int threads, size_t bytes_of_thread, const Pass& pass) {
  std::vector<Streams> streams;
  for (int thread = 0; thread < threads; ++thread) streams.emplace_back(bytes_of_thread);
  TimedTogether together(threads,
                         [&](int thread) { streams[static_cast<size_t>(thread)].stream(pass); });
  return static_cast<double>(streams[0].bytes_at_once()) * threads /
         together.shortest(kStreamSeconds);
}

MemoryLevel measured_level(int threads, Isa isa, size_t bytes_of_thread) {
  const StreamLoops loops = stream_loops(isa);
  MemoryLevel level;
  level.read = streamed(threads, bytes_of_thread, [&](auto* from, auto*, size_t bytes) {
    loops.read(from, 2 * bytes);  // the second array follows
  });
  level.copy = streamed(threads, bytes_of_thread,
                        [&](auto* from, auto* to, size_t bytes) { loops.copy(to, from, bytes); });
  return level;
}

// Each on arrays that the level holds, and the next faster one does not.
std::vector<MemoryLevel> measured_levels(int threads, Isa isa) {
  const auto count = static_cast<size_t>(threads);
  std::vector<MemoryLevel> levels;
  size_t faster = 0;  // bytes of the level before, of one thread
  for (const CpuCache& cache : caches_of_system()) {
    const size_t of_thread = cache.bytes / std::clamp<size_t>(cache.sharers, 1, count);
    if (of_thread / 2 <= 2 * faster) continue;
    levels.push_back(measured_level(threads, isa, of_thread / 2));
    levels.back().name = fmt::format("L{}", cache.level);
    levels.back().bytes = of_thread * count;
    faster = of_thread;
  }
  const size_t all = std::clamp(kTimesCache * faster * count, kLeastMemory, kMostMemory);
  levels.push_back(measured_level(threads, isa, all / count));
  levels.back().name = "memory";
  return levels;
}

// The sum of the best rates of all threads, while the others compute as well.
double measured_rate(int threads, const PeakLoop& loop) {
  std::vector<double> shortest(static_cast<size_t>(threads), 1e30);
  TimedTogether together(threads, [&](int thread) {
    double& least = shortest[static_cast<size_t>(thread)];
    for (int i = 0; i < kLoops; ++i) {
      const auto begin = ProbeClock::now();
      loop.run(kRounds);
      least = std::min(least, std::max(seconds_since(begin), 1e-9));
    }
  });
  together.shortest(kRateSeconds);
  double sum = 0;
  for (const double seconds : shortest)
    sum += static_cast<double>(kRounds) * loop.operations / seconds;
  return sum;
}

Isa isa_named(const std::string& name) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kFull})
    if (to_string(isa) == name && isa <= current_isa()) return isa;
  refuse_argument(fmt::format(
      "the ceilings of \"{}\" cannot be measured: this CPU with ANNEAL_MAX_ISA={} allows {}", name,
      to_string(max_isa()), to_string(current_isa())));
}

}  // namespace

RooflineCeilings probe_cpu(const std::string& isa_name, int threads) {
  const Isa isa = isa_named(isa_name);
  const int used = std::clamp(threads, 1, largest_team());
  RooflineCeilings made;
  made.device = cpu::processor_model();
  made.isa = isa_name;
  made.threads = threads;
  for (const PeakLoop& loop : peak_loops(isa, cpu::computes_bf16(isa)))
    made.rates.push_back({loop.type, measured_rate(used, loop)});
  // A register has half as many f64.
  made.rates.push_back({ProductType::kF64, made.rate(ProductType::kF32) / 2});
  std::ranges::sort(made.rates, {}, &ProductRate::type);
  made.levels = measured_levels(used, isa);
  made.start_seconds = kStartSeconds;
  made.date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  return made;
}

double RooflineCeilings::rate(ProductType type) const {
  double f32 = 0;
  for (const ProductRate& each : rates) {
    if (each.type == type) return each.per_second;
    if (each.type == ProductType::kF32) f32 = each.per_second;
  }
  return f32;
}

const MemoryLevel& RooflineCeilings::level_of(double bytes) const {
  for (const MemoryLevel& level : levels)
    if (level.bytes == 0 || static_cast<double>(level.bytes) >= bytes) return level;
  return levels.back();
}

}  // namespace anneal
