// The states of a model: inputs whose value is an output of the run before.
#pragma once
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/engine/builder/slot_table.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

// Plan::states for BuildOptions::states, in the order of the inputs. Fails with kInvalidArgument if
// a name matches no input or output, if a port would be in two states, or if the output cannot be
// the input of the next run: it has another type or number of axes, or an axis of another size.
std::vector<PortPair> state_ports(const Graph& graph,
                                  const std::map<std::string, std::string>& states);

// Plan::appended_ports: the states whose output is a Concat of their input and more rows, in a plan
// for the CPU alone. REQUIRES: slots has the ports
std::vector<AppendedPorts> appended_ports(const Graph& graph, std::span<const PortPair> states,
                                          std::span<const Place> places, const SlotTable& slots);
// Strides of both ports: row-major, but for the axis of the rows, which is outermost.
std::unordered_map<ValueId, Shape> strides_of_appended(const Graph& graph,
                                                       std::span<const AppendedPorts> appended);

}  // namespace anneal
