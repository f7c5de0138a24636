// Attention: products of queries and keys, softmaxed, weigh the values. It becomes MatMul, Softmax
// and Pointwise; groups of query heads that share a key head are rows of one product.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The bias of the scores: 0, the mask's numbers, or -inf; [..., queries, keys].
ValueId bias_of(Node& node, const AttentionHeads& attention, DataType dtype) {
  const Size queries = shape_of(node, attention.q)[2], keys = shape_of(node, attention.k)[2];
  const ValueId zero = node.constant_value(tensor_of(dtype, {}, {0}), "zero");
  std::vector<ValueId> inputs = {expanded(node, zero, {queries, keys}, "no_bias")};
  int rank = 2;
  const auto add = [&](ValueId value) -> size_t {
    if (value == ValueId::kNone) return 0;
    rank = std::max(rank, shape_of(node, value).rank());
    inputs.push_back(value);
    return inputs.size() - 1;
  };
  const VisibleKeys& visible = attention.visible;
  const size_t mask = add(attention.mask), lengths = add(visible.lengths);
  const size_t offset = visible.limited() ? add(visible.offset) : 0;
  return pointwise(node, "bias", inputs, dtype, [&](Expressions in) {
    const Expression hidden = in[0].number(-kInfinity);
    Expression bias = in[0];
    if (mask != 0)
      bias = in[mask].reg.type == RegisterType::kBool ? select(in[mask], in[0], hidden)
                                                      : in[mask].cast(in[0].reg.type);
    const Expression key = in[0].index(rank - 1);
    Expression query = in[0].index(rank - 2);
    if (offset != 0) query = query + in[offset];
    if (visible.left >= 0) {
      const Expression reach = key + static_cast<double>(visible.left);
      bias = select(query <= reach, bias, hidden);
    }
    if (visible.right >= 0) {
      const Expression reach = query + static_cast<double>(visible.right);
      bias = select(key <= reach, bias, hidden);
    }
    return lengths == 0 ? bias : select(key < in[lengths], bias, hidden);
  });
}

}  // namespace

ValueId padded_mask(Node& node, ValueId mask, Size keys) {
  const Shape shape = shape_of(node, mask);
  if (shape.rank() == 0) return mask;
  const Size own = shape[shape.rank() - 1];
  if (own == keys) return mask;
  const DataType dtype = node.graph().value(mask).type().dtype;
  std::vector<Size> pads(static_cast<size_t>(2 * shape.rank()), Size(0));
  pads.back() = node.sizes().sub(keys, own);
  const ValueId by = node.sizes_value(pads, "mask_pads");
  if (dtype == DataType::kBool) return node.layer(Pad{}, {mask, by}, "mask");
  if (!is_float(dtype)) node.unsupported(fmt::format("a mask of {}", to_string(dtype)));
  const ValueId hidden = node.constant_value(tensor_of(dtype, {}, {-kInfinity}), "hidden");
  return node.layer(Pad{}, {mask, by, hidden}, "mask");
}

namespace {

// Softmax over the keys, and over the sink where there is one, which has no weight of its own.
ValueId weights_of(Node& node, ValueId logits, ValueId sink) {
  if (sink == ValueId::kNone) return node.layer(Softmax{.axis = 3}, {logits}, "weights");
  const Shape shape = shape_of(node, logits);
  const ValueId column = expanded(node, sink, {shape[0], shape[1], shape[2], Size(1)}, "sinks");
  const ValueId all = node.layer(Concat{.axis = 3}, {logits, column}, "logits_and_sink");
  return slice_of(node, node.layer(Softmax{.axis = 3}, {all}, "weights_and_sink"), 3, 0, shape[3],
                  "weights");
}

// Heads of q by groups that share a head of k and v; the rows of a group are consecutive.
struct HeadGroups {
  std::vector<Size> grouped, single;  // sizes of the first three axes
  bool any = false;
};
HeadGroups groups_of(Node& node, const AttentionHeads& attention) {
  const Shape &q = shape_of(node, attention.q), &k = shape_of(node, attention.k);
  SizeTable& sizes = node.sizes();
  if (q[1].known() && k[1].known() && (k[1].value() == 0 || q[1].value() % k[1].value() != 0))
    node.invalid(fmt::format("{} heads of queries for {} of keys", q[1].value(), k[1].value()));
  HeadGroups groups{{q[0], k[1], q[2]}, {q[0], q[1], q[2]}, q[1] != k[1]};
  if (groups.any) groups.grouped[2] = sizes.mul(sizes.floor_div(q[1], k[1]), q[2]);
  return groups;
}
ValueId with_last(Node& node, ValueId value, std::vector<Size> shape, std::string_view suffix) {
  const Shape old = shape_of(node, value);
  shape.push_back(old[old.rank() - 1]);
  return reshape(node, value, shape, suffix);
}

}  // namespace

