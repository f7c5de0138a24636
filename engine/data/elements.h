// Access to single elements of any type and strides, for reading, printing and comparing samples;
// too slow for kernels.
#pragma once
#include <cstddef>

#include "anneal/core/parallel.h"
#include "anneal/core/tensor.h"

namespace anneal {

// Rounds integers beyond 2^53. REQUIRES: not kString.
double read_element(DataType dtype, const std::byte* at);
// Rounds as a cast does; integers saturate, NaN becomes 0, kBool is value != 0.
void write_element(DataType dtype, std::byte* at, double value);

// Calls body with the address of each element, in row-major order of the axes.
void for_each_element(const TensorView& view, FunctionRef<void(std::byte* element)> body);
void for_each_element(const ConstTensorView& view,
                      FunctionRef<void(const std::byte* element)> body);

// The same elements in row-major memory of its own.
Tensor dense_copy(const ConstTensorView& view);

}  // namespace anneal
