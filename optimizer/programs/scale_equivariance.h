// Scale equivariance: programs that map f * x to f * y.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "anneal/graph/program/program.h"

namespace anneal {

enum class InputDegree : uint8_t {
  kZero,     // unchanged
  kOne,      // is multiplied by f
  kConstant  // its value is known, and so that of its product with f
};

// A program P' with P'(f x, c, f c) = f P(x, c), to the bit for powers of two f > 0 that leave
// numbers finite and normal: bounds and addends are multiplied, too.
struct HomogeneousProgram {
  Program program;
  // Registers of P, each a literal or a kConstant input, whose products with f are the inputs of P'
  // behind those of P.
  std::vector<uint16_t> multiplied;
};

// degrees: one per input. nullopt if there is none, as for products of two numbers that are
// multiplied, roundings, and exponentials. The results are f32, and all depend on x.
std::optional<HomogeneousProgram> homogeneous(const Program& program,
                                              std::span<const InputDegree> degrees);

}  // namespace anneal
