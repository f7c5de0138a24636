// What the steps of a plan do with the memory of its ports.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

struct PortCopies {
  // Slots of a GPU that are copied from the input, or to the output, and may be its memory instead:
  // no step writes them after or besides the copy.
  std::vector<uint32_t> slots = {};
  // Whether steps of the CPU use the port, not only copies between it and a GPU.
  bool is_used_by_cpu = false;
};
PortCopies copies_of_input(const Plan& plan, uint32_t slot);
PortCopies copies_of_output(const Plan& plan, uint32_t slot);

}  // namespace anneal
