// Joining a Pointwise layer's program with another program.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/optimizer/pass.h"

namespace anneal {

// A program with the values that it reads and gives. kNone stands for an accumulator.
struct Stage {
  const Program& program;
  std::span<const ValueId> inputs, outputs;
};

struct JoinedProgram {
  Program program;
  std::vector<ValueId> inputs;   // of the joined program
  std::vector<ValueId> outputs;  // whose place its results take: the kept ones, then the consumer's
};

// The consumer's program, with the producer's results in place of the inputs that are its outputs.
// kept: those of the producer's outputs that stay results. Inputs that are the same value become
// one. nullopt if it would have more than 32 inputs, 8 results or 512 instructions.
std::optional<JoinedProgram> join_programs(const Stage& producer, const Stage& consumer,
                                           std::span<const ValueId> kept);

// For a layer with one op output: its present program on accumulators (the epilogue or the rounding
// of its store), and the values that it reads.
Program store_program(const Layer& layer, DataType dtype);
std::vector<ValueId> epilogue_inputs(const Layer& layer);

// Why a target would run `joined` on no kernel of its own, though it has one for the present layer
// `id`; empty if none would.
std::string why_not_joined(const Graph& graph, const PassRun& run, LayerId id,
                           const NewLayer& joined);

// The outputs of `by` take the place of values, in order.
void take_over(Graph& graph, std::span<const ValueId> values, LayerId by);

}  // namespace anneal
