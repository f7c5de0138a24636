// Program -> VectorProgram. An expression is computed into A; of a binary operation first one
// operand into A, then the other into B, which may read A.
#include "anneal/kernels/cpu/program/vector_program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/program/bf16_approximations.h"

namespace anneal::cpu {
namespace {

// The search for an order of steps undoes failed attempts. Values with several uses have too many
// orders to try all.
constexpr int kMostVisits = 1000;
// So small that as many as a vector program has steps add up to an integer that f32 holds.
constexpr int64_t kMostConstant = int64_t{1} << 17;

std::optional<VectorOp> unary(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kNeg:
      return VectorOp::kNeg;
    case Opcode::kAbs:
      return VectorOp::kAbs;
    case Opcode::kSqrt:
      return VectorOp::kSqrt;
    case Opcode::kFloor:
      return VectorOp::kFloor;
    case Opcode::kCeil:
      return VectorOp::kCeil;
    case Opcode::kRoundEven:
      return VectorOp::kRoundEven;
    case Opcode::kTrunc:
      return VectorOp::kTrunc;
    case Opcode::kExp:
      return VectorOp::kExp;
    case Opcode::kErf:
      return VectorOp::kErf;
    case Opcode::kTanh:
      return VectorOp::kTanh;
    case Opcode::kSigmoid:
      return VectorOp::kSigmoid;
    case Opcode::kRound: {
      const auto to = static_cast<DataType>(instruction.immediate);
      if (to == DataType::kBF16) return VectorOp::kRoundBf16;
      if (to == DataType::kF16) return VectorOp::kRoundF16;
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<VectorOp> approximate_op(Bf16Approximation function) {
  switch (function) {
    case Bf16Approximation::kSigmoid:
      return VectorOp::kApproximateSigmoid;
    case Bf16Approximation::kOnePlusErf:
      return VectorOp::kApproximateOnePlusErf;
    case Bf16Approximation::kOnePlusTanh:
      return VectorOp::kApproximateOnePlusTanh;
    case Bf16Approximation::kNone:
      break;
  }
  return std::nullopt;
}

// With the register on the left of its operand.
std::optional<VectorOp> binary(Opcode opcode, bool on_the_left) {
  switch (opcode) {
    case Opcode::kAdd:
      return VectorOp::kAdd;
    case Opcode::kSub:
      return on_the_left ? VectorOp::kSub : VectorOp::kSubFrom;
    case Opcode::kMul:
      return VectorOp::kMul;
    case Opcode::kDiv:
      return on_the_left ? VectorOp::kDiv : VectorOp::kDivInto;
    case Opcode::kMin:
      return VectorOp::kMin;
    case Opcode::kMax:
      return VectorOp::kMax;
    default:
      return std::nullopt;
  }
}

bool is_integer(RegisterType type) {
  return type == RegisterType::kI32 || type == RegisterType::kU32;
}

// The range of an integer type whose values f32 holds.
std::optional<std::pair<float, float>> small_range(DataType dtype) {
  switch (dtype) {
    case DataType::kI8:
      return std::pair(-128.0f, 127.0f);
    case DataType::kU8:
      return std::pair(0.0f, 255.0f);
    case DataType::kI16:
      return std::pair(-32768.0f, 32767.0f);
    case DataType::kU16:
      return std::pair(0.0f, 65535.0f);
    default:
      return std::nullopt;
  }
}

class Compiler {
 public:
  Compiler(const Program& program, std::span<const DataType> inputs)
      : code_(program.code()),
        inputs_(inputs),
        coarse_(find_approximations(program)),
        uses_(code_.size(), 0),
        made_(code_.size(), 0) {}

  bool into_a(uint16_t reg) {
    count_uses(reg);
    return compute(reg, false, kNothing);
  }
  std::vector<VectorStep> steps() && { return std::move(steps_); }

 private:
  static constexpr int kNothing = -1;

  // By the registers that a register depends on, itself included.
  void count_uses(uint16_t reg) {
    const Instruction& it = code_[reg];
    for (int i = 0; i < operand_count(it.opcode); ++i)
      if (uses_[it.operands[i]]++ == 0) count_uses(it.operands[i]);
  }

  // Into A, while B is free, or into B, while A holds the register `in_a`.
  bool compute(uint16_t reg, bool to_b, int in_a) {
    if (++visits_ > kMostVisits) return false;
    const Instruction& it = code_[reg];
    if (to_b && reg == in_a) return emit({.op = VectorOp::kCopy, .to_b = true});
    if (it.opcode == Opcode::kInput) return load(it, to_b);
    if (it.opcode == Opcode::kConstant || !once(reg)) return false;
    if (is_integer(it.type)) return compute_integer(it, to_b, in_a);
    if (it.type != RegisterType::kF32) return false;
    if (it.opcode == Opcode::kCast) {
      if (is_accumulator(it.operands[0])) return load(code_[it.operands[0]], to_b);
      return is_integer(code_[it.operands[0]].type) && compute(it.operands[0], to_b, in_a);
    }
    if (const auto [op, argument] = function(reg); op)
      return compute(argument, to_b, in_a) && emit({.op = *op, .to_b = to_b});
    if (!binary(it.opcode, true)) return false;
    const uint16_t left = it.operands[0], right = it.operands[1];
    if (code_[right].opcode == Opcode::kConstant)
      return compute(left, to_b, in_a) && emit_constant(it, true, f32_of(right), to_b);
    if (code_[left].opcode == Opcode::kConstant)
      return compute(right, to_b, in_a) && emit_constant(it, false, f32_of(left), to_b);
    if (!to_b) {
      // An input is a direct operand where the other operand is computed first.
      const bool in_order = !is_f32(left) || is_f32(right);
      return (in_order && join(it.opcode, left, right, true)) ||
             join(it.opcode, right, left, false) ||
             (!in_order && join(it.opcode, left, right, true));
    }
    if (right == in_a)
      return compute(left, true, in_a) && emit({.op = *binary(it.opcode, true), .to_b = true});
    if (left == in_a)
      return compute(right, true, in_a) && emit({.op = *binary(it.opcode, false), .to_b = true});
    return false;
  }

  // A = first op second, where `first` is a path of steps that begins at some value: that value
  // into A, `second` into B, which may read it, then the path on A.
  bool join(Opcode opcode, uint16_t first, uint16_t second, bool on_the_left) {
    std::vector<VectorStep> path;
    for (uint16_t base = first;;) {
      const State before = state();
      if (compute(base, false, kNothing) && (is_f32(second) || compute(second, true, base))) {
        for (auto step = path.rbegin(); step != path.rend(); ++step)
          if (!emit(*step)) return false;
        if (!is_f32(second)) return emit({.op = *binary(opcode, on_the_left)});
        return emit({.op = *binary(opcode, on_the_left),
                     .operand = VectorOperand::kPort,
                     .port = static_cast<uint16_t>(code_[second].immediate)});
      }
      restore(before);
      const Instruction& it = code_[base];
      if (it.type != RegisterType::kF32 || uses_[base] > 1) return false;
      if (const auto [op, argument] = function(base); op) {
        path.push_back({.op = *op});
        base = argument;
        continue;
      }
      const bool right_constant =
          operand_count(it.opcode) == 2 && code_[it.operands[1]].opcode == Opcode::kConstant;
      const bool left_constant =
          operand_count(it.opcode) == 2 && code_[it.operands[0]].opcode == Opcode::kConstant;
      if (!binary(it.opcode, true) || right_constant == left_constant) return false;
      path.push_back({.op = *binary(it.opcode, right_constant),
                      .operand = VectorOperand::kConstant,
                      .constant = f32_of(it.operands[right_constant ? 1 : 0])});
      base = it.operands[right_constant ? 0 : 1];
    }
  }

  // The step that a register is of one other register, if it is that.
  std::pair<std::optional<VectorOp>, uint16_t> function(uint16_t reg) const {
    if (const auto op = approximate_op(coarse_[reg].function)) return {op, coarse_[reg].argument};
    return {unary(code_[reg]), code_[reg].operands[0]};
  }

  // Integers that f32 holds.
  bool compute_integer(const Instruction& it, bool to_b, int in_a) {
    switch (it.opcode) {
      case Opcode::kCast: {
        // A negative number would wrap as an unsigned one.
        const RegisterType from = code_[it.operands[0]].type;
        return (from == RegisterType::kU32 || from == it.type) && !is_accumulator(it.operands[0]) &&
               compute(it.operands[0], to_b, in_a);
      }
      case Opcode::kSaturate: {
        const auto range = small_range(static_cast<DataType>(it.immediate));
        if (!range || code_[it.operands[0]].type != RegisterType::kF32) return false;
        if (!compute(it.operands[0], to_b, in_a) || !emit({.op = VectorOp::kClamp,
                                                           .to_b = to_b,
                                                           .constant = range->first,
                                                           .high = range->second}))
          return false;
        return is_whole(it.operands[0]) || emit({.op = VectorOp::kTrunc, .to_b = to_b});
      }
      case Opcode::kAdd:
      case Opcode::kSub: {
        // A sum of unsigned numbers would wrap below zero.
        if (it.type != RegisterType::kI32) return false;
        const bool right = code_[it.operands[1]].opcode == Opcode::kConstant;
        const uint16_t other = it.operands[right ? 0 : 1], constant = it.operands[right ? 1 : 0];
        if (code_[constant].opcode != Opcode::kConstant || is_accumulator(other)) return false;
        const auto value = static_cast<int32_t>(code_[constant].immediate);
        if (std::abs(int64_t{value}) > kMostConstant) return false;
        return compute(other, to_b, in_a) &&
               emit_constant(it, right, static_cast<float>(value), to_b);
      }
      default:
        return false;
    }
  }

  // Whether values are whole numbers, or infinite or NaN.
  bool is_whole(uint16_t reg) const {
    const Instruction& it = code_[reg];
    switch (it.opcode) {
      case Opcode::kFloor:
      case Opcode::kCeil:
      case Opcode::kTrunc:
      case Opcode::kRoundEven:
        return true;
      case Opcode::kConstant:
        return f32_of(reg) == std::trunc(f32_of(reg));
      case Opcode::kAdd:
      case Opcode::kSub:
        return is_whole(it.operands[0]) && is_whole(it.operands[1]);
      default:
        return false;
    }
  }

  // An input of 32 bits, which is exact in f32 only once it is cast, rounding.
  bool is_accumulator(uint16_t reg) const {
    return code_[reg].opcode == Opcode::kInput && size_of(inputs_[code_[reg].immediate]) > 2 &&
           is_integer(code_[reg].type);
  }

  // Whether a step can use the input without conversion.
  bool is_f32(uint16_t reg) const {
    return code_[reg].opcode == Opcode::kInput && inputs_[code_[reg].immediate] == DataType::kF32;
  }

  bool load(const Instruction& input, bool to_b) {
    const DataType storage = inputs_[input.immediate];
    switch (storage) {
      case DataType::kF32:
      case DataType::kF16:
      case DataType::kBF16:
      case DataType::kI32:
      case DataType::kI8:
      case DataType::kU8:
        return emit({.op = VectorOp::kLoad,
                     .to_b = to_b,
                     .port = static_cast<uint16_t>(input.immediate),
                     .storage = storage});
      default:
        return false;
    }
  }

  // A value that several instructions use is computed once: held in A, or not at all.
  bool once(uint16_t reg) { return uses_[reg] < 2 || made_[reg]++ == 0; }

  float f32_of(uint16_t constant) const {
    return std::bit_cast<float>(static_cast<uint32_t>(code_[constant].immediate));
  }
  bool emit_constant(const Instruction& it, bool on_the_left, float constant, bool to_b) {
    return emit({.op = *binary(it.opcode, on_the_left),
                 .to_b = to_b,
                 .operand = VectorOperand::kConstant,
                 .constant = constant});
  }
  bool emit(const VectorStep& step) {
    steps_.push_back(step);
    return steps_.size() <= VectorProgram::kMostSteps;
  }

  struct State {
    size_t steps;
    std::vector<int> made;
  };
  State state() const { return {steps_.size(), made_}; }
  void restore(const State& state) {
    steps_.resize(state.steps);
    made_ = state.made;
  }

  std::span<const Instruction> code_;
  std::span<const DataType> inputs_;
  std::vector<ApproximatedInstruction> coarse_;
  std::vector<int> uses_, made_;
  int visits_ = 0;
  std::vector<VectorStep> steps_;
};

// Takes rounding, a zero point and the limits of the type off the end of the steps: the limits are
// whole numbers and may come first.
std::optional<VectorProgram::Quantize> take_quantize(std::vector<VectorStep>& steps) {
  const auto from_end = [&](size_t i) {
    return steps.size() > i ? &steps.end()[-1 - static_cast<int>(i)] : nullptr;
  };
  const VectorStep* const limits = from_end(0);
  if (limits == nullptr || limits->op != VectorOp::kClamp || limits->to_b) return std::nullopt;
  const VectorStep* round = from_end(1);
  float zero = 0;
  size_t count = 2;
  if (round != nullptr && round->op == VectorOp::kAdd && !round->to_b &&
      round->operand == VectorOperand::kConstant && std::abs(round->constant) <= 65536 &&
      round->constant == std::trunc(round->constant)) {
    zero = round->constant;
    round = from_end(2);
    count = 3;
  }
  if (round == nullptr || round->op != VectorOp::kRoundEven || round->to_b) return std::nullopt;
  const VectorProgram::Quantize result{limits->constant - zero, limits->high - zero,
                                       static_cast<int32_t>(zero)};
  steps.resize(steps.size() - count);
  return result;
}

bool is_storable(DataType dtype) {
  return dtype == DataType::kF32 || dtype == DataType::kBF16 || dtype == DataType::kF16 ||
         is_8bit(dtype);
}

}  // namespace

std::vector<VectorProgram> VectorProgram::compile(const Program& program,
                                                  std::span<const DataType> inputs) {
  const auto code = program.code();
  const bool takes_long = std::any_of(code.begin(), code.end(), [](const Instruction& one) {
    const auto op = unary(one);
    return op && *op >= VectorOp::kExp;
  });
  if (program.results().size() > 1 && takes_long) return {};
  std::vector<VectorProgram> chains;
  for (const Program::Result& result : program.results()) {
    Compiler compiler(program, inputs);
    if (!is_storable(result.dtype) || !compiler.into_a(result.reg)) return {};
    VectorProgram chain;
    chain.steps_ = std::move(compiler).steps();
    chain.result_ = result.dtype;
    if (is_8bit(result.dtype)) chain.quantize_ = take_quantize(chain.steps_);
    chains.push_back(std::move(chain));
  }
  return chains;
}

}  // namespace anneal::cpu
