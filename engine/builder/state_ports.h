// The states of a model: inputs whose value is an output of the run before.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

// Plan::states for BuildOptions::states, in the order of the inputs. Fails with kInvalidArgument if
// a name matches no input or output, if a port would be in two states, or if the output cannot be
// the input of the next run: it has another type or number of axes, or an axis of another size.
std::vector<PortPair> state_ports(const Graph& graph,
                                  const std::map<std::string, std::string>& states);

}  // namespace anneal
