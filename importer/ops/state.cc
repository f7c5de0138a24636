// Operators of models that carry a state from call to call: CausalConvWithState, LinearAttention,
// and what ONNX Runtime's generators of language models write around them.
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

// The update of the state[B,H,K,V] by one position; q[B,H,G,K], k[B,H,1,K], v[B,H,1,V],
// decay[B,H,K,1], beta[B,H,1,1], where sizes of 1 broadcast.
struct Position {
  ValueId state, q, k, v, decay = ValueId::kNone, beta = ValueId::kNone;
};
struct StepResult {
  ValueId state, y;  // y[B,H,G,V]
};

StepResult step(Graph& graph, const std::string& name, const Position& at, double scale) {
  const auto layer = [&](const char* suffix, Op op, std::vector<ValueId> inputs) {
    const LayerId id =
        graph.add({.name = name + "/" + suffix, .op = std::move(op), .inputs = std::move(inputs)});
    return graph.layer(id).outputs[0];
  };
  const auto formula = [&](const char* suffix, std::vector<ValueId> inputs, Formula of) {
    const std::vector<DataType> types(inputs.size(), kWorking);
    return layer(suffix, Pointwise{program_of(types, kWorking, of)}, std::move(inputs));
  };
  ValueId state = at.state, v = at.v;
  if (at.decay != ValueId::kNone)
    state = formula("decayed", {state, at.decay},
                    [](Expressions in) { return in[0] * in[1].apply(Opcode::kExp); });
  if (at.beta != ValueId::kNone)
    v = formula("correction", {v, layer("recalled", MatMul{}, {at.k, state}), at.beta},
                [](Expressions in) { return in[2] * (in[0] - in[1]); });
  state = formula("state", {state, layer("written", MatMul{.transpose_a = true}, {at.k, v})},
                  [](Expressions in) { return in[0] + in[1]; });
  const ValueId read = layer("read", MatMul{}, {at.q, state});
  return {state, formula("y", {read}, [&](Expressions in) { return in[0] * scale; })};
}

class LinearAttention {
 public:
  explicit LinearAttention(Node& node) : node_(node), sizes_(node.sizes()) {}

  Outputs import() {
    node_.expect_inputs(3, 6);
    const DataType dtype = node_.dtype(0, kFloats);
    node_.expect_same_dtype({0, 1, 2});
    node_.ignore("chunk_size");  // how to compute it, not what
    heads_ = node_.integer("kv_num_heads");
    const int64_t q_heads = node_.integer("q_num_heads");
    if (heads_ < 1 || q_heads < 1 || (q_heads % heads_ != 0 && heads_ % q_heads != 0))
      node_.invalid(fmt::format("{} heads of queries for {}", q_heads, heads_));
    const int rule = node_.choice("update_rule", {"gated_delta", "linear", "gated", "delta"});
    const bool decays = rule == 0 || rule == 2, corrects = rule == 0 || rule == 3;
    if (node_.has_input(4) != decays || node_.has_input(5) != corrects)
      node_.invalid("inputs decay and beta do not fit attribute \"update_rule\"");
    for (int i = 0; i < 3; ++i)
      if (node_.rank(i) != 3) node_.invalid("queries, keys and values must have 3 axes");
    const Size k_width = per_head(node_.shape(0)[2], q_heads);
    const Size v_width = per_head(node_.shape(2)[2], heads_);
    scale_ = scale_for(k_width);

    sequences_.push_back(q_heads < heads_ ? shared(0, q_heads, k_width, "queries")
                                          : split(0, {q_heads / heads_, k_width}, "queries"));
    const int64_t k_heads = key_heads(k_width);
    sequences_.push_back(k_heads < heads_ ? shared(1, k_heads, k_width, "keys")
                                          : split(1, {1, k_width}, "keys"));
    sequences_.push_back(split(2, {1, v_width}, "values"));
    if (decays) sequences_.push_back(decay(k_width));
    if (corrects) sequences_.push_back(beta());
    decays_ = decays, corrects_ = corrects;

    DataType state_dtype = dtype;
    ValueId state;
    const std::vector<Size> state_shape = {node_.shape(0)[0], heads_, k_width, v_width};
    if (node_.has_input(3)) {
      state_dtype = node_.dtype(3, kFloats);
      state = working(node_.input(3), "past_state");
    } else {
      const ValueId zero = node_.constant_value(tensor_of(kWorking, {}, {0}), "zero");
      state = node_.layer(Expand{}, {zero, node_.sizes_value(state_shape, "state_shape")}, "empty");
    }
    const auto [last, all] = recur(state);
    const Size width = sizes_.mul(std::max(q_heads, heads_), v_width);
    const ValueId y =
        reshape(node_, all, {node_.shape(0)[0], node_.shape(0)[1], width}, "joined_heads");
    const auto copy = [](Expressions in) { return in[0]; };
    Outputs outputs = pointwise_result(node_, {y}, dtype, copy);
    outputs.push_back(pointwise_result(node_, {last}, state_dtype, copy, "present_state", 1)[0]);
    return outputs;
  }

