// integer_products: a product of dequantized operands becomes a product of integers, scaled
// afterwards.
//
//   y = Conv(Dequantize(a, s, z), Dequantize(w, t, u)) epilogue=f($0)
//     =>   y = Conv(a, w, z, u; s*t) epilogue=f(mul(f32($0),$1))
//   y = Reduce(Dequantize(a, s, z), axes) kind=mean
//     =>   y = Reduce(a, axes) kind=sum map=f32(sub(i32($0),z)) epilogue=mul($0,s/n)
//   y = Pool(Dequantize(a, s, z)) kind=average
//     =>   y = Pool(Pointwise(a) program=f32(sub(i32($0),z))) kind=average epilogue=mul($0,s)
//
// Convolutions and matrix products of 8-bit operands with constant scales: one for the data, one or
// one for each channel or column for the weights. The sum is exact in 32 bits; s*t is rounded once.
// Sums, means and average pools likewise, of as many elements as f32 adds up exactly, in whatever
// order; pools read the integers as f32, made by a layer before them. Not where the sum may
// overflow. Changes numerics: a sum of floats would be rounded. Not where a target has no kernel
// for it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// The requirements of a product on its operands.
struct Product {
  int64_t weight_axis = 0;  // of the second operand: its channels or columns
  int result_axis = 0;      // those of the result
};

std::optional<Product> product_at(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  if (op_output_count(layer) != 1 || layer.op_input_count != 2) return std::nullopt;
  const int64_t b_rank = graph.value(layer.inputs[1]).type().shape.rank();
  const int rank = graph.infer_outputs(id)[0].type.shape.rank();
  if (op_as<Conv>(graph, id)) return Product{0, 1};
  const auto* product = op_as<MatMul>(graph, id);
  if (!product) return std::nullopt;
  return Product{b_rank - (product->transpose_b ? 2 : 1), rank - 1};
}

// The largest magnitude that an integer has, less its zero point.
int64_t most(const Scaling& scaling) {
  const int64_t low = is_signed_integer(scaling.integer) ? -128 : 0;
  int64_t most = 0;
  for (const int64_t zero : scaling.zeros) most = std::max({most, zero - low, low + 255 - zero});
  return most;
}

// How many products a sum has; 0 if only a run tells.
int64_t products_of(const Graph& graph, ValueId weights, int64_t channel_axis, bool is_conv) {
  const Shape& shape = graph.value(weights).type().shape;
  int64_t products = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool is_batch = !is_conv && axis < shape.rank() - 2;
    if (axis == channel_axis || is_batch) continue;
    if (!shape[axis].known()) return 0;
    products *= shape[axis].value();
  }
  return products;
}

// s*t for each channel, in the shape that broadcasts to the result.
Tensor product_scales(const Scaling& a, const Scaling& w, int rank, int result_axis) {
  Dims dims;
  if (!w.per_tensor()) {
    dims.push_back(static_cast<int64_t>(w.scales.size()));
    for (int axis = result_axis + 1; axis < rank; ++axis) dims.push_back(1);
  }
  std::vector<float> scales;
  for (const float scale : w.scales)
    scales.push_back(static_cast<float>(double{a.scales[0]} * double{scale}));
  return Tensor::of<float>(DataType::kF32, dims, scales);
}

// Whether products of scales neither overflowed nor lost places.
bool are_exact_enough(std::span<const float> scales) {
  return std::ranges::all_of(scales, [](float scale) { return std::isnormal(scale); });
}

