#include "anneal/optimizer/precision/half_precision_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/bf16_range.h"
#include "anneal/optimizer/precision/half_roles.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/programs/overflow_analysis.h"

namespace anneal {
namespace {

constexpr float kMostF16 = 65504;
// Below this largest magnitude, elements a sixteenth of it are no longer normal numbers of f16.
constexpr float kLeastF16 = 0x1p-10f;
// The largest half unit in the last place of a softmax's largest input, which is also the relative
// error of a probability.
constexpr float kSoftmaxError = 0x1p-6f;
// A product with fewer weights is not worth a step that casts what it reads.
constexpr int64_t kWeightsWorthACast = 1 << 20;

// The 16-bit type of layers that no pattern asks for.
struct DefaultHalf {
  DataType type = DataType::kF32;
  std::unordered_set<LayerId> bf16 = {};  // layers that take bf16 though the type is f16
  DataType of(LayerId id) const { return bf16.contains(id) ? DataType::kBF16 : type; }
};

struct HalfChoice {
  HalfStorage storage;
  // Layers without a pattern that stay f32, or store f32, because the range of f16 may not suffice.
  std::unordered_set<LayerId> beyond_f16;
  size_t free_products = 0;  // without a pattern, in 16 bits or beyond f16
};

class Chooser {
 public:
  Chooser(const Graph& graph, const PrecisionOptions& options, DefaultHalf by_default,
          const NativeHalves& native, const NeedAnalysis& needs, int threads)
      : graph_(graph),
        threads_(threads),
        options_(options),
        native_(native),
        by_default_(std::move(by_default)),
        asked_(options.layers),
        order_(graph.order()),
        needs_(needs),
        beyond_bf16_(values_beyond_bf16(graph)) {}

  HalfChoice run() {
    for (const LayerId id : order_) halves_[id] = half_of(id);
    join_moved();
    mark_known();
    for (bool changed = true; changed;) {
      changed = false;
      for (const LayerId id : order_) changed |= mark_grown(id);
    }
    mark_made();
    mark_first();
    mark_needs();
    for (const LayerId id : order_)
      if (role_of(graph_, id) == HalfRole::kProduct) choose_product(id);
    find_leading();
    for (const LayerId id : order_) choose_values(id);
    unite_types();
    return std::move(choice_);
  }

 private:
  // The facts of values that are moved into each other, and so share a type.
  struct Mark {
    Growth growth;  // of f16's range: no cast to it either
    std::string out_of_range;
    std::string guessed;       // may leave f16's range, by a guess at how large it becomes
    std::string imprecise;     // may be cast for a product, but is not stored in 16 bits
    bool is_known = false;     // samples showed it
    bool leads = false;        // to a 16-bit product
    bool is_fine = false;      // its readers should stay f32, too
    bool is_computed = false;  // not of the model's inputs alone
    bool is_port = false;      // or comes from a layer that has no 16 bits
  };

  const Type& type(ValueId id) const { return graph_.value(id).type(); }
  bool is_f32(ValueId id) const {
    return id != ValueId::kNone && type(id).container == Container::kTensor &&
           type(id).dtype == DataType::kF32;
  }
  const std::string& name_of(ValueId id) const { return graph_.value(id).name; }

  // The 16-bit type that is allowed the layer, or f32.
  DataType half_of(LayerId id) const {
    const auto asked = asked_.of(graph_.layer(id));
    if (!asked || *asked == Precision::kI8) return by_default_.of(id);
    return *asked == Precision::kF16    ? DataType::kF16
           : *asked == Precision::kBF16 ? DataType::kBF16
                                        : DataType::kF32;
  }

  ValueId root(ValueId id) {
    while (parent_.contains(id)) id = parent_[id];
    return id;
  }
  Mark& mark(ValueId id) { return marks_[root(id)]; }

