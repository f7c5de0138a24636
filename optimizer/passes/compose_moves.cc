// compose_moves: chains of reshapes and transposes are shortened.
//
//   y = Reshape(Reshape(x, ...), s)                                =>   y = Reshape(x, s)
//   y = Transpose(Transpose(x) permutation=p) permutation=q        =>   y = Transpose(x), or x
//   y = Reshape(Transpose(Reshape(x, ...)), s)                     =>   y = Transpose(x), where
//   axes
//                                                                       only part and meet again
//   c = MatMul(a, Transpose(b) of the last two axes)               =>   c = MatMul(a, b)
//                                                                       transpose_b=true
//
// A chain may contain values that other layers read as well. It is then rewritten only if the new
// layers and transposes are no more than the layers of the chain that have no other reader. Sizes
// may be symbols that divide each other, but a reshape to sizes that are known only at run time
// stays. If a transpose must stay before an operand of MatMul, its swap of the last two axes moves
// into the flag where the innermost axis then keeps its place: rows stay contiguous. Runs after
// remove_identity.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/axis_map.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

constexpr size_t kLongestChain = 16;

bool is_move(const Graph& graph, LayerId id) {
  return (op_as<Reshape>(graph, id) || op_as<Transpose>(graph, id)) &&
         graph.layer(id).epilogues.empty() && !finds_sizes(graph, id);
}

// Moves in a row, the last one first.
std::vector<LayerId> move_chain(const Graph& graph, LayerId last) {
  std::vector<LayerId> chain;
  for (LayerId id = last;
       id != LayerId::kNone && is_move(graph, id) && chain.size() < kLongestChain;
       id = producer(graph, graph.layer(id).inputs[0]))
    chain.push_back(id);
  return chain;
}

bool moves_data(const Graph& graph, LayerId id) {
  const auto* op = op_as<Transpose>(graph, id);
  if (!op) return false;
  const Shape& shape = graph.value(graph.layer(id).inputs[0]).type().shape;
  int64_t last = -1;
  for (const int64_t axis : op->permutation) {
    if (shape[static_cast<int>(axis)] == Size(1)) continue;
    if (axis < last) return true;
    last = axis;
  }
  return false;
}

struct Cost {
  int transposes = 0, layers = 0;
};

// The cost of the layers at the end of the chain that are erased with its end.
Cost cost_of(const Graph& graph, std::span<const LayerId> chain) {
  Cost cost;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (i > 0 && sole_user(graph, graph.layer(chain[i]).outputs[0]) != chain[i - 1]) break;
    cost.transposes += moves_data(graph, chain[i]);
    ++cost.layers;
  }
  return cost;
}

std::optional<AxisMap::Route> route_of(const Graph& graph, std::span<const LayerId> chain) {
  const auto shape = [&](ValueId value) { return graph.value(value).type().shape; };
  const Shape from = shape(graph.layer(chain.back()).inputs[0]);
  AxisMap map(from, graph.sizes());
  bool any_transpose = false;
  for (auto id = chain.rbegin(); id != chain.rend(); ++id) {
    if (const auto* transpose = op_as<Transpose>(graph, *id)) {
      map.transpose(transpose->permutation);
      any_transpose = true;
      continue;
    }
    // In a chain of reshapes, the last one decides.
    if (id + 1 != chain.rend() && op_as<Reshape>(graph, *(id + 1))) continue;
    if (id + 1 == chain.rend() && !any_transpose)
      return AxisMap::Route{.last = from != shape(graph.layer(*id).outputs[0])};
    if (!map.reshape(shape(graph.layer(*id).outputs[0]))) return std::nullopt;
  }
  return map.route();
}

// The shape input of the last layer, if it gives the same shape for another input.
ValueId given_shape(const Graph& graph, LayerId last) {
  const auto* reshape = op_as<Reshape>(graph, last);
  if (!reshape) return ValueId::kNone;
  const ValueId given = graph.layer(last).inputs[1];
  const auto& elements = graph.value(given).fact.elements;
  if (!elements) return ValueId::kNone;
  for (const Size size : *elements) {
    if (size.is_unknown()) return ValueId::kNone;
    const Bounds range = graph.sizes().range(size);
    if (!reshape->allow_zero && range.min <= 0 && range.max >= 0) return ValueId::kNone;
  }
  return given;
}

ValueId follow(Graph& graph, Rewrite& rewrite, const AxisMap::Route& route,
               std::span<const LayerId> chain) {
  ValueId value = graph.layer(chain.back()).inputs[0];
  if (route.first) value = rewrite.reshape(value, *route.first);
  if (value == ValueId::kNone) return value;
  if (!route.permutation.empty()) value = rewrite.transpose(value, route.permutation);
  if (!route.last) return value;
  if (const ValueId shape = given_shape(graph, chain[0]); shape != ValueId::kNone)
    return rewrite.add("reshape", *op_as<Reshape>(graph, chain[0]), {value, shape});
  return rewrite.reshape(value, graph.value(graph.layer(chain[0]).outputs[0]).type().shape);
}