// The stores of `layer`, of sums of this type that are scaled first; `inputs` gets what they read.
// scales: what to multiply with, where that is not one number.
Program scaled_stores(const Graph& graph, const Layer& layer, DataType sums, const Tensor& scales,
                      ValueId scales_value, std::vector<ValueId>& inputs) {
  const Program stores = store_program(layer, graph.value(layer.outputs[0]).type().dtype);
  const std::vector<ValueId> further = epilogue_inputs(layer);
  ProgramBuilder builder;
  const Reg sum = builder.cast(builder.input(0, sums), RegisterType::kF32);
  int next = 1;
  const auto read = [&](ValueId value, DataType dtype) {
    inputs.push_back(value);
    return builder.input(next++, dtype);
  };
  const Reg scale = scales.count() == 1 ? builder.constant(scales.as<float>()[0])
                                        : read(scales_value, DataType::kF32);
  std::vector<Reg> regs = {builder.apply(Opcode::kMul, sum, scale)};
  for (size_t i = 1; i < further.size(); ++i) regs.push_back(read(further[i], stores.inputs()[i]));
  const std::vector<Reg> results = builder.inline_program(stores, regs);
  std::vector<std::pair<Reg, DataType>> stored;
  for (size_t i = 0; i < results.size(); ++i)
    stored.emplace_back(results[i], stores.results()[i].dtype);
  return builder.finish(stored);
}

bool compute_in_integers(Graph& graph, LayerId id, PassRun& run) {
  const auto product = product_at(graph, id);
  if (!product) return false;
  const Layer& layer = graph.layer(id);
  const auto a = dequantized(graph, layer.inputs[0]);
  if (!a) return false;
  const auto w = dequantized(graph, layer.inputs[1]);
  if (!w) return false;
  const auto refuse = [&](std::string_view why) {
    run.refused(layer.name, fmt::format("stays a product of floats: {}", why));
    return false;
  };
  if (!is_8bit(a->scaling.integer) || !is_8bit(w->scaling.integer))
    return refuse("its operands have 16 bits");
  if (!a->scaling.per_tensor()) return refuse("its input has a scale for each channel");
  if (!w->scaling.per_tensor() && w->scaling.axis != product->weight_axis)
    return refuse("the scales of its weights are not those of its results");

  const int64_t products =
      products_of(graph, w->integers, product->weight_axis, op_as<Conv>(graph, id) != nullptr);
  if (products > std::numeric_limits<int32_t>::max() / (most(a->scaling) * most(w->scaling)))
    return refuse("a sum of this many products may overflow 32 bits");
  const int rank = graph.value(layer.outputs[0]).type().shape.rank();
  const Tensor scales = product_scales(a->scaling, w->scaling, rank, product->result_axis);
  if (!are_exact_enough(scales.as<float>()))
    return refuse("a product of its scales is beyond what f32 holds");
  const ValueId scales_value =
      scales.count() == 1 ? ValueId::kNone : graph.add_constant(layer.name + "/scales", scales);
  NewLayer added{
      .name = layer.name,
      .op = layer.op,
      .inputs = {a->integers, w->integers, add_zeros(graph, layer.name + "/data", a->scaling),
                 add_zeros(graph, layer.name + "/weights", w->scaling)},
      .origins = layer.origins};
  while (added.inputs.back() == ValueId::kNone) added.inputs.pop_back();
  added.op_input_count = static_cast<int>(added.inputs.size());
  added.epilogues = {
      scaled_stores(graph, layer, DataType::kI32, scales, scales_value, added.inputs)};
  for (const ValueId output : layer.outputs)
    added.output_types.push_back(graph.value(output).type());
  if (const std::string why = run.ask_targets(graph, added); !why.empty()) return refuse(why);

  const std::string name = layer.name;
  const Saving saved = saving_of(graph, layer.inputs[0]);
  graph.replace_layer(id, graph.add(std::move(added)));
  run.did(name,
          fmt::format("accumulates {} * {} in integers", anneal::to_string(a->scaling.integer),
                      anneal::to_string(w->scaling.integer)),
          saved);
  return true;
}

// Integers whose sum of 8-bit differences is exact in f32.
constexpr int64_t kMostSummed = (int64_t{1} << 24) / 255;

