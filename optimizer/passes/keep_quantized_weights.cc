// keep_quantized_weights: a product of f32 by dequantized constants reads the integers.
//
//   y = MatMul(x, Dequantize(w, s, z))   =>   y = MatMul(x, w, -, z, s)
//
// Where w is a constant matrix of 8 bits, s is one number, one for each column or one for each
// block of a column (of at least 16 rows), and only such products read the dequantized matrix. A
// product of few rows takes as long as reading its weights, which are a quarter of f32, in the
// engine file as well. Many rows take less time by f32 weights, which are not converted in every
// run, and so do few rows if the f32 weights of the whole model stay in a cache
// (PassOptions::cached_weight_bytes). Exact: kernels multiply by the f32 numbers that Dequantize
// would give. So the layer stays f32 where 16 bits are allowed, which take twice the memory and
// round the weights again; not where a pattern asks for them. Nor where a target has no kernel for
// it, as GPUs. Runs after integer_products, which takes products of two dequantized
// operands, and before lower_quantize, which makes f32 constants of the remaining weights.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// For more rows a product by float weights takes less time even if they come from memory.
constexpr int64_t kMostRows = 8;
constexpr int64_t kMostRowsBesideHalves = 4;  // where the target computes in 16 bits
// The part of PassOptions::cached_weight_bytes that a cache shared by all cores holds.
constexpr double kSharedCache = 8;

struct KeptWeights {
  ValueId integers = ValueId::kNone, zeros = ValueId::kNone, scales = ValueId::kNone;
};

// Numbers for all or for each position of an axis of a matrix.
template <class T, class From>
ValueId add_matrix(Graph& graph, const std::string& name, DataType dtype, int axis,
                   const std::vector<From>& numbers, size_t count) {
  Dims dims{1, 1};
  dims[axis] = static_cast<int64_t>(count);
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(numbers[numbers.size() == 1 ? 0 : i]));
  return graph.add_constant(name, Tensor::of<T>(dtype, dims, std::span<const T>(values)));
}

ValueId zero_matrix(Graph& graph, const std::string& name, int axis, const Scaling& scaling) {
  if (!scaling.has_zeros()) return ValueId::kNone;
  const size_t count = scaling.scales.size();
  return scaling.integer == DataType::kI8
             ? add_matrix<int8_t>(graph, name, DataType::kI8, axis, scaling.zeros, count)
             : add_matrix<uint8_t>(graph, name, DataType::kU8, axis, scaling.zeros, count);
}

// Of the weights that products multiply by, as floats, in whatever form the graph has them.
double bytes_as_floats(const Graph& graph, bool as_halves) {
  double elements = 0;
  for (const LayerId id : graph.order()) {
    const auto* product = op_as<MatMul>(graph, id);
    if (!product) continue;
    ValueId weights = graph.layer(id).inputs[1];
    if (const LayerId made_by = producer(graph, weights); op_as<Dequantize>(graph, made_by))
      weights = graph.layer(made_by).inputs[0];
    if (const Tensor* tensor = graph.constant(weights))
      elements += static_cast<double>(tensor->count());
  }
  return elements * (as_halves ? 2 : 4);
}

// One product by the result of one Dequantize.
class Keeper {
 public:
  Keeper(Graph& graph, LayerId product, LayerId dequantize)
      : graph_(graph),
        product_(product),
        dequantize_(dequantize),
        depth_(op_as<MatMul>(graph, product)->transpose_b ? 1 : 0) {}

  // Empty if it can be done.
  std::string why_not() const {
    const Layer& weights = graph_.layer(dequantize_);
    const Tensor* integers = graph_.constant(weights.inputs[0]);
    if (!integers) return "they are no constant";
    if (!is_8bit(integers->dtype())) return "they are not 8 bits wide";
    if (integers->dims().rank() != 2 || integers->count() == 0) return "they are no matrix";
    const ValueId reals = weights.outputs[0];
    for (const ValueId value : {reals, graph_.layer(product_).inputs[0]})
      if (graph_.value(value).type().dtype != DataType::kF32)
        return "the product is not one of f32";
    if (graph_.is_output(reals)) return "they are an output of the model";
    for (const LayerId reader : users_of(graph_, reals))
      if (!reads_as_weights(reader, reals)) return "another layer reads them as f32";
    return op_as<Dequantize>(graph_, dequantize_)->block_size > 0 ? why_not_blocks()
                                                                  : why_not_columns();
  }

  // The largest number of rows of the products that read the weights.
  int64_t row_count() const {
    const Layer& weights = graph_.layer(dequantize_);
    const int64_t depth = graph_.constant(weights.inputs[0])->dims()[depth_];
    int64_t rows = 0;
    for (const LayerId reader : users_of(graph_, weights.outputs[0]))
      rows = std::max(rows, element_count(graph_, graph_.layer(reader).inputs[0]) / depth);
    return rows;
  }

  KeptWeights make() const {
    const Layer& weights = graph_.layer(dequantize_);
    KeptWeights made{.integers = weights.inputs[0]};
    if (op_as<Dequantize>(graph_, dequantize_)->block_size > 0) {
      made.scales = weights.inputs[1];
      if (weights.inputs.size() > 2) made.zeros = weights.inputs[2];
      return made;
    }
    const Scaling scaling = *scaling_of(graph_, dequantize_);
    const std::string name = weights.name;
    made.scales = add_matrix<float>(graph_, name + "/scales", DataType::kF32, 1 - depth_,
                                    scaling.scales, scaling.scales.size());
    made.zeros = zero_matrix(graph_, name + "/zero_points", 1 - depth_, scaling);
    return made;
  }

