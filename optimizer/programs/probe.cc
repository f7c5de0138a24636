#include "anneal/optimizer/programs/probe.h"

#include <array>
#include <cmath>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

Scalar cast(Scalar value, RegisterType from, RegisterType to) {
  if (from == to) return value;
  return evaluate({Opcode::kCast, to, {}, 0}, {&value, 1}, {&from, 1});
}

}  // namespace

std::vector<double> run_at(const Program& program, std::span<const double> inputs) {
  check(inputs.size() == program.inputs().size(), "a number for each input");
  const auto code = program.code();
  std::vector<Scalar> values;
  for (const Instruction& one : code) {
    check(one.opcode != Opcode::kIndex, "a program without index()");
    if (one.opcode == Opcode::kConstant) {
      values.push_back({one.immediate});
    } else if (one.opcode == Opcode::kInput) {
      values.push_back(cast(Scalar::of(inputs[one.immediate]), RegisterType::kF64, one.type));
    } else {
      std::array<Scalar, 3> operands;
      std::array<RegisterType, 3> types{};
      const auto count = static_cast<size_t>(operand_count(one.opcode));
      for (size_t i = 0; i < count; ++i) {
        operands[i] = values[one.operands[i]];
        types[i] = code[one.operands[i]].type;
      }
      values.push_back(
          evaluate(one, std::span(operands).first(count), std::span(types).first(count)));
    }
  }
  std::vector<double> results;
  for (const Program::Result& result : program.results())
    results.push_back(
        cast(values[result.reg], code[result.reg].type, RegisterType::kF64).as<double>());
  return results;
}

bool compares_inputs(const Program& program, const std::vector<bool>& by_input) {
  const auto code = program.code();
  std::vector<bool> depends(code.size());
  for (size_t reg = 0; reg < code.size(); ++reg) {
    const Instruction& one = code[reg];
    if (one.opcode == Opcode::kInput) depends[reg] = by_input[one.immediate];
    for (int i = 0; i < operand_count(one.opcode); ++i) {
      const uint16_t operand = one.operands[static_cast<size_t>(i)];
      if (!depends[operand]) continue;
      depends[reg] = true;
      const bool gives_bool = one.type == RegisterType::kBool || one.opcode == Opcode::kSign;
      if (gives_bool && code[operand].type != RegisterType::kBool) return true;
    }
  }
  return false;
}

double Probes::next(double low, double high) {
  // splitmix64
  uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return low + (high - low) * (static_cast<double>(mixed >> 11) * 0x1p-53);
}

bool is_near(double want, double got, double relative, double absolute) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return want == got;
  return std::abs(want - got) <= std::abs(want) * relative + absolute;
}

}  // namespace anneal
