// Joining a Pointwise layer's program behind another program.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

struct JoinedProgram {
  Program program;
  std::vector<ValueId> inputs;  // of the joined program; kNone stands for an accumulator
};

// The consumer's program with the producer's single result in place of every input that is
// `between`. Inputs that are the same value become one. nullopt if the result would have more than
// 32 inputs or 512 instructions.
std::optional<JoinedProgram> join_programs(const Program& producer,
                                           std::span<const ValueId> producer_inputs,
                                           const Program& consumer,
                                           std::span<const ValueId> consumer_inputs,
                                           ValueId between);

}  // namespace anneal
