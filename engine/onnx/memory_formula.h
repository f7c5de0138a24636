// The memory of a context as formulas in the open sizes of a plan's inputs.
#pragma once
#include <string>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// The activations of one device, in bytes: those that live at the step where most live, at the
// sizes that the plan is best for. An arena has at least these; gaps come on top, and at other
// sizes another step may need more.
struct ActivationFormula {
  std::string device;
  std::string bytes;  // "3612672*N"
  std::string step;   // "step \"conv1\" (Conv)"
};
// Without the bodies of control flow, whose activations lie in arenas of their own.
struct MemoryFormula {
  std::vector<ActivationFormula> activations;  // of devices that have any
  std::string inputs, outputs;                 // bytes of all; "?" if their sizes depend on values
  // Of outputs that the caller gave no memory for; in a plan for a GPU, also of its inputs.
  std::string staging;
};
// The slots of MemoryFormula::staging.
std::vector<uint32_t> staged_ports(const Plan& plan);
// Empty if no size is open, and where a formula is too long to be of use.
MemoryFormula memory_formula(const Plan& plan);

}  // namespace anneal