 private:
  bool reads_as_weights(LayerId reader, ValueId reals) const {
    const Layer& layer = graph_.layer(reader);
    const auto* op = op_as<MatMul>(graph_, reader);
    return op && layer.op_input_count == 2 && layer.inputs[0] != reals &&
           layer.inputs[1] == reals && std::ranges::count(layer.inputs, reals) == 1 &&
           (op->transpose_b ? 1 : 0) == depth_;
  }

  std::string why_not_columns() const {
    const auto scaling = scaling_of(graph_, dequantize_);
    if (!scaling) return "their scales are no constants";
    if (!scaling->per_tensor() && scaling->axis != 1 - depth_) return "each row has a scale";
    if (scaling->per_tensor() && scaling->zeros.size() > 1) return "rows have zero points";
    return {};
  }

  std::string why_not_blocks() const {
    const Layer& weights = graph_.layer(dequantize_);
    const auto& op = *op_as<Dequantize>(graph_, dequantize_);
    const Dims& dims = graph_.constant(weights.inputs[0])->dims();
    const Tensor* scales = graph_.constant(weights.inputs[1]);
    if (!scales || scales->dtype() != DataType::kF32) return "their scales are no constants of f32";
    if (op.axis != depth_) return "their blocks lie along the columns";
    if (op.block_size < kLeastWeightBlock)
      return fmt::format("their blocks have {} rows", op.block_size);
    if (dims[depth_] % op.block_size != 0) return "their last block is not whole";
    if (weights.inputs.size() > 2 && weights.inputs[2] != ValueId::kNone) {
      const Tensor* zeros = graph_.constant(weights.inputs[2]);
      if (!zeros || zeros->dims() != scales->dims()) return "their zero points are no constants";
    }
    return {};
  }

  Graph& graph_;
  LayerId product_, dequantize_;
  int depth_;  // axis of the weights that the sums run along
};

// Whether the product would compute in 16 bits, whose weights take half of the memory.
bool has_halves(const PassOptions& options) {
  const PrecisionOptions& precision = options.precision;
  return (precision.allows(Precision::kF16) && options.native.f16) ||
         (precision.allows(Precision::kBF16) && options.native.bf16);
}

// Empty if the product is faster by integers; bytes: bytes_as_floats().
std::string why_slower(int64_t rows, double bytes, const PassOptions& options) {
  if (rows > (has_halves(options) ? kMostRowsBesideHalves : kMostRows))
    return fmt::format("{} rows take longer by integers", rows);
  const double cached =
      static_cast<double>(options.cached_weight_bytes) * (rows > 1 ? kSharedCache : 1);
  if (bytes >= cached) return {};
  return fmt::format("those of the model are {:.0f} bytes, which stay in a cache", bytes);
}

bool keep(Graph& graph, LayerId id, double bytes, const LayerPrecisions& precisions, PassRun& run) {
  if (!op_as<MatMul>(graph, id) || graph.layer(id).op_input_count != 2) return false;
  const LayerId dequantize = producer(graph, graph.layer(id).inputs[1]);
  if (!op_as<Dequantize>(graph, dequantize)) return false;
  if (!graph.layer(dequantize).epilogues.empty()) return false;
  const auto refuse = [&](std::string_view why) {
    run.refused(graph.layer(id).name, fmt::format("its weights become f32: {}", why));
    return false;
  };
  const auto asked = precisions.of(graph.layer(id));
  if (asked && *asked != Precision::kF32)
    return refuse(fmt::format("{} was asked for", to_string(*asked)));
  const Keeper keeper(graph, id, dequantize);
  std::string why = keeper.why_not();
  if (why.empty()) why = why_slower(keeper.row_count(), bytes, run.options);
  if (!why.empty()) return refuse(why);
  const KeptWeights weights = keeper.make();
  NewLayer added = copy_of(graph, id);
  added.inputs[1] = weights.integers;
  const ValueId further[] = {ValueId::kNone, weights.zeros, weights.scales};
  added.inputs.insert(added.inputs.begin() + 2, std::begin(further), std::end(further));
  added.op_input_count = 5;
  if (why = run.ask_targets(graph, added); !why.empty()) return refuse(why);
  const ValueId reals = graph.layer(dequantize).outputs[0];
  const std::string name = graph.layer(id).name;
  const std::string_view type = to_string(graph.value(weights.integers).type().dtype);
  const Saving saved{.bytes = element_count(graph, reals) * 3};
  graph.replace_layer(id, graph.add(std::move(added)));
  run.did(name, fmt::format("reads weights of {}", type), saved);
  return true;
}

}  // namespace

bool keep_quantized_weights(Graph& graph, PassRun& run) {
  const double bytes = bytes_as_floats(graph, has_halves(run.options));
  const LayerPrecisions precisions(run.options.precision.layers);
  bool changed = false;
  for (const LayerId id : graph.order())
    if (run.may_rewrite()) changed |= keep(graph, id, bytes, precisions, run);
  return changed;
}

}  // namespace anneal