  void join_moved() {
    for (const LayerId id : order_) {
      if (role_of(graph_, id) != HalfRole::kMoves) continue;
      const Layer& layer = graph_.layer(id);
      if (!is_f32(layer.outputs[0])) continue;
      for (const size_t i : data_inputs(layer).data) {
        const ValueId from = root(layer.inputs[i]), to = root(layer.outputs[0]);
        if (from != to) parent_[from] = to;
      }
    }
  }

  void range_ends(ValueId id, const std::string& why) {
    Mark& of = mark(id);
    of.growth = {true, true};
    if (of.out_of_range.empty()) of.out_of_range = why;
  }

  // Uses the samples and, where there are none, the demands of readers.
  void mark_known() {
    for (const ValueId input : graph_.inputs()) mark_seen(input);
    for (const LayerId id : order_)
      for (const ValueId output : graph_.layer(id).outputs) mark_seen(output);
    for (const LayerId id : order_) {
      const Layer& layer = graph_.layer(id);
      if (layer.inputs.empty() || !is_f32(layer.inputs[0])) continue;
      const ValueId x = layer.inputs[0];
      if (std::holds_alternative<Normalize>(layer.op) && !mark(x).is_known)
        range_ends(x, fmt::format("it is normalized, and without a calibration table the magnitude "
                                  "of \"{}\" is unknown",
                                  name_of(x)));
      if (std::holds_alternative<Softmax>(layer.op)) mark_softmax_input(x);
    }
  }

  void mark_seen(ValueId id) {
    const float seen = is_f32(id) ? seen_in(options_, name_of(id)) : -1;
    if (seen < 0) return;
    Mark& of = mark(id);
    of.is_known = true;
    if (seen > kMostF16 / kSampleMargin)
      range_ends(id, fmt::format("\"{}\" reached {:g}, and f16 ends at 65504", name_of(id), seen));
    else if (seen > 0 && seen < kLeastF16)
      range_ends(
          id, fmt::format("\"{}\" stayed below {:g}, where f16 loses digits", name_of(id), seen));
  }

  void mark_softmax_input(ValueId x) {
    Mark& of = mark(x);
    const float seen = seen_in(options_, name_of(x));
    const LayerId made_by = producer(graph_, x);
    const DataType half = made_by == LayerId::kNone ? by_default_.type : halves_.at(made_by);
    const float ulps = half == DataType::kBF16 ? 0x1p-8f : 0x1p-11f;
    if (seen < 0)
      of.imprecise = fmt::format(
          "softmax reads \"{}\", whose magnitude is unknown without a calibration table",
          name_of(x));
    else if (std::exp2(std::floor(std::log2(std::max(seen, 1e-30f)))) * ulps > kSoftmaxError)
      of.imprecise = fmt::format("softmax reads \"{}\", which reached {:g}", name_of(x), seen);
  }

  // How large the op's results may be, before epilogues.
  Growth op_growth(const Layer& layer, HalfRole role) {
    const DataInputs inputs = data_inputs(layer);
    Growth data;
    for (const size_t i : inputs.data) {
      if (role == HalfRole::kProduct && graph_.constant(layer.inputs[i])) continue;
      const Growth of = growth(layer.inputs[i]);
      data = {data.up || of.up, data.down || of.down};
    }
    if (std::holds_alternative<Softmax>(layer.op) || std::holds_alternative<Normalize>(layer.op))
      return {};
    if (role == HalfRole::kProduct) return {data.any(), data.any()};
    const auto mapped = [&](const Program& program) {
      std::vector<Growth> given;
      for (const auto& [input, number] : inputs.of_program)
        given.push_back(growth(layer.inputs[input]));
      return growth_of(program, given, kMostF16)[0];
    };
    if (const auto* reduce = std::get_if<Reduce>(&layer.op)) {
      if (reduce->kind == ReduceKind::kSum || reduce->kind == ReduceKind::kProd)
        return {true, true};
      return reduce->map.empty() ? data : mapped(reduce->map);
    }
    return data;
  }