// How many elements the layer adds up for each result; nullopt if that is not known.
std::optional<int64_t> summed(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const Shape& shape = graph.value(layer.inputs[0]).type().shape;
  const Tensor* axes = graph.constant(layer.inputs[1]);
  if (!axes) return std::nullopt;
  int64_t elements = 1;
  for (const int64_t axis : axes->as<int64_t>()) {
    const Size size = shape[static_cast<int>(axis < 0 ? axis + shape.rank() : axis)];
    if (!size.known()) return std::nullopt;
    elements *= size.value();
  }
  return elements;
}

// f32 numbers of integers, less their zero point.
Program as_numbers(const Scaling& scaling) {
  ProgramBuilder builder;
  Reg integer = builder.cast(builder.input(0, scaling.integer), RegisterType::kI32);
  if (scaling.has_zeros())
    integer = builder.apply(Opcode::kSub, integer,
                            builder.constant(RegisterType::kI32, int64_t{scaling.zeros[0]}));
  return builder.finish(builder.cast(integer, RegisterType::kF32), DataType::kF32);
}

bool sum_integers(Graph& graph, LayerId id, PassRun& run) {
  const auto* reduce = op_as<Reduce>(graph, id);
  if (!reduce || !reduce->map.empty() ||
      (reduce->kind != ReduceKind::kSum && reduce->kind != ReduceKind::kMean))
    return false;
  const Layer& layer = graph.layer(id);
  const auto x = dequantized(graph, layer.inputs[0]);
  const auto elements = x ? summed(graph, id) : std::nullopt;
  if (!elements || *elements < 1 || *elements > kMostSummed || !x->scaling.per_tensor() ||
      !is_8bit(x->scaling.integer))
    return false;
  NewLayer added{.name = layer.name,
                 .op = Reduce{ReduceKind::kSum, reduce->keepdims, as_numbers(x->scaling)},
                 .inputs = {x->integers, layer.inputs[1]},
                 .op_input_count = 2,
                 .origins = layer.origins};
  const bool is_mean = reduce->kind == ReduceKind::kMean;
  const double scale = double{x->scaling.scales[0]} / (is_mean ? double(*elements) : 1.0);
  added.epilogues = {
      scaled_stores(graph, layer, DataType::kF32,
                    Tensor::of<float>(DataType::kF32, {}, std::vector{static_cast<float>(scale)}),
                    ValueId::kNone, added.inputs)};
  for (const ValueId output : layer.outputs)
    added.output_types.push_back(graph.value(output).type());
  if (!run.ask_targets(graph, added).empty()) return false;
  const std::string name = layer.name;
  graph.replace_layer(id, graph.add(std::move(added)));
  run.did(name, "adds integers up");
  return true;
}

bool average_integers(Graph& graph, LayerId id, PassRun& run) {
  const auto* pool = op_as<Pool>(graph, id);
  if (!pool || pool->kind != PoolKind::kAverage) return false;
  const Layer& layer = graph.layer(id);
  const auto x = dequantized(graph, layer.inputs[0]);
  int64_t window = 1;
  for (const int64_t size : pool->kernel) window *= size;
  if (!x || window > kMostSummed || !x->scaling.per_tensor() || !is_8bit(x->scaling.integer))
    return false;
  const std::string name = layer.name;
  const LayerId numbers = graph.add({.name = name + "/numbers",
                                     .op = Pointwise{as_numbers(x->scaling)},
                                     .inputs = {x->integers},
                                     .origins = layer.origins});
  NewLayer added = copy_of(graph, id);
  added.inputs = {graph.layer(numbers).outputs[0]};
  added.epilogues = {scaled_stores(graph, graph.layer(id), DataType::kF32,
                                   Tensor::of<float>(DataType::kF32, {}, x->scaling.scales),
                                   ValueId::kNone, added.inputs)};
  graph.replace_layer(id, graph.add(std::move(added)));
  run.did(name, "averages integers");
  return true;
}

bool compute(Graph& graph, LayerId id, PassRun& run) {
  return compute_in_integers(graph, id, run) || sum_integers(graph, id, run) ||
         average_integers(graph, id, run);
}

}  // namespace

bool integer_products(Graph& graph, PassRun& run) { return sweep(graph, run, compute); }

}  // namespace anneal
