// LSTM, GRU and RNN, and sequences turned around.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// How ONNX names an activation, and which numbers it takes, with their defaults.
struct ActivationRow {
  std::string_view name;  // in small letters: ONNX files differ
  Activation activation;
  std::optional<float> alpha = {}, beta = {};
};
constexpr ActivationRow kActivations[] = {
    {"sigmoid", Activation::kSigmoid},
    {"tanh", Activation::kTanh},
    {"relu", Activation::kRelu},
    {"affine", Activation::kAffine, 1.0F, 0.0F},
    {"leakyrelu", Activation::kLeakyRelu, 0.01F},
    {"thresholdedrelu", Activation::kThresholdedRelu, 1.0F},
    {"scaledtanh", Activation::kScaledTanh, 1.0F, 1.0F},
    {"hardsigmoid", Activation::kHardSigmoid, 0.2F, 0.5F},
    {"elu", Activation::kElu, 1.0F},
    {"softsign", Activation::kSoftsign},
    {"softplus", Activation::kSoftplus},
};

const ActivationRow& activation_row(const Node& node, const std::string& name) {
  std::string small = name;
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto* row = std::ranges::find_if(
      kActivations, [&](const ActivationRow& each) { return each.name == small; });
  if (row == std::end(kActivations)) node.unsupported(fmt::format("the activation \"{}\"", name));
  return *row;
}

// The numbers of a list go, in order, to the functions that take one.
class Coefficients {
 public:
  Coefficients(Node& node, const char* name)
      : node_(node), name_(name), values_(node.find_numbers(name).value_or(std::vector<float>{})) {}
  float take(std::optional<float> otherwise) {
    if (!otherwise) return 0;
    return next_ < values_.size() ? values_[next_++] : *otherwise;
  }
  void expect_all_taken() const {
    if (next_ < values_.size())
      node_.invalid(fmt::format("attribute \"{}\" has {} values for {} activations that take one",
                                name_, values_.size(), next_));
  }

 private:
  Node& node_;
  const char* name_;
  std::vector<float> values_;
  size_t next_ = 0;
};

struct Functions {
  std::vector<Activation> activations;  // as many as the kind has
  std::vector<float> alphas, betas;
  bool operator==(const Functions&) const = default;
};

// One set per direction.
std::vector<Functions> read_functions(Node& node, const std::vector<std::string>& defaults,
                                      size_t directions) {
  const size_t count = defaults.size();
  auto names = node.find_texts("activations").value_or(std::vector<std::string>{});
  if (names.empty())
    for (size_t i = 0; i < directions; ++i)
      names.insert(names.end(), defaults.begin(), defaults.end());
  // The default that ONNX gives for one direction of RNN has two.
  if (directions == 1 && names.size() == 2 * count) names.resize(count);
  if (names.size() != directions * count)
    node.invalid(fmt::format("attribute \"activations\" names {}, {} expected", names.size(),
                             directions * count));
  Coefficients alphas(node, "activation_alpha"), betas(node, "activation_beta");
  std::vector<Functions> result(directions);
  for (size_t i = 0; i < names.size(); ++i) {
    const ActivationRow& row = activation_row(node, names[i]);
    Functions& functions = result[i / count];
    functions.activations.push_back(row.activation);
    functions.alphas.push_back(alphas.take(row.alpha));
    functions.betas.push_back(betas.take(row.beta));
  }
  alphas.expect_all_taken();
  betas.expect_all_taken();
  return result;
}

// The fields that hold the functions of a kind, in ONNX's order.
void set_functions(Recurrent& op, const Functions& functions) {
  const bool rnn = op.kind == RecurrentKind::kRnn;
  Activation* const fields[] = {&op.gate, &op.cell, &op.output};
  const size_t first = rnn ? 1 : 0;
  std::vector<float> alphas(3), betas(3);
  for (size_t i = 0; i < functions.activations.size(); ++i) {
    *fields[first + i] = functions.activations[i];
    alphas[first + i] = functions.alphas[i];
    betas[first + i] = functions.betas[i];
  }
  const auto is_zero = [](float value) { return value == 0; };
  if (!std::ranges::all_of(alphas, is_zero)) op.alphas = alphas;
  if (!std::ranges::all_of(betas, is_zero)) op.betas = betas;
}

enum Input { kX, kW, kR, kB, kLengths, kH0, kC0, kPeepholes };
enum Output { kY, kH, kC };

void check_hidden_size(Node& node) {
  const auto hidden = node.find_integer("hidden_size");
  if (!hidden) return;
  const Shape& r = node.shape(kR);
  if (r.rank() == 3 && r[2].known() && r[2].value() != *hidden)
    node.invalid("attribute \"hidden_size\" contradicts the recurrent weights");
}

