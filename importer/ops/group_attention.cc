// com.microsoft.GroupQueryAttention: what ONNX Runtime's generators of language models write for
// attention with past keys and values. Groups of query heads share a head of keys and values.
//
// Each batch has its own number of keys: seqlens_k + 1 with those of this call. The present keys
// are the past ones with the new ones written behind the keys that are there.
#include <fmt/format.h>

#include "anneal/importer/node/rows.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rotary.h"

namespace anneal {
namespace {

class GroupAttentionImporter {
 public:
  explicit GroupAttentionImporter(Node& node) : node_(node) {}

  Outputs import() {
    check_inputs();
    split();
    const Shape q = shape_of(node_, query_);
    batch_ = q[0];
    length_ = q[1];
    past_count();
    const bool is_interleaved = node_.flag("rotary_interleaved", false);
    if (node_.flag("do_rotary", false)) rotate(is_interleaved);
    AttentionHeads heads;
    heads.q = heads_first(query_, "queries");
    heads.k = present(heads_first(key_, "keys"), kPastKey, 1);
    heads.v = present(heads_first(value_, "values"), kPastValue, 2);
    heads.scale = attention_scale(node_, heads.q);
    heads.softcap = node_.number("softcap", 0);
    heads.visible.right = 0;
    const int64_t window = node_.integer("local_window_size", -1);  // with the query's own key
    heads.visible.left = window > 0 ? window - 1 : -1;
    heads.visible.offset = past_;
    if (node_.has_input(kBias)) heads.mask = node_.input(kBias);
    return {join_heads(node_, attend(node_, heads).result), heads.k, heads.v};
  }

 private:
  enum Input {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kLastPositions,  // seqlens_k: i32[batch], the number of keys less 1
    kTotalLength,    // i32, of the longest batch
    kCosines,
    kSines,
    kPositions,
    kBias,
    kSink,
  };

  void check_inputs() {
    node_.expect_inputs(7, 14);
    node_.dtype(kQuery, kFloats);
    node_.expect_same_dtype({kQuery, kKey, kValue, kPastKey, kPastValue, kCosines, kSines, kBias});
    node_.dtype(kLastPositions, {DataType::kI32});
    node_.dtype(kTotalLength, {DataType::kI32});
    if (node_.rank(kQuery) != 3) node_.invalid(fmt::format("queries of {} axes", node_.rank(0)));
    if (node_.has_input(kKey) != node_.has_input(kValue)) node_.invalid("keys without values");
    if (node_.has_input(kPastKey) != node_.has_input(kPastValue))
      node_.invalid("past keys without past values");
    for (int input = kSink; input < 14; ++input)
      if (node_.has_input(input))
        node_.unsupported(input == kSink ? "attention sinks (head_sink)" : "quantized past keys");
    if (node_.integer("smooth_softmax", 0) > 0) node_.unsupported("smooth_softmax");
    if (node_.integer("qk_output", 0) != 0) node_.unsupported("scores as an output (qk_output)");
    for (const char* type : {"k_quant_type", "v_quant_type"})
      if (node_.text(type, "NONE") != "NONE") node_.unsupported("quantized past keys");
    query_heads_ = node_.integer("num_heads");
    key_heads_ = node_.integer("kv_num_heads");
    if (query_heads_ < 1 || key_heads_ < 1 || query_heads_ % key_heads_ != 0)
      node_.invalid(fmt::format("{} heads of queries for {} of keys", query_heads_, key_heads_));
  }

  // query_, key_, value_: [batch, positions, heads, width], from three inputs or packed in one.
  void split() {
    if (node_.has_input(kKey)) {
      query_ = by_head(node_.input(kQuery), query_heads_, "queries");
      key_ = by_head(node_.input(kKey), key_heads_, "keys");
      value_ = by_head(node_.input(kValue), key_heads_, "values");
      return;
    }
    const int64_t all = query_heads_ + 2 * key_heads_;
    const ValueId heads = by_head(node_.input(kQuery), all, "packed");
    query_ = some_heads(heads, 0, query_heads_, "queries");
    key_ = some_heads(heads, query_heads_, query_heads_ + key_heads_, "keys");
    value_ = some_heads(heads, query_heads_ + key_heads_, all, "values");
  }

  ValueId by_head(ValueId x, int64_t heads, const std::string& name) {
    const Shape shape = shape_of(node_, x);
    if (shape.rank() != 3) node_.invalid(fmt::format("{} of {} axes", name, shape.rank()));
    if (shape[2].known() && shape[2].value() % heads != 0)
      node_.invalid(fmt::format("{} elements in {} heads", shape[2].value(), heads));
    const Size width = node_.sizes().floor_div(shape[2], heads);
    return reshape(node_, x, {shape[0], shape[1], Size(heads), width}, name + "/split");
  }

  ValueId some_heads(ValueId x, int64_t begin, int64_t end, const std::string& name) {
    return node_.layer(
        Slice{},
        {x, node_.integers_value({begin}, name + "/start"),
         node_.integers_value({end}, name + "/end"), node_.integers_value({2}, name + "/axis"),
         node_.integers_value({1}, name + "/step")},
        name + "/heads");
  }

