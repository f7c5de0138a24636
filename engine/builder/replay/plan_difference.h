// The difference between the plans of two models that should differ in their weights alone.
#pragma once
#include <cstddef>
#include <string>

#include "anneal/engine/plan.h"

namespace anneal {

// The first difference, as a sentence that names the input, layer or value, and has what it is in
// the engine and in the new model. Empty: none. Not compared are decisions, compiled code, the name
// of the graph, literals of programs, and which index a weight has.
std::string plan_difference(const Plan& engine, const Plan& made);

// How many literals of programs differ. REQUIRES: plan_difference() is empty
size_t changed_literals(const Plan& engine, const Plan& made);
// Whether each slot of a weight, and each default value, has the same index. REQUIRES: as above
bool has_same_indices(const Plan& engine, const Plan& made);

}  // namespace anneal
