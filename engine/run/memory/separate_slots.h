// Memory of a plan with one allocation per tensor, between red zones, on devices other than the
// CPU. It finds kernels that access memory outside their tensors (EngineOptions::separate_slots).
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/engine/run/memory/guarded_buffer.h"

namespace anneal {

// By device and index of the weight; null if the device does not read it.
using SeparateWeights = std::vector<std::vector<std::unique_ptr<GuardedBuffer>>>;

class SeparateSlots {
 public:
  // Views are in their bases' memory, and an output that is written over its input is a view of it.
  // All must outlive this; the last of the plan's devices is the CPU. zone: of GuardedBuffer.
  SeparateSlots(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                std::span<const std::unique_ptr<DeviceStream>> streams,
                const SeparateWeights& weights, size_t zone);

  // Of the arena's slots, at these sizes.
  size_t bytes_for(const BoundPlan& bound) const;
  // Gives each slot of the arena exactly its bytes. Addresses of slots whose sizes stay, stay.
  void place(const BoundPlan& bound);
  std::byte* data(size_t slot) const { return buffers_[slot]->data(); }
  size_t bytes() const;

  // Fails with kInternal if a red zone has changed, naming the tensor and the steps that use it;
  // the zone is filled again. Contexts of an engine share its weights, so the first context that
  // checks reports a change, which another may have made. REQUIRES: the streams are waited for
  void check();

 private:
  bool has_buffer(size_t slot) const;  // of the arena of a device other than the CPU
  // Calls visit(buffer, device, slot) for each slot of the arena and each weight.
  template <class Visit>
  void for_each(Visit&& visit);

  const Plan& plan_;
  std::span<const std::unique_ptr<Device>> devices_;
  std::span<const std::unique_ptr<DeviceStream>> streams_;
  const SeparateWeights& weights_;
  const size_t zone_;
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_;  // by slot
  std::vector<std::unique_ptr<Buffer>> zones_;           // by device: copies of all red zones
};

}  // namespace anneal