// Lengths that say what the shape says are none.
bool are_whole(const Node& node, Size steps) {
  const auto lengths = node.known_integers(kLengths);
  return lengths && steps.known() &&
         std::ranges::all_of(*lengths, [&](int64_t length) { return length == steps.value(); });
}

// com.microsoft's 8-bit weights [directions, size, gates] with scales and zero points of shape
// [directions] or [directions, gates], as the weights [directions, gates, size] of ONNX.
ValueId dequantized_weights(Node& node, int weights, int scale, const std::string& name) {
  node.dtype(weights, {DataType::kI8, DataType::kU8});
  const auto spread = [&](int index, const std::string& suffix) {
    const Shape& shape = node.shape(index);
    if (shape.rank() != 1 && shape.rank() != 2)
      node.invalid(fmt::format("input {} has {} axes, 1 or 2 expected", index, shape.rank()));
    const Size gates = shape.rank() == 2 ? shape[1] : Size(1);
    return reshape(node, node.input(index), {shape[0], 1, gates}, name + suffix);
  };
  const ValueId real =
      pointwise(node, name + "/real",
                {node.input(weights), spread(scale, "/scale"), spread(scale + 1, "/zero_point")},
                DataType::kF32, [](Expressions in) {
                  return (in[0].cast(RegisterType::kF32) - in[2].cast(RegisterType::kF32)) * in[1];
                });
  return node.layer(Transpose{{0, 2, 1}}, {real}, name);
}

class RecurrentImporter {
 public:
  // quantized: the inputs are those of DynamicQuantizeLSTM. Its weights are dequantized, and x,
  // which it quantizes at run time, is used without quantization.
  RecurrentImporter(Node& node, Recurrent op, std::vector<std::string> defaults,
                    bool quantized = false)
      : node_(node), op_(std::move(op)), defaults_(std::move(defaults)), quantized_(quantized) {}

  Outputs import() {
    node_.expect_inputs(quantized_ ? 12 : 3, quantized_                         ? 12
                                             : op_.kind == RecurrentKind::kLstm ? 8
                                                                                : 6);
    node_.dtype(kX, kFloats);
    const int direction = node_.choice("direction", {"forward", "reverse", "bidirectional"});
    op_.direction = static_cast<Direction>(direction);
    const std::vector<Functions> functions =
        read_functions(node_, defaults_, op_.direction == Direction::kBidirectional ? 2 : 1);
    op_.clip = node_.number("clip", 0);
    if (!(op_.clip >= 0)) node_.invalid("attribute \"clip\" is negative");
    if (quantized_) {
      node_.ignore("hidden_size");
    } else {
      check_hidden_size(node_);
    }
    if (node_.opset() < 7) node_.ignore("output_sequence");
    batch_first_ = node_.opset() >= 14 && node_.flag("layout", false);
    if (node_.rank(kX) != 3) node_.invalid("input 0 has not 3 axes");

    std::vector<ValueId> inputs = layer_inputs();
    if (functions.size() == 2 && functions[0] != functions[1]) return split(functions, inputs);
    set_functions(op_, functions[0]);
    if (!batch_first_) return node_.results(op_, inputs);
    std::vector<ValueId> outputs = node_.layers(op_, inputs, "time_first");
    Outputs results;
    for (int i = 0; i < std::min(node_.output_count(), static_cast<int>(outputs.size())); ++i) {
      const Transpose to_front = i == kY ? Transpose{{2, 0, 1, 3}} : Transpose{{1, 0, 2}};
      results.push_back(
          node_.result(to_front, {outputs[static_cast<size_t>(i)]}, kOutputNames[i], i).front());
    }
    return results;
  }

 private:
  static constexpr const char* kOutputNames[] = {"y", "h", "c"};

  // Time first, and no lengths if they say nothing.
  std::vector<ValueId> layer_inputs() {
    std::vector<ValueId> inputs;
    for (int i = 0; i < node_.input_count(); ++i) inputs.push_back(node_.optional_input(i));
    inputs.resize(8, ValueId::kNone);
    const int batch_axis = batch_first_ ? 0 : 1;
    if (node_.batch_axis(kX) == batch_axis)
      for (const auto& [input, axis] :
           {std::pair{kLengths, 0}, std::pair{kH0, batch_axis}, std::pair{kC0, batch_axis}})
        if (node_.has_input(input)) inputs[input] = node_.repeated_for_batch(input, axis);
    if (quantized_) {
      inputs[kW] = dequantized_weights(node_, kW, 8, "weights");
      inputs[kR] = dequantized_weights(node_, kR, 10, "recurrent_weights");
    }
    if (node_.has_input(kLengths) && are_whole(node_, node_.shape(kX)[batch_first_ ? 1 : 0]))
      inputs[kLengths] = ValueId::kNone;
    if (batch_first_) {
      for (const auto& [input, suffix] :
           {std::pair{kX, "x"}, std::pair{kH0, "initial_h"}, std::pair{kC0, "initial_c"}})
        if (inputs[input] != ValueId::kNone)
          inputs[input] = node_.layer(Transpose{{1, 0, 2}}, {inputs[input]}, suffix);
    }
    while (inputs.back() == ValueId::kNone) inputs.pop_back();
    return inputs;
  }

