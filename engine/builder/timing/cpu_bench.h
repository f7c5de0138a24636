// Runs the CPU's kernels of one layer as they would run in a network.
#pragma once
#include <memory>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/builder/timing/layer_bench.h"
#include "anneal/engine/builder/timing/timed_operands.h"

namespace anneal {

// The layer's weights are out of the cores' own caches and its other inputs in them, as after the
// layer before. A run is one launch.
class CpuBench final : public LayerBench {
 public:
  // `request` need not outlive it; its constants and its device must.
  CpuBench(const Request& request, int threads);
  void add(const Kernel& kernel) override;
  double microseconds(size_t kernel) override;
  std::string difference(size_t) override { return {}; }  // tests compare them with the reference

 private:
  struct Added {
    const Kernel* kernel;
    std::unique_ptr<PreparedKernel> prepared;
    std::unique_ptr<Buffer> workspace;
  };
  Device& device_;
  int threads_;
  ThreadTeam team_;
  TimedOperands operands_;
  std::vector<Added> added_;
};

}  // namespace anneal