  Growth growth(ValueId id) {
    if (id == ValueId::kNone) return {};
    if (const Tensor* constant = graph_.constant(id)) {
      if (constant->dtype() != DataType::kF32) return {};
      const auto [made, is_new] = of_constants_.try_emplace(id);
      Growth& of = made->second;
      if (!is_new) return of;
      for (const float value : constant->as<float>()) {
        of.up |= std::isfinite(value) && value > kMostF16;
        of.down |= std::isfinite(value) && value < -kMostF16;
      }
      return of;
    }
    return is_f32(id) ? mark(id).growth : Growth{};
  }

  bool mark_grown(LayerId id) {
    const Layer& layer = graph_.layer(id);
    const HalfRole role = role_of(graph_, id);
    if (role == HalfRole::kFixed && !bodies_of(layer.op).empty()) return false;
    std::vector<Growth> results;
    if (const auto* pointwise = std::get_if<Pointwise>(&layer.op)) {
      std::vector<Growth> given;
      for (const ValueId input : layer.inputs) given.push_back(growth(input));
      results = growth_of(pointwise->program, given, kMostF16);
    } else {
      const Growth of_op = op_growth(layer, role);
      auto next = static_cast<size_t>(layer.op_input_count);
      for (const Program& epilogue : layer.epilogues) {
        std::vector<Growth> given = {of_op};
        for (size_t i = 1; i < epilogue.inputs().size(); ++i)
          given.push_back(growth(layer.inputs[next++]));
        const auto all = epilogue.empty() ? given : growth_of(epilogue, given, kMostF16);
        results.insert(results.end(), all.begin(), all.end());
      }
      results.resize(layer.outputs.size(), of_op);
    }
    bool changed = false;
    for (size_t k = 0; k < results.size(); ++k) {
      const ValueId output = layer.outputs[k];
      if (!is_f32(output)) continue;
      Mark& of = mark(output);
      const auto* reduce = std::get_if<Reduce>(&layer.op);
      if (reduce && of.imprecise.empty() &&
          (reduce->kind == ReduceKind::kSum || reduce->kind == ReduceKind::kProd ||
           (reduce->kind == ReduceKind::kMean && !reduce->map.empty())))
        of.imprecise = "it is a sum or a statistic over many elements";
      if (of.is_known) continue;
      const Growth now = {of.growth.up || results[k].up, of.growth.down || results[k].down};
      changed |= !(now == of.growth);
      of.growth = now;
      if (now.any() && of.out_of_range.empty())
        of.out_of_range = fmt::format(
            "\"{}\" may leave the range of f16: its magnitude is unknown without a calibration "
            "table",
            name_of(output));
    }
    return changed;
  }

  void mark_made() {
    for (const LayerId id : order_)
      for (const ValueId output : graph_.layer(id).outputs) {
        const HalfRole role = role_of(graph_, id);
        mark(output).is_computed |= role != HalfRole::kMoves;
        mark(output).is_port |= role == HalfRole::kFixed || graph_.is_output(output);
      }
  }

  // An input of the model, in whatever order or put together with others, is cast once; parts of it
  // would be cast one by one.
  bool is_whole_input(ValueId id) const {
    for (LayerId made_by = producer(graph_, id); made_by != LayerId::kNone;
         made_by = producer(graph_, id)) {
      const Layer& layer = graph_.layer(made_by);
      if (std::holds_alternative<Concat>(layer.op)) return true;
      if (!std::holds_alternative<Reshape>(layer.op) &&
          !std::holds_alternative<Transpose>(layer.op))
        return false;
      id = layer.inputs[0];
    }
    return true;
  }

  // Whether 16-bit operands would cost a step that is not worth it.
  bool is_cast_for_little(LayerId id, ValueId input) {
    const Mark& of = mark(input);
    const bool is_f32 =
        of.is_port || !of.imprecise.empty() || (!of.is_computed && !is_whole_input(input));
    if (!is_f32) return false;
    int64_t weights = 0;
    for (const size_t i : data_inputs(graph_.layer(id)).data)
      if (const Tensor* constant = graph_.constant(graph_.layer(id).inputs[i]))
        weights = std::max(weights, constant->count());
    return weights < kWeightsWorthACast;
  }

