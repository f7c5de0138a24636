// The test whether a program multiplies one of its inputs by constants and adds constants.
#pragma once
#include <optional>
#include <span>

#include "anneal/core/size/size.h"
#include "anneal/core/tensor.h"
#include "anneal/graph/program/program.h"

namespace anneal {

// A register with the value factor * x + shift, through which alone results depend on input x.
// Factor and shift are f32 or f64, as the register is, and broadcast to the layer's output;
// roundings to half precision in between are left out of account.
struct Affine {
  size_t reg = 0;
  Tensor factor, shift;
};

// The last such register. constants: one per input, null if it is not constant. nullopt: x goes
// into something else at once, or is not a float.
std::optional<Affine> affine_part(const Program& program, size_t x,
                                  std::span<const Tensor* const> constants, const SizeTable& sizes);

// The value that all elements have; nullopt if they differ, or there are none.
std::optional<double> uniform_value(const Tensor& tensor);  // REQUIRES: f32 or f64

}  // namespace anneal
