// Operators of models that carry a state from call to call: CausalConvWithState, LinearAttention,
// GatedDeltaNet, and what ONNX Runtime's generators of language models write around them.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

constexpr DataType kWorking = DataType::kF32;
constexpr int64_t kMostReach = 1 << 24;  // of a causal convolution, in elements

Type type_of(const Graph& graph, ValueId value) { return graph.value(value).type(); }

// The last `count` elements of axis 2, as output 1.
ValueId last_of(Node& node, ValueId x, int64_t count) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  return node.result(Slice{},
                     {x, node.integers_value({count == 0 ? kEnd : -count}, "state_start"),
                      node.integers_value({kEnd}, "state_end"), node.integers_value({2}, "length"),
                      node.integers_value({1}, "state_step")},
                     "state", 1)[0];
}

// x[B,C,L], w[C,1,K], [bias[C]], [past[B,C,(K-1) * dilation]]: a convolution of each channel with
// the preceding elements, by default zeros.
Outputs causal_conv(Node& node, int64_t dilation) {
  node.expect_inputs(2, 4);
  node.expect_same_dtype({0, 1, 2, 3});
  const DataType dtype = node.dtype(0, kFloats);
  const bool gated = node.choice("activation", {"none", "silu", "swish"}) != 0;
  if (node.rank(0) != 3 || node.rank(1) != 3) node.invalid("x and the weights must have 3 axes");
  const Size channels = node.shape(1)[0], width = node.shape(1)[2];
  if (!channels.known() || !width.known())
    node.unsupported("a shape of the weights known only at run time");
  if (width.value() < 1) node.invalid("weights of no elements");
  if (width.value() > kMostReach / dilation)
    node.unsupported(fmt::format("{} weights with a dilation of {}", width.value(), dilation));
  const int64_t before = (width.value() - 1) * dilation;

  Conv op{.strides = {1}, .pads_begin = {0}, .pads_end = {0}, .dilations = {dilation}};
  op.groups = channels.value();
  ValueId x = node.input(0), padded = x;
  if (node.has_input(3)) {
    padded = x = node.layer(Concat{.axis = 2}, {node.input(3), x}, "padded");
  } else if (before > 0) {
    op.pads_begin = {before};
    if (node.has_output(1))
      padded =
          node.layer(Pad{}, {x, node.integers_value({0, 0, before, 0, 0, 0}, "pads")}, "padded");
  }
  std::vector<ValueId> addends;
  if (node.has_input(2)) addends.push_back(per_channel(node, node.input(2), 3, "bias_per_channel"));
  Outputs outputs =
      epilogue_result(node, op, {x, node.input(1)}, addends, dtype, [&](Expressions in) {
        const Expression sum = in.size() == 2 ? in[0] + in[1] : in[0];
        return gated ? sum * sum.apply(Opcode::kSigmoid) : sum;
      });
  if (node.has_output(1)) outputs.push_back(last_of(node, padded, before));
  return outputs;
}

Outputs import_causal_conv(Node& node) { return causal_conv(node, 1); }

// An attribute of Microsoft's operators that has a meaning for other values only.
void expect_default(Node& node, std::string_view attribute, int64_t value) {
  if (const int64_t given = node.integer(attribute, value); given != value)
    node.unsupported(fmt::format("{} = {}", attribute, given));
}

Outputs import_fused_causal_conv(Node& node) {
  for (const char* attribute : {"channels_last", "state_window", "state_update_capacity",
                                "state_length", "input_channel_offset", "input_channels"})
    expect_default(node, attribute, 0);
  expect_default(node, "state_channels_last", -1);
  expect_default(node, "ndim", 1);
  const int64_t dilation = node.integer("dilation", 1);
  if (dilation < 1 || dilation > kMostReach)
    node.invalid(fmt::format("a dilation of {}", dilation));
  return causal_conv(node, dilation);
}

// Whether known sizes differ, or the ranks.
bool shapes_differ(const Shape& a, const Shape& b) {
  return a.rank() != b.rank() || !std::equal(a.begin(), a.end(), b.begin(), [](Size one, Size two) {
           return !one.known() || !two.known() || one == two;
         });
}

