// Operators of com.microsoft that optimized transformers hold: what ONNX says in several nodes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/gemm.h"
#include "anneal/importer/ops/quant.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

Outputs import_fused_mat_mul(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  const DataType dtype = node.dtype(0, kFloats);
  if (node.flag("transBatchA", false) || node.flag("transBatchB", false))
    node.unsupported("matrices that are not the last two axes");
  if (node.rank(0) < 2 || node.rank(1) < 2) node.unsupported("a product with a vector");
  const double alpha = node.number("alpha", 1);
  const MatMul op{.transpose_a = node.flag("transA", false),
                  .transpose_b = node.flag("transB", false)};
  return epilogue_result(node, op, {node.input(0), node.input(1)}, {}, dtype,
                         [&](Expressions in) { return in[0] * alpha; });
}

// The attribute `activation` and its parameters, of FusedConv and FusedGemm.
struct FusedActivation {
  std::string kind;
  std::vector<float> parameters;
};

double parameter(const Node& node, const FusedActivation& activation, size_t i) {
  if (i >= activation.parameters.size())
    node.invalid(fmt::format("too few parameters of the activation {}", activation.kind));
  return activation.parameters[i];
}

Expression activated(const Node& node, const FusedActivation& activation, Expression x) {
  const std::string& kind = activation.kind;
  const auto number = [&](size_t i) { return parameter(node, activation, i); };
  const Expression zero = x.number(0), one = x.number(1);
  if (kind.empty()) return x;
  if (kind == "Relu") return max(x, zero);
  if (kind == "Tanh") return x.apply(Opcode::kTanh);
  if (kind == "Sigmoid") return x.apply(Opcode::kSigmoid);
  if (kind == "LeakyRelu") return select(x < 0, x * number(0), x);
  if (kind == "Clip") return min(max(x, x.number(number(0))), x.number(number(1)));
  if (kind == "HardSigmoid") return max(zero, min(one, x * number(0) + number(1)));
  if (kind == "Elu") return select(x < 0, x.apply(Opcode::kExpm1) * number(0), x);
  if (kind == "Softplus") return softplus(x);
  if (kind == "Softsign") return x / (x.apply(Opcode::kAbs) + 1.0);
  node.unsupported(fmt::format("the activation {}", kind));
}

// Conv, plus input 3, then an activation.
Outputs import_fused_conv(Node& node) {
  node.expect_inputs(2, 4);
  node.expect_same_dtype({0, 1, 2, 3});
  const DataType dtype = node.dtype(0, kFloats);
  const FusedActivation activation{
      node.text("activation", ""),
      node.find_numbers("activation_params").value_or(std::vector<float>{})};
  std::vector<ValueId> addends;
  if (node.has_input(2))
    addends.push_back(per_channel(node, node.input(2), node.rank(0), "bias_per_channel"));
  if (node.has_input(3)) addends.push_back(node.input(3));
  const auto [op, input] = read_conv(node, node.input(0), node.input(1));
  return epilogue_result(node, op, {input, node.input(1)}, addends, dtype, [&](Expressions in) {
    Expression x = in[0];
    for (size_t i = 1; i < in.size(); ++i) x = x + in[i];
    return activated(node, activation, x);
  });
}

Outputs import_fused_gemm(Node& node) {
  FusedActivation activation{node.text("activation", ""), {}};
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    activation.parameters.push_back(node.number(name, 0));
  const auto activate = [&](Expression x) { return activated(node, activation, x); };
  const FunctionRef<Expression(Expression)> reference(activate);
  return gemm(node, &reference);
}

// `count` elements of the last axis from `start` on; a vector's, too.
ValueId columns(Node& node, ValueId x, Size start, Size count, std::string_view suffix) {
  return slice_of(node, x, shape_of(node, x).rank() - 1, start, node.sizes().add(start, count),
                  suffix);
}

