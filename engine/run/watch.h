// Observation of slots: the tensors that an observer receives, and the step after which each is
// complete.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// Slots by the step that gives them their values, at index step + 1: the step's outputs, then the
// views of these that no step writes. Index 0: views of inputs and weights. After a later step the
// memory of a slot may be overwritten.
std::vector<std::vector<uint32_t>> slots_by_step(const Plan& plan);

}  // namespace anneal
