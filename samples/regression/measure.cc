#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSizes[] = {1,   2,    5,    10,   20,    50,    100,  200,
                              500, 1000, 2000, 5000, 10000, 20000, 40000};
constexpr int kRounds = 11, kMostRuns = 100;  // of a round
constexpr double kMicrosecondsPerRound = 10e3;
constexpr double kMostMicroseconds = 1e6;  // at one size, against virtual cards

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// One context with its memory bound, and the times of its runs.
struct Way {
  anneal::ExecutionContext context;
  double BatchTime::*median;
  std::vector<double> microseconds = {};

  void bind(const anneal::ConstTensorView& input, const anneal::TensorView& output) {
    context.set_output("z", {});
    context.set_input("xy", input);
    context.set_output("z", output);
    run_round();  // prepares
    microseconds.clear();
  }

  void run_round() {
    const auto start = Clock::now();
    for (int i = 0; i < kMostRuns && microseconds_since(start) < kMicrosecondsPerRound; ++i) {
      const auto begin = Clock::now();
      context.run();
      microseconds.push_back(microseconds_since(begin));
    }
  }

  void store(BatchTime& time) {
    const auto middle = microseconds.begin() + static_cast<ptrdiff_t>(microseconds.size() / 2);
    std::ranges::nth_element(microseconds, middle);
    time.*median = *middle;
  }
};

// f32 memory of a GPU.
class GpuMemory {
 public:
  GpuMemory(const std::string& device, int number, size_t floats)
      : number_(number),
        memory_(
            anneal::allocate_memory(anneal::MemoryKind::kCuda, floats * sizeof(float), device)) {}
  // A tensor at its beginning.
  anneal::TensorView view(const anneal::Dims& dims) const {
    anneal::TensorView view = anneal::row_major_view(anneal::DataType::kF32, dims, memory_.get());
    view.place = {anneal::MemoryKind::kCuda, number_};
    return view;
  }

 private:
  int number_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace

std::vector<BatchTime> measure_times(const std::shared_ptr<const anneal::Engine>& cpu,
                                     const std::shared_ptr<const anneal::Engine>& gpu,
                                     const std::string& device, int number,
                                     std::span<const float> xy) {
  const auto all = static_cast<int64_t>(xy.size() / 2);
  const GpuMemory gpu_input(device, number, xy.size()), gpu_output(device, number, xy.size() / 2);
  anneal::copy_tensor(gpu_input.view({all, 2}), anneal::view(xy, {all, 2}));
  std::vector<float> cpu_heights(xy.size() / 2), gpu_heights(xy.size() / 2);

  // The thread that waits for the GPU keeps its core busy, as an application does that wants short
  // runs.
  const anneal::ContextOptions busy = {.spin = true};
  Way ways[] = {{anneal::ExecutionContext(cpu), &BatchTime::cpu},
                {anneal::ExecutionContext(gpu, busy), &BatchTime::gpu},
                {anneal::ExecutionContext(gpu, busy), &BatchTime::gpu_resident}};
  std::vector<BatchTime> times;
  for (const int64_t points : kSizes) {
    if (points > all) break;
    const auto count = static_cast<size_t>(points);
    const auto input = anneal::view(xy.first(2 * count), {points, 2});
    ways[0].bind(input, anneal::view(std::span(cpu_heights).first(count), {points, 1}));
    ways[1].bind(input, anneal::view(std::span(gpu_heights).first(count), {points, 1}));
    ways[2].bind(gpu_input.view({points, 2}), gpu_output.view({points, 1}));
    // They take turns, so that other work of the machine affects all alike.
    const auto start = Clock::now();
    for (int round = 0; round < kRounds && microseconds_since(start) < kMostMicroseconds; ++round)
      for (Way& way : ways) way.run_round();
    times.push_back({.points = points});
    for (Way& way : ways) way.store(times.back());
  }
  std::vector<float> resident(gpu_heights.size());
  anneal::copy_tensor(anneal::view(resident, {all, 1}), gpu_output.view({all, 1}));
  if (resident != gpu_heights)
    std::fprintf(stderr, "warning: the heights depend on where the memory is\n");
  return times;
}
