// com.microsoft.GroupQueryAttention: what ONNX Runtime's generators of language models write for
// attention with past keys and values. Groups of query heads share a head of keys and values.
//
// Each batch has its own number of keys: seqlens_k + 1 with those of this call.
#include <fmt/format.h>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/group_cache.h"
#include "anneal/importer/ops/rotary.h"
#include "anneal/importer/ops/rows.h"

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
    count_keys();
    normalize();
    const bool is_interleaved = node_.flag("rotary_interleaved", false);
    if (node_.flag("do_rotary", false)) rotate(is_interleaved);
    AttentionHeads heads;
    const int64_t window = node_.integer("local_window_size", -1);  // with the query's own key
    GroupCache cache = cache_of(window);
    const auto [of_keys, of_values] = cache_codes();
    heads.q = of_keys.scaled_queries(node_, heads_first(query_, "queries"));
    const CachedRows keys = cached(cache, of_keys, heads_first(key_, "keys"), kPastKey, 1);
    if (!cache.is_windowed() && node_.has_input(kPastKey) &&
        past_rows(kPastKey) == past_rows(kPastValue))
      cache.rows = shape_of(node_, keys.present)[2];
    const CachedRows values =
        cached(cache, of_values, heads_first(value_, "values"), kPastValue, 2);
    heads.k = keys.all;
    heads.v = values.all;
    heads.scale = attention_scale(node_, heads.q);
    heads.softcap = node_.number("softcap", 0);
    see(heads.visible, window, cache);
    if (node_.has_input(kBias)) heads.mask = bias(cache, shape_of(node_, heads.k)[2]);
    heads.sink = sink();
    const ValueId result = of_values.scaled_results(node_, attend(node_, heads).result);
    return {join_heads(node_, result), keys.present, values.present};
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
    kKeyScale,
    kValueScale,
    kQueryNorm,
    kKeyNorm,
    kQueryCounts,  // i64 or i32[batch]: how many of the queries are no padding
  };

  void check_inputs() {
    node_.expect_inputs(7, 17);
    node_.dtype(kQuery, kFloats);
    node_.expect_same_dtype(
        {kQuery, kKey, kValue, kCosines, kSines, kBias, kSink, kQueryNorm, kKeyNorm});
    node_.dtype(kLastPositions, {DataType::kI32});
    node_.dtype(kTotalLength, {DataType::kI32});
    if (node_.rank(kQuery) != 3) node_.invalid(fmt::format("queries of {} axes", node_.rank(0)));
    if (node_.has_input(kKey) != node_.has_input(kValue)) node_.invalid("keys without values");
    if (node_.has_input(kPastKey) != node_.has_input(kPastValue))
      node_.invalid("past keys without past values");
    if (node_.has_input(kQueryNorm) != node_.has_input(kKeyNorm))
      node_.invalid("q_norm_weight without k_norm_weight, or the other way round");
    if (node_.integer("qk_output", 0) != 0) node_.unsupported("scores as an output (qk_output)");
    query_heads_ = node_.integer("num_heads");
    key_heads_ = node_.integer("kv_num_heads");
    if (query_heads_ < 1 || key_heads_ < 1 || query_heads_ % key_heads_ != 0)
      node_.invalid(fmt::format("{} heads of queries for {} of keys", query_heads_, key_heads_));
  }

  // Of keys and of values.
  std::pair<CacheCodes, CacheCodes> cache_codes() {
    const auto is_quantized = [&](const char* type) {
      return node_.choice(type, {"NONE", "PER_TENSOR", "PER_CHANNEL"}) != 0;
    };
    const bool are_integers = is_quantized("k_quant_type");
    if (is_quantized("v_quant_type") != are_integers)
      node_.invalid("k_quant_type or v_quant_type is NONE, but not both");
    const int64_t bits = node_.integer("kv_cache_bit_width", 8);
    if (!are_integers) {
      node_.expect_same_dtype({kQuery, kPastKey, kPastValue});
      return {};
    }
    if (bits != 8 && bits != 4) node_.unsupported(fmt::format("a cache of {} bits", bits));
    const auto codes = [&](Input past, Input scale, const char* name) {
      if (!node_.has_input(scale))
        node_.invalid(fmt::format("a quantized cache without the scale of the {}", name));
      node_.dtype(scale, {DataType::kF32});
      const Size width = shape_of(node_, past == kPastKey ? key_ : value_)[3];
      CacheCodes made(node_, static_cast<int>(bits), node_.input(scale), key_heads_, width, name);
      if (!node_.has_input(past)) return made;
      node_.dtype(past, {made.dtype()});
      const int64_t bytes = width.value() * bits / 8;
      const Shape& shape = node_.shape(past);
      const bool fits =
          shape.rank() == 4 && (shape[3].known() ? shape[3] == Size(bytes) : bits == 8);
      if (!fits) node_.invalid(fmt::format("past {} whose rows are not {} bytes", name, bytes));
      return made;
    };
    return {codes(kPastKey, kKeyScale, "keys"), codes(kPastValue, kValueScale, "values")};
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
    return slice_of(node_, x, 2, begin, end, name + "/heads");
  }

  // x / sqrt(mean of the squares of its head + epsilon) * weight, before queries and keys rotate.
  void normalize() {
    const float of_both = node_.number("qk_norm_epsilon", 1e-6F);
    const float of_queries = node_.number("q_norm_epsilon", of_both);
    const float of_keys = node_.number("k_norm_epsilon", of_both);
    if (!node_.has_input(kQueryNorm)) return;
    query_ = normalized(query_, kQueryNorm, of_queries, "queries");
    key_ = normalized(key_, kKeyNorm, of_keys, "keys");
  }

  ValueId normalized(ValueId x, Input weight, float epsilon, const std::string& name) {
    const Size width = shape_of(node_, x)[3];
    const Shape& shape = node_.shape(weight);
    if (shape.rank() != 1 || (shape[0].known() && width.known() && shape[0] != width))
      node_.invalid(
          fmt::format("the weights that normalize {} are not one for each number of a head", name));
    const Normalize op{.axes = {3}, .epsilon = epsilon, .subtract_mean = false};
    const ValueId unit = node_.layer(op, {x}, name + "/unit");
    return pointwise(node_, name + "/normalized", {unit, node_.input(weight)}, node_.dtype(kQuery),
                     [](Expressions in) { return in[0] * in[1]; });
  }

  ValueId heads_first(ValueId x, const std::string& name) {
    return node_.layer(Transpose{{0, 2, 1, 3}}, {x}, name);
  }

  // total_: i64[batch,1,1,1], the keys with those of this call; past_: before it. A first call
  // whose prompts have different lengths is filled up at their ends, and has none before it.
  void count_keys() {
    const auto by_batch = [&](Input input, const std::string& name) {
      return reshape(node_, as_i64(node_, node_.input(input), name + "_i64"), {batch_, 1, 1, 1},
                     name);
    };
    total_ = pointwise(node_, "key_count", {by_batch(kLastPositions, "last_positions")},
                       DataType::kI64, [](Expressions in) { return in[0] + 1.0; });
    ValueId count = node_.sizes_value({length_}, "query_count");
    if (node_.has_input(kQueryCounts)) {
      node_.dtype(kQueryCounts, kIndices);
      count = by_batch(kQueryCounts, "query_counts");
    }
    past_ = pointwise(node_, "past_count", {total_, count}, DataType::kI64,
                      [](Expressions in) { return max(in[0] - in[1], in[0].number(0)); });
  }

  GroupCache cache_of(int64_t window) {
    GroupCache cache{.total = total_, .past = past_, .longest = node_.input(kTotalLength)};
    if (!node_.flag("sliding_window_cache", false)) return cache;
    if (window < 1) node_.invalid("sliding_window_cache without local_window_size");
    if (!node_.has_input(kPastKey)) node_.invalid("sliding_window_cache without past_key");
    keep_window(node_, cache, window, node_.input(kPastKey));
    return cache;
  }

  CachedRows cached(const GroupCache& cache, const CacheCodes& codes, ValueId own, Input past,
                    int output) {
    own = codes.of(node_, own);
    CachedRows rows{own, own};
    if (node_.has_input(past)) rows = add_rows(node_, cache, own, node_.input(past), output);
    if (node_.has_input(past) && !cache.is_windowed())
      rows.all = used(rows.all, output == 1 ? "keys/" : "values/");
    rows.all = codes.numbers(node_, rows.all, node_.dtype(kQuery));
    return rows;
  }

  Size past_rows(Input past) const {
    const Shape& shape = node_.shape(past);
    return shape.rank() == 4 ? shape[2] : Size();
  }

  // Without the rows of a buffer that no batch uses yet, if their number follows from sizes: as
  // many rows as the longest batch has keys.
  ValueId used(ValueId rows, const std::string& name) {
    const auto longest = node_.known_sizes(kTotalLength);
    if (!longest || longest->size() != 1) return rows;
    return slice_of(node_, rows, 2, 0, longest->front(), name + "used");
  }

  void see(VisibleKeys& visible, int64_t window, const GroupCache& cache) {
    visible.offset = cache.first_row();
    visible.left = window > 0 ? window - 1 : -1;
    visible.right = 0;
    if (node_.flag("causal", true)) return;
    if (window > 0) node_.invalid("local_window_size of attention that is not causal");
    visible.right = -1;
    visible.lengths = total_;
  }

  // The rows of a windowed cache are not at their positions, by which the bias goes.
  ValueId bias(const GroupCache& cache, Size keys) {
    if (node_.rank(kBias) != 4) node_.invalid(fmt::format("a bias of {} axes", node_.rank(kBias)));
    if (!cache.is_windowed()) return padded_mask(node_, node_.input(kBias), keys);
    return by_row(node_, cache, node_.input(kBias), batch_, keys);
  }

  // [1,heads,1,1]: what the softmax counts beside the scores.
  ValueId sink() {
    const bool is_smooth = node_.integer("smooth_softmax", 0) == 1;
    if (node_.has_input(kSink))
      return reshape(node_, node_.input(kSink), {1, query_heads_, 1, 1}, "sink");
    if (!is_smooth) return ValueId::kNone;
    return node_.constant_value(tensor_of(node_.dtype(kQuery), {1, 1, 1, 1}, {0}), "sink");
  }

  ValueId positions() {
    if (node_.has_input(kPositions)) {
      node_.dtype(kPositions, {DataType::kI64});
      return node_.input(kPositions);
    }
    const ValueId zero = scalar_value(node_, 0, "zero");
    const ValueId row = expanded(node_, zero, {batch_, length_}, "no_positions");
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

  Node& node_;
  int64_t query_heads_ = 0, key_heads_ = 0;
  ValueId query_ = ValueId::kNone, key_ = ValueId::kNone, value_ = ValueId::kNone;
  ValueId total_ = ValueId::kNone, past_ = ValueId::kNone;
  Size batch_ = 0, length_ = 0;
};

Outputs import_group_query_attention(Node& node) { return GroupAttentionImporter(node).import(); }

constexpr OpRow kGroupAttentionRows[] = {
    {kMicrosoft, "GroupQueryAttention", 1, kLatest, import_group_query_attention},
};

}  // namespace

std::span<const OpRow> group_attention_rows() { return kGroupAttentionRows; }

}  // namespace anneal
