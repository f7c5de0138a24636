// Operators of models that carry a state from call to call: CausalConvWithState, LinearAttention.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

constexpr DataType kWorking = DataType::kF32;

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

// x[B,C,L], w[C,1,K], [bias[C]], [past[B,C,K-1]]: a convolution of each channel with the preceding
// elements, by default zeros.
Outputs import_causal_conv(Node& node) {
  node.expect_inputs(2, 4);
  node.expect_same_dtype({0, 1, 2, 3});
  const DataType dtype = node.dtype(0, kFloats);
  const bool gated = node.choice("activation", {"none", "silu", "swish"}) != 0;
  if (node.rank(0) != 3 || node.rank(1) != 3) node.invalid("x and the weights must have 3 axes");
  const Size channels = node.shape(1)[0], width = node.shape(1)[2];
  if (!channels.known() || !width.known())
    node.unsupported("a shape of the weights known only at run time");
  const int64_t before = width.value() - 1;
  if (before < 0) node.invalid("weights of no elements");

  Conv op{.strides = {1}, .pads_begin = {0}, .pads_end = {0}, .dilations = {1}};
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
    if (heads_ < 1 || q_heads < 1 || q_heads % heads_ != 0)
      node_.invalid(fmt::format("{} heads of queries for {}", q_heads, heads_));
    const int rule = node_.choice("update_rule", {"gated_delta", "linear", "gated", "delta"});
    const bool decays = rule == 0 || rule == 2, corrects = rule == 0 || rule == 3;
    if (node_.has_input(4) != decays || node_.has_input(5) != corrects)
      node_.invalid("inputs decay and beta do not fit attribute \"update_rule\"");
    for (int i = 0; i < 3; ++i)
      if (node_.rank(i) != 3) node_.invalid("queries, keys and values must have 3 axes");
    const Size k_width = per_head(node_.shape(1)[2], heads_);
    const Size v_width = per_head(node_.shape(2)[2], heads_);
    scale_ = scale_for(k_width);

    sequences_.push_back(split(0, {q_heads / heads_, k_width}, "queries"));
    sequences_.push_back(split(1, {1, k_width}, "keys"));
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
    const Size width = sizes_.mul(q_heads, v_width);
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

constexpr OpRow kStateRows[] = {
    {"", "CausalConvWithState", 27, kLatest, import_causal_conv},
    {"", "LinearAttention", 27, kLatest, import_linear_attention},
};

}  // namespace

std::span<const OpRow> state_rows() { return kStateRows; }

}  // namespace anneal
