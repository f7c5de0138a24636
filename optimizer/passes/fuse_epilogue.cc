// fuse_epilogue: an elementwise layer becomes the epilogue of a layer that it reads.
//
//   c = Conv(x, w); y = Pointwise(c, b) program=add   =>   y = Conv(x, w; b) epilogue=add($0,$1)
//
// For ops that compute their elements one by one and have kernels that apply a program to them. Not
// when the shapes differ: the layer's other inputs would enlarge the output. A value of the op that
// other layers read stays as a further result, unless the layer's other inputs need it first. If
// several ops could take the layer, the one without other readers does, then the one that runs
// last, because the others have run by then. The rounding of the accumulator to the op's type stays
// as an instruction, so results do not change. Runs after fuse_pointwise, so that a whole chain
// moves at once.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/fusions.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

EpilogueRule rule_of(const Layer& layer) { return *traits_of(layer.op).epilogue; }

bool takes_epilogue(const Graph& graph, const Layer& layer, bool targets_answer) {
  if (op_output_count(layer) != 1) return false;
  const DataType dtype = graph.value(layer.outputs[0]).type().dtype;
  const bool is_narrow_float = is_float(dtype) && dtype != DataType::kF64;
  switch (rule_of(layer)) {
    case EpilogueRule::kNever:
      return false;
    case EpilogueRule::kAlways:
      return true;
    case EpilogueRule::kForFloats:
      return is_narrow_float;
    case EpilogueRule::kIfTargetsAgree:
      return is_narrow_float && targets_answer;
  }
  return false;
}

struct Host {
  LayerId id = LayerId::kNone;
  std::vector<ValueId> kept;
};

// Whether the layer can take the elementwise one that reads its output.
std::optional<Host> host_of(const Graph& graph, const Fusions& fusions, ValueId read, LayerId by,
                            bool targets_answer) {
  const LayerId id = producer(graph, read);
  if (id == LayerId::kNone || !takes_epilogue(graph, graph.layer(id), targets_answer))
    return std::nullopt;
  const Shape& shape = graph.value(graph.layer(by).outputs[0]).type().shape;
  if (graph.value(read).type().shape != shape) return std::nullopt;
  Host host{id, fusions.outputs_kept(id, by)};
  if (!host.kept.empty() && fusions.depends_otherwise(by, id)) return std::nullopt;
  return host;
}

// The best of them; kNone as its id if there is none.
Host choose_host(const Graph& graph, const Fusions& fusions, LayerId by, bool targets_answer) {
  std::vector<Host> hosts;
  for (const ValueId input : graph.layer(by).inputs) {
    auto host = host_of(graph, fusions, input, by, targets_answer);
    if (!host || std::any_of(hosts.begin(), hosts.end(),
                             [&](const Host& other) { return other.id == host->id; }))
      continue;
    hosts.push_back(std::move(*host));
  }
  if (std::any_of(hosts.begin(), hosts.end(), [](const Host& host) { return host.kept.empty(); }))
    std::erase_if(hosts, [](const Host& host) { return !host.kept.empty(); });
  if (hosts.empty()) return {};
  if (hosts.size() == 1) return hosts[0];
  return *std::ranges::max_element(hosts, {},
                                   [&](const Host& host) { return fusions.place(host.id); });
}

bool fuse_epilogue_at(Graph& graph, LayerId id, PassRun& run, Fusions& fusions) {
  const auto* pointwise = op_as<Pointwise>(graph, id);
  if (!pointwise || !graph.layer(id).epilogues.empty()) return false;
  const Host host = choose_host(graph, fusions, id, static_cast<bool>(run.options.ask_targets));
  if (host.id == LayerId::kNone) return false;

  const Layer &anchor = graph.layer(host.id), &layer = graph.layer(id);
  const DataType dtype = graph.value(anchor.outputs[0]).type().dtype;
  const Program stores = store_program(anchor, dtype);
  auto joined = join_programs({stores, epilogue_inputs(anchor), anchor.outputs},
                              {pointwise->program, layer.inputs, layer.outputs}, host.kept);
  if (!joined) {
    run.refused(anchor.name, fmt::format("\"{}\" would make its epilogue too long", layer.name));
    return false;
  }
  NewLayer added{.name = anchor.name,
                 .op = anchor.op,
                 .inputs = {anchor.inputs.begin(), anchor.inputs.begin() + anchor.op_input_count},
                 .epilogues = {std::move(joined->program)},
                 .op_input_count = anchor.op_input_count,
                 .origins = anchor.origins};
  added.inputs.insert(added.inputs.end(), joined->inputs.begin() + 1, joined->inputs.end());
  added.origins.insert(added.origins.end(), layer.origins.begin(), layer.origins.end());
  // A size that only a run of the anchor tells keeps its name: what reads the results has it.
  if (finds_sizes(graph, host.id))
    for (const ValueId output : joined->outputs)
      added.output_types.push_back(graph.value(output).type());
  // A reference kernel would interpret the program, element by element.
  if (const std::string why_not = rule_of(anchor) == EpilogueRule::kIfTargetsAgree
                                      ? run.ask_targets(graph, added)
                                      : why_not_joined(graph, run, host.id, added);
      !why_not.empty()) {
    run.refused(anchor.name, fmt::format("not joined with \"{}\": {}", layer.name, why_not));
    return false;
  }
  const std::string anchor_name = anchor.name, joined_name = layer.name;
  Saving saved = saving_of(graph, anchor.outputs[0]);
  if (!host.kept.empty()) saved.bytes /= 2;
  const LayerId fused = graph.add(std::move(added));
  take_over(graph, joined->outputs, fused);
  graph.swap_names(host.id, fused);
  fusions.replaced(host.id, id, fused);
  run.did(anchor_name, fmt::format("joined \"{}\"", joined_name), saved);
  return true;
}

}  // namespace

bool fuse_epilogue(Graph& graph, PassRun& run) {
  return sweep_fusions(graph, run, fuse_epilogue_at);
}

}  // namespace anneal
