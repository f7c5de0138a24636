// multiply_reciprocals: a division by a constant becomes a multiplication by its reciprocal, which
// takes less time.
//
//   y = Pointwise(x) program="(f32)->(u8) saturate_u8(rint(div($0,0.02f32)))"
//     =>   y = Pointwise(x) program="(f32)->(u8) saturate_u8(rint(mul($0,50f32)))"
//
// In programs of Pointwise layers and in epilogues, for f32 constants that are normal numbers as
// their reciprocals are. Changes numerics: by an ulp, and a quotient in the middle of two whole
// numbers may then be rounded to the other one. Exact for powers of two.
// Single numbers stay divided, which takes no time: an ulp of a scale that the model computes
// (DynamicQuantizeLinear) would move every quotient in the middle of two whole numbers.
#include <algorithm>
#include <cmath>

#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

std::optional<float> reciprocal(const Instruction& divisor) {
  if (divisor.opcode != Opcode::kConstant || divisor.type != RegisterType::kF32)
    return std::nullopt;
  const auto value = Scalar{divisor.immediate}.as<float>();
  const float result = 1 / value;
  if (!std::isnormal(value) || !std::isnormal(result)) return std::nullopt;
  return result;
}

Program without_divisions(const Program& program) {
  const auto code = program.code();
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
        const Instruction& one = code[reg];
        if (one.opcode != Opcode::kDiv) return std::nullopt;
        const auto factor = reciprocal(code[one.operands[1]]);
        if (!factor) return std::nullopt;
        return builder.apply(Opcode::kMul, regs[one.operands[0]], builder.constant(*factor));
      });
}

bool gives_single_numbers(const Graph& graph, LayerId id) {
  return std::ranges::all_of(graph.layer(id).outputs, [&](ValueId output) {
    return std::ranges::all_of(graph.value(output).type().shape,
                               [&](Size size) { return graph.sizes().range(size).max == 1; });
  });
}

bool multiply(Graph& graph, LayerId id, PassRun& run) {
  if (gives_single_numbers(graph, id)) return false;
  const std::string name = graph.layer(id).name;
  if (!rewrite_programs(graph, id,
                        [](const Program& program) { return without_divisions(program); }))
    return false;
  run.did(name, "multiplies by reciprocals instead of dividing");
  return true;
}

}  // namespace

bool multiply_reciprocals(Graph& graph, PassRun& run) { return sweep(graph, run, multiply); }

}  // namespace anneal
