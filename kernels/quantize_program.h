// Quantize and Dequantize as programs over x, the scale and the optional zero point, which
// broadcast along the axis. Backends run them where they can, with the same bits.
#pragma once
#include "anneal/graph/program/program.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

bool has_zero_point(const Request& request);  // of Quantize or Dequantize

// The op's result, not yet rounded to the output's type. Refuses types where a program of 32 bits
// would give other bits. The caller decides whether it has a place for a scale per block.
Result<Reg> append(ProgramBuilder& builder, const Quantize& op, const Request& request);
Result<Reg> append(ProgramBuilder& builder, const Dequantize& op, const Request& request);

}  // namespace anneal
