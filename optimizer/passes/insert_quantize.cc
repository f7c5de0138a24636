// insert_quantize: inputs of 8-bit layers are quantized by their calibrated ranges.
//
//   y = Conv(x, w)   =>   q = Quantize(x, s, z); v = Dequantize(q, s, z)
//                         y = Conv(v, Dequantize(8-bit w, one scale per channel))
//
// Convolutions and products by constant weights, where PrecisionOptions allow or ask for int8 and
// the table has the range of their input. Activations are u8 over the range, which is widened to
// hold 0, or, if zero points shall be 0, u8 where nothing is negative and i8 else. Weights are i8
// from -127 to 127, without zero points; where the table says so, by scales fitted to them, and
// with a bias added to the layer's sums. Elementwise layers and those that move elements read the
// quantized value as well, so that one is stored, not two; a residual sum so reads 8 bits of its
// skip branch, and of the convolution before it the sums. Elementwise layers read inputs of the
// model in f32. Changes numerics.
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <unordered_map>

#include "anneal/optimizer/analysis/layer_bias.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/precision/quantized_weights.h"
#include "anneal/optimizer/precision/value_need.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// Layers that may read a value dequantized because others need it quantized.
bool does_not_mind(const Graph& graph, LayerId id) {
  return op_as<Pointwise>(graph, id) || op_as<Concat>(graph, id) || op_as<Reshape>(graph, id) ||
         op_as<Transpose>(graph, id) || op_as<Slice>(graph, id) || op_as<Pool>(graph, id) ||
         op_as<Pad>(graph, id) || op_as<Expand>(graph, id) || op_as<Resize>(graph, id) ||
         op_as<Reduce>(graph, id);
}

class Inserter {
 public:
  Inserter(Graph& graph, PassRun& run)
      : graph_(graph),
        run_(run),
        options_(run.options.precision),
        asked_(options_.layers),
        needs_(find_needs(graph, run)) {}

  bool run() {
    bool changed = false;
    for (const LayerId id : graph_.order())
      if (run_.may_rewrite()) changed |= visit(id);
    return changed;
  }

 private:
  bool visit(LayerId id) {
    if (!is_float_product(graph_, id)) return false;
    const std::string name = graph_.layer(id).name;
    const auto asked = asked_.of(graph_.layer(id));
    if (asked ? *asked != Precision::kI8 : !options_.allows(Precision::kI8)) {
      if (asked && options_.allows(Precision::kI8))
        run_.refused(name, fmt::format("is {}, as requested or for the self-check",
                                       anneal::to_string(*asked)));
      return false;
    }
    const auto layer = quantizable(graph_, id);
    if (!layer) {
      run_.refused(name, "stays float: " + why_not_quantizable(graph_, id));
      return false;
    }
    const Tensor weights = *graph_.constant(layer->weights);
    if (const std::string why = why_not_quantized(weights, layer->channel_axis); !why.empty()) {
      run_.refused(name, "stays float: " + why);
      return false;
    }
    const LayerQuantization how = quantization_of(name);
    if (!asked && how.error > options_.max_layer_error) {
      run_.refused(name, fmt::format("stays float: its error in 8 bits would be {:.2g} of its "
                                     "results' mean square, more than {:.2g}",
                                     how.error, options_.max_layer_error));
      return false;
    }
    if (const std::string why = needs_.why_not_multiplied(id, kEightBits, "8 bits");
        !asked && !why.empty()) {
      run_.refused(name, "stays float: " + why);
      return false;
    }
    const ValueId data = dequantized_data(name, layer->data);
    if (data == ValueId::kNone) return false;
    const ValueId back =
        dequantized_weights(name, {layer->weights, layer->channel_axis, how.fits_weights}, weights);
    NewLayer added = copy_of(graph_, id);
    added.inputs[0] = data;
    added.inputs[1] = back;
    const bool is_biased = add_bias(id, added);
    graph_.replace_layer(id, graph_.add(std::move(added)));
    run_.did(name,
             fmt::format("is int8{}{}", asked ? ", as requested" : "", described(how, is_biased)));
    return true;
  }

  LayerQuantization quantization_of(const std::string& layer) const {
    if (!options_.ranges) return {};
    const auto found = options_.ranges->layers.find(layer);
    return found == options_.ranges->layers.end() ? LayerQuantization{} : found->second;
  }

  static std::string described(const LayerQuantization& how, bool is_biased) {
    std::string text;
    if (how.fits_weights) text += ", scales fitted to its weights";
    if (is_biased) text += ", its bias corrected";
    if (how.error > 0)
      text += fmt::format("; the error is {:.2g} of its results' mean square", how.error);
    if (how.error > 0 && how.error != how.error_by_ranges)
      text += fmt::format(", {:.2g} by ranges alone", how.error_by_ranges);
    return text;
  }

