// fuse_softmax: the logarithm of a softmax, and the largest elements of one.
//
//   s = Softmax(x); y = Pointwise(s) program=neg(log($0))   =>   s = Softmax(x) log=true
//                                                                y = Pointwise(s) program=neg($0)
//   s = Softmax(x); v, i = TopK(s, k)   =>   v, i = TopK(x, k) of=softmax
//
// Only where nothing else is made of s. Changes numerics: the logarithm is not of a rounded number,
// and elements that differ only before rounding are no longer equal.
#include <fmt/format.h>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// A softmax whose only reader is this layer.
const Softmax* read_by(const Graph& graph, ValueId value, LayerId reader) {
  const LayerId id = producer(graph, value);
  const auto* softmax = op_as<Softmax>(graph, id);
  if (!softmax || !graph.layer(id).epilogues.empty() || sole_user(graph, value) != reader)
    return nullptr;
  return softmax;
}

// Whether the program makes nothing of an input but its logarithm.
bool takes_only_log(const Program& program, size_t input) {
  const auto code = program.code();
  bool any = false;
  const auto is_input = [&](uint16_t reg) {
    return code[reg].opcode == Opcode::kInput && code[reg].immediate == input;
  };
  for (const Instruction& one : code) {
    for (int k = 0; k < operand_count(one.opcode); ++k) {
      if (!is_input(one.operands[static_cast<size_t>(k)])) continue;
      if (one.opcode != Opcode::kLog) return false;
      any = true;
    }
  }
  for (const Program::Result& result : program.results())
    if (is_input(result.reg)) return false;
  return any;
}

bool fuse_log(Graph& graph, LayerId id, PassRun& run) {
  const auto* pointwise = op_as<Pointwise>(graph, id);
  if (!pointwise) return false;
  const Layer& layer = graph.layer(id);
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const ValueId value = layer.inputs[i];
    const Softmax* softmax = read_by(graph, value, id);
    if (!softmax || softmax->log || graph.value(value).users.size() != 1 ||
        !takes_only_log(pointwise->program, i))
      continue;
    const LayerId before = producer(graph, value);
    const std::string name = graph.layer(before).name, reader = layer.name;
    Softmax op = *softmax;
    op.log = true;
    const LayerId logs = graph.add({.name = name,
                                    .op = std::move(op),
                                    .inputs = graph.layer(before).inputs,
                                    .origins = graph.layer(before).origins});
    const Program& program = pointwise->program;
    Program without = rewrite_program(
        program, [&](ProgramBuilder&, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
          const Instruction& one = program.code()[reg];
          if (one.opcode != Opcode::kLog) return std::nullopt;
          const Instruction& of = program.code()[one.operands[0]];
          if (of.opcode != Opcode::kInput || of.immediate != i) return std::nullopt;
          return regs[one.operands[0]];
        });
    std::vector<ValueId> inputs = layer.inputs;
    inputs[i] = graph.layer(logs).outputs[0];
    const LayerId rest = graph.add({.name = reader,
                                    .op = Pointwise{std::move(without)},
                                    .inputs = std::move(inputs),
                                    .epilogues = layer.epilogues,
                                    .op_input_count = layer.op_input_count,
                                    .origins = layer.origins});
    graph.swap_names(before, logs);
    graph.swap_names(value, graph.layer(logs).outputs[0]);
    graph.replace_layer(id, rest);
    run.did(name, fmt::format("gives the logarithm that \"{}\" took", reader));
    return true;
  }
  return false;
}

bool fuse_top(Graph& graph, LayerId id, PassRun& run) {
  const auto* top = op_as<TopK>(graph, id);
  if (!top || top->of != TopKOf::kValues) return false;
  const Layer& layer = graph.layer(id);
  const ValueId between = layer.inputs[0];
  const Softmax* softmax = read_by(graph, between, id);
  if (!softmax || softmax->axis != top->axis) return false;
  const LayerId before = producer(graph, between);
  if (!softmax->map.empty()) {
    run.refused(layer.name, fmt::format("\"{}\" has a map", graph.layer(before).name));
    return false;
  }
  NewLayer added = copy_of(graph, id);
  added.origins = graph.layer(before).origins;
  const std::string today = run.ask_targets(graph, added);
  std::get<TopK>(added.op).of = softmax->log ? TopKOf::kLogSoftmax : TopKOf::kSoftmax;
  added.inputs[0] = graph.layer(before).inputs[0];
  added.origins.insert(added.origins.end(), layer.origins.begin(), layer.origins.end());
  if (const std::string why_not = run.ask_targets(graph, added);
      !why_not.empty() && today.empty()) {
    run.refused(layer.name,
                fmt::format("not fused with \"{}\": {}", graph.layer(before).name, why_not));
    return false;
  }
  const std::string joined = graph.layer(before).name;
  const Saving saved = saving_of(graph, between);
  const LayerId fused = graph.add(std::move(added));
  graph.replace_layer(id, fused);
  run.did(graph.layer(fused).name, fmt::format("is fused with \"{}\"", joined), saved);
  return true;
}

bool fuse_softmax_at(Graph& graph, LayerId id, PassRun& run) {
  return fuse_log(graph, id, run) || fuse_top(graph, id, run);
}

}  // namespace

bool fuse_softmax(Graph& graph, PassRun& run) { return sweep(graph, run, fuse_softmax_at); }

}  // namespace anneal
