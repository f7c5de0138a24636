// quantize_weights: weights of products and embeddings are stored in integers of 8 or 4 bits.
//
//   y = MatMul(x, w)   =>   y = MatMul(x, Dequantize(i8 w, s), transpose_b)
//   y = Gather(t, i)   =>   y = Gather(Dequantize(i8 t, s), i)
//
// Only with PrecisionOptions::weight_format, and where the target has a kernel that multiplies by
// such weights: keep_quantized_weights gives them to it, and gather_quantized_rows gathers rows of
// integers. Each block of the weights of one output has a scale of a small rounding error.
// Kernels may round the other operand of 4-bit weights to 8 bits (MatMul::may_round_a), whose error
// is far smaller than that of the weights. They may do so too where the model itself has 4-bit
// weights.
//
// A table that a product reads too has the product's integers, so that the engine holds it once.
// Any other table has 8 bits and a scale for each row. Tables with rows of fewer than 256 numbers
// stay, since they often hold sines of positions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/file.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/optimizer/precision/integer_weights.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/precision/quantized_weights.h"
#include "anneal/optimizer/precision/weight_format.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

constexpr int64_t kFewWeights = 1024;  // they stay, since their bytes do not matter
constexpr int64_t kLeastRow = 256;     // of a table that no product reads

// The constant right side of a product.
struct RightSide {
  ValueId constant = ValueId::kNone;
  bool of_columns = false;  // a column, not a row, has the weights of an output
  bool operator==(const RightSide&) const = default;
};

struct IntegerWeights {
  ValueId reals = ValueId::kNone;  // of the Dequantize layer; kNone: rounding changes too much
  double error = 0;
  int64_t count = 0;
  int bits = 0;
  int64_t block = 0;         // 0: a row
  bool are_counted = false;  // in a pass record
};

// Of the root mean square of the weights: rounding usually changes 0.7 % with 8 bits, and 8 % with
// 4. Weights that it changes more have outliers, or scales that f16 cannot hold.
double most_error(int bits) { return bits == 8 ? 0.03 : 0.3; }

// The longest block of at most `wanted` weights that divides the depth, a multiple of 16 if there
// is one, else of 8, as kernels ask for; or one block for all of less than twice as many; 0: none.
// 4-bit weights have blocks of whole bytes.
int64_t block_of(int64_t depth, const WeightFormat& format) {
  const int64_t step = format.bits == 4 ? 2 : 1, wanted = format.block;
  if (wanted == 0) return depth;
  for (const int64_t multiple : {int64_t{16}, int64_t{8}, step})
    for (int64_t block = std::min(wanted, depth); block >= kLeastWeightBlock; --block)
      if (depth % block == 0 && block % multiple == 0) return block;
  return depth < 2 * wanted && depth % step == 0 ? depth : 0;
}

class WeightQuantizer {
 public:
  WeightQuantizer(Graph& graph, PassRun& run)
      : graph_(graph),
        run_(run),
        format_(parse_weight_format(run.options.precision.weight_format)),
        asked_(run.options.precision.layers) {}

  bool run() {
    if (format_.bits == 0) return false;
    bool changed = false;
    for (const LayerId id : graph_.order())
      if (run_.may_rewrite() && op_as<MatMul>(graph_, id))
        changed |= has_packed_integers(id) ? let_round(id) : visit_product(id);
    for (const LayerId id : graph_.order())
      if (run_.may_rewrite() && op_as<Gather>(graph_, id)) changed |= visit_gather(id);
    return changed;
  }

 private:
  // Transposes a constant matrix. compose_moves lets products do that, later.
  bool swaps_constant(LayerId id) const {
    const auto* transpose = op_as<Transpose>(graph_, id);
    return transpose && transpose->permutation == std::vector<int64_t>{1, 0} &&
           graph_.constant(graph_.layer(id).inputs[0]);
  }

  // nullopt: not a product of floats by a constant matrix on the right.
  std::optional<RightSide> weights_of(LayerId id) const {
    const auto* product = op_as<MatMul>(graph_, id);
    if (!product || graph_.layer(id).op_input_count != 2) return std::nullopt;
    RightSide weights{graph_.layer(id).inputs[1], !product->transpose_b};
    if (const LayerId made_by = producer(graph_, weights.constant);
        made_by != LayerId::kNone && swaps_constant(made_by))
      weights = {graph_.layer(made_by).inputs[0], product->transpose_b};
    const Tensor* matrix = graph_.constant(weights.constant);
    if (!matrix || matrix->dims().rank() != 2 || graph_.constant(graph_.layer(id).inputs[0]))
      return std::nullopt;
    return weights;
  }

