// fuse_epilogue: an elementwise layer becomes the epilogue of the layer that it alone reads.
//
//   c = Conv(x, w); y = Pointwise(c, b) program=add   =>   y = Conv(x, w; b) epilogue=add($0,$1)
//
// For Conv, ConvTranspose and MatMul, whose kernels apply a program to their accumulators. Not when
// the shapes differ: the layer's other inputs would enlarge the output. The rounding of the
// accumulator to the anchor's type stays as an instruction, so results do not change. Runs after
// fuse_pointwise, so that a whole chain moves at once.
#include <fmt/format.h>

#include "anneal/optimizer/join_programs.h"
#include "anneal/optimizer/passes.h"
#include "anneal/optimizer/query.h"

namespace anneal {
namespace {

bool is_anchor(const Op& op) {
  return std::holds_alternative<Conv>(op) || std::holds_alternative<ConvTranspose>(op) ||
         std::holds_alternative<MatMul>(op);
}

// What the anchor does to its accumulator today: its epilogue, or the rounding of its store.
Program store_program(const Layer& anchor, DataType dtype) {
  if (!anchor.epilogues.empty() && !anchor.epilogues[0].empty()) return anchor.epilogues[0];
  ProgramBuilder builder;
  const Reg accumulated = builder.input(0, accumulator(dtype));
  return builder.finish(accumulated, dtype);
}

bool fuse(Graph& graph, LayerId id, PassRun& run) {
  const Layer& anchor = graph.layer(id);
  if (!is_anchor(anchor.op) || anchor.outputs.size() != 1) return false;
  const ValueId between = anchor.outputs[0];
  const LayerId user = sole_user(graph, between);
  const auto* pointwise = op_as<Pointwise>(graph, user);
  if (!pointwise || pointwise->program.results().size() != 1 ||
      !graph.layer(user).epilogues.empty())
    return false;
  if (graph.value(between).type().shape != graph.value(graph.layer(user).outputs[0]).type().shape)
    return false;

  const auto op_inputs = static_cast<size_t>(anchor.op_input_count);
  std::vector<ValueId> of_anchor = {ValueId::kNone};  // the accumulator
  of_anchor.insert(of_anchor.end(), anchor.inputs.begin() + anchor.op_input_count,
                   anchor.inputs.end());
  const auto joined =
      join_programs(store_program(anchor, graph.value(between).type().dtype), of_anchor,
                    pointwise->program, graph.layer(user).inputs, between);
  if (!joined) return false;

  std::vector<ValueId> inputs(anchor.inputs.begin(),
                              anchor.inputs.begin() + static_cast<ptrdiff_t>(op_inputs));
  inputs.insert(inputs.end(), joined->inputs.begin() + 1, joined->inputs.end());
  std::vector<std::string> origins = anchor.origins;
  const auto& more = graph.layer(user).origins;
  origins.insert(origins.end(), more.begin(), more.end());
  const std::string anchor_name = anchor.name, joined_name = graph.layer(user).name;
  const Saving saved = saving_of(graph, between);
  const LayerId fused = graph.add({.name = anchor_name,
                                   .op = anchor.op,
                                   .inputs = std::move(inputs),
                                   .epilogues = {joined->program},
                                   .op_input_count = anchor.op_input_count,
                                   .origins = std::move(origins)});
  graph.replace_layer(user, fused);
  graph.swap_names(id, fused);
  run.did(anchor_name, fmt::format("joined \"{}\"", joined_name), saved);
  return true;
}

}  // namespace

bool fuse_epilogue(Graph& graph, PassRun& run) { return sweep(graph, run, fuse); }

}  // namespace anneal
