// States to which each run appends rows: Plan::appended_ports.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "anneal/engine/builder/slot_table.h"

namespace anneal {

// The states whose output is a Concat of their input and more rows, in a plan for the CPU alone.
// REQUIRES: slots has the ports
std::vector<AppendedPorts> appended_ports(const Graph& graph, std::span<const PortPair> states,
                                          std::span<const Place> places, const SlotTable& slots);
// Strides of both ports: row-major, but for the axis of the rows, which is outermost.
std::unordered_map<ValueId, Shape> strides_of_appended(const Graph& graph,
                                                       std::span<const AppendedPorts> appended);

}  // namespace anneal