 private:
  Size per_head(Size width, int64_t heads) const {
    if (width.known() && width.value() % heads != 0)
      node_.invalid(fmt::format("{} elements in {} heads", width.value(), heads));
    return sizes_.floor_div(width, heads);
  }

  double scale_for(Size width) {
    const float given = node_.number("scale", 0);
    if (given != 0) return given;
    if (!width.known()) node_.unsupported("a width of heads known only at run time");
    return 1 / std::sqrt(static_cast<double>(width.value()));
  }

  ValueId working(ValueId x, const std::string& name) {
    if (type_of(node_.graph(), x).dtype == kWorking) return x;
    return pointwise(node_, name + "/f32", {x}, kWorking, [](Expressions in) { return in[0]; });
  }

  // [B,T,heads * ...] as [B,T,heads,...].
  ValueId split(int input, std::vector<Size> rest, const std::string& name) {
    const Shape& shape = node_.shape(input);
    rest.insert(rest.begin(), {shape[0], shape[1], heads_});
    return reshape(node_, working(node_.input(input), name), rest, name);
  }

  int64_t key_heads(Size width) const {
    const Size elements = node_.shape(1)[2];
    if (!elements.known() || !width.known() || width.value() < 1) return heads_;
    const int64_t heads = elements.value() / width.value();
    if (heads < 1 || elements.value() % width.value() != 0 || heads_ % heads != 0)
      node_.invalid(fmt::format("keys of {} elements for {} heads of {}", elements.value(), heads_,
                                width.value()));
    return heads;
  }

  // [B,T,fewer heads * width] as [B,T,heads,1,width]: consecutive heads of the state read the same.
  ValueId shared(int input, int64_t fewer, Size width, const std::string& name) {
    const Shape& shape = node_.shape(input);
    const ValueId x = reshape(node_, working(node_.input(input), name),
                              {shape[0], shape[1], fewer, 1, width}, name + "/split");
    const ValueId repeated = node_.layer(
        Expand{},
        {x, node_.sizes_value({shape[0], shape[1], fewer, heads_ / fewer, width}, name + "/shape")},
        name + "/repeated");
    return reshape(node_, repeated, {shape[0], shape[1], heads_, 1, width}, name);
  }

  ValueId decay(Size k_width) {
    node_.dtype(4, kFloats);
    if (node_.rank(4) != 3) node_.invalid("the decay must have 3 axes");
    const bool per_head = node_.shape(4)[2] == Size(heads_) && k_width != Size(1);
    return split(4, {per_head ? Size(1) : k_width, 1}, "decay");
  }

  ValueId beta() {
    node_.dtype(5, kFloats);
    if (node_.rank(5) != 3) node_.invalid("beta must have 3 axes");
    const Shape& shape = node_.shape(5);
    return reshape(node_, working(node_.input(5), "beta"), {shape[0], shape[1], shape[2], 1, 1},
                   "beta");
  }

  Position position(ValueId state, const std::vector<ValueId>& elements) const {
    Position at{.state = state, .q = elements[0], .k = elements[1], .v = elements[2]};
    size_t next = 3;
    if (decays_) at.decay = elements[next++];
    if (corrects_) at.beta = elements[next];
    return at;
  }

