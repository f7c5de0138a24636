// unify_scales: values that are concatenated or compared for a maximum share one scale.
//
//   c = Concat(a, b); Quantize(a, s), Quantize(b, t), Quantize(c, u)   =>   all three by one scale
//   c = Concat(a, b); m = Pool(a); Quantize(c, s), Quantize(m, t)      =>   both by one scale
//
// Then move_quantize moves the same integers, and no value is quantized twice. For scales that
// insert_quantize chose; those of the model stay. The range is the union of theirs. An operand
// keeps its own, and is quantized again for the concat, where the union would make it more than
// twice as coarse. Changes numerics.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/quantized_weights.h"

namespace anneal {
namespace {

constexpr float kMostCoarser = 2;

class Unifier {
 public:
  Unifier(Graph& graph, PassRun& run) : graph_(graph), run_(run), options_(run.options.precision) {}

  bool run() {
    const std::vector<LayerId> order = graph_.order();
    for (const LayerId id : order) find_quantized(id);
    for (const LayerId id : order) link_inputs(id);
    bool changed = false;
    for (auto& [value, group] : groups_)
      if (run_.may_rewrite()) changed |= rewrite(value, ranges_[find(value)]);
    return changed;
  }

 private:
  // Values that insert_quantize quantized, by the name that it gives: the table names others, too,
  // that the model may quantize by scales of its own. Those that are read dequantized alone.
  void find_quantized(LayerId id) {
    if (!op_as<Quantize>(graph_, id)) return;
    const ValueId value = graph_.layer(id).inputs[0];
    const std::string& tensor = graph_.value(value).name;
    const auto known = options_.ranges->tensors.find(tensor);
    if (known == options_.ranges->tensors.end() || !scaling_of(graph_, id) ||
        !graph_.layer(id).name.starts_with(tensor + std::string(kQuantizedStem)))
      return;
    const ValueId integers = graph_.layer(id).outputs[0];
    const auto readers = users_of(graph_, integers);
    if (graph_.is_output(integers) || !std::ranges::all_of(readers, [&](LayerId reader) {
          return op_as<Dequantize>(graph_, reader);
        }))
      return;
    inserted_.insert(id);
    groups_.emplace(value, value);
    ranges_.emplace(value, known->second);
    finest_.emplace(value, scale_of(known->second));
  }

  ValueId find(ValueId value) const {
    while (groups_.at(value) != value) value = groups_.at(value);
    return value;
  }

  // The quantized value that `value` is elements of, moved: itself, or one that only moves on; else
  // the value that these elements come from.
  ValueId origin(ValueId value) const {
    for (;;) {
      if (const auto back = dequantized(graph_, value); back) {
        const LayerId made_by = producer(graph_, back->integers);
        if (op_as<Quantize>(graph_, made_by)) value = graph_.layer(made_by).inputs[0];
      }
      if (groups_.contains(value)) return value;
      const LayerId id = producer(graph_, value);
      if (!op_as<Reshape>(graph_, id) && !op_as<Transpose>(graph_, id)) return value;
      value = graph_.layer(id).inputs[0];
    }
  }

  void link_inputs(LayerId id) {
    const auto* pool = op_as<Pool>(graph_, id);
    const bool takes_maxima = pool && pool->kind == PoolKind::kMax && !pool->with_indices;
    if ((!op_as<Concat>(graph_, id) && !takes_maxima) || !graph_.layer(id).epilogues.empty())
      return;
    const ValueId result = graph_.layer(id).outputs[0];
    if (!groups_.contains(result)) return;
    for (const ValueId input : graph_.layer(id).inputs) {
      const ValueId from = origin(input);
      if (groups_.contains(from))
        link(from, result);
      else if (const auto [first, is_new] = goes_to_.try_emplace(from, result); !is_new)
        link(first->second, result);
    }
  }

  void link(ValueId part, ValueId whole) {
    const ValueId a = find(part), b = find(whole);
    if (a == b) return;
    TensorRange both = ranges_[a];
    both.min = std::min(both.min, ranges_[b].min);
    both.max = std::max(both.max, ranges_[b].max);
    const float unified = scale_of(both);
    const float finest = std::min(finest_[a], finest_[b]);
    const float coarser = unified / finest;
    if (coarser > kMostCoarser) {
      run_.refused(graph_.value(part).name,
                   fmt::format("keeps its own scale: that of \"{}\" with it would be {:.1f} times "
                               "as coarse",
                               graph_.value(whole).name, coarser));
      return;
    }
    groups_[a] = b;
    ranges_[b] = both;
    finest_[b] = finest;
  }
  float scale_of(const TensorRange& range) const {
    return scaling_for(range, options_.symmetric).scales[0];
  }

  // Quantizes the value by the range, wherever it is quantized.
  bool rewrite(ValueId value, const TensorRange& range) {
    const Scaling scaling = scaling_for(range, options_.symmetric);
    bool changed = false;
    for (const LayerId user : users_of(graph_, value)) {
      if (!inserted_.contains(user) || scaling_of(graph_, user) == scaling) continue;
      requantize(user, value, scaling);
      changed = true;
    }
    return changed;
  }

  void requantize(LayerId id, ValueId value, const Scaling& scaling) {
    const std::string name = graph_.value(value).name;
    std::vector<ValueId> inputs = {value, add_scales(graph_, name, scaling),
                                   add_zeros(graph_, name, scaling)};
    if (inputs.back() == ValueId::kNone) inputs.pop_back();
    const auto add = [&](LayerId old, Op op) {
      const LayerId made = graph_.add({.name = graph_.layer(old).name,
                                       .op = std::move(op),
                                       .inputs = inputs,
                                       .origins = graph_.layer(old).origins});
      return made;
    };
    const std::vector<LayerId> readers = users_of(graph_, graph_.layer(id).outputs[0]);
    const LayerId quantize = add(id, Quantize{.dtype = scaling.integer});
    inputs[0] = graph_.layer(quantize).outputs[0];
    for (const LayerId reader : readers)
      if (op_as<Dequantize>(graph_, reader))
        graph_.replace_layer(reader, add(reader, Dequantize{}));
    graph_.swap_names(id, quantize);
    run_.did(name, fmt::format("uses scale {}, shared with the other operands of the same layer",
                               scaling.scales[0]));
  }

  Graph& graph_;
  PassRun& run_;
  const PrecisionOptions& options_;
  std::set<LayerId> inserted_;
  std::map<ValueId, ValueId> groups_;  // each value's parent; a root is its own
  std::map<ValueId, TensorRange> ranges_;
  std::map<ValueId, float> finest_;     // of the scales that a group's values had
  std::map<ValueId, ValueId> goes_to_;  // of values not quantized: where they are moved to first
};

}  // namespace

bool unify_scales(Graph& graph, PassRun& run) {
  return run.options.precision.ranges && Unifier(graph, run).run();
}

}  // namespace anneal
