#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {
namespace {

struct Sizes {
  int64_t steps, batch, input, hidden;
};

std::string list(std::initializer_list<int64_t> dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "[" : ",") + std::to_string(dim);
  return text + "]";
}

// x, w, r, b, lengths, h0, c0 and peepholes; those not named in `with` are absent.
std::vector<std::string> inputs(const Recurrent& op, const Sizes& s, const std::string& with = "b",
                                const std::string& lengths = "-",
                                const std::string& dtype = "f32") {
  const int64_t directions = op.direction == Direction::kBidirectional ? 2 : 1;
  const int64_t gates = op.kind == RecurrentKind::kRnn ? 1 : op.kind == RecurrentKind::kGru ? 3 : 4;
  const auto weight = [&](std::initializer_list<int64_t> dims) {
    return "const " + dtype + list(dims) + "=-0.4..0.4";
  };
  const auto has = [&](char c) { return with.find(c) != std::string::npos; };
  const std::string state = dtype + list({directions, s.batch, s.hidden}) + "=-1..1";
  std::vector<std::string> all = {dtype + list({s.steps, s.batch, s.input}) + "=-1..1",
                                  weight({directions, gates * s.hidden, s.input}),
                                  weight({directions, gates * s.hidden, s.hidden}),
                                  has('b') ? weight({directions, 2 * gates * s.hidden}) : "-",
                                  lengths,
                                  has('h') ? state : "-",
                                  has('c') ? state : "-",
                                  has('p') ? weight({directions, 3 * s.hidden}) : "-"};
  while (all.back() == "-") all.pop_back();
  return all;
}

Recurrent lstm(Direction direction = Direction::kForward) {
  return {.kind = RecurrentKind::kLstm, .direction = direction};
}
Recurrent gru(Direction direction = Direction::kForward, bool linear_before_reset = false) {
  return {.kind = RecurrentKind::kGru,
          .direction = direction,
          .linear_before_reset = linear_before_reset};
}
Recurrent rnn(Activation activation, float alpha = 0, float beta = 0) {
  return {.kind = RecurrentKind::kRnn,
          .cell = activation,
          .alphas = {0, alpha, 0},
          .betas = {0, beta, 0}};
}

OpCase variant(const std::string& name, Recurrent op, const Sizes& sizes,
               const std::string& with = "b", const std::string& lengths = "-",
               const std::string& dtype = "f32") {
  return {name, op, inputs(op, sizes, with, lengths, dtype)};
}

struct LinearSizes {
  int64_t batch, length;
  int64_t queries, keys, heads;  // of queries, of keys and of the state
  int64_t k_width, v_width;
};

// q, k, v, state, decay and beta. The last three are there if `with` has "s", "d" and "b"; with "r"
// the decay is one for each row of the state, with "1" beta is one for all heads.
OpCase linear(const std::string& name, const LinearSizes& s, const std::string& with,
              bool transposed = false) {
  const auto has = [&](char c) { return with.find(c) != std::string::npos; };
  const auto numbers = [](std::initializer_list<int64_t> dims, const char* range) {
    return "f32" + list(dims) + "=" + range;
  };
  const int64_t rows = transposed ? s.v_width : s.k_width;
  const int64_t columns = transposed ? s.k_width : s.v_width;
  std::vector<std::string> inputs = {
      numbers({s.batch, s.length, s.queries, s.k_width}, "-1..1"),
      numbers({s.batch, s.length, s.keys, s.k_width}, "-0.3..0.3"),
      numbers({s.batch, s.length, s.heads, s.v_width}, "-1..1"),
      has('s') ? numbers({s.batch, s.heads, rows, columns}, "-1..1") : "-",
      has('d') ? numbers({s.batch, s.length, s.heads, has('r') ? s.k_width : 1}, "-2..0") : "-",
      has('b') ? numbers({s.batch, s.length, has('1') ? 1 : s.heads}, "0..1") : "-"};
  while (inputs.back() == "-") inputs.pop_back();
  return {name, LinearAttention{.scale = 0.5F, .transposed = transposed}, std::move(inputs)};
}

}  // namespace