// x + y * gate, rounded after the product as two operators do.
Outputs import_gated_add(Node& node) {
  node.expect_inputs(3, 4);
  if (node.has_input(3)) node.unsupported("a gate that is projected (gate_weight)");
  node.expect_same_dtype({0, 1, 2});
  const DataType dtype = node.dtype(0, kFloats);
  const int last = node.rank(2) - 1;
  if (node.rank(0) != node.rank(1) || last != node.rank(0) - 1 || last < 0 ||
      node.shape(2)[last] != Size(1))
    node.invalid("x and y of one shape, and a gate of one element for each row, are expected");
  return pointwise_result(node, {node.input(0), node.input(1), node.input(2)}, dtype,
                          [&](Expressions in) { return in[0] + (in[1] * in[2]).cast_to(dtype); });
}

// x[N,S,C] + bias[C] + skip[N,S,C].
Outputs import_bias_add(Node& node) {
  node.expect_inputs(3, 3);
  node.expect_same_dtype({0, 1, 2});
  if (node.rank(0) != 3 || node.rank(1) != 1 || node.rank(2) != 3)
    node.invalid("x and skip of 3 axes, and a vector, are expected");
  return pointwise_result(node, {node.input(0), node.input(1), node.input(2)},
                          node.dtype(0, kFloats),
                          [](Expressions in) { return in[0] + in[1] + in[2]; });
}

// The first half of x[N,S,D] + bias[D], times GELU of the other.
Outputs import_bias_split_gelu(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  if (node.rank(0) != 3 || node.rank(1) != 1) node.invalid("3 axes and a vector are expected");
  const Size width = node.shape(0)[2], half = node.sizes().floor_div(width, 2);
  if (!width.known()) node.unsupported("a width known only at run time");
  if (width.value() % 2 != 0 || node.shape(1)[0] != width)
    node.invalid("x has no two halves, or the bias has another width");
  std::vector<ValueId> parts;
  for (const Size start : {Size(0), half})
    for (const int input : {0, 1})
      parts.push_back(
          columns(node, node.input(input), start, half, fmt::format("part{}", parts.size())));
  return pointwise_result(node, parts, node.dtype(0, kFloats),
                          [](Expressions in) { return (in[0] + in[1]) * erf_gelu(in[2] + in[3]); });
}

// The bias[1,heads,queries,keys] of T5, by the bucket of each distance. The numbers of the table
// [buckets,heads] lie by head.
Outputs import_relative_position_bias(Node& node) {
  node.expect_inputs(3, 3);
  node.dtype(0, kFloats);
  const bool is_bidirectional = node.flag("is_bidirectional", false);
  const int64_t most = node.integer("max_distance");
  if (node.rank(0) != 2 || !node.shape(0)[0].known())
    node.unsupported("a table that is not [buckets, heads] of a known number of buckets");
  const int64_t buckets = node.shape(0)[0].value() / (is_bidirectional ? 2 : 1);
  const int64_t exact = buckets / 2;
  if (exact < 1 || most <= exact)
    node.invalid(fmt::format("{} buckets for distances up to {}", buckets, most));
  std::vector<ValueId> lengths;
  for (const int input : {1, 2}) {
    node.dtype(input, kIndices);
    const std::string name = fmt::format("length{}", input);
    lengths.push_back(reshape(node, as_i64(node, node.input(input), name + "_i64"), {1}, name));
  }
  const ValueId zero = scalar_value(node, 0, "zero");
  const ValueId square =
      node.layer(Expand{}, {zero, node.layer(Concat{}, lengths, "lengths")}, "no_bucket");
  const ValueId bucket = pointwise(node, "bucket", {square}, DataType::kI64, [&](Expressions in) {
    const Expression ahead = in[0].index(1) - in[0].index(0);  // of the key
    const Expression distance =
        is_bidirectional ? ahead.apply(Opcode::kAbs) : max(-ahead, ahead.number(0));
    const Expression ratio = distance.cast(RegisterType::kF32) / static_cast<double>(exact);
    const Expression steps = ratio.apply(Opcode::kLog) /
                             std::log(static_cast<double>(most) / static_cast<double>(exact)) *
                             static_cast<double>(buckets - exact);
    const Expression far = min(steps.cast(RegisterType::kI64) + static_cast<double>(exact),
                               distance.number(static_cast<double>(buckets - 1)));
    const Expression near = select(distance < static_cast<double>(exact), distance, far);
    if (!is_bidirectional) return near;
    return select(ahead <= 0, near, near + static_cast<double>(buckets));
  });
  const Shape& table = node.shape(0);
  const ValueId by_head = reshape(node, node.input(0), {Size(1), table[1], table[0]}, "by_head");
  return node.result(Gather{.axis = 2}, {by_head, bucket});
}

