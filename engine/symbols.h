// The values of a plan's symbols, given the sizes of its inputs.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

using SymbolValues = std::vector<std::optional<int64_t>>;  // by symbol index

// Symbols that appear alone as a size of an input get that size; the others stay unknown (they
// depend on values). Fails with kInvalidArgument where an input contradicts the plan, itself,
// another input or the bounds of a symbol, naming the port and what it wants. known: what a body's
// symbols are worth outside; may be empty.
SymbolValues solve_symbols(const Plan& plan, std::span<const Dims> dims_of_inputs,
                           const SymbolValues& known = {});

// The symbols that solve_symbols() finds for this plan, and those solvable outside of it.
std::vector<bool> solvable_symbols(const Plan& plan, std::vector<bool> outside = {});
bool depends_on_values(const Shape& shape, const SizeTable& sizes,
                       const std::vector<bool>& solvable);

}  // namespace anneal
