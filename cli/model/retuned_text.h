// What a command says about plans whose kernels were timed.
#pragma once
#include <string>
#include <vector>

#include "anneal/engine/onnx/retune.h"

namespace anneal {

// A line for each plan: "  sm_90: 3 of 54 steps have another kernel or tactic", or why it has not.
std::string retuned_text(const std::vector<RetunedPlan>& plans);

}  // namespace anneal
