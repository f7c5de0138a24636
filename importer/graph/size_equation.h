// One equation between two sizes, solved for a symbol.
#pragma once
#include <optional>
#include <vector>

#include "anneal/core/size/size.h"

namespace anneal {

struct SizeSolution {
  Size symbol, value;  // the value does not have the symbol
};

// The symbol that a == b leaves one value, computed from the others. unknowns, by index: the
// symbols that may be solved for, and that values may have. nullopt: no symbol is, as in a * b ==
// 16, 2 * s == 4 * ((s + 1)//2), or 2 * a == 3 * b.
std::optional<SizeSolution> solve_equation(Size a, Size b, const std::vector<bool>& unknowns,
                                           SizeTable& sizes);
// Whether it is proved that no values of the symbols make the sizes equal.
bool has_no_solution(Size a, Size b, SizeTable& sizes);

}  // namespace anneal
