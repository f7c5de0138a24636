// On which device the operands of control flow lie, and with them the ports of its bodies.
#pragma once
#include <span>
#include <vector>

#include "anneal/engine/builder/layout.h"
#include "anneal/graph/graph.h"

namespace anneal {

// The layouts of a graph, and of those of its bodies that have layers for the first place.
// solvable: symbols whose value follows from the inputs. on_host: by output, may be empty: it is
// wanted on the last place, if small.
Layouts choose_layouts_with_bodies(const Graph& graph, std::span<const Place> places,
                                   const std::vector<bool>& solvable,
                                   const std::vector<bool>& on_host = {});

}  // namespace anneal