std::vector<OpCase> recurrent_op_cases() {
  using enum Direction;
  Recurrent coupled = lstm(kReverse);
  coupled.input_forget = true;
  Recurrent clipped = lstm(kBidirectional);
  clipped.clip = 0.3F;
  Recurrent clipped_gru = gru(kForward, true);
  clipped_gru.clip = 0.2F;
  Recurrent hard = lstm();
  hard.gate = Activation::kHardSigmoid, hard.cell = Activation::kSoftsign;
  hard.output = Activation::kElu;
  hard.alphas = {0.2F, 0, 1.5F}, hard.betas = {0.5F, 0, 0};
  Recurrent bidirectional_rnn = rnn(Activation::kTanh);
  bidirectional_rnn.direction = kBidirectional;
  return {
      variant("lstm", lstm(), {7, 1, 5, 23}),
      variant("lstm_1x1", lstm(), {1, 1, 1, 1}),
      variant("lstm_batch", lstm(), {5, 7, 9, 27}, "bhc"),
      variant("lstm_wide", lstm(), {3, 2, 129, 130}, "bhc"),
      variant("lstm_many_steps", lstm(), {129, 1, 3, 7}),
      variant("lstm_large_batch", lstm(), {3, 65, 7, 9}),
      variant("lstm_no_bias", lstm(), {3, 2, 5, 7}, ""),
      variant("lstm_reverse", lstm(kReverse), {9, 2, 5, 7}, "bh"),
      variant("lstm_bidirectional", lstm(kBidirectional), {9, 3, 7, 23}, "bhc"),
      variant("lstm_peepholes", lstm(kBidirectional), {4, 3, 5, 17}, "bhcp"),
      variant("lstm_lengths", lstm(kBidirectional), {5, 4, 3, 7}, "bhcp", "i32[4]={5,0,2,4}"),
      variant("lstm_coupled", coupled, {4, 3, 5, 9}, "bc"),
      variant("lstm_clipped", clipped, {4, 3, 5, 9}, "bcp"),
      variant("lstm_other_activations", hard, {4, 3, 5, 9}),
      variant("lstm_one_step", lstm(kReverse), {1, 3, 9, 23}, "bhcp", "i32[3]={1,0,1}"),
      variant("lstm_wide_lengths", lstm(kBidirectional), {3, 5, 65, 130}, "bhc",
              "i32[5]={3,0,2,1,3}"),
      variant("lstm_projected_lengths", lstm(kBidirectional), {6, 5, 12, 7}, "bhcp",
              "i32[5]={5,0,6,1,4}"),
      variant("lstm_f16_tiles", lstm(), {5, 4, 16, 8}, "bhc", "-", "f16"),
      variant("lstm_no_steps", lstm(), {0, 2, 3, 5}, "bhc"),
      variant("lstm_no_batch", lstm(), {2, 0, 3, 5}),
      variant("lstm_no_input", lstm(), {2, 3, 0, 5}),
      variant("lstm_f16", lstm(), {3, 2, 5, 7}, "bhcp", "-", "f16"),
      variant("lstm_bf16", lstm(kReverse), {3, 2, 5, 7}, "b", "-", "bf16"),
      variant("lstm_f64", lstm(kBidirectional), {3, 2, 5, 7}, "bhcp", "i32[2]={3,1}", "f64"),
      variant("gru", gru(), {7, 1, 5, 23}),
      variant("gru_batch", gru(kForward, true), {5, 7, 9, 27}, "bh"),
      variant("gru_no_bias", gru(kForward, true), {5, 2, 9, 27}, "h"),
      variant("gru_bidirectional", gru(kBidirectional), {9, 3, 7, 16}, "bh"),
      variant("gru_lengths", gru(kBidirectional, true), {5, 4, 3, 7}, "bh", "i32[4]={1,5,0,3}"),
      variant("gru_clipped", clipped_gru, {4, 3, 5, 9}),
      variant("gru_f16", gru(), {3, 2, 5, 7}, "bh", "-", "f16"),
      variant("gru_wide", gru(kBidirectional), {3, 2, 17, 164}, "bh", "i32[2]={2,3}"),
      variant("gru_wide_linear", gru(kReverse, true), {2, 1, 33, 164}, "bh"),
      variant("gru_one_step", gru(), {1, 7, 5, 9}, "bh"),
      variant("gru_no_steps", gru(kBidirectional), {0, 2, 3, 5}, "h"),
      variant("rnn", rnn(Activation::kTanh), {7, 1, 5, 23}),
      variant("rnn_no_steps", rnn(Activation::kTanh), {0, 3, 2, 5}),
      variant("rnn_projected_f64", rnn(Activation::kTanh), {5, 3, 9, 7}, "bh", "-", "f64"),
      variant("rnn_bidirectional", bidirectional_rnn, {5, 3, 4, 65}, "bh", "i32[3]={2,5,3}"),
      variant("rnn_sigmoid", rnn(Activation::kSigmoid), {3, 2, 4, 7}),
      variant("rnn_relu", rnn(Activation::kRelu), {3, 2, 4, 7}),
      variant("rnn_affine", rnn(Activation::kAffine, 0.5F, 0.25F), {3, 2, 4, 7}),
      variant("rnn_leaky_relu", rnn(Activation::kLeakyRelu, 0.25F), {3, 2, 4, 7}),
      variant("rnn_thresholded_relu", rnn(Activation::kThresholdedRelu, 0.125F), {3, 2, 4, 7}),
      variant("rnn_scaled_tanh", rnn(Activation::kScaledTanh, 0.5F, 1.5F), {3, 2, 4, 7}),
      variant("rnn_hard_sigmoid", rnn(Activation::kHardSigmoid, 0.5F, 0.25F), {3, 2, 4, 7}),
      variant("rnn_elu", rnn(Activation::kElu, 0.75F), {3, 2, 4, 7}),
      variant("rnn_softsign", rnn(Activation::kSoftsign), {3, 2, 4, 7}),
      variant("rnn_softplus", rnn(Activation::kSoftplus), {3, 2, 4, 7}),
      variant("rnn_bf16", rnn(Activation::kTanh), {3, 2, 5, 7}, "bh", "-", "bf16"),
      linear("linear_attention", {2, 9, 2, 2, 2, 16, 32}, "sdb"),
      linear("linear_attention_only_adds", {1, 5, 1, 1, 1, 3, 5}, ""),
      linear("linear_attention_by_row", {2, 7, 4, 2, 4, 37, 21}, "sdrb"),
      linear("linear_attention_corrects", {1, 4, 1, 1, 3, 8, 70}, "b1"),
      linear("linear_attention_decays", {3, 4, 2, 1, 2, 33, 7}, "d"),
      linear("linear_attention_readers", {2, 3, 6, 1, 2, 20, 18}, "sdb"),
      linear("linear_attention_transposed", {1, 6, 2, 2, 4, 18, 39}, "sdb", true),
      linear("linear_attention_one_position", {1, 1, 2, 2, 2, 130, 64}, "sdb", true),
      linear("linear_attention_large", {1, 17, 1, 1, 2, 128, 72}, "sdb"),
      linear("linear_attention_no_positions", {2, 0, 2, 2, 2, 4, 3}, "sdb"),
      linear("linear_attention_no_batch", {0, 3, 2, 2, 2, 4, 3}, "sdb"),
  };
}

}  // namespace anneal::testing
