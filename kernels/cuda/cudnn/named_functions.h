// Functions that a program spells out in several instructions and cuDNN has as one operation.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "anneal/graph/program/program.h"
#include "anneal/kernels/cuda/api/cudnn_api.h"

namespace anneal::cuda {

// Questions about the registers of one program, which must outlive it.
class ProgramShape {
 public:
  explicit ProgramShape(const Program& program);
  const Instruction& at(uint16_t reg) const { return code_[reg]; }
  bool is_used_once(uint16_t reg) const { return uses_[reg] == 1; }
  std::optional<float> constant(uint16_t reg) const;  // of f32
  // The other operand of an instruction with this opcode and a constant operand near `value`.
  std::optional<uint16_t> beside(uint16_t reg, Opcode opcode, double value) const;
  // x with a product or a quotient: x * value.
  std::optional<uint16_t> scaled(uint16_t reg, double value) const;

 private:
  std::span<const Instruction> code_;
  std::vector<int> uses_;
};

// y = function(x), where a register is the last of several instructions that compute it.
struct NamedFunction {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  uint16_t x = 0;
  std::optional<float> lower = {}, upper = {}, beta = {};
};

// The function whose last instruction computes the register; nullopt: none.
std::optional<NamedFunction> named_function(const ProgramShape& shape, uint16_t reg);

}  // namespace anneal::cuda