// Rows of the sum, normalized along the last axis; the sum is output `sum_output`.
Outputs normalized_sum(Node& node, const std::vector<ValueId>& terms, bool subtract_mean,
                       ValueId scale, ValueId shift, int sum_output) {
  const DataType dtype = node.graph().value(terms[0]).type().dtype;
  if (!kFloats.contains(dtype)) node.invalid(fmt::format("elements of {}", to_string(dtype)));
  const ValueId sum = pointwise_result(
      node, terms, dtype,
      [](Expressions in) {
        Expression total = in[0];
        for (size_t i = 1; i < in.size(); ++i) total = total + in[i];
        return total;
      },
      "sum", sum_output)[0];
  const int rank = shape_of(node, sum).rank();
  if (rank == 0) node.invalid("a scalar");
  const Normalize op{.axes = {rank - 1},
                     .epsilon = node.number("epsilon", 1e-12F),
                     .subtract_mean = subtract_mean};
  std::vector<ValueId> inputs = {node.layer(op, {sum}, "normal"), scale};
  if (shift != ValueId::kNone) inputs.push_back(shift);
  Outputs outputs(static_cast<size_t>(sum_output) + 1, ValueId::kNone);
  outputs.back() = sum;
  outputs[0] = pointwise_result(node, inputs, dtype, [](Expressions in) {
    const Expression scaled = in[0] * in[1];
    return in.size() == 3 ? scaled + in[2] : scaled;
  })[0];
  return outputs;
}

// Inputs 0 and 1, and the bias, if there is one.
std::vector<ValueId> skip_terms(Node& node, int bias) {
  std::vector<ValueId> terms = {node.input(0), node.input(1)};
  if (node.has_input(bias)) terms.push_back(node.input(bias));
  return terms;
}
Outputs import_skip_layer_normalization(Node& node) {
  node.expect_inputs(3, 5);
  node.expect_same_dtype({0, 1, 2, 3, 4});
  return normalized_sum(node, skip_terms(node, 4), true, node.input(2), node.optional_input(3), 3);
}
Outputs import_skip_simplified_layer_normalization(Node& node) {
  node.expect_inputs(3, 4);
  node.expect_same_dtype({0, 1, 2, 3});
  return normalized_sum(node, skip_terms(node, 3), false, node.input(2), ValueId::kNone, 3);
}

// How many keys the mask i32[B,S] shows in each batch, as output 1; 0 without a mask.
ValueId key_counts(Node& node) {
  if (node.has_input(7)) {
    const Reduce sum{.keepdims = false};
    const ValueId axis = node.integers_value({1}, "mask_axis");
    return node.result(sum, {node.input(7), axis}, "mask_index", 1)[0];
  }
  const ValueId zero =
      node.constant_value(Tensor::of<int32_t>(DataType::kI32, {}, std::vector<int32_t>{0}), "zero");
  const ValueId shape = node.sizes_value({node.shape(0)[0]}, "batches");
  return node.result(Expand{}, {zero, shape}, "mask_index", 1)[0];
}

// inputs: ids[B,S], [segments[B,S]], words[.,H], positions[.,H], [segment embeddings[.,H]], scale,
// shift, [mask]. floats: gives inputs 2 to 6 as floats. positions: kNone counts them.
Outputs embed(Node& node, FunctionRef<ValueId(int, const char*)> floats, ValueId positions) {
  node.dtype(0, kIndices);
  if (node.rank(0) != 2) node.invalid(fmt::format("ids of {} axes", node.rank(0)));
  const auto rows = [&](int table, ValueId ids, const std::string& suffix) {
    return node.layer(Gather{}, {floats(table, (suffix + "_table").c_str()), ids}, suffix);
  };
  std::vector<ValueId> terms = {rows(2, node.input(0), "words")};
  if (positions == ValueId::kNone) {
    const auto scalar = [&](Size value, const char* suffix) {
      return reshape(node, node.sizes_value({value}, suffix), {}, std::string(suffix) + "_scalar");
    };
    positions = node.layer(
        Range{}, {scalar(0, "first"), scalar(node.shape(0)[1], "length"), scalar(1, "step")},
        "positions");
  }
  terms.push_back(rows(3, positions, "of_positions"));
  if (node.has_input(1) && node.has_input(4))
    terms.push_back(rows(4, node.input(1), "of_segments"));
  Outputs outputs = normalized_sum(node, terms, true, floats(5, "gamma"), floats(6, "beta"), 2);
  if (node.has_output(1)) outputs[1] = key_counts(node);
  return outputs;
}