// What operators of linear attention share: the rule and the layer.
class LinearAttentionNode {
 protected:
  static constexpr int kQuery = 0, kKey = 1, kValue = 2, kDecay = 4, kBeta = 5;  // inputs

  explicit LinearAttentionNode(Node& node) : node_(node), sizes_(node.sizes()) {}

  void check_inputs() {
    node_.dtype(kQuery, kFloats);
    node_.expect_same_dtype({kQuery, kKey, kValue});
    node_.ignore("chunk_size");  // how to compute it, not what
    const int rule = node_.choice("update_rule", {"gated_delta", "linear", "gated", "delta"});
    decays_ = rule == 0 || rule == 2, corrects_ = rule == 0 || rule == 3;
    if (node_.has_input(kDecay) != decays_ || node_.has_input(kBeta) != corrects_)
      node_.invalid("inputs decay and beta do not fit attribute \"update_rule\"");
    for (const int input : {kDecay, kBeta})
      if (node_.has_input(input)) node_.dtype(input, kFloats);
  }

  float scale_for(Size width) {
    const float given = node_.number("scale", 0);
    if (given != 0) return given;
    if (!width.known()) node_.unsupported("a width of heads known only at run time");
    return static_cast<float>(1 / std::sqrt(static_cast<double>(width.value())));
  }

  ValueId working(ValueId x, const std::string& name) {
    if (type_of(node_.graph(), x).dtype == kWorking) return x;
    return as_type(node_, x, kWorking, name + "/f32");
  }

  // The elements of x, in f32, as [B,T,...].
  ValueId by_position(ValueId x, std::vector<Size> rest, const std::string& name) {
    rest.insert(rest.begin(), {batch_, length_});
    return reshape(node_, working(x, name), rest, name);
  }

  // state_input: absent for zeros. shape: that of the operator's first output.
  Outputs results(int state_input, const std::vector<Size>& shape, DataType state_dtype) {
    const ValueId state = node_.has_input(state_input)
                              ? working(node_.input(state_input), "past_state")
                              : ValueId::kNone;
    const std::vector<ValueId> outputs =
        node_.layers(op_, {queries_, keys_, values_, state, decay_, beta_}, "attention");
    const auto copy = [](Expressions in) { return in[0]; };
    const ValueId y = reshape(node_, outputs[0], shape, "joined_heads");
    Outputs results = pointwise_result(node_, {y}, node_.dtype(kQuery), copy);
    results.push_back(
        pointwise_result(node_, {outputs[1]}, state_dtype, copy, "present_state", 1)[0]);
    return results;
  }

  Node& node_;
  SizeTable& sizes_;
  Size batch_ = 0, length_ = 0;
  int64_t heads_ = 1;  // of the state
  bool decays_ = false, corrects_ = false;
  LinearAttention op_;
  ValueId queries_ = ValueId::kNone, keys_ = ValueId::kNone, values_ = ValueId::kNone;
  ValueId decay_ = ValueId::kNone, beta_ = ValueId::kNone;
};

class LinearAttentionImporter : LinearAttentionNode {
 public:
  explicit LinearAttentionImporter(Node& node) : LinearAttentionNode(node) {}

  Outputs import() {
    constexpr int kPast = 3;
    node_.expect_inputs(3, 6);
    heads_ = node_.integer("kv_num_heads");
    const int64_t q_heads = node_.integer("q_num_heads");
    if (heads_ < 1 || q_heads < 1 || (q_heads % heads_ != 0 && heads_ % q_heads != 0))
      node_.invalid(fmt::format("{} heads of queries for {}", q_heads, heads_));
    check_inputs();
    for (int i = 0; i < 3; ++i)
      if (node_.rank(i) != 3) node_.invalid("queries, keys and values must have 3 axes");
    batch_ = node_.shape(kQuery)[0], length_ = node_.shape(kQuery)[1];
    const Size k_width = per_head(node_.shape(kQuery)[2], q_heads);
    const Size v_width = per_head(node_.shape(kValue)[2], heads_);
    op_.scale = scale_for(k_width);

    queries_ = by_position(node_.input(kQuery), {q_heads, k_width}, "queries");
    keys_ = by_position(node_.input(kKey), {key_heads(k_width), k_width}, "keys");
    values_ = by_position(node_.input(kValue), {heads_, v_width}, "values");
    if (decays_) decay_ = decay(k_width);
    if (corrects_) beta_ = beta();
    const DataType state_dtype = node_.dtype(node_.has_input(kPast) ? kPast : kQuery, kFloats);
    const Size width = sizes_.mul(std::max(q_heads, heads_), v_width);
    return results(kPast, {batch_, length_, width}, state_dtype);
  }