  // The last state, and y for all positions: [B,T,H,G,V], or [B,H,G,V] of a single one.
  StepResult recur(ValueId state) {
    Graph& graph = node_.graph();
    if (node_.shape(0)[1] == Size(1)) {
      std::vector<ValueId> elements;
      for (size_t i = 0; i < sequences_.size(); ++i) {
        const Shape shape = type_of(graph, sequences_[i]).shape;
        elements.push_back(reshape(node_, sequences_[i], {shape[0], shape[2], shape[3], shape[4]},
                                   fmt::format("only{}", i)));
      }
      return step(graph, node_.name() + "/step", position(state, elements), scale_);
    }
    Graph body = graph.make_body();
    body.name = node_.name() + "/body";
    const ValueId carried = body.add_input(body.name + "/state", type_of(graph, state));
    std::vector<ValueId> elements, inputs = {state};
    for (const ValueId sequence : sequences_) {
      Type type = type_of(graph, sequence);
      type.shape = {type.shape[0], type.shape[2], type.shape[3], type.shape[4]};
      elements.push_back(body.add_input(body.name + "/at", type));
      inputs.push_back(sequence);
    }
    const StepResult stepped = step(body, body.name, position(carried, elements), scale_);
    body.mark_output(stepped.state, body.name + "/next_state");
    body.mark_output(stepped.y, body.name + "/element");
    const std::vector<int64_t> axes(sequences_.size(), 1), forward(sequences_.size(), 0);
    const Scan scan{.body = static_cast<int64_t>(graph.bodies().size()),
                    .carried = 1,
                    .axes = axes,
                    .reverse = forward,
                    .output_axes = {1},
                    .output_reverse = {0}};
    graph.add_body(std::move(body));
    const std::vector<ValueId> outputs = node_.layers(scan, inputs, "scan");
    return {outputs[0], outputs[1]};
  }

  Node& node_;
  SizeTable& sizes_;
  int64_t heads_ = 1;
  double scale_ = 1;
  bool decays_ = false, corrects_ = false;
  std::vector<ValueId> sequences_;  // [B,T,H,...] each
};

Outputs import_linear_attention(Node& node) { return LinearAttention(node).import(); }
Outputs import_fused_linear_attention(Node& node) {
  expect_default(node, "state_window", 0);
  return LinearAttention(node).import();
}

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
        const Expression x = real(in[0]) + real(in[1]);
        // max(x, 0) + log1p(exp(-|x|)) does not overflow.
        const Expression tail = (-x.apply(Opcode::kAbs)).apply(Opcode::kExp).apply(Opcode::kLog1p);
        return (max(x, x.number(0)) + tail) * real(in[2]);
      });
  if (!node.has_output(1)) return outputs;
  if (!node.has_input(kB)) node.invalid("output beta without input b");
  const auto sigmoid = [](Expressions in) { return in[0].apply(Opcode::kSigmoid); };
  outputs.push_back(pointwise_result(node, {node.input(kB)}, dtype, sigmoid, "beta", 1)[0]);
  return outputs;
}

// Whether known sizes differ, or the ranks.
bool shapes_differ(const Shape& a, const Shape& b) {
  return a.rank() != b.rank() || !std::equal(a.begin(), a.end(), b.begin(), [](Size one, Size two) {
           return !one.known() || !two.known() || one == two;
         });
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
  const Normalize op{
      .axes = {last + 1}, .epsilon = node.number("epsilon", 1e-5F), .subtract_mean = false};
  const ValueId grouped = reshape(node, node.input(kX), groups, "groups");
  const ValueId real =
      pointwise(node, "f32", {grouped}, kWorking, [](Expressions in) { return in[0]; });
  const ValueId gate = reshape(node, node.input(kGate), groups, "gate_groups");
  const ValueId gated =
      pointwise(node, "gated", {node.layer(op, {real}, "unit"), node.input(kScale), gate}, dtype,
                [&](Expressions in) {
                  const Expression z = in[2].cast(RegisterType::kF32);
                  const Expression open = z.apply(Opcode::kSigmoid);
                  return in[0] * in[1].cast(RegisterType::kF32) * (is_silu ? z * open : open);
                });
  return node.result(Reshape{.allow_zero = true},
                     {gated, node.sizes_value({x.begin(), x.end()}, "shape")}, "joined");
}

constexpr OpRow kStateRows[] = {
    {"", "CausalConvWithState", 27, kLatest, import_causal_conv},
    {"", "LinearAttention", 27, kLatest, import_linear_attention},
    {kMicrosoft, "CausalConvWithState", 1, kLatest, import_fused_causal_conv},
    {kMicrosoft, "GatedRMSNorm", 1, kLatest, import_gated_rms_norm},
    {kMicrosoft, "LinearAttention", 1, kLatest, import_fused_linear_attention},
    {kMicrosoft, "LinearAttentionGate", 1, kLatest, import_linear_attention_gate},
};

}  // namespace

std::span<const OpRow> state_rows() { return kStateRows; }

}  // namespace anneal
