// The memory of a GPU that a step of a plan is timed on.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/engine/builder/timing/timed_step.h"

namespace anneal {

// Several sets of the step's operands at the sizes to optimize for: the plan's weights, floats and
// 8-bit integers random, other integers 0. Launches take turns with them, so that each finds its
// operands outside of the second-level cache.
class GpuOperands {
 public:
  static constexpr size_t kMostSets = 20;
  // `step` outlives this. Fails as opt_size() and Device do.
  GpuOperands(const TimedStep& step, Device& device, DeviceStream& stream, size_t cache_bytes);

  struct Set {
    std::vector<TensorView> inputs, outputs;
  };
  std::span<const Set> sets() const { return sets_; }
  // Puts other bytes into the cache, where the sets together do not fill it.
  void leave_the_cache(DeviceStream& stream);
  // Fills the outputs of the first set with one byte, which a kernel overwrites; and reads them.
  void spoil_outputs(DeviceStream& stream);
  std::vector<std::vector<std::byte>> read_outputs(DeviceStream& stream);

 private:
  TensorView view_of(const Operand& operand, const Tensor* weight, bool on_host, uint64_t seed,
                     DeviceStream& stream);

  Device& device_;
  const SizeTable& sizes_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::vector<std::byte>> on_host_;
  std::vector<Set> sets_;
  size_t set_bytes_ = 0;
  std::unique_ptr<Buffer> others_;  // null: not needed
};

}  // namespace anneal