Outputs import_embed_layer_normalization(Node& node) {
  node.expect_inputs(7, 9);
  node.expect_same_dtype({2, 3, 4, 5, 6});
  node.ignore("mask_index_type");
  return embed(
      node, [&](int input, const char*) { return node.input(input); }, node.optional_input(8));
}

// Tables, scale and shift are integers of 8 bits: their scales are inputs 8 to 12, their zero
// points 13 to 17.
Outputs import_quantized_embed_layer_normalization(Node& node) {
  node.expect_inputs(18, 18);
  const auto dequantized = [&](int input, const char* suffix) {
    const std::string name = suffix;
    node.dtype(input, k8Bit);
    const int scale = input + 6, zero_point = input + 11;
    node.expect_same_dtype({input, zero_point});
    node.dtype(scale, kFloats);
    return node.layer(Dequantize{},
                      {node.input(input), scalar_if_one(node, scale, name + "/scale"),
                       scalar_if_one(node, zero_point, name + "/zero_point")},
                      name);
  };
  return embed(node, dequantized, ValueId::kNone);
}

// The bias of the scores: `added`, if given, and for a hidden key the attribute mask_filter_value.
// mask: i32[batch, keys], 0 to hide a key, or i32[batch], the number of keys without padding.
ValueId key_mask(Node& node, int mask, ValueId added, DataType dtype, Size keys) {
  const double hidden = node.number("mask_filter_value", -10000);
  if (!node.has_input(mask)) return added;
  const Shape shape = node.shape(mask);
  node.dtype(mask, kIndices);
  const bool lengths = shape.rank() == 1 && shape[0] == node.shape(0)[0];
  if (!lengths && shape.rank() != 2)
    node.unsupported(fmt::format("a mask of {} axes", shape.rank()));
  std::vector<ValueId> inputs;
  if (lengths) {
    const ValueId zero = node.constant_value(tensor_of(DataType::kF32, {}, {0}), "zero");
    const ValueId row = expanded(node, zero, {1, 1, 1, keys}, "no_mask");
    inputs = {reshape(node, node.input(mask), {shape[0], 1, 1, 1}, "lengths"), row};
  } else {
    inputs = {reshape(node, node.input(mask), {shape[0], 1, 1, shape[1]}, "mask_by_head")};
  }
  if (added != ValueId::kNone) inputs.push_back(added);
  return pointwise(node, "mask", inputs, dtype, [&](Expressions in) {
    const bool wide = dtype == DataType::kF64;
    const RegisterType real = wide ? RegisterType::kF64 : RegisterType::kF32;
    const Expression none = Expression{in[0].builder, in[0].builder->constant(real, 0.0)};
    const Expression seen =
        lengths ? in[0].index(3) < in[0].cast(RegisterType::kI64) : !(in[0] == 0);
    const Expression result = select(seen, none, none.number(hidden));
    return added == ValueId::kNone ? result : result + in.back();
  });
}

// Queries see keys up to their own, which comes behind those of the past.
void see_no_later_keys(Node& node, AttentionHeads& heads) {
  if (!node.flag("unidirectional", false)) return;
  heads.visible.right = 0;
  const Size queries = shape_of(node, heads.q)[2], keys = shape_of(node, heads.k)[2];
  heads.visible.offset = node.sizes_value({node.sizes().sub(keys, queries)}, "past_length");
}

