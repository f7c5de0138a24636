// Vector access to an operand: several elements at once, where its memory allows.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// Neighbours along `axis`; if `is_linear`, of the elements that all axes but the first span without
// gaps.
struct VectorAccess {
  size_t operand = 0;  // of the inputs, or of the outputs
  int axis = 0;
  int64_t elements = 1;
  bool is_linear = false;
  bool is_output = false;
  // For add_functions(): the bytes of a vector, and whether all vectors begin at multiples of that
  // if the first does.
  uint32_t bytes = 0;
  bool has_whole_strides = false;
};

// The number of elements of an operand that may be read at once, at most `most`, a power of two: 1,
// unless neighbours along `axis` are adjacent, `size` elements are whole vectors, and no known
// stride forbids it. The address is not checked.
int64_t vector_elements(const Operand& operand, int axis, Size size, int64_t most);

// Whether the strides from one vector to another are surely whole vectors.
bool has_whole_strides(const VectorAccess& access, const Operand& operand, const SizeTable& sizes);

// Whether the strides and the address of a launch's view allow it.
bool strides_allow(const VectorAccess& access, const TensorView& view);
bool is_aligned(const VectorAccess& access, const TensorView& view);

}  // namespace anneal::cuda
