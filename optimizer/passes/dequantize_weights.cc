// dequantize_weights: packed weights become a Dequantize layer where no kernel multiplies by them.
//
//   y = MatMul(x, w4, -, z, s)   =>   y = MatMul(x, Dequantize(w8, s, z))
//
// An importer gives MatMul the weights as the model packs them (MatMul::b_encoding), so that a
// build makes no copy of them. They stay so where keep_quantized_weights would pack them again: in
// products of few rows, and of any number of rows that kernels may round. Elsewhere the other
// passes see what they see of a model with DequantizeLinear: insert_quantize quantizes the floats,
// and lower_quantize makes floats for kernels of many rows and for targets without such a kernel.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/integer_weights.h"
#include "anneal/optimizer/precision/packed_weights.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

constexpr size_t kZeros = 3, kScales = 4, kInputs = 5;

// Empty: the product keeps its weights. bytes: weight_bytes_as_floats().
std::string why_not_packed(const Graph& graph, LayerId id, double bytes, const PassRun& run,
                           const LayerPrecisions& precisions) {
  const Layer& layer = graph.layer(id);
  if (run.options.precision.allows(Precision::kI8)) return "products may compute in 8 bits";
  const auto asked = precisions.of(layer);
  if (asked && *asked != Precision::kF32) return fmt::format("{} was asked for", to_string(*asked));
  const WeightEncoding encoding = op_as<MatMul>(graph, id)->b_encoding;
  const bool may_round =
      has_integers(encoding) && rows_may_be_rounded(graph, id, run.options, precisions);
  if (!may_round) {
    const int64_t depth = codes_in_byte(encoding) * graph.constant(layer.inputs[1])->dims()[1];
    const int64_t rows = element_count(graph, layer.inputs[0]) / depth;
    std::string why = why_floats_are_faster(graph, id, rows, bytes, run.options);
    if (!why.empty()) return why;
  }
  NewLayer product = copy_of(graph, id);
  std::get<MatMul>(product.op).may_round_a = may_round;
  return run.ask_targets(graph, product);
}

// Zero points where there are none.
Tensor middles(const Dims& dims, int bits) {
  NewTensor made = allocate_tensor(DataType::kU8, dims);
  std::ranges::fill(made.data, static_cast<std::byte>(1 << (bits - 1)));
  return made.tensor;
}

void dequantize(Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const WeightEncoding encoding = op_as<MatMul>(graph, id)->b_encoding;
  const bool are_integers = has_integers(encoding);
  const Tensor codes = unpacked_codes(*graph.constant(layer.inputs[1]), encoding);
  const Dims blocks = graph.constant(layer.inputs[kScales])->dims();
  ValueId zeros = layer.inputs[kZeros];
  const std::string name = layer.name;
  if (are_integers && zeros == ValueId::kNone)
    zeros = graph.add_constant(name + "/zero_points", middles(blocks, bits_of(encoding)));
  NewLayer product = copy_of(graph, id);
  std::vector<ValueId> inputs = {graph.add_constant(name + "/codes", codes),
                                 product.inputs[kScales]};
  if (are_integers) inputs.push_back(zeros);
  const Dequantize dequantize{.axis = 1,
                              .block_size = codes.dims()[1] / blocks[1],
                              .encoding = are_integers ? WeightEncoding::kIntegers : encoding};
  const LayerId weights = graph.add({.name = name + "/weights",
                                     .op = dequantize,
                                     .inputs = std::move(inputs),
                                     .origins = product.origins});
  std::get<MatMul>(product.op).b_encoding = WeightEncoding::kIntegers;
  product.inputs.erase(product.inputs.begin() + 2, product.inputs.begin() + kInputs);
  product.inputs[1] = graph.layer(weights).outputs[0];
  product.op_input_count = 2;
  graph.replace_layer(id, graph.add(std::move(product)));
}

// An importer packs those of products of f32.
bool has_packed_weights(const Graph& graph, LayerId id) {
  const auto* product = op_as<MatMul>(graph, id);
  if (!product || product->b_encoding == WeightEncoding::kIntegers) return false;
  const Layer& layer = graph.layer(id);
  const Tensor* scales = graph.constant(layer.inputs[kScales]);
  const Tensor* codes = graph.constant(layer.inputs[1]);
  return graph.value(layer.outputs[0]).type().dtype == DataType::kF32 && codes && scales &&
         codes->count() > 0 && scales->dims()[0] == codes->dims()[0];
}

}  // namespace

bool dequantize_weights(Graph& graph, PassRun& run) {
  const double bytes = weight_bytes_as_floats(graph, run.options);
  const LayerPrecisions precisions(run.options.precision.layers);
  bool changed = false;
  for (const LayerId id : graph.order()) {
    if (!run.may_rewrite() || !has_packed_weights(graph, id)) continue;
    const std::string why = why_not_packed(graph, id, bytes, run, precisions);
    if (why.empty()) continue;
    const std::string name = graph.layer(id).name;
    const int in_byte = codes_in_byte(op_as<MatMul>(graph, id)->b_encoding);
    const int64_t bytes_of_codes = graph.constant(graph.layer(id).inputs[1])->count();
    const Saving saved{.bytes = -bytes_of_codes * (4 * in_byte - 1)};
    dequantize(graph, id);
    run.did(name, fmt::format("its {}-bit weights are dequantized: {}", 8 / in_byte, why), saved);
    changed = true;
  }
  return changed;
}

}  // namespace anneal