  bool visit_product(LayerId id) {
    const auto weights = weights_of(id);
    if (!weights || graph_.constant(weights->constant)->count() < kFewWeights) return false;
    const int64_t block = block_of(depth_of(*weights), format_);
    if (const std::string why = why_product_stays(id, *weights, block); !why.empty()) {
      run_.refused(graph_.layer(id).name, "its weights stay floats: " + why);
      return false;
    }
    IntegerWeights& quantized = dequantized(*weights, format_.bits, block);
    if (quantized.reals == ValueId::kNone) return refuse_error(id, quantized);
    NewLayer added = copy_of(graph_, id);
    auto& op = std::get<MatMul>(added.op);
    op.transpose_b = true;
    op.may_round_a = format_.bits == 4;
    added.inputs[1] = quantized.reals;
    replace(id, std::move(added), quantized);
    return true;
  }

  bool has_packed_integers(LayerId id) const {
    const WeightEncoding encoding = op_as<MatMul>(graph_, id)->b_encoding;
    return has_integers(encoding) && encoding != WeightEncoding::kIntegers;
  }

  bool let_round(LayerId id) {
    if (op_as<MatMul>(graph_, id)->may_round_a ||
        !rows_may_be_rounded(graph_, id, run_.options, asked_))
      return false;
    NewLayer added = copy_of(graph_, id);
    auto& op = std::get<MatMul>(added.op);
    op.may_round_a = true;
    const int bits = bits_of(op.b_encoding);
    const std::string name = graph_.layer(id).name;
    graph_.replace_layer(id, graph_.add(std::move(added)));
    run_.did(name,
             fmt::format("its weights have {} bits, so it may round the other operand to 8", bits));
    return true;
  }

  bool visit_gather(LayerId id) {
    const ValueId value = graph_.layer(id).inputs[0];
    const Tensor* table = graph_.constant(value);
    if (!table || op_as<Gather>(graph_, id)->axis != 0 || table->dims().rank() != 2) return false;
    if (!made_.contains(value)) {
      if (const std::string why = why_table_stays(id, *table); !why.empty()) {
        run_.refused(graph_.layer(id).name, "its table stays floats: " + why);
        return false;
      }
    }
    IntegerWeights& quantized = dequantized({value, false}, 8, table->dims()[1]);
    if (quantized.reals == ValueId::kNone) return refuse_error(id, quantized);
    NewLayer added = copy_of(graph_, id);
    added.inputs[0] = quantized.reals;
    replace(id, std::move(added), quantized);
    return true;
  }

  std::string why_table_stays(LayerId id, const Tensor& table) const {
    const Layer& layer = graph_.layer(id);
    const ValueId value = layer.inputs[0];
    if (table.count() < kFewWeights) return "it is small";
    if (const std::string why = why_constant_stays(layer, value); !why.empty()) return why;
    if (table.dims()[1] < kLeastRow)
      return fmt::format("a row has {} numbers, fewer than {}", table.dims()[1], kLeastRow);
    if (!gathers_some(layer)) return "a run gathers as many rows as it has";
    for (const LayerId reader : users_of(graph_, value)) {
      const auto* gather = op_as<Gather>(graph_, reader);
      if (!gather || gather->axis != 0 || graph_.layer(reader).inputs[0] != value)
        return "another layer reads it";
    }
    return {};
  }

  // The integers of a constant, once for all of its readers, and the layer that makes reals of
  // them, of the constant's type.
  IntegerWeights& dequantized(const RightSide& weights, int bits, int64_t block) {
    const auto [made, is_new] = made_.try_emplace(weights.constant);
    if (!is_new) return made->second;
    const Tensor floats = *graph_.constant(weights.constant);
    const QuantizedRows rows =
        quantize_rows(floats, weights.of_columns, bits, block, run_.options.threads);
    give_pages_back(floats);  // large builds hold one form of the weights at a time
    made->second = {.error = rows.error, .count = floats.count(), .bits = bits};
    if (!(rows.error <= most_error(bits))) return made->second;
    const std::string name = graph_.value(weights.constant).name;
    const bool has_blocks = block < rows.integers.dims()[1];
    const Tensor scales =
        has_blocks ? rows.scales : reshaped(rows.scales, {rows.integers.dims()[0]});
    const LayerId layer = graph_.add(
        {.name = name + "/dequantize",
         .op = Dequantize{.axis = has_blocks ? 1 : 0, .block_size = has_blocks ? block : 0},
         .inputs = {graph_.add_constant(name + "/integers", rows.integers),
                    graph_.add_constant(name + "/scales", scales)}});
    made->second.reals = graph_.layer(layer).outputs[0];
    made->second.block = has_blocks ? block : 0;
    return made->second;
  }

  bool refuse_error(LayerId id, const IntegerWeights& integers) {
    run_.refused(graph_.layer(id).name,
                 fmt::format("its weights stay floats: rounding to {} bits would change them by "
                             "{:.2g} % of their root mean square",
                             integers.bits, 100 * integers.error));
    return false;
  }