AttentionOutputs attend(Node& node, const AttentionHeads& attention,
                        std::optional<AttentionStage> wanted) {
  const DataType dtype = node.graph().value(attention.q).type().dtype;
  const HeadGroups groups = groups_of(node, attention);
  ValueId q = attention.q;
  if (groups.any) q = with_last(node, q, groups.grouped, "grouped_queries");
  ValueId scores = node.layer(MatMul{.transpose_b = true}, {q, attention.k}, "scores");
  if (groups.any) scores = with_last(node, scores, groups.single, "scores_by_head");

  const bool masked = attention.mask != ValueId::kNone ||
                      attention.visible.lengths != ValueId::kNone || attention.visible.limited();
  std::vector<ValueId> inputs = {scores};
  if (masked) inputs.push_back(bias_of(node, attention, dtype));
  const auto product = [&](Expressions in) { return in[0] * attention.scale; };
  const auto capped = [&](Expressions in) {
    const Expression x = product(in);
    if (!(attention.softcap > 0)) return x;
    return (x / attention.softcap).apply(Opcode::kTanh) * attention.softcap;
  };
  // Hidden is hidden, even where the score is infinite.
  const auto biased = [&](Expressions in) {
    if (!masked) return capped(in);
    return select(in[1] == -kInfinity, in[1], capped(in) + in[1]);
  };
  AttentionOutputs attended;
  const std::string_view name = "stage";
  if (wanted == AttentionStage::kProduct)
    attended.stage = pointwise_result(node, {scores}, dtype, product, name, 3)[0];
  if (wanted == AttentionStage::kCapped)
    attended.stage = pointwise_result(node, {scores}, dtype, capped, name, 3)[0];
  if (wanted == AttentionStage::kBiased)
    attended.stage = pointwise_result(node, inputs, dtype, biased, name, 3)[0];
  const ValueId logits = pointwise(node, "logits", inputs, dtype, biased);
  ValueId weights = weights_of(node, logits, attention.sink);
  if (masked) {
    // A query that sees nothing has no weights.
    const Shape bias = shape_of(node, inputs[1]);
    const ValueId last = node.integers_value({bias.rank() - 1}, "last");
    const ValueId most =
        node.layer(Reduce{.kind = ReduceKind::kMax}, {inputs[1], last}, "most_visible");
    weights = pointwise(node, "weights_of_visible", {weights, most}, dtype, [](Expressions in) {
      return select(in[1] == -kInfinity, in[0].number(0), in[0]);
    });
  }
  if (wanted == AttentionStage::kSoftmax) attended.stage = weights;
  if (groups.any) weights = with_last(node, weights, groups.grouped, "grouped_weights");
  attended.result = node.layer(MatMul{}, {weights, attention.v}, "weighed");
  if (groups.any) attended.result = with_last(node, attended.result, groups.single, "by_head");
  return attended;
}

ValueId split_heads(Node& node, ValueId x, std::optional<int64_t> heads, std::string_view name) {
  const Shape shape = shape_of(node, x);
  if (shape.rank() == 4) return x;
  if (shape.rank() != 3 || !heads || *heads < 1)
    node.invalid("4 axes, or 3 and a number of heads, are needed");
  if (shape[2].known() && shape[2].value() % *heads != 0)
    node.invalid(fmt::format("{} elements in {} heads", shape[2].value(), *heads));
  const Size width = node.sizes().floor_div(shape[2], *heads);
  const std::string text(name);
  const ValueId split = reshape(node, x, {shape[0], shape[1], *heads, width}, text + "/split");
  return node.layer(Transpose{.permutation = {0, 2, 1, 3}}, {split}, text);
}