  bool is_depthwise(LayerId id) const {
    const Layer& layer = graph_.layer(id);
    const auto* conv = std::get_if<Conv>(&layer.op);
    return conv && conv->groups > 1 && type(layer.inputs[1]).shape[1] == 1;
  }
  // No pattern asks for 16 bits.
  bool may_be_f32(LayerId id) const {
    const auto asked = asked_.of(graph_.layer(id));
    return !asked || *asked == Precision::kF32 || *asked == Precision::kI8;
  }

  // Marks the results of the first products that only depthwise convolutions read. These take
  // differences of neighbours, which hardly differ so near to a picture, and their large weights
  // make the differences as large as other channels: most of the error of such a network comes from
  // here.
  void mark_first() {
    std::unordered_set<ValueId> computed;  // from the results of products
    for (const LayerId id : order_) {
      const Layer& layer = graph_.layer(id);
      const bool is_product = *traits_of(layer.op).half == HalfRole::kProduct;
      const bool is_first = std::ranges::none_of(
          layer.inputs, [&](ValueId input) { return computed.contains(input); });
      if (is_product || !is_first) computed.insert(layer.outputs.begin(), layer.outputs.end());
      if (!is_product || !is_first || !may_be_f32(id)) continue;
      const ValueId output = layer.outputs[0];
      const auto& users = graph_.value(output).users;
      const auto may_read_f32 = [&](LayerId user) {
        return is_depthwise(user) && graph_.layer(user).inputs[0] == output && may_be_f32(user);
      };
      if (layer.outputs.size() == 1 && is_f32(output) && !users.empty() &&
          std::ranges::all_of(users, may_read_f32) &&
          std::ranges::any_of(users, [&](LayerId user) { return is_half(halves_.at(user)); })) {
        mark(output).is_fine = true;
        mark(output).imprecise = "depthwise convolutions read the result of the first layer";
      }
    }
  }

  // Marks the demands of readers, and the values that may exceed the range of f16.
  void mark_needs() {
    const auto guess = [&](ValueId value) {
      if (!is_f32(value)) return;
      Mark& of = mark(value);
      if (of.guessed.empty() && !of.is_known && needs_.expected(value) > kMostF16)
        of.guessed = fmt::format(
            "\"{}\" may exceed the range of f16, judged by the magnitudes of its operands: its "
            "magnitude is unknown without a calibration table",
            name_of(value));
    };
    for (const ValueId input : graph_.inputs()) guess(input);
    for (const LayerId id : order_) {
      if (!bodies_of(graph_.layer(id).op).empty())
        for (const ValueId output : graph_.layer(id).outputs) guess(output);
      const DataType half = halves_[id];
      if (!is_half(half)) continue;
      for (const ValueId output : graph_.layer(id).outputs) {
        if (!is_f32(output)) continue;
        Mark& of = mark(output);
        if (of.imprecise.empty())
          of.imprecise = half == DataType::kBF16 && beyond_bf16_.contains(output)
                             ? why_beyond_bf16(name_of(output))
                             : needs_.why_not_stored(output, rounding_of(half), to_string(half));
        guess(output);
      }
    }
  }

  void stays(LayerId id, std::string text) {
    storage_.reasons.push_back({graph_.layer(id).name, std::move(text)});
  }

  // Why an operator from outside stays f32; empty: it takes the type.
  std::string why_not_outside(const Custom& op, const Layer& layer, DataType half) {
    if (!op.definition->description().takes(half))
      return fmt::format("its library has no kernel for {}", to_string(half));
    if (!native_.has(half))
      return fmt::format("the target does not compute in {}", to_string(half));
    if (std::ranges::none_of(layer.inputs, [&](ValueId input) { return is_f32(input); }))
      return "it reads no f32";
    for (const ValueId output : layer.outputs) {
      if (graph_.is_output(output)) return "it gives an output of the model";
      if (is_f32(output) && !mark(output).imprecise.empty()) return mark(output).imprecise;
    }
    return {};
  }

