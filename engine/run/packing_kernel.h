// A kernel that packs its large constants before each launch.
#pragma once
#include <memory>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/memory/shared_packing.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

struct PlannedStep {
  const EngineFile& file;
  const Plan& plan;
  const Step& step;
  const KernelEntry& entry;
  Device& device;
};

// `kernel` is the one of the step, made with constants in `packing`, from its begin on. Making the
// kernel again packs them there again. What the step refers to must outlive it.
std::unique_ptr<Kernel> packing_kernel(const PlannedStep& step, std::unique_ptr<Kernel> kernel,
                                       std::shared_ptr<SharedPacking> packing);

}  // namespace anneal
