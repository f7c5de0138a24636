// Runs a GPU's kernels of one step, and the GPU as a TimingMachine.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/builder/timing/gpu_operands.h"
#include "anneal/engine/builder/timing/layer_bench.h"

namespace anneal {

// A sample is 20 launches in a recorded graph, in turn on all sets of operands.
class GpuBench final : public LayerBench {
 public:
  // `step` and `device` outlive this.
  GpuBench(const TimedStep& step, Device& device);
  void add(const Kernel& kernel) override;
  double microseconds(size_t kernel) override;
  std::string difference(size_t kernel) override;

 private:
  struct Added {
    const Kernel* kernel;
    std::unique_ptr<PreparedKernel> prepared;
    std::unique_ptr<Buffer> workspace;
    std::unique_ptr<Recording> recording;  // null: the device has no such thing
  };
  void launch(const Added& added, size_t set);
  std::vector<std::vector<std::byte>> results(size_t kernel);

  const TimedStep& step_;
  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
  ThreadTeam team_{1};
  GpuOperands operands_;
  std::vector<Added> added_;
};

class GpuTimingMachine final : public TimingMachine {
 public:
  std::unique_ptr<LayerBench> bench(const TimedStep& step, Device& device) override {
    return std::make_unique<GpuBench>(step, device);
  }
  std::optional<unsigned> clock_mhz(const Device& device) override;
  double seconds() const override;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace anneal
