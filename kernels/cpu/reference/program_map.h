// The map of an op in reference kernels: it runs over all elements at once, into scratch memory.
#pragma once
#include <span>

#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {

// The dims that x and the inputs from `further` on broadcast to.
Dims mapped_dims(std::span<const TensorView> inputs, size_t further);
// REQUIRES: the program is not empty.
size_t mapped_bytes(const Program& program, const Dims& dims, size_t inputs);
// program(x, further...) for each element of dims, dense in scratch.
TensorView mapped(const Program& program, const Dims& dims, const TensorView& x,
                  std::span<const TensorView> further, std::byte* scratch, ThreadTeam& team);

// The program with its only result in the register's type, rounded as before.
Program widened_result(const Program& program);

}  // namespace anneal::cpu
