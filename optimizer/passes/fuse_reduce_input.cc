// fuse_reduce_input: an elementwise layer becomes the map of the Reduce or Softmax that alone reads
// it.
//
//   s = Pointwise(a, b) program=mul($0,$1); y = Reduce(s, axes)
//     =>   y = Reduce(a, axes, b) map=mul($0,$1)
//
// The rounding of the program's result stays, so results do not change. Not if the layer's result
// is enlarged by a map that is there already: its elements would be computed again. Nor a long
// program before a Softmax whose rows are read more than once. Runs after fuse_epilogue: a layer
// that can join the one before it costs nothing there.
#include <fmt/format.h>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"

namespace anneal {
namespace {

constexpr int64_t kKeptRow = 2048;           // elements that kernels hold while they read a row
constexpr size_t kRepeatedInstructions = 8;  // that may be computed for each reading

struct Reader {
  const Program* map = nullptr;
  size_t further = 1;  // where the map's further inputs begin
  bool reads_again = false;
};

std::optional<Reader> reader_of(const Graph& graph, LayerId id) {
  if (const auto* reduce = op_as<Reduce>(graph, id)) return Reader{&reduce->map, 2, false};
  const auto* softmax = op_as<Softmax>(graph, id);
  if (!softmax) return std::nullopt;
  const Size row =
      graph.value(graph.layer(id).outputs[0]).type().shape[static_cast<int>(softmax->axis)];
  return Reader{&softmax->map, 1, graph.sizes().range(row).opt > kKeptRow};
}

Op with_map(const Op& op, Program map) {
  Op result = op;
  auto* reduce = std::get_if<Reduce>(&result);
  (reduce ? reduce->map : std::get<Softmax>(result).map) = std::move(map);
  return result;
}

bool fuse_reduce_input_at(Graph& graph, LayerId id, PassRun& run) {
  const auto reader = reader_of(graph, id);
  if (!reader) return false;
  const Layer& layer = graph.layer(id);
  const ValueId between = layer.inputs[0];
  const LayerId before = producer(graph, between);
  const auto* pointwise = op_as<Pointwise>(graph, before);
  if (!pointwise || pointwise->program.results().size() != 1 ||
      !graph.layer(before).epilogues.empty() || sole_user(graph, between) != id ||
      graph.value(between).users.size() != 1)
    return false;

  const auto op_end = layer.inputs.begin() + layer.op_input_count;
  const auto further = layer.inputs.begin() + static_cast<ptrdiff_t>(reader->further);
  JoinedProgram joined{pointwise->program, graph.layer(before).inputs, {}};
  if (!reader->map->empty()) {
    const Shape& shape = graph.value(between).type().shape;
    std::vector<ValueId> inputs = {between};
    inputs.insert(inputs.end(), further, op_end);
    Shape whole = shape;
    for (const ValueId input : inputs)
      whole = broadcast(whole, graph.value(input).type().shape, graph.sizes());
    if (whole != shape) {
      run.refused(layer.name, fmt::format("not joined with \"{}\": its map enlarges that",
                                          graph.layer(before).name));
      return false;
    }
    auto both = join_programs({pointwise->program, graph.layer(before).inputs, {&between, 1}},
                              {*reader->map, inputs, layer.outputs}, {});
    if (!both) return false;
    joined = std::move(*both);
  }
  if (reader->reads_again && joined.program.code().size() > kRepeatedInstructions) {
    run.refused(layer.name, fmt::format("not joined with \"{}\": its rows are read more than once",
                                        graph.layer(before).name));
    return false;
  }

  NewLayer added{.name = layer.name,
                 .op = with_map(layer.op, joined.program),
                 .inputs = {joined.inputs[0]},
                 .epilogues = layer.epilogues,
                 .origins = graph.layer(before).origins};
  added.inputs.insert(added.inputs.end(), layer.inputs.begin() + 1, further);
  added.inputs.insert(added.inputs.end(), joined.inputs.begin() + 1, joined.inputs.end());
  added.op_input_count = static_cast<int>(added.inputs.size());
  added.inputs.insert(added.inputs.end(), op_end, layer.inputs.end());
  added.origins.insert(added.origins.end(), layer.origins.begin(), layer.origins.end());
  if (const std::string why_not = run.ask_targets(graph, added); !why_not.empty()) {
    run.refused(layer.name,
                fmt::format("not joined with \"{}\": {}", graph.layer(before).name, why_not));
    return false;
  }
  const std::string joined_name = graph.layer(before).name;
  const Saving saved = saving_of(graph, between);
  const LayerId fused = graph.add(std::move(added));
  graph.replace_layer(id, fused);
  run.did(graph.layer(fused).name, fmt::format("reads what \"{}\" read", joined_name), saved);
  return true;
}

}  // namespace

bool fuse_reduce_input(Graph& graph, PassRun& run) {
  return sweep(graph, run, fuse_reduce_input_at);
}

}  // namespace anneal