  void choose_product(LayerId id) {
    const Layer& layer = graph_.layer(id);
    const std::vector<size_t> data = data_inputs(layer).data;
    if (const auto* custom = std::get_if<Custom>(&layer.op); custom && is_half(halves_[id]))
      if (const std::string why = why_not_outside(*custom, layer, halves_[id]); !why.empty())
        return stays(id, "stays f32: " + why);
    for (const size_t i : data)
      if (const DataType today = type(layer.inputs[i]).dtype; is_half(today)) {
        storage_.products[id] = today;
        return;
      }
    const DataType half = halves_[id];
    if (!is_half(half)) {
      if (asked_.of(layer) == Precision::kF32 && options_.allows_half())
        stays(id, "is f32, as requested or for the self-check");
      return;
    }
    const bool is_free = !asked_.of(layer);
    const auto beyond_f16 = [&] {
      if (half == DataType::kF16 && is_free && choice_.beyond_f16.insert(id).second)
        ++choice_.free_products;
    };
    if (may_be_f32(id))
      if (const std::string why = needs_.why_not_multiplied(id, rounding_of(half), to_string(half));
          !why.empty())
        return stays(id, "stays f32: " + why);
    for (const size_t i : data) {
      const ValueId input = layer.inputs[i];
      if (!is_f32(input)) continue;
      if (mark(input).is_fine)
        return stays(id, "stays f32: it is depthwise and reads the result of the first layer");
      if (const Tensor* constant = graph_.constant(input)) {
        if (const std::string why =
                why_weights_suffer(graph_, id, *constant, half, needs_.norms_of(id), threads_);
            !why.empty()) {
          beyond_f16();
          return stays(id, "stays f32: " + why);
        }
      } else if (half == DataType::kF16 && mark(input).growth.any()) {
        beyond_f16();
        return stays(id, "stays f32: of its inputs, " + mark(input).out_of_range);
      } else if (half == DataType::kBF16 && beyond_bf16_.contains(input)) {
        return stays(id, "stays f32: of its inputs, " + why_beyond_bf16(name_of(input)));
      } else if (half == DataType::kF16 && !mark(input).guessed.empty()) {
        beyond_f16();
        return stays(id, "stays f32: of its inputs, " + mark(input).guessed);
      } else if (may_be_f32(id) && is_cast_for_little(id, input)) {
        return stays(id,
                     fmt::format("stays f32: \"{}\", which it reads, is f32, and a cast of its own "
                                 "would not pay",
                                 name_of(input)));
      }
    }
    storage_.products[id] = half;
    if (is_free) ++choice_.free_products;
  }

  // From the end: a value leads to a 16-bit product if one reads it, or a layer whose results do.
  void find_leading() {
    for (bool changed = true; changed;) {
      changed = false;
      for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
        const Layer& layer = graph_.layer(*at);
        const HalfRole role = role_of(graph_, *at);
        const bool leads =
            role != HalfRole::kFixed &&
            std::any_of(layer.outputs.begin(), layer.outputs.end(), [&](ValueId output) {
              return is_half(type(output).dtype) || mark(output).leads;
            });
        const DataInputs inputs = data_inputs(layer);
        const auto lead = [&](ValueId input) {
          if (!is_f32(input) || mark(input).leads) return;
          mark(input).leads = changed = true;
        };
        if (role == HalfRole::kProduct && storage_.products.contains(*at))
          for (const size_t i : inputs.data) lead(layer.inputs[i]);
        if (!leads) continue;
        if (role != HalfRole::kProduct)
          for (const size_t i : inputs.data) lead(layer.inputs[i]);
        for (const auto& [input, number] : inputs.of_program) lead(layer.inputs[input]);
        for (size_t i = static_cast<size_t>(layer.op_input_count); i < layer.inputs.size(); ++i)
          lead(layer.inputs[i]);
      }
    }
  }

