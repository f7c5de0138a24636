// The places in a Program that need no exact function. A value that is only rounded to bf16,
// through operations that keep relative errors, may be within 2^-13 of its exact value, or 2^-126
// (of 1 + erf, 2^-40). Half a step of bf16 is at least 2^-9 of a number: results are those of exact
// functions, or their neighbours where these lie within a sixteenth of that half of the middle
// between them.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/graph/program/program.h"

namespace anneal::cpu {

// 1 + erf(x) is no sum here: it would lose the digits that matter where erf(x) is near -1.
enum class Bf16Approximation : uint8_t { kNone, kSigmoid, kOnePlusErf, kOnePlusTanh };

// How a register is computed. The operands of its own instruction are not needed for that.
struct ApproximatedInstruction {
  Bf16Approximation function = Bf16Approximation::kNone;
  uint16_t argument = 0;  // a register
};
// One per register of the program. Those are functions in f32.
std::vector<ApproximatedInstruction> find_approximations(const Program& program);

}  // namespace anneal::cpu
