#include "measure.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// A measurement takes this share of the whole time, or one run if that is longer.
constexpr double kShare = 1.0 / 400;
constexpr size_t kMostRuns = 100;
// The first run launches the steps, the second one records them as a CUDA graph, the third one
// replays it for the first time.
constexpr int kWarmUps = 3;

// A thread that waits for the GPU keeps its core busy: a wake-up would cost more than a small
// product.
const anneal::ContextOptions kSpinning = {.spin = true};

double seconds_of_run(anneal::ExecutionContext& context) {
  const auto start = Clock::now();
  context.run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void measure(anneal::ExecutionContext& context, const TimeLimit& limit, Measurement& result) {
  const double most = limit.all() * kShare;
  double warm_up = 0;
  for (int i = 0; i < kWarmUps && warm_up < most; ++i) warm_up += seconds_of_run(context);
  std::vector<double> seconds;
  for (double sum = 0; seconds.empty() || (sum < most && seconds.size() < kMostRuns);
       sum += seconds.back())
    seconds.push_back(seconds_of_run(context));
  std::ranges::sort(seconds);
  result.runs = static_cast<int64_t>(seconds.size());
  result.seconds = seconds[seconds.size() / 2];
  result.fastest_seconds = seconds[0];
  result.warnings.assign(context.run_warnings().begin(), context.run_warnings().end());
}

}  // namespace

double copy_speed_of_cpu(size_t bytes) {
  std::vector<std::byte> from(bytes), to(bytes);
  const size_t threads = std::max(1u, std::thread::hardware_concurrency());
  const auto copy = [&] {
    std::vector<std::jthread> team;
    for (size_t i = 0; i < threads; ++i)
      team.emplace_back([&, begin = bytes * i / threads, end = bytes * (i + 1) / threads] {
        std::memcpy(&to[begin], &from[begin], end - begin);
      });
  };
  double fastest = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    copy();
    fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return 2 * static_cast<double>(bytes) / fastest;
}

void measure_in_host_memory(const ProductEngine& engine, Operands& operands, const TimeLimit& limit,
                            Measurement& result) {
  operands.clear();
  anneal::ExecutionContext context(engine.engine, kSpinning);
  context.set_input("a", operands.a());
  context.set_input("b", operands.b());
  context.set_output("c", operands.c());
  measure(context, limit, result);
  operands.check();
}

void measure_in_gpu_memory(const ProductEngine& engine, Operands& operands, GpuMemory& memory,
                           const TimeLimit& limit, Measurement& result) {
  operands.clear();
  const GpuMemory::Buffer a = memory.copy_of(operands.a()), b = memory.copy_of(operands.b()),
                          c = memory.copy_of(operands.c());
  anneal::ExecutionContext context(engine.engine, kSpinning);
  context.set_input("a", GpuMemory::view(a, operands.a()));
  context.set_input("b", GpuMemory::view(b, operands.b()));
  context.set_output("c", GpuMemory::view(c, operands.c()));
  measure(context, limit, result);
  operands.check([&](int64_t row, std::byte* to) {
    const size_t bytes = operands.bytes() / static_cast<size_t>(operands.c().dims[0]);
    memory.copy(to, c.get() + static_cast<size_t>(row) * bytes, bytes);
  });
}
