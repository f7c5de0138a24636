// multiply_reciprocals: a division by a constant becomes a multiplication by its reciprocal, which
// takes less time.
//
//   y = Pointwise(x) program="(f32)->(f32) exp(div($0,0.2f32))"
//     =>   y = Pointwise(x) program="(f32)->(f32) exp(mul($0,5f32))"
//
// In programs of Pointwise layers and in epilogues, for f32 constants that are normal numbers as
// their reciprocals are. Changes numerics: by an ulp; exact for powers of two.
// A quotient that is rounded to a whole number, cut to an integer or compared stays a division,
// also where a later layer does so (is_decided()): floor(82 / 41) is 2, and 82 * (1 / 41) is a
// little less. One that is quantized stays, so that the results are those of QuantizeLinear in the
// middle of two steps, too; but not that of a product, which is rounded anyway, and whose 8-bit
// kernels multiply.
// Single numbers stay divided, which takes no time: an ulp of a scale that the model computes
// (DynamicQuantizeLinear) would move every quotient in the middle of two whole numbers.
#include <algorithm>
#include <cmath>

#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

// nullopt: the division stays, whatever reads it.
std::optional<float> reciprocal(const Instruction& divisor) {
  if (divisor.opcode != Opcode::kConstant || divisor.type != RegisterType::kF32)
    return std::nullopt;
  const auto value = Scalar{divisor.immediate}.as<float>();
  const float result = 1 / value;
  if (!std::isnormal(value) || !std::isnormal(result)) return std::nullopt;
  return result;
}

bool is_power_of_two(float value) {
  int exponent = 0;
  return std::abs(std::frexp(value, &exponent)) == 0.5F;
}

bool has_reciprocal(const Program& program) {
  const auto code = program.code();
  return std::ranges::any_of(code, [&](const Instruction& one) {
    return one.opcode == Opcode::kDiv && reciprocal(code[one.operands[1]]);
  });
}

bool divides_by_constants(const Layer& layer) {
  const Program* const own = program_of(layer.op);
  return (own != nullptr && has_reciprocal(*own)) ||
         std::ranges::any_of(layer.epilogues, has_reciprocal);
}

Program without_divisions(const Program& program, const DecisionOptions& options) {
  const auto code = program.code();
  const std::vector<bool> decided = decided_registers(program, options);
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
        const Instruction& one = code[reg];
        if (one.opcode != Opcode::kDiv) return std::nullopt;
        const auto factor = reciprocal(code[one.operands[1]]);
        if (!factor || (decided[reg] && !is_power_of_two(*factor))) return std::nullopt;
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
  if (!divides_by_constants(graph.layer(id)) || gives_single_numbers(graph, id)) return false;
  const std::string name = graph.layer(id).name;
  const DecisionOptions options = {
      .by_readers = has_decided_output(graph, graph.layer(id)),
      .quantizes_too = traits_of(graph.layer(id).op).half != HalfRole::kProduct};
  if (!rewrite_programs(
          graph, id, [&](const Program& program) { return without_divisions(program, options); }))
    return false;
  run.did(name, "multiplies by reciprocals instead of dividing");
  return true;
}

}  // namespace

bool multiply_reciprocals(Graph& graph, PassRun& run) { return sweep(graph, run, multiply); }

}  // namespace anneal
