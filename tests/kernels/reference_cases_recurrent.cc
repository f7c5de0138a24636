#include "anneal/tests/kernels/reference_cases.h"

namespace anneal::testing {
namespace {

template <class T, class F>
T with(T op, F change) {
  change(op);
  return op;
}

// h = w x + r h, clipped: its numbers are whole.
Recurrent linear_rnn(Direction direction = Direction::kForward) {
  return {.kind = RecurrentKind::kRnn,
          .direction = direction,
          .cell = Activation::kAffine,
          .alphas = {0, 1, 0}};
}

// One step from -2, 0.5 and 3 through the activation alone.
ReferenceCase activation(const std::string& name, Activation cell, float alpha, float beta,
                         const std::string& wanted) {
  const Recurrent op{
      .kind = RecurrentKind::kRnn, .cell = cell, .alphas = {0, alpha, 0}, .betas = {0, beta, 0}};
  return {"rnn_" + name,
          op,
          {"f32[1,3,1]={-2,0.5,3}", "f32[1,1,1]={1}", "f32[1,1,1]={0}"},
          {"f32[1,1,3,1]=" + wanted, "f32[1,3,1]=" + wanted}};
}

std::vector<ReferenceCase> rnn_cases() {
  const std::string x = "f32[3,1,1]={1,2,3}", one = "f32[1,1,1]={1}", ten = "f32[1,1,1]={10}";
  return {
      {"rnn_forward", linear_rnn(), {x, one, ten}, {"f32[3,1,1,1]={1,12,123}", "f32[1,1,1]={123}"}},
      {"rnn_reverse",
       linear_rnn(Direction::kReverse),
       {x, one, ten},
       {"f32[3,1,1,1]={321,32,3}", "f32[1,1,1]={321}"}},
      {"rnn_bidirectional_lengths",
       linear_rnn(Direction::kBidirectional),
       {"f64[3,2,1]={1,10,2,20,3,30}", "f64[2,1,1]={1,1}", "f64[2,1,1]={10,100}", "-",
        "i32[2]={2,3}"},
       {"f64[3,2,2,1]={1,10,201,302010,12,120,2,3020,0,1230,0,30}",
        "f64[2,2,1]={12,1230,201,302010}"}},
      {"rnn_length_0_keeps_the_state",
       linear_rnn(),
       {"f32[2,1,1]={1,2}", one, ten, "-", "i32[1]={0}", "f32[1,1,1]={7}"},
       {"f32[2,1,1,1]={0,0}", "f32[1,1,1]={7}"}},
      {"rnn_bias_state",
       linear_rnn(),
       {"f16[1,1,1]={5}", "f16[1,1,1]={1}", "f16[1,1,1]={1}", "f16[1,2]={1,2}", "-",
        "f16[1,1,1]={3}"},
       {"f16[1,1,1,1]={11}", "f16[1,1,1]={11}"}},
      {"rnn_clip",
       with(linear_rnn(), [](Recurrent& op) { op.clip = 10; }),
       {x, "f32[1,1,1]={-1}", ten},
       {"f32[3,1,1,1]={-1,-10,-10}", "f32[1,1,1]={-10}"}},
      {"rnn_epilogue_of_the_state",
       linear_rnn(),
       {x, one, ten, "f32[1]={0.5}"},
       {"f32[3,1,1,1]={1,12,123}", "f32[1,1,1]={123.5}"},
       {"", "(f32,f32)->(f32) add($0,$1)"}},
      activation("sigmoid", Activation::kSigmoid, 0, 0, "{0.119202922,0.622459331,0.952574127}"),
      activation("tanh", Activation::kTanh, 0, 0, "{-0.964027580,0.462117157,0.995054754}"),
      activation("relu", Activation::kRelu, 0, 0, "{0,0.5,3}"),
      activation("affine", Activation::kAffine, 2, 1, "{-3,2,7}"),
      activation("leaky_relu", Activation::kLeakyRelu, 0.5F, 0, "{-1,0.5,3}"),
      activation("thresholded_relu", Activation::kThresholdedRelu, 1, 0, "{0,0,3}"),
      activation("scaled_tanh", Activation::kScaledTanh, 2, 0.5F,
                 "{-1.523188312,0.489837324,1.810296647}"),
      activation("hard_sigmoid", Activation::kHardSigmoid, 0.25F, 0.5F, "{0,0.625,1}"),
      activation("elu", Activation::kElu, 2, 0, "{-1.729329434,0.5,3}"),
      activation("softsign", Activation::kSoftsign, 0, 0, "{-0.666666667,0.333333333,0.75}"),
      activation("softplus", Activation::kSoftplus, 0, 0, "{0.126928011,0.974076984,3.048587352}"),
  };
}

std::vector<ReferenceCase> gated_cases() {
  // z and r are 0.5.
  const Recurrent gru{.kind = RecurrentKind::kGru,
                      .gate = Activation::kAffine,
                      .cell = Activation::kAffine,
                      .alphas = {0, 1, 0},
                      .betas = {0.5F, 0, 0}};
  const std::vector<std::string> gru_inputs = {
      "f32[1,1,1]={1}", "f32[1,3,1]={8,9,2}", "f32[1,3,1]={8,9,3}", "f32[1,6]={8,9,0,10,11,1}", "-",
      "f32[1,1,1]={4}"};
  const Recurrent lstm{.kind = RecurrentKind::kLstm,
                       .gate = Activation::kAffine,
                       .cell = Activation::kAffine,
                       .output = Activation::kAffine,
                       .alphas = {1, 1, 1}};
  std::vector<std::string> lstm_inputs = {
      "f32[1,1,1]={1}", "f32[1,4,1]={1,2,3,4}", "f32[1,4,1]={0,0,0,0}", "-", "-", "-",
      "f32[1,1,1]={2}"};
  std::vector<std::string> peepholes = lstm_inputs;
  peepholes.push_back("f32[1,3]={1,0.5,-1}");
  return {
      {"gru_reset_first", gru, gru_inputs, {"f32[1,1,1,1]={6.5}", "f32[1,1,1]={6.5}"}},
      {"gru_linear_before_reset",
       with(gru, [](Recurrent& op) { op.linear_before_reset = true; }),
       gru_inputs,
       {"f32[1,1,1,1]={6.25}", "f32[1,1,1]={6.25}"}},
      {"lstm_gates",
       lstm,
       lstm_inputs,
       {"f32[1,1,1,1]={20}", "f32[1,1,1]={20}", "f32[1,1,1]={10}"}},
      {"lstm_peepholes",
       lstm,
       peepholes,
       {"f32[1,1,1,1]={126}", "f32[1,1,1]={126}", "f32[1,1,1]={14}"}},
      {"lstm_input_forget",
       with(lstm, [](Recurrent& op) { op.input_forget = true; }),
       lstm_inputs,
       {"f32[1,1,1,1]={8}", "f32[1,1,1]={8}", "f32[1,1,1]={4}"}},
      {"lstm_clip",  // i=1 o=2 f=2.5 c=2.5; the cell is 7.5 and not clipped
       with(lstm, [](Recurrent& op) { op.clip = 2.5F; }),
       lstm_inputs,
       {"f32[1,1,1,1]={15}", "f32[1,1,1]={15}", "f32[1,1,1]={7.5}"}},
  };
}

std::vector<ReferenceCase> linear_attention_cases() {
  return {
      {"linear_attention_corrects",
       LinearAttention{.scale = 0.5F},
       {"f32[1,2,1,2]={1,1,1,-1}", "f32[1,2,1,2]={1,0,0,1}", "f32[1,2,1,1]={3,6}",
        "f32[1,1,2,1]={1,2}", "-", "f32[1,2,1]={0.5,1}"},
       {"f32[1,2,1,1]={2,-2}", "f32[1,1,2,1]={2,6}"}},
      {"linear_attention_decays_by_row",
       LinearAttention{.transposed = true},
       {"f32[1,1,1,2]={1,2}", "f32[1,1,1,2]={1,1}", "f32[1,1,1,1]={5}", "f32[1,1,1,2]={1,2}",
        "f32[1,1,1,2]={0,-200}"},
       {"f32[1,1,1,1]={16}", "f32[1,1,1,2]={6,5}"}},
      {"linear_attention_two_readers_without_state",
       LinearAttention{},
       {"f32[1,1,2,1]={3,4}", "f32[1,1,1,1]={2}", "f32[1,1,1,2]={5,7}"},
       {"f32[1,1,2,2]={30,42,40,56}", "f32[1,1,1,2]={10,14}"}},
  };
}

}  // namespace

std::vector<ReferenceCase> recurrent_reference_cases() {
  std::vector<ReferenceCase> cases = rnn_cases();
  for (ReferenceCase& each : gated_cases()) cases.push_back(std::move(each));
  for (ReferenceCase& each : linear_attention_cases()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
