// A program as pointwise operations of cuDNN.
#pragma once
#include <functional>
#include <string>

#include "anneal/core/result.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/cuda/cudnn/operations.h"

namespace anneal::cuda {

struct ProgramPlace {
  TensorIndex accumulator = kNoTensor;  // the program's input 0
  // The tensor of another input of the program, broadcast to the accumulator's axes.
  std::function<Result<TensorIndex>(int input)> input;
  // Where the result goes; kNoTensor: to a virtual f32 tensor.
  TensorIndex output = kNoTensor;
  // Whether the accumulator has the axes that the program counts.
  bool has_axes = false;
  // Whether a residual is added before the bias, whose sums round differently.
  bool residual_first = false;
};

// Adds the operations of a program of one result, and returns the tensor of the result. Refuses
// what cuDNN has no operation for.
Result<TensorIndex> add_program(Operations& graph, const Program& program,
                                const ProgramPlace& place);

// Why the bits of an integer product's epilogue could differ from ours, whatever kernel cuDNN
// takes; empty if they cannot.
std::string why_bits_may_differ(const Program& program);

}  // namespace anneal::cuda