 private:
  Size per_head(Size width, int64_t heads) const {
    if (width.known() && width.value() % heads != 0)
      node_.invalid(fmt::format("{} elements in {} heads", width.value(), heads));
    return sizes_.floor_div(width, heads);
  }

  int64_t key_heads(Size width) const {
    const Size elements = node_.shape(kKey)[2];
    if (!elements.known() || !width.known() || width.value() < 1) return heads_;
    const int64_t heads = elements.value() / width.value();
    if (heads < 1 || elements.value() % width.value() != 0 || heads_ % heads != 0)
      node_.invalid(fmt::format("keys of {} elements for {} heads of {}", elements.value(), heads_,
                                width.value()));
    return heads;
  }

  ValueId decay(Size k_width) {
    if (node_.rank(kDecay) != 3) node_.invalid("the decay must have 3 axes");
    const bool per_head = node_.shape(kDecay)[2] == Size(heads_) && k_width != Size(1);
    return by_position(node_.input(kDecay), {heads_, per_head ? Size(1) : k_width}, "decay");
  }

  ValueId beta() {
    if (node_.rank(kBeta) != 3) node_.invalid("beta must have 3 axes");
    return by_position(node_.input(kBeta), {node_.shape(kBeta)[2]}, "beta");
  }
};

// query, key and value[B,T,heads,width] or [B * T,heads,width], or packed in one [B,T,elements] or
// [B * T,elements]; a state[B,heads,width of values,width of keys].
class GatedDeltaNet : LinearAttentionNode {
 public:
  explicit GatedDeltaNet(Node& node) : LinearAttentionNode(node) { op_.transposed = true; }

  Outputs import() {
    node_.expect_inputs(1, 11);
    check_inputs();
    node_.expect_same_dtype({kDecay, kBeta});
    if (node_.has_input(kEnds)) node_.unsupported("sequences of several lengths (cu_seqlens)");
    if (node_.has_input(kCaptureCount) || node_.has_input(kCaptures))
      node_.unsupported("updates of the state (capture_count, state_update_active)");
    expect_default(node_, "state_update_capacity", 0);
    for (const int input : {kState, kRate, kBias})
      if (node_.has_input(input)) node_.dtype(input, {kWorking});
    const std::vector<Size> widths = split();
    op_.scale = scale_for(widths[0]);
    if (node_.has_input(kState) &&
        shapes_differ(node_.shape(kState), Shape{batch_, heads_, widths[1], widths[0]}))
      node_.invalid("initial_state is not [batch, heads, width of values, width of keys]");
    activate(widths[0]);
    std::vector<Size> shape(node_.shape(kQuery).begin(), node_.shape(kQuery).begin() + token_axes_);
    shape.insert(shape.end(), {Size(heads_), widths[1]});
    return results(kState, shape, kWorking);
  }

 private:
  static constexpr int kEnds = 3, kState = 6, kRate = 7, kBias = 8, kCaptureCount = 9,
                       kCaptures = 10;  // further inputs

