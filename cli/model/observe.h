// `anneal run --observe`: tensors inside an engine, each right after its step.
#pragma once
#include <string>

#include "anneal/cli/flags/name_pattern.h"
#include "anneal/cli/output/tensor_files.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// Runs once more, observed, and prints a table: each value whose name matches with its step and its
// numbers, and each matching value of the model that has no memory with the reason. With files,
// tensors are written too, except the engine's outputs. Fails with kInvalidArgument if
// nothing matches. REQUIRES: inputs are set.
void observe_run(const Engine& engine, ExecutionContext& context, const NamePattern& pattern,
                 TensorFiles* files);

}  // namespace anneal