Outputs import_multi_head_attention(Node& node) {
  node.expect_inputs(1, 8);
  node.dtype(0, kFloats);
  if (!node.has_input(1) || !node.has_input(2) || node.rank(0) != 3)
    node.unsupported("packed queries, keys and values");
  node.expect_same_dtype({0, 1, 2, 3, 5, 6, 7});
  const int64_t count = node.integer("num_heads");
  Size start = 0;
  const auto heads_of = [&](int input, const char* suffix) {
    ValueId x = node.input(input);
    if (node.has_input(3)) {
      if (node.rank(input) != 3) node.unsupported("a bias of keys that are split into heads");
      const std::string name(suffix);
      const Size width = node.shape(input)[2];
      const ValueId bias = columns(node, node.input(3), start, width, name + "/bias");
      start = node.sizes().add(start, width);
      x = pointwise(node, name + "/biased", {x, bias}, node.dtype(0),
                    [](Expressions in) { return in[0] + in[1]; });
    }
    return split_heads(node, x, count, suffix);
  };
  AttentionHeads heads;
  heads.q = heads_of(0, "queries");
  heads.k = after_past(node, heads_of(1, "keys"), 6, "present_keys", 1);
  heads.v = after_past(node, heads_of(2, "values"), 7, "present_values", 2);
  heads.scale = attention_scale(node, heads.q);
  heads.mask = key_mask(node, 4, node.optional_input(5), node.dtype(0), shape_of(node, heads.k)[2]);
  see_no_later_keys(node, heads);
  return {join_heads(node, attend(node, heads).result), heads.k, heads.v};
}

// Keys (part 0) or values (part 1) behind those of past[2,B,heads,past positions,width].
ValueId behind_past(Node& node, ValueId own, int past, int64_t part, const std::string& name) {
  const ValueId index = scalar_value(node, part, name + "/part");
  const ValueId before = node.layer(Gather{}, {node.input(past), index}, name + "/past");
  return node.layer(Concat{.axis = 2}, {before, own}, name + "/with_past");
}

// all[B,S,queries + keys + values]: attention of positions to each other.
struct SelfAttention {
  ValueId all = ValueId::kNone;
  std::vector<Size> widths = {};  // of queries, keys and values
  int mask = 0, past = 0;         // inputs
  ValueId added = ValueId::kNone;
};
Outputs self_attention(Node& node, const SelfAttention& given) {
  if (node.flag("do_rotary", false)) node.unsupported("rotated positions");
  if (node.flag("past_present_share_buffer", false)) node.unsupported("past_present_share_buffer");
  const int64_t count = node.integer("num_heads");
  Size start = 0;
  const auto heads_of = [&](size_t i, const char* suffix) {
    const ValueId part =
        columns(node, given.all, start, given.widths[i], std::string(suffix) + "/columns");
    start = node.sizes().add(start, given.widths[i]);
    return split_heads(node, part, count, suffix);
  };
  AttentionHeads heads;
  heads.q = heads_of(0, "queries");
  heads.k = heads_of(1, "keys");
  heads.v = heads_of(2, "values");
  if (node.has_input(given.past)) {
    if (node.rank(given.past) != 5) node.invalid("past keys and values have not 5 axes");
    heads.k = behind_past(node, heads.k, given.past, 0, "keys");
    heads.v = behind_past(node, heads.v, given.past, 1, "values");
  }
  const DataType dtype = node.graph().value(given.all).type().dtype;
  heads.scale = attention_scale(node, heads.q);
  heads.mask = key_mask(node, given.mask, given.added, dtype, shape_of(node, heads.k)[2]);
  see_no_later_keys(node, heads);
  Outputs outputs = {join_heads(node, attend(node, heads).result)};
  if (!node.has_output(1)) return outputs;
  const auto of_part = [&](ValueId x, const char* suffix) {
    std::vector<Size> shape(shape_of(node, x).begin(), shape_of(node, x).end());
    shape.insert(shape.begin(), Size(1));
    return reshape(node, x, shape, suffix);
  };
  outputs.push_back(node.result(
      Concat{.axis = 0}, {of_part(heads.k, "present_keys"), of_part(heads.v, "present_values")},
      "present", 1)[0]);
  return outputs;
}

void expect_projection(Node& node) {
  if (node.rank(0) != 3 || node.rank(1) != 2) node.invalid("3 axes and a matrix are expected");
}

