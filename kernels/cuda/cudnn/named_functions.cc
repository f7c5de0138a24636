#include "anneal/kernels/cuda/cudnn/named_functions.h"

#include <algorithm>
#include <array>
#include <bit>

namespace anneal::cuda {
namespace {

constexpr std::array<std::pair<size_t, size_t>, 2> kEitherOrder = {{{0, 1}, {1, 0}}};

bool is_near(float a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// x of 1 + erf(x / sqrt(2)).
std::optional<uint16_t> x_of_erf_plus_one(const ProgramShape& shape, uint16_t reg) {
  const auto erf = shape.beside(reg, Opcode::kAdd, 1);
  if (!erf || shape.at(*erf).opcode != Opcode::kErf) return std::nullopt;
  return shape.scaled(shape.at(*erf).operands[0], std::sqrt(0.5));
}

// x of 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)).
std::optional<uint16_t> x_of_tanh_plus_one(const ProgramShape& shape, uint16_t reg) {
  const auto tanh = shape.beside(reg, Opcode::kAdd, 1);
  if (!tanh || shape.at(*tanh).opcode != Opcode::kTanh) return std::nullopt;
  const auto sum = shape.scaled(shape.at(*tanh).operands[0], std::sqrt(2 / M_PI));
  if (!sum || shape.at(*sum).opcode != Opcode::kAdd) return std::nullopt;
  for (const auto& [one, other] : kEitherOrder) {
    const uint16_t x = shape.at(*sum).operands[one];
    const auto cube = shape.scaled(shape.at(*sum).operands[other], 0.044715);
    if (!cube) continue;
    const Instruction& power = shape.at(*cube);
    if (power.opcode == Opcode::kPow && power.operands[0] == x &&
        shape.constant(power.operands[1]) == 3.0f)
      return x;
    if (power.opcode != Opcode::kMul) continue;
    for (const auto& [a, b] : kEitherOrder) {
      const Instruction& square = shape.at(power.operands[a]);
      if (power.operands[b] == x && square.opcode == Opcode::kMul && square.operands[0] == x &&
          square.operands[1] == x)
        return x;
    }
  }
  return std::nullopt;
}

// GELU of three factors: 0.5, x, and 1 + erf or tanh of x.
std::optional<NamedFunction> gelu_of_factors(const ProgramShape& shape,
                                             std::array<uint16_t, 3> factors) {
  std::ranges::sort(factors);
  do {
    const auto& [half, x, sum] = factors;
    if (shape.constant(half) != 0.5f) continue;
    if (x_of_erf_plus_one(shape, sum) == x)
      return NamedFunction{.mode = CUDNN_POINTWISE_GELU_FWD, .x = x};
    if (x_of_tanh_plus_one(shape, sum) == x)
      return NamedFunction{.mode = CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, .x = x};
  } while (std::ranges::next_permutation(factors).found);
  return std::nullopt;
}
std::optional<NamedFunction> gelu_of(const ProgramShape& shape, uint16_t reg) {
  const Instruction& product = shape.at(reg);
  if (product.opcode != Opcode::kMul) return std::nullopt;
  for (const auto& [one, other] : kEitherOrder) {
    const Instruction& inner = shape.at(product.operands[one]);
    if (inner.opcode != Opcode::kMul) continue;
    if (const auto found =
            gelu_of_factors(shape, {product.operands[other], inner.operands[0], inner.operands[1]}))
      return found;
  }
  return std::nullopt;
}

std::optional<NamedFunction> swish_of(const ProgramShape& shape, uint16_t reg) {
  const Instruction& product = shape.at(reg);
  if (product.opcode != Opcode::kMul) return std::nullopt;
  for (const auto& [one, other] : kEitherOrder) {
    const uint16_t x = product.operands[one];
    const Instruction& sigmoid = shape.at(product.operands[other]);
    if (sigmoid.opcode != Opcode::kSigmoid) continue;
    if (sigmoid.operands[0] == x)
      return NamedFunction{.mode = CUDNN_POINTWISE_SWISH_FWD, .x = x, .beta = 1};
    const Instruction& scaled = shape.at(sigmoid.operands[0]);
    if (scaled.opcode != Opcode::kMul) continue;
    for (const auto& [a, b] : kEitherOrder)
      if (const auto beta = shape.constant(scaled.operands[a]); beta && scaled.operands[b] == x)
        return NamedFunction{.mode = CUDNN_POINTWISE_SWISH_FWD, .x = x, .beta = beta};
  }
  return std::nullopt;
}

// The operand of an instruction beside a constant, and the constant.
std::optional<std::pair<uint16_t, float>> with_constant(const ProgramShape& shape, uint16_t reg,
                                                        Opcode opcode) {
  const Instruction& each = shape.at(reg);
  if (each.opcode != opcode || each.type != RegisterType::kF32) return std::nullopt;
  for (const auto& [one, other] : kEitherOrder)
    if (const auto number = shape.constant(each.operands[one]))
      return std::pair(each.operands[other], *number);
  return std::nullopt;
}

// max(x, 0), min(max(x, a), b) and max(min(x, b), a).
std::optional<NamedFunction> clip_of(const ProgramShape& shape, uint16_t reg) {
  for (const auto& [outer, inner] :
       {std::pair(Opcode::kMin, Opcode::kMax), std::pair(Opcode::kMax, Opcode::kMin)}) {
    const auto last = with_constant(shape, reg, outer);
    if (!last) continue;
    const auto first =
        shape.is_used_once(last->first) ? with_constant(shape, last->first, inner) : std::nullopt;
    const bool is_min_last = outer == Opcode::kMin;
    if (first) {
      const float lower = is_min_last ? first->second : last->second;
      const float upper = is_min_last ? last->second : first->second;
      if (lower <= upper)
        return NamedFunction{
            .mode = CUDNN_POINTWISE_RELU_FWD, .x = first->first, .lower = lower, .upper = upper};
    }
    if (!is_min_last && last->second == 0)
      return NamedFunction{.mode = CUDNN_POINTWISE_RELU_FWD, .x = last->first};
  }
  return std::nullopt;
}

}  // namespace

ProgramShape::ProgramShape(const Program& program) : code_(program.code()), uses_(code_.size()) {
  for (const Instruction& each : code_)
    for (int i = 0; i < operand_count(each.opcode); ++i) ++uses_[each.operands[size_t(i)]];
  for (const Program::Result& result : program.results()) ++uses_[result.reg];
}

std::optional<float> ProgramShape::constant(uint16_t reg) const {
  const Instruction& each = at(reg);
  if (each.opcode != Opcode::kConstant || each.type != RegisterType::kF32) return std::nullopt;
  return std::bit_cast<float>(static_cast<uint32_t>(each.immediate));
}

std::optional<uint16_t> ProgramShape::beside(uint16_t reg, Opcode opcode, double value) const {
  const Instruction& each = at(reg);
  if (each.opcode != opcode) return std::nullopt;
  for (const auto& [one, other] : kEitherOrder) {
    const auto number = constant(each.operands[one]);
    if (number && is_near(*number, value)) return each.operands[other];
  }
  return std::nullopt;
}

std::optional<uint16_t> ProgramShape::scaled(uint16_t reg, double value) const {
  if (const auto x = beside(reg, Opcode::kMul, value)) return x;
  const Instruction& each = at(reg);
  if (each.opcode != Opcode::kDiv) return std::nullopt;
  const auto number = constant(each.operands[1]);
  return number && is_near(*number, 1 / value) ? std::optional(each.operands[0]) : std::nullopt;
}

std::optional<NamedFunction> named_function(const ProgramShape& shape, uint16_t reg) {
  for (const auto& found : {clip_of(shape, reg), swish_of(shape, reg), gelu_of(shape, reg)})
    if (found) return found;
  return std::nullopt;
}

}  // namespace anneal::cuda