  // Queries, keys and values by head; returns the widths of keys and values.
  std::vector<Size> split() {
    const bool is_packed = !node_.has_input(kKey), has_state = node_.has_input(kState);
    const Shape q = node_.shape(kQuery);
    const int last = q.rank() - 1;
    token_axes_ = is_packed ? last : last - 1;
    if (token_axes_ != 1 && token_axes_ != 2)
      node_.invalid(fmt::format("queries of {} axes", q.rank()));
    if (is_packed == node_.has_input(kValue)) node_.invalid("keys without values");
    if (has_state ? node_.rank(kState) != 4 : is_packed || token_axes_ == 1)
      node_.invalid("initial_state of 4 axes is needed");
    batch_ = token_axes_ == 2 ? q[0] : node_.shape(kState)[0];
    length_ = token_axes_ == 2 ? q[1] : sizes_.floor_div(q[0], batch_);
    if (!is_packed && (shapes_differ(q, node_.shape(kKey)) || node_.rank(kValue) != q.rank()))
      node_.invalid("queries, keys and values of different shapes");
    const Shape& values = node_.shape(is_packed ? kState : kValue);
    const Size heads = is_packed ? values[1] : values[last - 1];
    const Size v_width = is_packed ? values[2] : values[last];
    const Size k_width = is_packed ? values[3] : q[last];
    const Size v_size = sizes_.mul(heads, v_width);
    const Size k_size = is_packed ? sizes_.floor_div(sizes_.sub(q[last], v_size), 2)
                                  : sizes_.mul(q[last - 1], k_width);
    const Size own = is_packed ? sizes_.floor_div(k_size, k_width) : q[last - 1];
    if (!heads.known() || !own.known() || !k_width.known())
      node_.unsupported("a number of heads known only at run time");
    heads_ = heads.value();
    const int64_t q_heads = own.value();
    if (q_heads < 1 || heads_ < 1 || heads_ % q_heads != 0)
      node_.invalid(fmt::format("{} heads of queries for {}", q_heads, heads_));
    const bool is_unit = node_.flag("qk_l2_norm", false);
    Size start = 0;
    const auto part = [&](int input, int64_t count, Size width, const char* name) {
      const Size end = sizes_.add(start, sizes_.mul(width, count));
      ValueId x = is_packed ? slice_of(node_, node_.input(kQuery), last, start, end,
                                       std::string(name) + "/packed")
                            : node_.input(input);
      start = end;
      if (is_unit && input != kValue) x = unit(x, count, width, name);
      return by_position(x, {count, width}, name);
    };
    queries_ = part(kQuery, q_heads, k_width, "queries");
    keys_ = part(kKey, q_heads, k_width, "keys");
    values_ = part(kValue, heads_, v_width, "values");
    if (is_packed && shapes_differ(Shape{q[last]}, Shape{start}))
      node_.invalid("the packed elements are no queries, keys and values for initial_state");
    return {k_width, v_width};
  }

  // x / sqrt(sum of squares of a head + 1e-12).
  ValueId unit(ValueId x, int64_t heads, Size width, const std::string& name) {
    constexpr double kEpsilon = 1e-12;
    const auto count = static_cast<double>(width.value());
    const Normalize op{
        .axes = {3}, .epsilon = static_cast<float>(kEpsilon / count), .subtract_mean = false};
    const ValueId normal =
        node_.layer(op, {by_position(x, {heads, width}, name + "/heads")}, name + "/normal");
    return pointwise(node_, name + "/unit", {normal}, kWorking,
                     [&](Expressions in) { return in[0] / std::sqrt(count); });
  }

