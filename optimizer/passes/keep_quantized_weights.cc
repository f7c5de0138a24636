// keep_quantized_weights: a product of floats by dequantized constants reads the integers.
//
//   y = MatMul(x, Dequantize(w, s, z))   =>   y = MatMul(x, w, -, z, s)
//
// Where w is a constant matrix of 8 bits, s is one number, one for each column or one for each
// block of a column (of at least 16 rows), and only such products read the dequantized matrix. A
// product of few rows takes as long as reading its weights, which are a quarter of f32, in the
// engine file as well. Where no two of the integers differ by more than 15, as those of models of 4
// bits, the product reads them in 4 bits, and in 2 bits where none differ by more than 3
// (MatMul::b_encoding). Floats of 8 and 4 bits stay so, too (Dequantize::encoding).
//
// Many rows take less time by f32 weights, which are not converted in every run, and so do few rows
// if the f32 weights of the whole model stay in a cache (PassOptions::cached_weight_bytes). By
// integers and rows that kernels may round (MatMul::may_round_a, without PassOptions::exact) all
// products take less time, but for a few more percent where f16 cannot hold the scales.
//
// Exact in products of f32: kernels multiply by the numbers that Dequantize would give, but for
// kernels that are not exact, which may round the left side where the model allows it. So the layer
// stays f32 where 16 bits are allowed, which take twice the memory and round the weights again; not
// where a pattern asks for them. Products of f16 and bf16 that a target computes in (GPUs) multiply
// by numbers that are not rounded to that type; with PassOptions::exact they stay. Runs after
// integer_products, which takes products of two dequantized operands, and before lower_quantize,
// which makes f32 constants of the remaining weights.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/integer_weights.h"
#include "anneal/optimizer/precision/packed_weights.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

struct KeptWeights {
  ValueId integers = ValueId::kNone, zeros = ValueId::kNone, scales = ValueId::kNone;
  WeightEncoding encoding = WeightEncoding::kIntegers;
};

// Numbers for all or for each position of an axis of a matrix.
template <class T, class From>
Tensor matrix_of(DataType dtype, int axis, const std::vector<From>& numbers, size_t count) {
  Dims dims{1, 1};
  dims[axis] = static_cast<int64_t>(count);
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(numbers[numbers.size() == 1 ? 0 : i]));
  return Tensor::of<T>(dtype, dims, std::span<const T>(values));
}

bool is_narrow_float(DataType dtype) { return dtype == DataType::kF32 || is_half(dtype); }

Tensor as_f32(const Tensor& scales) {
  if (scales.dtype() == DataType::kF32) return scales;
  NewTensor made = allocate_tensor(DataType::kF32, scales.dims());
  auto* to = reinterpret_cast<float*>(made.data.data());
  if (scales.dtype() == DataType::kF16)
    for (const Float16 scale : scales.as<Float16>()) *to++ = to_f32(scale);
  else
    for (const BFloat16 scale : scales.as<BFloat16>()) *to++ = to_f32(scale);
  return made.tensor;
}

// The factors of dequantized weights as MatMul reads them.
struct Factors {
  Tensor scales;
  std::optional<Tensor> zeros;
};