  void replace(LayerId id, NewLayer by, IntegerWeights& integers) {
    const std::string name = graph_.layer(id).name;
    constexpr int64_t kBits = 32;
    graph_.replace_layer(id, graph_.add(std::move(by)));
    const Saving saved{.bytes = integers.count * (kBits - integers.bits) / 8};
    run_.did(
        name,
        fmt::format("stores weights in {} bits{}: rounding changes them by {:.2g} % of their "
                    "root mean square",
                    integers.bits,
                    integers.block > 0 ? fmt::format(", with blocks of {}", integers.block) : "",
                    100 * integers.error),
        std::exchange(integers.are_counted, true) ? Saving{} : saved);
  }

  int64_t depth_of(const RightSide& weights) const {
    return graph_.constant(weights.constant)->dims()[weights.of_columns ? 0 : 1];
  }

  std::string why_product_stays(LayerId id, const RightSide& weights, int64_t block) {
    if (const std::string why = why_constant_stays(graph_.layer(id), weights.constant);
        !why.empty())
      return why;
    for (const LayerId reader : users_of(graph_, weights.constant))
      if (!reads_integers(reader, weights)) return "another layer reads them";
    const int64_t depth = depth_of(weights);
    if (block == 0) return fmt::format("{} weights of an output have no whole blocks", depth);
    return why_target_refuses(id, graph_.constant(weights.constant)->count() / depth, depth, block);
  }

  // Whether the reader of the constant multiplies by the same integers, or gathers rows of them.
  bool reads_integers(LayerId reader, const RightSide& weights) const {
    const Layer& layer = graph_.layer(reader);
    if (std::ranges::count(layer.inputs, weights.constant) != 1) return false;
    if (const auto* gather = op_as<Gather>(graph_, reader))
      return layer.inputs[0] == weights.constant && gather->axis == 0 && !weights.of_columns &&
             gathers_some(layer) && !asked_.of(layer);
    if (!swaps_constant(reader)) return multiplies_by(reader, weights);
    const ValueId swapped = layer.outputs[0];
    return !graph_.is_output(swapped) &&
           std::ranges::all_of(users_of(graph_, swapped),
                               [&](LayerId user) { return multiplies_by(user, weights); });
  }
  bool multiplies_by(LayerId id, const RightSide& weights) const {
    return weights_of(id) == weights && !asked_.of(graph_.layer(id));
  }

  // Whether a run gathers fewer rows than the table has.
  bool gathers_some(const Layer& gather) const {
    return element_count(graph_, gather.inputs[1]) < graph_.constant(gather.inputs[0])->dims()[0];
  }

  std::string why_constant_stays(const Layer& layer, ValueId value) const {
    if (const auto precision = asked_.of(layer))
      return fmt::format("{} was asked for", to_string(*precision));
    if (!is_float(graph_.value(value).type().dtype) ||
        graph_.value(value).type().dtype == DataType::kF64)
      return fmt::format("they are {}", to_string(graph_.value(value).type().dtype));
    if (graph_.is_output(value)) return "they are an output of the model";
    if (!are_all_finite(*graph_.constant(value), run_.options.threads))
      return "they are not all finite";
    return {};
  }

  // Asked about zeros, since quantizing takes long.
  std::string why_target_refuses(LayerId id, int64_t rows, int64_t depth, int64_t block) {
    NewLayer asked = copy_of(graph_, id);
    auto& op = std::get<MatMul>(asked.op);
    op.transpose_b = true;
    op.may_round_a = format_.bits == 4;
    if (format_.bits == 4) op.b_encoding = WeightEncoding::kU4;
    const Tensor codes = format_.bits == 4
                             ? allocate_tensor(DataType::kU8, {rows, depth / 2}).tensor
                             : allocate_tensor(DataType::kI8, {rows, depth}).tensor;
    const Tensor scales = allocate_tensor(DataType::kF32, {rows, depth / block}).tensor;
    asked.inputs = {as_operand(asked.inputs[0]), graph_.add_constant(asked.name + "/asked", codes),
                    ValueId::kNone, ValueId::kNone,
                    graph_.add_constant(asked.name + "/asked_scales", scales)};
    asked.op_input_count = 5;
    asked.epilogues.clear();
    return run_.ask_targets(graph_, asked);
  }

  // The value as products of the target read it: as f32, from a layer that only the question reads,
  // or of 16 bits that the target computes in.
  ValueId as_operand(ValueId value) {
    const DataType dtype = graph_.value(value).type().dtype;
    if (dtype == DataType::kF32 || run_.options.native.has(dtype)) return value;
    ProgramBuilder builder;
    const LayerId cast =
        graph_.add({.name = graph_.value(value).name + "/asked",
                    .op = Pointwise{builder.finish(builder.input(0, dtype), DataType::kF32)},
                    .inputs = {value}});
    return graph_.layer(cast).outputs[0];
  }

  Graph& graph_;
  PassRun& run_;
  WeightFormat format_;
  LayerPrecisions asked_;
  std::map<ValueId, IntegerWeights> made_;  // by the constant of floats
};

}  // namespace

bool quantize_weights(Graph& graph, PassRun& run) { return WeightQuantizer(graph, run).run(); }

}  // namespace anneal
