// Follows sizes that depend on values, for refine() and replace_uses().
#pragma once
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// Marks, by index, the symbols that are alone a size of the shape.
void mark_symbols(const Shape& shape, const SizeTable& sizes, std::vector<bool>& symbols);

// A symbol that is `before` stands for `now` from here on, unless it is one of `fixed`.
void note_replacement(Size before, Size now, const std::vector<bool>& fixed, SizeTable& sizes,
                      SizeReplacements& replaced);

}  // namespace anneal
