// move_quantize: data-movement layers between quantized layers move integers.
//
//   y = Transpose(Dequantize(q, s, z))             =>   y = Dequantize(Transpose(q), s, z)
//   y = Concat(Dequantize(a, s), Dequantize(b, s)) =>   y = Dequantize(Concat(a, b), s)
//   q = Quantize(Concat(x, y), s, z)               =>   q = Concat(Quantize(x, s, z), ...)
//   q = Quantize(Dequantize(p, s, z), s, z)        =>   q = p
//
// Through Reshape, Transpose, Slice, Expand, Tile, Gather, Pad, Concat and the maxima of pools; a
// Quantize does not move before a layer that reads more than it returns. With one scale, or through
// Transpose with one for each position of an axis; operands of a concat with other scales, or of
// floats, are quantized with the scale of its result. Constants are moved and quantized now. Not
// where a target has no kernel for the integers. Changes numerics: a maximum of integers does not
// know NaN.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// Which inputs a layer moves the elements of.
enum class Moves { kNothing, kFirst, kAll };

Moves moves(const Graph& graph, LayerId id) {
  if (id == LayerId::kNone) return Moves::kNothing;
  const Layer& layer = graph.layer(id);
  if (!layer.epilogues.empty() || layer.outputs.size() != 1) return Moves::kNothing;
  if (op_as<Concat>(graph, id)) return Moves::kAll;
  if (const auto* pool = op_as<Pool>(graph, id))
    return pool->kind == PoolKind::kMax && !pool->with_indices ? Moves::kFirst : Moves::kNothing;
  if (const auto* pad = op_as<Pad>(graph, id)) {
    const bool has_value = layer.inputs.size() > 2 && layer.inputs[2] != ValueId::kNone;
    return has_value && pad->mode == PadMode::kConstant ? Moves::kNothing : Moves::kFirst;
  }
  const bool others = op_as<Reshape>(graph, id) || op_as<Transpose>(graph, id) ||
                      op_as<Slice>(graph, id) || op_as<Expand>(graph, id) ||
                      op_as<Tile>(graph, id) || op_as<Gather>(graph, id);
  return others ? Moves::kFirst : Moves::kNothing;
}

// A layer's inputs that are moved.
std::span<const ValueId> moved_inputs(const Graph& graph, LayerId id) {
  const std::span<const ValueId> inputs = graph.layer(id).inputs;
  return moves(graph, id) == Moves::kAll ? inputs : inputs.first(1);
}

bool is_positive(const Scaling& scaling) {
  return std::ranges::all_of(scaling.scales, [](float scale) { return scale > 0; });
}

// Whether integers are the same after having been reals of this scale.
bool survives(const Scaling& scaling) {
  return scaling.real == DataType::kF32 && std::ranges::all_of(scaling.scales, [](float scale) {
           return scale > 1e-30F && scale < 1e30F;
         });
}

// The same relation behind a layer that moves what has it; nullopt if there is none.
std::optional<Scaling> behind(const Graph& graph, LayerId id, const Scaling& scaling) {
  if (op_as<Pool>(graph, id) && !is_positive(scaling)) return std::nullopt;
  if (scaling.per_tensor()) return scaling;
  const auto* transpose = op_as<Transpose>(graph, id);
  if (!transpose) return std::nullopt;
  Scaling moved = scaling;
  moved.axis =
      std::ranges::find(transpose->permutation, scaling.axis) - transpose->permutation.begin();
  return moved;
}

// The inputs of a Quantize or Dequantize of x with the parameters of layer `id`.
std::vector<ValueId> with_parameters(const Graph& graph, LayerId id, ValueId x) {
  std::vector<ValueId> inputs = graph.layer(id).inputs;
  inputs[0] = x;
  return inputs;
}

// The result of a layer with constant inputs.
Tensor evaluated(const Graph& graph, const Op& op, const std::vector<ValueId>& inputs) {
  Layer layer{.op = op, .op_input_count = static_cast<int>(inputs.size()), .inputs = inputs};
  layer.outputs.resize(1);
  std::vector<const Tensor*> tensors;
  for (const ValueId input : inputs)
    tensors.push_back(input == ValueId::kNone ? nullptr : graph.constant(input));
  return evaluate(layer, tensors, graph.sizes())[0];
}

bool are_constant(const Graph& graph, const std::vector<ValueId>& inputs) {
  return std::ranges::all_of(
      inputs, [&](ValueId input) { return input == ValueId::kNone || graph.constant(input); });
}

// The integers of each moved input, and how they relate to reals; nullopt if that is not the same
// for all.
struct Sources {
  std::vector<ValueId> integers;
  LayerId dequantize = LayerId::kNone;  // of the first
  Scaling scaling;
};
std::optional<Sources> sources_of(const Graph& graph, LayerId id) {
  Sources sources;
  for (const ValueId input : moved_inputs(graph, id)) {
    const auto found = dequantized(graph, input);
    if (!found || (!sources.integers.empty() && found->scaling != sources.scaling))
      return std::nullopt;
    if (sources.integers.empty()) {
      sources.dequantize = found->layer;
      sources.scaling = found->scaling;
    }
    sources.integers.push_back(found->integers);
  }
  if (sources.integers.empty()) return std::nullopt;
  return sources;
}