  // Directions of different functions: a layer each, and their results side by side.
  Outputs split(const std::vector<Functions>& functions, const std::vector<ValueId>& inputs) {
    std::array<std::vector<ValueId>, 2> parts;
    for (int64_t d = 0; d < 2; ++d) {
      const std::string prefix = d == 0 ? "forward" : "reverse";
      const auto bounds = [&](int64_t at, const char* name) {
        return node_.integers_value({at}, prefix + "/" + name);
      };
      const ValueId start = bounds(d, "start"), end = bounds(d + 1, "end");
      const ValueId axis = bounds(0, "axis"), step = bounds(1, "step");
      std::vector<ValueId> half = inputs;
      for (size_t i = 0; i < half.size(); ++i)
        if (i != kX && i != kLengths && half[i] != ValueId::kNone)
          half[i] = node_.layer(Slice{}, {half[i], start, end, axis, step},
                                fmt::format("{}/input{}", prefix, i));
      Recurrent op = op_;
      op.direction = d == 0 ? Direction::kForward : Direction::kReverse;
      set_functions(op, functions[static_cast<size_t>(d)]);
      parts[static_cast<size_t>(d)] = node_.layers(op, half, prefix);
    }
    Outputs results;
    for (int i = 0; i < std::min(node_.output_count(), static_cast<int>(parts[0].size())); ++i) {
      const std::vector<ValueId> both = {parts[0][static_cast<size_t>(i)],
                                         parts[1][static_cast<size_t>(i)]};
      const Concat concat{.axis = i == kY ? 1 : 0};
      if (!batch_first_) {
        results.push_back(node_.result(concat, both, kOutputNames[i], i).front());
        continue;
      }
      const std::string suffix = kOutputNames[i];
      const Transpose to_front = i == kY ? Transpose{{2, 0, 1, 3}} : Transpose{{1, 0, 2}};
      const ValueId joined = node_.layer(concat, both, suffix + "/time_first");
      results.push_back(node_.result(to_front, {joined}, suffix, i).front());
    }
    return results;
  }

  Node& node_;
  Recurrent op_;
  std::vector<std::string> defaults_;
  bool quantized_;
  bool batch_first_ = false;
};

Outputs import_rnn(Node& node) {
  return RecurrentImporter(node, {.kind = RecurrentKind::kRnn}, {"Tanh"}).import();
}

Outputs import_gru_reset_first(Node& node) {
  return RecurrentImporter(node, {.kind = RecurrentKind::kGru}, {"Sigmoid", "Tanh"}).import();
}
Outputs import_gru(Node& node) {
  const bool linear_before_reset = node.integer("linear_before_reset", 0) != 0;
  const Recurrent op{.kind = RecurrentKind::kGru, .linear_before_reset = linear_before_reset};
  return RecurrentImporter(node, op, {"Sigmoid", "Tanh"}).import();
}

Outputs import_lstm(Node& node) {
  const Recurrent op{.kind = RecurrentKind::kLstm,
                     .input_forget = node.flag("input_forget", false)};
  return RecurrentImporter(node, op, {"Sigmoid", "Tanh", "Tanh"}).import();
}

Outputs import_dynamic_quantize_lstm(Node& node) {
  const Recurrent op{.kind = RecurrentKind::kLstm,
                     .input_forget = node.flag("input_forget", false)};
  return RecurrentImporter(node, op, {"Sigmoid", "Tanh", "Tanh"}, true).import();
}

Outputs import_reverse_sequence(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, {DataType::kI64});
  const ReverseSequence op{
      .batch_axis = node.resolve_axis(node.integer("batch_axis", 1), node.rank(0)),
      .time_axis = node.resolve_axis(node.integer("time_axis", 0), node.rank(0))};
  return node.result(op, {node.input(0), node.input(1)});
}

constexpr OpRow kRecurrentRows[] = {
    {"", "GRU", 1, 2, import_gru_reset_first},
    {"", "GRU", 3, kLatest, import_gru},
    {"", "LSTM", 1, kLatest, import_lstm},
    {kMicrosoft, "DynamicQuantizeLSTM", 1, kLatest, import_dynamic_quantize_lstm},
    {"", "RNN", 1, kLatest, import_rnn},
    {"", "ReverseSequence", 10, kLatest, import_reverse_sequence},
};

}  // namespace

std::span<const OpRow> recurrent_rows() { return kRecurrentRows; }

}  // namespace anneal