  // The decay[B,T,heads,1 or width of keys] and beta[B,T,heads].
  void activate(Size k_width) {
    const int gate =
        node_.choice("gate_activation", {"none", "softplus", "qwen", "sigmoid", "kda"});
    const bool is_open = node_.choice("beta_activation", {"none", "sigmoid"}) == 1;
    const double bound = node_.number("gate_lower_bound", -5);
    const bool is_raw = gate != 0;
    if (is_raw != node_.has_input(kRate) || is_raw != node_.has_input(kBias) ||
        (is_raw && !decays_))
      node_.invalid("inputs decay, a_log and dt_bias do not fit attribute \"gate_activation\"");
    for (const int input : {kDecay, kBeta})
      if (node_.has_input(input) && node_.rank(input) != token_axes_ + 1 &&
          (input == kBeta || node_.rank(input) != token_axes_ + 2))
        node_.invalid(fmt::format("input {} of {} axes", input, node_.rank(input)));
    if (decays_) {
      const Size width = node_.rank(kDecay) == token_axes_ + 1 ? Size(1) : k_width;
      decay_ = by_position(node_.input(kDecay), {heads_, width}, "decay");
      if (is_raw) {
        const bool is_by_head = node_.rank(kBias) == 1 && node_.shape(kBias)[0] == Size(heads_);
        const ValueId rate = reshape(node_, node_.input(kRate), {heads_, 1}, "a_log"),
                      bias = reshape(node_, node_.input(kBias),
                                     {heads_, is_by_head ? Size(1) : width}, "dt_bias");
        decay_ = pointwise(node_, "log_decay", {decay_, rate, bias}, kWorking, [&](Expressions in) {
          const Expression factor = in[1].apply(Opcode::kExp), sum = in[0] + in[2];
          if (gate < 3) return -(factor * softplus(sum));
          return (factor * sum).apply(Opcode::kSigmoid) * bound;
        });
      }
    }
    if (!corrects_) return;
    beta_ = by_position(node_.input(kBeta), {heads_}, "beta");
    if (is_open)
      beta_ = pointwise(node_, "open_beta", {beta_}, kWorking,
                        [](Expressions in) { return in[0].apply(Opcode::kSigmoid); });
  }

  int token_axes_ = 2;
};

Outputs import_linear_attention(Node& node) { return LinearAttentionImporter(node).import(); }
Outputs import_fused_linear_attention(Node& node) {
  expect_default(node, "state_window", 0);
  return LinearAttentionImporter(node).import();
}

Outputs import_gated_delta_net(Node& node) { return GatedDeltaNet(node).import(); }

// decay = decay_scale * log(1 + exp(a + dt_bias)); beta = sigmoid(b). In f32.
Outputs import_linear_attention_gate(Node& node) {
  enum Input { kA, kBias, kScale, kB };
  node.expect_inputs(3, 4);
  const DataType dtype = node.dtype(kA, kFloats);
  node.expect_same_dtype({kA, kB});
  for (const int input : {kBias, kScale}) {
    node.dtype(input, kFloats);
    if (node.rank(input) != 1 || node.rank(kA) != 3)
      node.invalid("a of 3 axes, and vectors of a number for each head, are expected");
  }
  if (node.has_input(kB) && node.rank(kB) != 3) node.invalid("b has not 3 axes");
  Outputs outputs = pointwise_result(
      node, {node.input(kA), node.input(kBias), node.input(kScale)}, dtype, [](Expressions in) {
        const auto real = [](Expression x) { return x.cast(RegisterType::kF32); };
        return softplus(real(in[0]) + real(in[1])) * real(in[2]);
      });
  if (!node.has_output(1)) return outputs;
  if (!node.has_input(kB)) node.invalid("output beta without input b");
  const auto sigmoid = [](Expressions in) { return in[0].apply(Opcode::kSigmoid); };
  outputs.push_back(pointwise_result(node, {node.input(kB)}, dtype, sigmoid, "beta", 1)[0]);
  return outputs;
}

// Rows of input 0 in this shape, divided by the root of their mean square. In f32.
ValueId unit_rows(Node& node, const std::vector<Size>& shape) {
  const Normalize op{.axes = {static_cast<int64_t>(shape.size()) - 1},
                     .epsilon = node.number("epsilon", 1e-5F),
                     .subtract_mean = false};
  const ValueId rows = reshape(node, node.input(0), shape, "groups");
  const ValueId real = as_type(node, rows, kWorking, "f32");
  return node.layer(op, {real}, "unit");
}

