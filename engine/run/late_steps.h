// Steps whose sizes depend on values: they are inferred, and prepared, while the plan runs.
#pragma once
#include "anneal/core/parallel.h"
#include "anneal/engine/run/run_memory.h"

namespace anneal {

// Prepares the step's kernel for the shapes of its operands.
void prepare_step(const RunState& run, size_t step, StepState& state);

// Values have given a slot these dims: its symbols take theirs, and a data-dependent slot gets
// memory. Fails with kInvalidArgument where the plan expects others.
void set_slot_dims(RunState& run, RunMemory& memory, uint32_t slot, const Dims& dims);

// Infers the shapes of a step from the values of its operands, which exist by now, or finds them by
// its kernel, and prepares the kernel for them. What it reads on the host must have arrived there;
// its other operands may still be computed on its stream.
void infer_step(RunState& run, RunMemory& memory, size_t step, ThreadTeam& team);

// Computes a SizeTensor.
void write_sizes(const RunState& run, const Step& step);

}  // namespace anneal
