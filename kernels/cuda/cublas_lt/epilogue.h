// Epilogue programs that are epilogues of cuBLASLt.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "anneal/core/result.h"
#include "anneal/graph/program/program.h"

namespace anneal::cuda {

enum class LtActivation : uint8_t { kNone, kRelu, kGelu };

// act(alpha * sum + input `residual` + input `bias`), in either order of the sums.
struct LtEpilogue {
  float alpha = 1;
  std::optional<int> residual, bias;  // inputs of the program
  LtActivation activation = LtActivation::kNone;
  bool operator==(const LtEpilogue&) const = default;
};

// What an input of the program is, by its strides. A vector has an element for each row of D.
enum class LtOperand : uint8_t { kVector, kMatrix };

// Of a program whose inputs 1, 2, ... are `operands`, or a reason. One input is an i32 or f32 sum.
Result<LtEpilogue> lt_epilogue(const Program& program, std::span<const LtOperand> operands);

}  // namespace anneal::cuda