// x / sqrt(mean of squares + epsilon) * scale * activation(gate), of groups of as many elements as
// the scale has. In f32.
Outputs import_gated_rms_norm(Node& node) {
  enum Input { kX, kScale, kGate };
  node.expect_inputs(3, 3);
  const DataType dtype = node.dtype(kX, kFloats);
  node.expect_same_dtype({kX, kGate});
  node.dtype(kScale, kFloats);
  const Shape x = node.shape(kX);
  const int last = x.rank() - 1;
  const Size width = node.rank(kScale) == 1 ? node.shape(kScale)[0] : Size::unknown();
  if (last < 0 || !width.known() || width.value() < 1)
    node.unsupported("a scale that is no vector of known size");
  if (shapes_differ(node.shape(kGate), x)) node.invalid("the gate has another shape than x");
  if (x[last].known() && x[last].value() % width.value() != 0)
    node.invalid(fmt::format("{} elements in groups of {}", x[last].value(), width.value()));
  const bool is_silu = node.choice("activation", {"silu", "swish", "sigmoid"}) != 2;
  std::vector<Size> groups(x.begin(), x.end() - 1);
  groups.insert(groups.end(), {node.sizes().floor_div(x[last], width.value()), width});
  const ValueId gate = reshape(node, node.input(kGate), groups, "gate_groups");
  const ValueId gated =
      pointwise(node, "gated", {unit_rows(node, groups), node.input(kScale), gate}, dtype,
                [&](Expressions in) {
                  const Expression z = in[2].cast(RegisterType::kF32);
                  const Expression open = z.apply(Opcode::kSigmoid);
                  return in[0] * in[1].cast(RegisterType::kF32) * (is_silu ? z * open : open);
                });
  return reshape_result(node, gated, {x.begin(), x.end()}, "joined");
}

// x / sqrt(mean of squares + epsilon) * scale of each branch; x[...,branches,width], or
// [...,branches * width] with the attribute num_branches. In f32.
Outputs import_branchwise_rms_norm(Node& node) {
  node.expect_inputs(1, 2);
  const DataType dtype = node.dtype(0, kFloats);
  const Shape x = node.shape(0);
  const int64_t branches = node.integer("num_branches", 0);
  const int last = x.rank() - 1;
  if (branches < 0 || last < (branches == 0 ? 1 : 0) ||
      (branches != 0 && x[last].known() && x[last].value() % branches != 0))
    node.invalid(fmt::format("{} branches of {} axes", branches, x.rank()));
  std::vector<Size> grouped(x.begin(), x.end());
  if (branches != 0) {
    grouped.back() = Size(branches);
    grouped.push_back(node.sizes().floor_div(x[last], branches));
  }
  std::vector<ValueId> inputs = {unit_rows(node, grouped)};
  if (node.has_input(1)) {
    node.dtype(1, kFloats);
    const std::vector<Size> one(grouped.end() - 1, grouped.end()),
        all(grouped.end() - 2, grouped.end());
    const bool is_shared = node.rank(1) == 1 && node.shape(1)[0] == one[0];
    inputs.push_back(reshape(node, node.input(1), is_shared ? one : all, "scale"));
  }
  const ValueId scaled = pointwise(node, "scaled", inputs, dtype, [](Expressions in) {
    return in.size() == 2 ? in[0] * in[1].cast(RegisterType::kF32) : in[0];
  });
  return reshape_result(node, scaled, {x.begin(), x.end()}, "joined");
}

constexpr OpRow kStateRows[] = {
    {"", "CausalConvWithState", 27, kLatest, import_causal_conv},
    {"", "LinearAttention", 27, kLatest, import_linear_attention},
    {kMicrosoft, "BranchwiseRMSNorm", 1, kLatest, import_branchwise_rms_norm},
    {kMicrosoft, "CausalConvWithState", 1, kLatest, import_fused_causal_conv},
    {kMicrosoft, "GatedDeltaNet", 1, kLatest, import_gated_delta_net},
    {kMicrosoft, "GatedRMSNorm", 1, kLatest, import_gated_rms_norm},
    {kMicrosoft, "LinearAttention", 1, kLatest, import_fused_linear_attention},
    {kMicrosoft, "LinearAttentionGate", 1, kLatest, import_linear_attention_gate},
};

}  // namespace

std::span<const OpRow> state_rows() { return kStateRows; }

}  // namespace anneal