  void choose_values(LayerId id) {
    const Layer& layer = graph_.layer(id);
    const HalfRole role = role_of(graph_, id);
    for (const ValueId output : layer.outputs) {
      if (!is_f32(output)) continue;
      const Mark& of = mark(output);
      DataType to = halves_[id];
      if (role == HalfRole::kFixed || graph_.is_output(output)) to = DataType::kF32;
      if (!of.leads) to = DataType::kF32;
      if (is_half(to)) {
        const std::string& why = to == DataType::kF16 && of.growth.any()       ? of.out_of_range
                                 : to == DataType::kF16 && !of.guessed.empty() ? of.guessed
                                                                               : of.imprecise;
        if (!why.empty()) {
          if (&why != &of.imprecise && !asked_.of(layer)) choice_.beyond_f16.insert(id);
          stays(id, fmt::format("stores f32: {}", why));
          to = DataType::kF32;
        }
      }
      // A layer that only moves elements keeps their type.
      if (role != HalfRole::kMoves || !is_half(to)) types_[root(output)].push_back(to);
      members_[root(output)].push_back(output);
    }
  }

  // One type for values that are moved into each other; of several, f32.
  void unite_types() {
    for (const auto& [at, members] : members_) {
      const auto& types = types_[at];
      if (types.empty() || !is_half(types[0])) continue;
      if (!std::ranges::all_of(types, [&](DataType each) { return each == types[0]; })) continue;
      for (const ValueId member : members) storage_.values[member] = types[0];
    }
  }

  const Graph& graph_;
  const int threads_;
  const PrecisionOptions& options_;
  const NativeHalves native_;
  const DefaultHalf by_default_;
  LayerPrecisions asked_;
  std::vector<LayerId> order_;
  const NeedAnalysis& needs_;
  const std::unordered_set<ValueId> beyond_bf16_;
  std::unordered_map<LayerId, DataType> halves_;
  std::unordered_map<ValueId, ValueId> parent_;
  std::unordered_map<ValueId, Mark> marks_;
  std::unordered_map<ValueId, Growth> of_constants_;
  std::map<ValueId, std::vector<DataType>> types_;
  std::map<ValueId, std::vector<ValueId>> members_;
  HalfChoice choice_;
  HalfStorage& storage_ = choice_.storage;
};

}  // namespace

HalfStorage choose_storage(const Graph& graph, const PrecisionOptions& options,
                           const NativeHalves& native, const NeedAnalysis& needs, int threads) {
  const bool f16 = options.allows(Precision::kF16), bf16 = options.allows(Precision::kBF16);
  // A target that computes in bf16 alone gains nothing from f16.
  if (!f16 || !bf16 || (native.bf16 && !native.f16))
    return Chooser(graph, options,
                   {bf16  ? DataType::kBF16
                    : f16 ? DataType::kF16
                          : DataType::kF32},
                   native, needs, threads)
        .run()
        .storage;
  HalfChoice first = Chooser(graph, options, {DataType::kF16}, native, needs, threads).run();
  if (first.beyond_f16.empty()) return std::move(first.storage);
  // Where most products take bf16, casts between them and the others would cost more than the
  // digits of f16 are worth.
  const auto products = static_cast<size_t>(std::ranges::count_if(
      first.beyond_f16, [&](LayerId id) { return role_of(graph, id) == HalfRole::kProduct; }));
  if (2 * products > first.free_products)
    return Chooser(graph, options, {DataType::kBF16}, native, needs, threads).run().storage;
  return Chooser(graph, options, {DataType::kF16, std::move(first.beyond_f16)}, native, needs,
                 threads)
      .run()
      .storage;
}

}  // namespace anneal
