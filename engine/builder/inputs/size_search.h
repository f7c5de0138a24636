// The search for sizes that the layers of a plan accept together.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/builder/inputs/sized_plan.h"

namespace anneal {

// A symbol that the search may choose: from start on, within [min, max].
struct SearchedSize {
  uint32_t symbol = 0;
  int64_t start = 1, min = 1, max = 1;
};

struct SizeSearchResult {
  SymbolValues values;    // of the best choice
  std::string complaint;  // what its layers do not accept; empty: they accept all
  // Values that follow from inputs and that a layer may refuse, or refused in the run; empty: it
  // accepts all.
  std::string doubt;
  std::vector<Fact> facts;  // by slot, if they accept all
};

// values: those that are not searched. Begins with the starts, and changes sizes that occur in the
// first step that refuses, until none does. Empty results are avoided where they can be.
// Deterministic, and ends after a number of steps. run: a run with sizes that the layers accept;
// may be empty.
SizeSearchResult search_sizes(const Plan& plan, std::span<const Tensor> weights,
                              const SymbolValues& values, std::span<const SearchedSize> searched,
                              const TrialRun& run = {});

// The dims of all inputs.
std::vector<Dims> dims_of_inputs(const Plan& plan, const SymbolValues& values);

}  // namespace anneal
