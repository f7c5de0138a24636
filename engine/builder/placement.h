// Values that are written directly into the memory of another value, and transposes that are views.
// Both are decided before any step is emitted, by asking kernels whether they take the strides.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/readers.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// A Concat's operand is written into its part of the result, what only a Reshape or Transpose reads
// is written as its reader's output lies; so both need no step. Chains of them end in the kernel
// that writes the memory, which must take the strides without falling back to a worse kernel.
struct ValuePlacement {
  struct Inside {
    LayerId by = LayerId::kNone;  // a Concat, Reshape or Transpose
    size_t operand = 0;           // the input of it that the value is
  };
  std::unordered_map<ValueId, Inside> inside;
  // Transposes whose readers take their strided output.
  std::unordered_set<LayerId> moved_views;
  std::vector<Decision> decisions;
};

struct PlacementQuestion {
  const Graph& graph;
  std::span<const Place> places;
  const Layouts& layouts;
  const Readers& readers;
  std::function<bool(ValueId)> late;  // its size depends on values
  // Of a graph output that is written straight to its port: where that lies.
  std::function<std::optional<size_t>(ValueId)> port_place;
  bool copies_parts = false;  // the operands of a Concat, and slices, stay apart
};
ValuePlacement place_values(const PlacementQuestion& question);

}  // namespace anneal
