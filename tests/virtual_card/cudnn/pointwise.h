// Pointwise operations and reductions of the fake cuDNN.
#pragma once
#include <span>

#include "anneal/tests/virtual_card/cudnn/execute.h"

namespace anneal::fake_cudnn {

struct Operand {
  const Tensor* tensor;
  const Elements* elements;
};
// operands: x, b, t, each spread over the result.
Elements pointwise(const Operation& operation, const Tensor& result,
                   std::span<const Operand> operands);
Elements reduction(const Operation& operation, const Tensor& x, const Tensor& result,
                   const Elements& elements);

}  // namespace anneal::fake_cudnn
