#include "measure.h"

#include <algorithm>
#include <cstring>
#include <memory>
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

// A copy of a matrix in the memory of GPU 0.
class GpuMatrix {
 public:
  explicit GpuMatrix(const anneal::TensorView& host)
      : memory_(anneal::allocate_memory(
            anneal::MemoryKind::kCuda,
            static_cast<size_t>(anneal::count(host.dims)) * anneal::size_of(host.dtype), "cuda")),
        view_(anneal::row_major_view(host.dtype, host.dims, memory_.get())) {
    view_.place = {anneal::MemoryKind::kCuda, 0};
    anneal::copy_tensor(view_, host);
  }
  const anneal::TensorView& view() const { return view_; }

 private:
  std::shared_ptr<std::byte> memory_;
  anneal::TensorView view_;
};

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

void measure_in_gpu_memory(const ProductEngine& engine, Operands& operands, const TimeLimit& limit,
                           Measurement& result) {
  operands.clear();
  const GpuMatrix a(operands.a()), b(operands.b()), c(operands.c());
  anneal::ExecutionContext context(engine.engine, kSpinning);
  context.set_input("a", a.view());
  context.set_input("b", b.view());
  context.set_output("c", c.view());
  measure(context, limit, result);
  anneal::copy_tensor(operands.c(), c.view());
  operands.check();
}

CopySpeeds copy_speeds_of_gpu(size_t bytes, double seconds) {
  const anneal::Dims dims = {static_cast<int64_t>(bytes)};
  const auto page_locked = anneal::allocate_memory(anneal::MemoryKind::kPinnedHost, bytes, "cuda");
  std::memset(page_locked.get(), 0, bytes);
  const auto host = anneal::row_major_view(anneal::DataType::kU8, dims, page_locked.get());
  const GpuMatrix one(host), two(host);
  const auto speed = [&](const anneal::TensorView& to, const anneal::TensorView& from) {
    anneal::copy_tensor(to, from);
    std::vector<double> times;
    for (double sum = 0; times.empty() || (sum < seconds && times.size() < 5);
         sum += times.back()) {
      const auto start = Clock::now();
      anneal::copy_tensor(to, from);
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::ranges::sort(times);
    return static_cast<double>(bytes) / times[times.size() / 2];
  };
  return {.memory = 2 * speed(two.view(), one.view()),
          .to_gpu = speed(one.view(), host),
          .from_gpu = speed(host, two.view())};
}