// Dequantize behind the layer that moves.
bool move_down(Graph& graph, LayerId id, PassRun& run) {
  if (moves(graph, id) == Moves::kNothing) return false;
  const auto sources = sources_of(graph, id);
  if (!sources) return false;
  const Layer& layer = graph.layer(id);
  const auto scaling = behind(graph, id, sources->scaling);
  if (!scaling) return false;
  std::vector<ValueId> inputs = sources->integers;
  for (size_t i = inputs.size(); i < layer.inputs.size(); ++i) inputs.push_back(layer.inputs[i]);
  if (op_as<Pad>(graph, id) && sources->scaling.has_zeros()) {
    inputs.resize(2);
    inputs.push_back(graph.layer(sources->dequantize).inputs[2]);
  }
  Rewrite rewrite(graph, id);
  ValueId moved = ValueId::kNone;
  if (are_constant(graph, inputs)) {
    moved = graph.add_constant(graph.value(layer.outputs[0]).name + "/integers",
                               evaluated(graph, layer.op, inputs));
  } else {
    if (const std::string why = run.ask_targets(graph, {layer.name, layer.op, inputs});
        !why.empty()) {
      run.refused(layer.name, fmt::format("moves floats, not integers: {}", why));
      return false;
    }
    moved = rewrite.add("integers", layer.op, std::move(inputs));
  }
  const std::string name = layer.name;
  if (!rewrite.finish(rewrite.add("dequantize", Dequantize{.axis = scaling->axis},
                                  with_parameters(graph, sources->dequantize, moved))))
    return false;
  run.did(name, "moves integers; they are dequantized after it");
  return true;
}

// Whether quantizing before the layer is no more work than behind it.
bool is_cheap_before(const Graph& graph, LayerId id) {
  return op_as<Concat>(graph, id) || op_as<Reshape>(graph, id) || op_as<Transpose>(graph, id) ||
         op_as<Expand>(graph, id) || op_as<Tile>(graph, id) || op_as<Pool>(graph, id);
}

// Quantize before the layer that moves; `id` is the Quantize.
bool move_up(Graph& graph, LayerId id, PassRun& run) {
  const auto scaling = op_as<Quantize>(graph, id) ? scaling_of(graph, id) : std::nullopt;
  if (!scaling || !scaling->per_tensor() || !is_positive(*scaling)) return false;
  const ValueId value = graph.layer(id).inputs[0];
  const LayerId mover = producer(graph, value);
  if (moves(graph, mover) == Moves::kNothing || !is_cheap_before(graph, mover) ||
      sole_user(graph, value) != id)
    return false;
  const Layer& layer = graph.layer(mover);
  const std::string name = layer.name;
  Rewrite rewrite(graph, id, layer.origins);
  std::vector<ValueId> inputs;
  for (const ValueId input : moved_inputs(graph, mover)) {
    const Op op = Quantize{.dtype = scaling->integer};
    std::vector<ValueId> of = with_parameters(graph, id, input);
    inputs.push_back(
        graph.constant(input)
            ? graph.add_constant(graph.value(input).name + "/quantized", evaluated(graph, op, of))
            : rewrite.add("quantize", op, std::move(of)));
  }
  for (size_t i = inputs.size(); i < layer.inputs.size(); ++i) inputs.push_back(layer.inputs[i]);
  if (const std::string why = run.ask_targets(graph, {name, layer.op, inputs}); !why.empty()) {
    run.refused(name, fmt::format("moves floats, not integers: {}", why));
    return false;
  }
  const ValueId moved = rewrite.add("integers", layer.op, std::move(inputs));
  if (!rewrite.finish(moved)) return false;
  run.did(name, "moves integers, quantized before it");
  return true;
}

// Quantize behind Dequantize, which undo each other.
bool cancel(Graph& graph, LayerId id, PassRun& run) {
  if (!op_as<Quantize>(graph, id)) return false;
  const auto there = scaling_of(graph, id);
  const auto back = there ? dequantized(graph, graph.layer(id).inputs[0]) : std::nullopt;
  if (!back || back->scaling != *there || !survives(*there)) return false;
  const std::string name = graph.layer(id).name;
  if (!Rewrite(graph, id).finish(back->integers)) return false;
  run.did(name, "returns the integers that were quantized before",
          saving_of(graph, back->integers));
  return true;
}

bool move(Graph& graph, LayerId id, PassRun& run) {
  return cancel(graph, id, run) || move_down(graph, id, run) || move_up(graph, id, run);
}

}  // namespace

bool move_quantize(Graph& graph, PassRun& run) { return sweep(graph, run, move); }

}  // namespace anneal