  ValueId heads_first(ValueId x, const std::string& name) {
    return node_.layer(Transpose{{0, 2, 1, 3}}, {x}, name);
  }

  // past_: i64[batch,1,1,1], the keys before this call. A first call whose prompts have different
  // lengths is filled up at their ends, and has none.
  void past_count() {
    const ValueId last = reshape(node_, as_i64(node_, node_.input(kLastPositions), "last_i64"),
                                 {batch_, 1, 1, 1}, "last_positions");
    const ValueId length = node_.sizes_value({length_}, "query_count");
    past_ = pointwise(node_, "past_count", {last, length}, DataType::kI64,
                      [](Expressions in) { return max(in[0] + 1.0 - in[1], in[0].number(0)); });
  }

  ValueId positions() {
    if (node_.has_input(kPositions)) {
      node_.dtype(kPositions, {DataType::kI64});
      return node_.input(kPositions);
    }
    const ValueId zero = reshape(node_, node_.integers_value({0}, "zero"), {}, "zero_scalar");
    const ValueId row = node_.layer(
        Expand{}, {zero, node_.sizes_value({batch_, length_}, "positions_shape")}, "no_positions");
    const ValueId past = reshape(node_, past_, {batch_, 1}, "past_of_batch");
    return pointwise(node_, "positions", {row, past}, DataType::kI64,
                     [](Expressions in) { return in[0] + in[0].index(1) + in[1]; });
  }

  void rotate(bool is_interleaved) {
    if (!node_.has_input(kCosines) || !node_.has_input(kSines))
      node_.invalid("do_rotary without cos_cache and sin_cache");
    const Size angles = node_.shape(kCosines)[node_.rank(kCosines) - 1];
    const Rotation rotation{.cosines = node_.input(kCosines),
                            .sines = node_.input(kSines),
                            .positions = positions(),
                            .width = node_.sizes().mul(angles, 2),
                            .interleaved = is_interleaved};
    query_ = rotated(node_, query_, rotation, "queries/");
    key_ = rotated(node_, key_, rotation, "keys/");
  }

  // How long the present keys are: total_sequence_length, or the buffer of the past where that is
  // longer.
  ValueId present_length(Size past) {
    const ValueId total =
        reshape(node_, as_i64(node_, node_.input(kTotalLength), "total_i64"), {1}, "total");
    const ValueId buffer = node_.sizes_value({past}, "past_length");
    return pointwise(node_, "present_length", {total, buffer}, DataType::kI64,
                     [](Expressions in) { return max(in[0], in[1]); });
  }

  // own: [batch, heads, positions, width], behind the past ones of each batch, as that output.
  ValueId present(ValueId own, int past_input, int output) {
    if (!node_.has_input(past_input)) return own;
    const std::string name = output == 1 ? "keys/" : "values/";
    const ValueId past = node_.input(past_input);
    const Shape old = shape_of(node_, past), shape = shape_of(node_, own);
    if (old.rank() != 4) node_.invalid(fmt::format("past keys of {} axes", old.rank()));
    const ValueId buffer = node_.sizes_value({old[2]}, name + "past_length");
    const ValueId growth = pointwise(node_, name + "growth", {present_length(old[2]), buffer},
                                     DataType::kI64, [](Expressions in) { return in[0] - in[1]; });
    const auto zeros = [&](int64_t count, const char* suffix) {
      return node_.integers_value(std::vector<int64_t>(static_cast<size_t>(count)), name + suffix);
    };
    const ValueId pads = node_.layer(
        Concat{.axis = 0}, {zeros(6, "no_pads"), growth, zeros(1, "no_pad")}, name + "pads");
    const DataType dtype = node_.graph().value(past).type().dtype;
    const ValueId zero = node_.constant_value(tensor_of(dtype, {}, {0}), name + "zero");
    const ValueId grown = node_.layer(Pad{}, {past, pads, zero}, name + "grown");
    const ValueId none =
        reshape(node_, node_.integers_value({0}, name + "none"), {}, name + "scalar");
    const ValueId row = node_.layer(
        Expand{}, {none, node_.sizes_value({shape.begin(), shape.end()}, name + "new_shape")},
        name + "no_places");
    const ValueId places = pointwise(node_, name + "places", {row, past_}, DataType::kI64,
                                     [](Expressions in) { return in[0] + in[0].index(2) + in[1]; });
    return node_.result(ScatterElements{.axis = 2}, {grown, places, own}, name + "present",
                        output)[0];
  }

  Node& node_;
  int64_t query_heads_ = 0, key_heads_ = 0;
  ValueId query_ = ValueId::kNone, key_ = ValueId::kNone, value_ = ValueId::kNone;
  ValueId past_ = ValueId::kNone;
  Size batch_ = 0, length_ = 0;
};

Outputs import_group_query_attention(Node& node) { return GroupAttentionImporter(node).import(); }

constexpr OpRow kGroupAttentionRows[] = {
    {kMicrosoft, "GroupQueryAttention", 1, kLatest, import_group_query_attention},
};

}  // namespace

std::span<const OpRow> group_attention_rows() { return kGroupAttentionRows; }

}  // namespace anneal