// inputs: x[B,S,H], weights[H, queries + keys + values], [bias], [mask], [past], [numbers to add].
Outputs import_fused_attention(Node& node) {
  node.expect_inputs(2, 6);
  const DataType dtype = node.dtype(0, kFloats);
  node.expect_same_dtype({0, 1, 2, 4, 5});
  node.ignore("rotary_embedding_dim");  // of rotated ones
  expect_projection(node);
  const Size third = node.sizes().floor_div(node.shape(1)[1], 3);
  std::vector<Size> widths(3, third);
  if (const auto given = node.find_integers("qkv_hidden_sizes"))
    widths = {given->begin(), given->end()};
  if (widths.size() != 3) node.invalid("attribute \"qkv_hidden_sizes\": 3 values are needed");
  ValueId all = node.layer(MatMul{}, {node.input(0), node.input(1)}, "projected");
  if (node.has_input(2))
    all = pointwise(node, "biased", {all, node.input(2)}, dtype,
                    [](Expressions in) { return in[0] + in[1]; });
  return self_attention(node, {.all = all,
                               .widths = std::move(widths),
                               .mask = 3,
                               .past = 4,
                               .added = node.optional_input(5)});
}

// As Attention, with x and weights of 8 bits.
Outputs import_quantized_attention(Node& node) {
  enum Input { kX, kWeights, kBias, kXScale, kWeightScale, kMask, kXZero, kWeightZero, kPast };
  node.expect_inputs(5, 9);
  node.dtype(kX, k8Bit);
  node.dtype(kWeights, k8Bit);
  node.expect_same_dtype({kX, kXZero});
  node.expect_same_dtype({kWeights, kWeightZero});
  const DataType dtype = node.dtype(kBias, kFloats);
  node.expect_same_dtype({kBias, kXScale, kWeightScale, kPast});
  expect_projection(node);
  std::vector<ValueId> operands = {node.input(kX), node.input(kWeights),
                                   product_zero_point(node, kXZero, "x_zero_point"),
                                   product_zero_point(node, kWeightZero, "weight_zero_point")};
  while (operands.back() == ValueId::kNone) operands.pop_back();
  const ValueId sums = node.layer(MatMul{}, operands, "sums");
  const ValueId all =
      pointwise(node, "projected",
                {sums, scalar_if_one(node, kXScale, "x_scale"),
                 scalar_if_one(node, kWeightScale, "weight_scale"), node.input(kBias)},
                dtype, [](Expressions in) {
                  const auto real = [](Expression x) { return x.cast(RegisterType::kF32); };
                  return real(in[0]) * (real(in[1]) * real(in[2])) + real(in[3]);
                });
  const Size third = node.sizes().floor_div(node.shape(kWeights)[1], 3);
  return self_attention(
      node, {.all = all, .widths = std::vector<Size>(3, third), .mask = kMask, .past = kPast});
}

constexpr OpRow kFusedRows[] = {
    {kMicrosoft, "Attention", 1, kLatest, import_fused_attention},
    {kMicrosoft, "BiasAdd", 1, kLatest, import_bias_add},
    {kMicrosoft, "BiasSplitGelu", 1, kLatest, import_bias_split_gelu},
    {kMicrosoft, "EmbedLayerNormalization", 1, kLatest, import_embed_layer_normalization},
    {kMicrosoft, "FusedConv", 1, kLatest, import_fused_conv},
    {kMicrosoft, "FusedGemm", 1, kLatest, import_fused_gemm},
    {kMicrosoft, "FusedMatMul", 1, kLatest, import_fused_mat_mul},
    {kMicrosoft, "TransposeMatMul", 1, kLatest, import_fused_mat_mul},
    {kMicrosoft, "GatedAdd", 1, kLatest, import_gated_add},
    {kMicrosoft, "MultiHeadAttention", 1, kLatest, import_multi_head_attention},
    {kMicrosoft, "QAttention", 1, kLatest, import_quantized_attention},
    {kMicrosoft, "QEmbedLayerNormalization", 1, kLatest,
     import_quantized_embed_layer_normalization},
    {kMicrosoft, "RelativePositionBias", 1, kLatest, import_relative_position_bias},
    {kMicrosoft, "SkipLayerNormalization", 1, kLatest, import_skip_layer_normalization},
    {kMicrosoft, "SkipSimplifiedLayerNormalization", 1, kLatest,
     import_skip_simplified_layer_normalization},
};

}  // namespace

std::span<const OpRow> fused_rows() { return kFusedRows; }

}  // namespace anneal