  // Whether the table has a bias for layer `id`, which `added` then adds.
  bool add_bias(LayerId id, NewLayer& added) {
    if (!options_.ranges) return false;
    const auto found = options_.ranges->biases.find(added.name);
    if (found == options_.ranges->biases.end()) return false;
    const std::vector<float>& bias = found->second;
    const int64_t channels = result_channels(graph_, id);
    if (static_cast<int64_t>(bias.size()) != channels) {
      run_.refused(added.name, fmt::format("ignores the bias in the calibration table, which has "
                                           "{} numbers: its results have {} channels",
                                           bias.size(), channels));
      return false;
    }
    Stores stores = stores_with_bias(graph_, id, bias);
    added.epilogues = {std::move(stores.program)};
    added.inputs.resize(static_cast<size_t>(added.op_input_count));
    added.inputs.insert(added.inputs.end(), stores.inputs.begin() + 1, stores.inputs.end());
    return true;
  }

  // kNone if the table has no range for it, which is recorded as the reason.
  ValueId dequantized_data(const std::string& layer, ValueId value) {
    if (op_as<Dequantize>(graph_, producer(graph_, value))) return value;
    if (const auto made = dequantized_.find(value); made != dequantized_.end()) return made->second;
    const std::string name = graph_.value(value).name;
    if (graph_.value(value).type().dtype != DataType::kF32) {
      run_.refused(layer, fmt::format("stays float: its input \"{}\" is not f32", name));
      return ValueId::kNone;
    }
    const TensorRange* range = nullptr;
    if (options_.ranges) {
      const auto found = options_.ranges->tensors.find(name);
      if (found != options_.ranges->tensors.end()) range = &found->second;
    }
    if (!range) {
      run_.refused(layer, fmt::format("stays float: the calibration table has no range for its "
                                      "input \"{}\"",
                                      name));
      return ValueId::kNone;
    }
    return dequantized_[value] = quantize(value, scaling_for(*range, options_.symmetric));
  }

  // The value behind Quantize and Dequantize, and its readers that do not mind behind them.
  ValueId quantize(ValueId value, const Scaling& scaling) {
    const std::string name = graph_.value(value).name;
    const std::vector<LayerId> readers = users_of(graph_, value);
    std::vector<ValueId> inputs = {value, add_scales(graph_, name, scaling),
                                   add_zeros(graph_, name, scaling)};
    if (inputs.back() == ValueId::kNone) inputs.pop_back();
    const auto add = [&](std::string_view stem, Op op) {
      const LayerId made_by = producer(graph_, value);
      NewLayer added{.name = name + std::string(stem), .op = std::move(op), .inputs = inputs};
      if (made_by != LayerId::kNone) added.origins = graph_.layer(made_by).origins;
      return graph_.layer(graph_.add(std::move(added))).outputs[0];
    };
    inputs[0] = add(kQuantizedStem, Quantize{.dtype = scaling.integer});
    const ValueId back = add("/dequantized", Dequantize{});
    // Where other readers need more than 8 bits of it, they keep the float.
    if (const std::string why = needs_.why_not_stored(value, kEightBits, "8 bits"); !why.empty()) {
      run_.refused(name, "is in 8 bits for products alone: " + why);
      return back;
    }
    // An input of the graph is there in f32 anyway.
    const bool is_input = producer(graph_, value) == LayerId::kNone;
    for (const LayerId reader : readers)
      if (does_not_mind(graph_, reader) && !(is_input && op_as<Pointwise>(graph_, reader)))
        read_instead(reader, value, back);
    return back;
  }

  void read_instead(LayerId id, ValueId from, ValueId to) {
    NewLayer added = copy_of(graph_, id);
    std::ranges::replace(added.inputs, from, to);
    graph_.replace_layer(id, graph_.add(std::move(added)));
  }

  struct Weights {
    ValueId value = ValueId::kNone;
    int64_t axis = 0;
    bool are_fitted = false;
    auto operator<=>(const Weights&) const = default;
  };
  ValueId dequantized_weights(const std::string& layer, const Weights& wanted,
                              const Tensor& weights) {
    const auto [made, is_new] = weights_.try_emplace(wanted);
    if (!is_new) return made->second;
    const QuantizedWeights quantized = quantize_channels(weights, wanted.axis, wanted.are_fitted);
    const std::string name = graph_.value(wanted.value).name;
    const ValueId integers = graph_.add_constant(name + "/quantized", quantized.integers);
    const LayerId back =
        graph_.add({.name = name + "/dequantized",
                    .op = Dequantize{.axis = wanted.axis},
                    .inputs = {integers, add_scales(graph_, name, quantized.scaling)},
                    .origins = {layer}});
    return made->second = graph_.layer(back).outputs[0];
  }

  Graph& graph_;
  PassRun& run_;
  const PrecisionOptions& options_;
  LayerPrecisions asked_;
  NeedAnalysis needs_;                  // of the original graph
  std::map<Weights, ValueId> weights_;  // dequantized
  std::unordered_map<ValueId, ValueId> dequantized_;
};

}  // namespace

bool insert_quantize(Graph& graph, PassRun& run) {
  const PrecisionOptions& options = run.options.precision;
  const auto is_eight = [](const LayerPrecision& layer) {
    return layer.precision == Precision::kI8;
  };
  if (!options.allows(Precision::kI8) && std::ranges::none_of(options.layers, is_eight))
    return false;
  return Inserter(graph, run).run();
}

}  // namespace anneal