std::vector<std::string> origins_of(const Graph& graph, std::span<const LayerId> chain) {
  std::vector<std::string> origins;
  for (auto id = chain.rbegin(); id != chain.rend(); ++id)
    for (const std::string& origin : graph.layer(*id).origins)
      if (std::ranges::find(origins, origin) == origins.end()) origins.push_back(origin);
  return origins;
}

bool route_pays(const Cost& now, const AxisMap::Route& then, size_t chain) {
  const int transposes = !then.permutation.empty();
  if (transposes > now.transposes || then.layers() > now.layers) return false;
  if (transposes < now.transposes || then.layers() < now.layers) return true;
  return transposes == 0 && then.layers() < static_cast<int>(chain);
}

bool compose_chain(Graph& graph, LayerId id, PassRun& run) {
  const std::vector<LayerId> whole = move_chain(graph, id);
  for (size_t length = whole.size(); length >= 2; --length) {
    const auto chain = std::span(whole).first(length);
    const auto route = route_of(graph, chain);
    const Cost cost = cost_of(graph, chain);
    if (!route || !route_pays(cost, *route, length)) continue;
    const std::string name = graph.layer(id).name;
    Saving saved = {cost.layers - route->layers(), 0};
    if (cost.transposes > static_cast<int>(!route->permutation.empty()))
      saved.bytes = saving_of(graph, graph.layer(id).outputs[0]).bytes;
    Rewrite rewrite(graph, id, origins_of(graph, chain));
    if (!rewrite.finish(follow(graph, rewrite, *route, chain))) continue;
    run.did(name, fmt::format("{} moves in a row became {}", length, route->layers()), saved);
    return true;
  }
  return false;
}

// The remaining permutation if the flag swaps the last two axes, or nullopt.
std::optional<std::vector<int64_t>> without_swap(const Graph& graph, LayerId operand) {
  const auto* transpose = op_as<Transpose>(graph, operand);
  if (!transpose || !graph.layer(operand).epilogues.empty()) return std::nullopt;
  std::vector<int64_t> left = transpose->permutation;
  const auto last = static_cast<int64_t>(left.size()) - 1;
  if (last < 1 || left[left.size() - 2] != last) return std::nullopt;
  std::swap(left[left.size() - 2], left[left.size() - 1]);
  return left;
}

bool swap_in_product(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  // Zero points are one per row or column.
  if (layer.op_input_count != 2) return false;
  for (const size_t side : {0u, 1u}) {
    const ValueId given = layer.inputs[side];
    const LayerId operand = producer(graph, given);
    const auto left = without_swap(graph, operand);
    if (!left) continue;
    const bool whole = std::is_sorted(left->begin(), left->end());
    if (!whole && sole_user(graph, given) != id) continue;
    if (std::ranges::count(layer.inputs, given) > 1) continue;
    MatMul op = std::get<MatMul>(layer.op);
    bool& flag = side == 0 ? op.transpose_a : op.transpose_b;
    flag = !flag;
    std::vector<ValueId> inputs = layer.inputs;
    inputs[side] = graph.layer(operand).inputs[0];
    if (!whole) {
      const LayerId moved = graph.add({.name = graph.layer(operand).name,
                                       .op = Transpose{*left},
                                       .inputs = {inputs[side]},
                                       .origins = graph.layer(operand).origins,
                                       .output_names = {graph.value(given).name + "/swapped"}});
      inputs[side] = graph.layer(moved).outputs[0];
      graph.swap_names(moved, operand);
    }
    const std::string name = layer.name;
    const Saving saved = whole ? saving_of(graph, given) : Saving{};
    const LayerId product = graph.add({.name = name,
                                       .op = op,
                                       .inputs = std::move(inputs),
                                       .epilogues = layer.epilogues,
                                       .op_input_count = layer.op_input_count,
                                       .origins = layer.origins});
    graph.replace_layer(id, product);
    run.did(name, fmt::format("transposes operand {} itself", side), saved);
    return true;
  }
  return false;
}

bool rewrite_product(Graph& graph, LayerId id, PassRun& run) {
  return op_as<MatMul>(graph, id) && swap_in_product(graph, id, run);
}

bool rewrite_chain(Graph& graph, LayerId id, PassRun& run) {
  return is_move(graph, id) && compose_chain(graph, id, run);
}

}  // namespace

// Products first: what they take into the flag is no longer part of a chain.
bool compose_moves(Graph& graph, PassRun& run) {
  bool any = false;
  for (bool changed = true; changed; any |= changed) {
    changed = sweep(graph, run, rewrite_product);
    changed |= sweep(graph, run, rewrite_chain);
  }
  return any;
}

}  // namespace anneal
