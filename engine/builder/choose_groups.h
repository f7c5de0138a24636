// Fused layers of a GPU's plan that run apart, where that is faster.
#pragma once
#include <string_view>
#include <vector>

#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/builder/timing/gpu_tuner.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

// The stage of the decision that a layer runs as several; the subject is the layer. Refused: it
// stays one.
inline constexpr std::string_view kApart = "apart";

// Compares the time of each fused layer with the sum of its parts' times (split_fused() in
// optimizer/split_fused.h), each with the kernels that `tuner` chooses, and takes those
// layers apart whose parts take less than 98 %. Both forms are timed or known, else nothing
// changes. Copies between layouts are not counted.
std::vector<Decision> choose_groups(Graph& graph, const Target& target, const GpuPlace& place,
                                    GpuTuner& tuner);

// Takes apart what the recorded plan has apart, and gives its decisions.
std::vector<Decision> repeat_groups(Graph& graph, const Plan& recorded);

}  // namespace anneal
