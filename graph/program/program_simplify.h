// Simplification of the instructions of a program.
#pragma once
#include <optional>
#include <vector>

#include "anneal/graph/program/program.h"

namespace anneal {

// A register of the builder, whose instructions are `code`, that has the value of `instruction`:
// there already, or emitted because it is simpler. Only what holds for every value, NaN, infinities
// and -0 included; so x + 0 stays (-0 + 0 is 0), and x - 0 does not. REQUIRES: one to three
// operands, not all constants; neither kRound nor kSaturate.
std::optional<Reg> simplify(ProgramBuilder& builder, const std::vector<Instruction>& code,
                            const Instruction& instruction);

}  // namespace anneal