Factors factors_of(const Scaling& scaling, int axis) {
  const size_t count = scaling.scales.size();
  Factors factors{matrix_of<float>(DataType::kF32, axis, scaling.scales, count), {}};
  if (!scaling.has_zeros()) return factors;
  factors.zeros = scaling.integer == DataType::kI8
                      ? matrix_of<int8_t>(DataType::kI8, axis, scaling.zeros, count)
                      : matrix_of<uint8_t>(DataType::kU8, axis, scaling.zeros, count);
  return factors;
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
  std::string why_not(bool exact) const {
    const Layer& weights = graph_.layer(dequantize_);
    const Tensor* integers = graph_.constant(weights.inputs[0]);
    if (!integers) return "they are no constant";
    if (!is_8bit(integers->dtype())) return "they are not 8 bits wide";
    if (integers->dims().rank() != 2 || integers->count() == 0) return "they are no matrix";
    const ValueId reals = weights.outputs[0];
    const DataType dtype = graph_.value(reals).type().dtype;
    if (graph_.value(graph_.layer(product_).inputs[0]).type().dtype != dtype ||
        !(dtype == DataType::kF32 || is_half(dtype)))
      return "the product is not one of f32, f16 or bf16";
    if (exact && is_half(dtype))
      return fmt::format("the numbers are rounded to {} (--exact)", to_string(dtype));
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

  bool are_integers() const { return has_integers(encoding()); }
  // As kernels that round the other operand read integers of 8 bits.
  bool are_rows_of_whole_blocks() const {
    const int64_t block = op_as<Dequantize>(graph_, dequantize_)->block_size;
    return depth_ == 1 && block > 0 && block % kLeastWeightBlock == 0;
  }
  // REQUIRES here and below: why_not() is empty
  std::optional<PackedWeights> packed(int threads) const {
    const Tensor& codes = *graph_.constant(graph_.layer(dequantize_).inputs[0]);
    const Factors factors = this->factors();
    if (!are_integers()) return packed_floats(encoding(), codes, factors.scales, depth_ == 1);
    return in_fewer_bits(codes, factors.scales, factors.zeros ? &*factors.zeros : nullptr,
                         depth_ == 1, codes.dims()[depth_], threads);
  }
  KeptWeights make(std::optional<PackedWeights> fewer) const {
    const Layer& weights = graph_.layer(dequantize_);
    if (!fewer) return made(weights.inputs[0], factors(), WeightEncoding::kIntegers);
    const ValueId codes = graph_.add_constant(weights.name + "/codes", std::move(fewer->codes));
    return made(codes, {std::move(fewer->scales), std::move(fewer->zeros)}, fewer->encoding);
  }

 private:
  WeightEncoding encoding() const { return op_as<Dequantize>(graph_, dequantize_)->encoding; }

  Factors factors() const {
    const Layer& weights = graph_.layer(dequantize_);
    if (op_as<Dequantize>(graph_, dequantize_)->block_size == 0 && are_integers())
      return factors_of(*scaling_of(graph_, dequantize_), 1 - depth_);
    if (op_as<Dequantize>(graph_, dequantize_)->block_size == 0) {
      const Tensor scales = as_f32(*graph_.constant(weights.inputs[1]));
      Dims dims{1, 1};
      dims[1 - depth_] = scales.count();
      return {reshaped(scales, dims), {}};
    }
    Factors factors{as_f32(*graph_.constant(weights.inputs[1])), {}};
    if (weights.inputs.size() > 2 && weights.inputs[2] != ValueId::kNone)
      factors.zeros = *graph_.constant(weights.inputs[2]);
    return factors;
  }

  KeptWeights made(ValueId integers, Factors factors, WeightEncoding encoding) const {
    const std::string name = graph_.layer(dequantize_).name;
    KeptWeights weights{.integers = integers, .encoding = encoding};
    weights.scales = graph_.add_constant(name + "/scales", std::move(factors.scales));
    if (factors.zeros)
      weights.zeros = graph_.add_constant(name + "/zero_points", *std::move(factors.zeros));
    return weights;
  }

  bool reads_as_weights(LayerId reader, ValueId reals) const {
    const Layer& layer = graph_.layer(reader);
    const auto* op = op_as<MatMul>(graph_, reader);
    return op && layer.op_input_count == 2 && layer.inputs[0] != reals &&
           layer.inputs[1] == reals && std::ranges::count(layer.inputs, reals) == 1 &&
           (op->transpose_b ? 1 : 0) == depth_;
  }

  std::string why_not_columns() const {
    if (!are_integers()) return why_not_columns_of_floats();
    const auto scaling = scaling_of(graph_, dequantize_);
    if (!scaling) return "their scales are no constants";
    if (!scaling->per_tensor() && scaling->axis != 1 - depth_) return "each row has a scale";
    if (scaling->per_tensor() && scaling->zeros.size() > 1) return "rows have zero points";
    return {};
  }

  std::string why_not_columns_of_floats() const {
    const Tensor* scales = graph_.constant(graph_.layer(dequantize_).inputs[1]);
    if (!scales || !is_narrow_float(scales->dtype())) return "their scales are no constants";
    const auto& op = *op_as<Dequantize>(graph_, dequantize_);
    if (scales->count() != 1 && op.axis != 1 - depth_) return "each row has a scale";
    return {};
  }

  std::string why_not_blocks() const {
    const Layer& weights = graph_.layer(dequantize_);
    const auto& op = *op_as<Dequantize>(graph_, dequantize_);
    const Dims& dims = graph_.constant(weights.inputs[0])->dims();
    const Tensor* scales = graph_.constant(weights.inputs[1]);
    if (!scales || !is_narrow_float(scales->dtype())) return "their scales are no constants";
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

bool keep(Graph& graph, LayerId id, double bytes, const LayerPrecisions& precisions, PassRun& run) {
  if (!op_as<MatMul>(graph, id) || graph.layer(id).op_input_count != 2) return false;
  const LayerId dequantize = producer(graph, graph.layer(id).inputs[1]);
  if (!op_as<Dequantize>(graph, dequantize)) return false;
  if (!graph.layer(dequantize).epilogues.empty()) return false;
  const auto refuse = [&](std::string_view why) {
    run.refused(graph.layer(id).name, fmt::format("its weights become floats: {}", why));
    return false;
  };
  const auto asked = precisions.of(graph.layer(id));
  if (asked && *asked != Precision::kF32)
    return refuse(fmt::format("{} was asked for", to_string(*asked)));
  const Keeper keeper(graph, id, dequantize);
  std::string why = keeper.why_not(run.options.exact);
  if (!why.empty()) return refuse(why);
  bool may_round = keeper.are_integers() && rows_may_be_rounded(graph, id, run.options, precisions);
  why = why_floats_are_faster(graph, id, keeper.row_count(), bytes, run.options);
  std::optional<PackedWeights> fewer;
  if (why.empty() || may_round) fewer = keeper.packed(run.options.threads);
  // Rounded rows add more to the error of weights of 8 bits: only where the model asks for them.
  if (!fewer)
    may_round =
        may_round && op_as<MatMul>(graph, id)->may_round_a && keeper.are_rows_of_whole_blocks();
  if (!why.empty() && !fewer && !may_round) return refuse(why);
  if (!keeper.are_integers() && !fewer)
    return refuse("a row of them does not end at the end of a byte");
  const KeptWeights weights = keeper.make(std::move(fewer));
  NewLayer added = copy_of(graph, id);
  added.inputs[1] = weights.integers;
  const ValueId further[] = {ValueId::kNone, weights.zeros, weights.scales};
  added.inputs.insert(added.inputs.begin() + 2, std::begin(further), std::end(further));
  added.op_input_count = 5;
  const bool are_packed = weights.encoding != WeightEncoding::kIntegers;
  auto& op = std::get<MatMul>(added.op);
  op.may_round_a = may_round;
  if (are_packed) {
    op.transpose_b = true;
    op.b_encoding = weights.encoding;
  }
  if (why = run.ask_targets(graph, added); !why.empty()) return refuse(why);
  const ValueId reals = graph.layer(dequantize).outputs[0];
  const std::string name = graph.layer(id).name;
  const std::string type = are_packed
                               ? fmt::format("{} bits", bits_of(weights.encoding))
                               : std::string(to_string(graph.value(weights.integers).type().dtype));
  const int64_t count = element_count(graph, reals);
  const Saving saved{.bytes = count * 4 - count * bits_of(weights.encoding) / 8};
  graph.replace_layer(id, graph.add(std::move(added)));
  std::string text = fmt::format("reads weights of {}", type);
  if (may_round) text += ", and may round the other operand to 8 bits";
  run.did(name, std::move(text), saved);
  return true;
}

}  // namespace

bool keep_quantized_weights(Graph& graph, PassRun& run) {
  const double bytes = weight_bytes_as_floats(graph, run.options);
  const LayerPrecisions precisions(run.options.precision.layers);
  bool changed = false;
  for (const LayerId id : graph.order())
    if (run.may_rewrite()) changed |= keep(graph, id, bytes, precisions, run);
  return changed;
}

}  // namespace anneal