ValueId join_heads(Node& node, ValueId x) {
  const Shape shape = shape_of(node, x);
  const ValueId moved = node.layer(Transpose{.permutation = {0, 2, 1, 3}}, {x}, "heads_last");
  return reshape_result(node, moved, {shape[0], shape[2], node.sizes().mul(shape[1], shape[3])})[0];
}

ValueId after_past(Node& node, ValueId own, int past, std::string_view name, int output) {
  if (!node.has_input(past)) return own;
  return node.result(Concat{.axis = 2}, {node.input(past), own}, name, output)[0];
}

double attention_scale(Node& node, ValueId q) {
  const float given = node.number("scale", 0);
  if (given != 0) return given;
  const Size width = shape_of(node, q)[3];
  if (!width.known()) node.unsupported("a width of heads known only at run time");
  return 1 / std::sqrt(static_cast<double>(width.value()));
}

namespace {

Outputs import_attention(Node& node) {
  node.expect_inputs(3, node.opset() < 24 ? 6 : 7);
  node.dtype(0, kFloats);
  node.expect_same_dtype({0, 1, 2, 4, 5});
  node.ignore("softmax_precision");  // never below f32 here
  const auto heads = node.find_integer("q_num_heads"), kv_heads = node.find_integer("kv_num_heads");
  AttentionHeads attention{.q = split_heads(node, node.input(0), heads, "queries"),
                           .k = split_heads(node, node.input(1), kv_heads, "keys"),
                           .v = split_heads(node, node.input(2), kv_heads, "values")};
  if (node.has_input(4) != node.has_input(5)) node.invalid("past keys without past values");
  attention.k = after_past(node, attention.k, 4, "present_keys", 1);
  attention.v = after_past(node, attention.v, 5, "present_values", 2);
  const Shape q = shape_of(node, attention.q), k = shape_of(node, attention.k);
  attention.scale = attention_scale(node, attention.q);
  attention.softcap = node.number("softcap", 0);
  if (node.has_input(3)) attention.mask = padded_mask(node, node.input(3), k[2]);

  VisibleKeys& visible = attention.visible;
  visible.left = node.integer("left_window_size", -1);
  visible.right = node.integer("right_window_size", -1);
  if (node.flag("is_causal", false)) visible.right = 0;
  if (node.has_input(6)) {
    node.dtype(6, {DataType::kI64});
    if (node.has_input(4)) node.invalid("past keys and lengths of keys");
    visible.lengths = reshape(node, node.input(6), {q[0], 1, 1, 1}, "lengths");
    const ValueId queries = node.sizes_value({q[2]}, "query_count");
    visible.offset = pointwise(node, "offset", {visible.lengths, queries}, DataType::kI64,
                               [](Expressions in) { return in[0] - in[1]; });
  } else if (node.has_input(4)) {
    visible.offset = node.sizes_value({node.shape(4)[2]}, "offset");
  }

  constexpr AttentionStage kStages[] = {AttentionStage::kProduct, AttentionStage::kCapped,
                                        AttentionStage::kBiased, AttentionStage::kSoftmax};
  const int64_t mode = node.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) node.invalid(fmt::format("a qk_matmul_output_mode of {}", mode));
  const auto wanted = node.has_output(3) ? std::optional(kStages[mode]) : std::nullopt;
  const AttentionOutputs attended = attend(node, attention, wanted);
  const ValueId y = node.rank(0) == 3 ? join_heads(node, attended.result) : attended.result;
  return {y, attention.k, attention.v, attended.stage};
}

constexpr OpRow kAttentionRows[] = {
    {"", "Attention", 23, kLatest, import_attention},
};

}  // namespace

std::span<const OpRow> attention_rows() { return kAttentionRows; }

}  // namespace anneal
