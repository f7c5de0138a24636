// The kernels of a plan, chosen again for the same layers.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/plan.h"

namespace anneal {

// Layers of one name, such as those of two bodies, are met in the plan's order. A layer that the
// plan has no step for keeps the kernel of the table: plan_difference() finds it.
class RecordedKernels final : public KernelChooser {
 public:
  // REQUIRES: the plan outlives this.
  explicit RecordedKernels(const Plan& plan);

  // Fails with kUnsupported, naming layer and kernel, if the kernel refuses the layer here.
  std::optional<Decision> choose(const Backend& backend, const Request& request,
                                 const std::string& layer, KernelChoice& chosen) override;

 private:
  struct Layer {
    std::vector<const Step*> steps;
    std::vector<const Decision*> timings;
    size_t next_step = 0, next_timing = 0;
  };
  void add(const Plan& plan);

  std::map<std::string, Layer, std::less<>> layers_;
};

}  // namespace anneal
