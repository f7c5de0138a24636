// Two engines on the same inputs, tensor by tensor.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/compare/compare_outputs.h"
#include "anneal/engine/compare/rounding.h"
#include "anneal/engine/compare/tensor_error.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

struct CompareOptions {
  std::optional<double> rtol = {}, atol = {};  // unset: by the coarsest float type met on the way
  // The coarsest one that a side was built to compute in, though its tensors may be f32.
  DataType coarsest = DataType::kF32;
  int threads = 0;
  // Tensors kept at a time; the others are compared in further runs.
  size_t most_bytes = size_t{512} << 20;
};

// A tensor that both engines have; one per iteration for tensors in a loop.
struct ComparedTensor {
  std::string name;
  int time = 1;  // counts the tensors of this name, from 1
  std::string step_a, kernel_a, step_b, kernel_b;
  DataType dtype = DataType::kF32;
  Dims dims = {};
  Comparison comparison = {};  // why: empty if they agree
  TensorError error = {};
  std::optional<Rounding> rounding = {};  // of Quantize's results
  // For A's step alone, given B's tensors; unset if no tensor differs, or memory is short.
  std::optional<Comparison> alone = {};
};

struct EngineComparison {
  std::vector<ComparedTensor> tensors;  // in the order in which A computes them
  size_t only_a = 0, only_b = 0;        // tensors that the other engine has not by this name
};

// B is the reference. An element agrees if |a - b| <= atol * max(1, largest |b| of the tensor) +
// rtol * |b|; integers and quantized models as compare_output() says, but only the model's outputs
// are ranked. If tensors differ, A runs once more with B's tensors written over its own after each
// step, so that a difference shows only where it arises; there a quantized model has no more slack
// than another. Fails with kInvalidArgument if the engines have different inputs.
EngineComparison compare_tensors(const std::shared_ptr<const Engine>& a,
                                 const std::shared_ptr<const Engine>& b,
                                 const std::vector<Tensor>& inputs, const CompareOptions& options);

}  // namespace anneal
