#include "anneal/optimizer/programs/affine.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

enum class Kind : uint8_t { kFree, kAffine, kOther };  // kFree: made of constants

struct Part {
  Kind kind = Kind::kOther;
  Reg factor, shift;  // kFree: the value is in shift
};

constexpr double kMostAdded = 1 << 17;

class AffineAnalysis {
 public:
  AffineAnalysis(const Program& program, size_t x, std::span<const Tensor* const> constants)
      : program_(program), constants_(constants) {
    for (size_t i = 0; i < program.inputs().size(); ++i)
      builder_.input(static_cast<int>(i), program.inputs()[i]);
    parts_.reserve(program.code().size());
    for (const Instruction& one : program.code()) parts_.push_back(part_of(one, x));
  }

  const Part& part(size_t reg) const { return parts_[reg]; }
  Program finish(size_t reg, DataType dtype) {
    return builder_.finish({{{parts_[reg].factor, dtype}, {parts_[reg].shift, dtype}}});
  }

 private:
  Part part_of(const Instruction& one, size_t x) {
    if (one.opcode == Opcode::kInput && one.immediate == x) {
      if (one.type != RegisterType::kF32 && one.type != RegisterType::kF64) return {};
      return {Kind::kAffine, builder_.constant(one.type, 1.0), builder_.constant(one.type, 0.0)};
    }
    if (one.opcode == Opcode::kInput && !constants_[one.immediate]) return {};
    if (one.opcode == Opcode::kIndex) return {};
    const auto count = static_cast<size_t>(operand_count(one.opcode));
    const auto operands = std::span(one.operands).first(count);
    const auto kinds_are = [&](Kind kind) {
      return std::all_of(operands.begin(), operands.end(),
                         [&](uint16_t reg) { return parts_[reg].kind == kind; });
    };
    if (kinds_are(Kind::kFree)) return {Kind::kFree, {}, copy(one)};
    if (std::any_of(operands.begin(), operands.end(),
                    [&](uint16_t reg) { return parts_[reg].kind == Kind::kOther; }))
      return {};
    // Adding and subtracting a large number rounds: that is the purpose of it.
    for (const uint16_t reg : operands) {
      const Instruction& operand = program_.code()[reg];
      const bool adds = one.opcode == Opcode::kAdd || one.opcode == Opcode::kSub;
      if (!adds || operand.opcode != Opcode::kConstant) continue;
      const double value = operand.type == RegisterType::kF64
                               ? Scalar{operand.immediate}.as<double>()
                               : static_cast<double>(Scalar{operand.immediate}.as<float>());
      if (!(std::abs(value) < kMostAdded)) return {};
    }
    return count == 1 ? unary(one.opcode, parts_[one.operands[0]], one)
                      : binary(one.opcode, parts_[one.operands[0]], parts_[one.operands[1]]);
  }

  Reg copy(const Instruction& one) {
    std::vector<Reg> regs;
    for (const Part& part : parts_) regs.push_back(part.shift);
    const bool reads = one.opcode == Opcode::kInput;
    return copy_instruction(builder_, one, regs,
                            reads ? program_.inputs()[one.immediate] : DataType::kF32);
  }

  Part unary(Opcode opcode, const Part& a, const Instruction& one) {
    if (is_storage_rounding(one)) return a;
    if (opcode != Opcode::kNeg) return {};
    return {Kind::kAffine, builder_.apply(opcode, a.factor), builder_.apply(opcode, a.shift)};
  }

  Part binary(Opcode opcode, const Part& a, const Part& b) {
    const auto apply = [&](Reg left, Reg right) { return builder_.apply(opcode, left, right); };
    const bool both = a.kind == Kind::kAffine && b.kind == Kind::kAffine;
    if (opcode == Opcode::kAdd || opcode == Opcode::kSub) {
      const Part& only = a.kind == Kind::kAffine ? a : b;
      const Reg factor = both ? apply(a.factor, b.factor)
                         : &only == &b && opcode == Opcode::kSub
                             ? builder_.apply(Opcode::kNeg, b.factor)
                             : only.factor;
      return {Kind::kAffine, factor, apply(a.shift, b.shift)};
    }
    if (both) return {};
    if (opcode == Opcode::kMul) {
      const Part& x = a.kind == Kind::kAffine ? a : b;
      const Reg by = (&x == &a ? b : a).shift;
      return {Kind::kAffine, apply(x.factor, by), apply(x.shift, by)};
    }
    if (opcode == Opcode::kDiv && a.kind == Kind::kAffine)
      return {Kind::kAffine, apply(a.factor, b.shift), apply(a.shift, b.shift)};
    return {};
  }

  const Program& program_;
  std::span<const Tensor* const> constants_;
  ProgramBuilder builder_;
  std::vector<Part> parts_;
};

// Whether no result depends on input x but through the register.
bool all_through(const Program& program, size_t x, size_t reg) {
  std::vector<bool> depends;
  for (const Instruction& one : program.code()) {
    bool does = one.opcode == Opcode::kInput && one.immediate == x;
    for (int i = 0; i < operand_count(one.opcode); ++i) does |= depends[one.operands[i]];
    depends.push_back(does && depends.size() != reg);
  }
  return std::none_of(program.results().begin(), program.results().end(),
                      [&](const Program::Result& result) { return depends[result.reg]; });
}

}  // namespace

std::optional<Affine> affine_part(const Program& program, size_t x,
                                  std::span<const Tensor* const> constants,
                                  const SizeTable& sizes) {
  AffineAnalysis analysis(program, x, constants);
  for (size_t reg = program.code().size(); reg-- > 0;) {
    if (analysis.part(reg).kind != Kind::kAffine || !all_through(program, x, reg)) continue;
    const RegisterType type = program.code()[reg].type;
    const DataType dtype = type == RegisterType::kF64 ? DataType::kF64 : DataType::kF32;
    const Program both = analysis.finish(reg, dtype);
    std::vector<bool> read(both.inputs().size());
    for (const Instruction& one : both.code())
      if (one.opcode == Opcode::kInput) read[one.immediate] = true;
    std::vector<Tensor> scalars;
    scalars.reserve(read.size());
    std::vector<const Tensor*> inputs;
    for (size_t i = 0; i < read.size(); ++i) {
      scalars.push_back(allocate_tensor(both.inputs()[i], {}).tensor);
      inputs.push_back(read[i] ? constants[i] : &scalars[i]);
    }
    const Layer layer{.name = "affine part",
                      .op = Pointwise{both},
                      .op_input_count = static_cast<int>(inputs.size())};
    std::vector<Tensor> values = evaluate(layer, inputs, sizes);
    return Affine{reg, std::move(values[0]), std::move(values[1])};
  }
  return std::nullopt;
}

std::optional<double> uniform_value(const Tensor& tensor) {
  const auto same = [](const auto& values) -> std::optional<double> {
    if (values.empty()) return std::nullopt;
    const bool all =
        std::all_of(values.begin(), values.end(), [&](auto value) { return value == values[0]; });
    return all ? std::optional<double>(values[0]) : std::nullopt;
  };
  return tensor.dtype() == DataType::kF64 ? same(tensor.as<double>()) : same(tensor.as<float>());
}

}  // namespace anneal
