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
// another input or the bounds of a symbol, naming the port and its expected shape, or where sizes
// differ that must be equal. known: the values of outer symbols, for a body; may be empty.
SymbolValues solve_symbols(const Plan& plan, std::span<const Dims> dims_of_inputs,
                           const SymbolValues& known = {});

// The symbols that solve_symbols() finds for this plan, and those solvable outside of it.
std::vector<bool> solvable_symbols(const Plan& plan, std::vector<bool> outside = {});
// Whether the symbol is in it, or may be: sizes that are not known may have any.
bool contains_symbol(const SizeTable& sizes, Size size, uint32_t symbol);
// The shape of a port as callers bind it: a fixed batch has one size though its parts have others.
Shape port_shape(const Plan& plan, uint32_t slot);
// The dims of all inputs, if the plan is for a fixed batch that may run in parts, and its other
// sizes are known.
std::optional<std::vector<Dims>> fixed_batch_dims(const Plan& plan);
bool depends_on_values(const Shape& shape, const SizeTable& sizes,
                       const std::vector<bool>& solvable);

}  // namespace anneal
