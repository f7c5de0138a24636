// The machine code of a plan whose steps were given other kernels.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/engine/plan.h"

namespace anneal {

// Makes the kernels that the steps of the plan's first device name, completes the tactics of those
// without a choice, and returns their code. recorded: code of an earlier plan, of which the parts
// that fit are kept. REQUIRES: a GPU's plan without code, and that the device compiled nothing yet.
// A library's kernel may refuse where the step has a runner-up, whose code is then made. Fails with
// kUnsupported, naming step and kernel, if another one refuses; as prepare_code() does.
std::vector<std::byte> code_of_steps(const EngineFile& file, Plan& plan, Device& device,
                                     std::span<const std::byte> recorded);

// The plan's code, and that of the kernel that loading takes for each step of the device whose
// tactic a library or a device refuses: such a load needs no compiler. recorded: as above. A plan
// without code gets none, such as one for the emulated device.
std::vector<std::byte> with_fallback_code(const EngineFile& file, const Plan& plan, Device& device,
                                          std::span<const std::byte> recorded);

}  // namespace anneal
