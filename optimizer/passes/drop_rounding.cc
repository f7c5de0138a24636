// drop_rounding: values between the operations of a program stay in f32, where they were rounded to
// f16 or bf16 because layers were joined.
//
//   y = Conv(x, w; b) epilogue=round_f16(max(round_f16(add(round_f16($0),$1)),0f32))
//     =>   y = Conv(x, w; b) epilogue=round_f16(max(add($0,$1),0f32))
//
// The last rounding, before the store, stays, and so does one whose result is compared or becomes
// an integer, here or in a later layer, where a little less may be another number, and one that a
// Cast of the model asks for (cast_f16): it may be there to cut digits or to overflow. A rounding
// whose unrounded value is also read stays: fusing never produces that, but x - f16(x) does, which
// computes the rounding error. Only on targets that compute in that type; for others widen_half has
// widened it. Changes numerics: results are nearer to those without any rounding. Runs after the
// fusions.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

Program with_last_rounding(const Program& program, const NativeHalves& native,
                           const DecisionOptions& options) {
  const std::vector<bool> decided = decided_registers(program, options);
  const auto code = program.code();
  std::vector<int> reads(code.size());
  for (const Instruction& one : code)
    for (int i = 0; i < operand_count(one.opcode); ++i)
      ++reads[one.operands[static_cast<size_t>(i)]];
  for (const Program::Result& result : program.results()) ++reads[result.reg];
  return without_half_rounding(program, [&](size_t reg) {
    return is_storage_rounding(code[reg]) &&
           native.has(static_cast<DataType>(code[reg].immediate)) && !decided[reg] &&
           reads[code[reg].operands[0]] == 1;
  });
}

bool drop(Graph& graph, LayerId id, const DecidedValues& decided, PassRun& run) {
  const std::string name = graph.layer(id).name;
  const DecisionOptions options = {.by_readers = decided.contains_output(graph.layer(id))};
  if (!rewrite_programs(graph, id, [&](const Program& program) {
        return with_last_rounding(program, run.options.native, options);
      }))
    return false;
  run.did(name, "rounds once, when it stores");
  return true;
}

}  // namespace

bool drop_rounding(Graph& graph, PassRun& run) {
  const NativeHalves& native = run.options.native;
  if (!native.f16 && !native.bf16) return false;
  const DecidedValues decided(graph);
  bool changed = false;
  for (const LayerId id : graph.order())
    if (run.may_rewrite()) changed |= drop(graph, id, decided, run);
  return changed;
}

}  // namespace anneal
