// The shape rules of Recurrent, LinearAttention, ReverseSequence and DecisionTrees.
#include "anneal/tests/graph/infer_case.h"

namespace anneal {
namespace {

TEST(InferRecurrent, Shapes) {
  check_cases({
      {"Recurrent",
       {"f32[T,N,5]", "f32[1,28,5]", "f32[1,28,7]"},
       "f32[T,1,N,7]; f32[1,N,7]; f32[1,N,7]"},
      {"Recurrent kind=gru",
       {"f16[9,2,5]", "f16[1,21,5]", "f16[1,21,7]"},
       "f16[9,1,2,7]; f16[1,2,7]"},
      {"Recurrent kind=rnn direction=bidirectional",
       {"f64[T,1,5]", "f64[2,7,5]", "f64[2,7,7]", "f64[2,14]"},
       "f64[T,2,1,7]; f64[2,1,7]"},
      {"Recurrent direction=reverse clip=3 alphas=[1,2,3]",
       {"f32[T,N,5]", "f32[1,28,5]", "f32[1,28,7]", "_", "i32[N]", "f32[1,N,7]", "f32[1,N,7]",
        "f32[1,21]"},
       "f32[T,1,N,7]; f32[1,N,7]; f32[1,N,7]"},
      {"Recurrent",
       {"f32[0,0,0]", "f32[1,0,0]", "f32[1,0,0]"},
       "f32[0,1,0,0]; f32[1,0,0]; f32[1,0,0]"},
      {"Recurrent",
       {"f32[T,N,I]", "f32[1,4*H,I]", "f32[1,4*H,H]", "f32[1,8*H]"},
       "f32[T,1,N,H]; f32[1,N,H]; f32[1,N,H]"},
  });
}

TEST(InferRecurrent, Refusals) {
  const std::string w = "f32[1,28,5]", r = "f32[1,28,7]", x = "f32[9,2,5]";
  check_cases({
      {"Recurrent", {"f32[9,5]", w, r}, "error: x of rank 2, not 3"},
      {"Recurrent", {"i32[9,2,5]", w, r}, "error: not a float type"},
      {"Recurrent", {x, w, "f32[28,7]"}, "error: recurrent weights of rank 2"},
      {"Recurrent", {x, w}, "error: "},
      {"Recurrent", {x, "f64[1,28,5]", r}, "error: input 1 is f64, not f32"},
      {"Recurrent", {x, "f32[1,28,6]", r}, "error: input 1 (weights) is [1,28,6], not [1,28,5]"},
      {"Recurrent", {x, w, "f32[1,27,7]"}, "error: (recurrent weights) is [1,27,7], not [1,28,7]"},
      {"Recurrent direction=bidirectional", {x, w, r}, "error: not [2,28,5]"},
      {"Recurrent kind=gru", {x, w, r}, "error: not [1,21,5]"},
      {"Recurrent", {x, w, r, "f32[1,28]"}, "error: (bias) is [1,28], not [1,56]"},
      {"Recurrent", {x, w, r, "_", "i64[2]"}, "error: input 4 is i64, not i32"},
      {"Recurrent", {x, w, r, "_", "i32[3]"}, "error: (lengths) is [3], not [2]"},
      {"Recurrent", {x, w, r, "_", "_", "f32[1,2,6]"}, "error: (initial hidden state)"},
      {"Recurrent", {x, w, r, "_", "_", "_", "f32[2,7]"}, "error: (initial cell)"},
      {"Recurrent", {x, w, r, "_", "_", "_", "_", "f32[1,28]"}, "error: (peepholes)"},
      {"Recurrent alphas=[1,2]", {x, w, r}, "error: 2 alphas for 3 activations"},
      {"Recurrent betas=[1]", {x, w, r}, "error: 1 betas for 3 activations"},
      {"Recurrent clip=-1", {x, w, r}, "error: a clip of -1"},
      {"Recurrent clip=nan", {x, w, r}, "error: a clip of nan"},
  });
}

TEST(InferLinearAttention, ShapesAndRefusals) {
  const std::string q = "f32[2,T,4,8]", k = "f32[2,T,1,8]", v = "f32[2,T,2,5]";
  check_cases({
      {"LinearAttention", {q, k, v}, "f32[2,T,4,5]; f32[2,2,8,5]"},
      {"LinearAttention transposed=true",
       {"f32[B,1,1,8]", "f32[B,1,2,8]", "f32[B,1,2,5]", "f32[B,2,5,8]", "f32[B,1,2,8]",
        "f32[B,1,1]"},
       "f32[B,1,2,5]; f32[B,2,5,8]"},
      {"LinearAttention",
       {q, k, v, "_", "f32[2,T,2,1]", "f32[2,T,2]"},
       "f32[2,T,4,5]; f32[2,2,8,5]"},
      {"LinearAttention", {"f32[2,T,8]", k, v}, "error: queries [2,T,8], keys"},
      {"LinearAttention", {q, k, "f16[2,T,2,5]"}, "error: input 2 is f16, not f32"},
      {"LinearAttention", {"f32[2,T,N,8]", k, v}, "error: numbers of heads known only"},
      {"LinearAttention", {"f32[2,T,3,8]", k, v}, "error: 3 heads of queries and 1 of keys for 2"},
      {"LinearAttention", {q, "f32[2,T,4,8]", v}, "error: 4 of keys for 2"},
      {"LinearAttention", {q, "f32[2,T,1,7]", v}, "error: input 1 (keys)"},
      {"LinearAttention", {q, k, v, "f32[2,2,5,8]"}, "error: input 3 (state)"},
      {"LinearAttention", {q, k, v, "_", "f32[2,T,2,5]"}, "error: input 4 (decay)"},
      {"LinearAttention", {q, k, v, "_", "_", "f32[2,T,4]"}, "error: input 5 (beta)"},
  });
}

TEST(InferReverseSequence, ShapesAndRefusals) {
  check_cases({
      {"ReverseSequence", {"f32[T,N,5]", "i64[N]"}, "f32[T,N,5]"},
      {"ReverseSequence batch_axis=0 time_axis=2", {"bool[2,3,4]", "i64[2]"}, "bool[2,3,4]"},
      {"ReverseSequence", {"f32[3,2]", "i64[3]"}, "error: batch sizes"},
      {"ReverseSequence", {"f32[3,2]", "i32[2]"}, "error: input 1 is i32, not i64"},
      {"ReverseSequence", {"f32[3,2]", "i64[2,1]"}, "error: lengths of rank 2"},
      {"ReverseSequence", {"f32[3]", "i64[3]"}, "error: "},
      {"ReverseSequence time_axis=1", {"f32[3,2]", "i64[2]"}, "error: two axes that are one"},
  });
}

TEST(InferDecisionTrees, ShapesAndRefusals) {
  check_cases({
      {"DecisionTrees", {"f32[N,5]", "i32[9]", "f32[9]", "i32[9,2]", "i32[T]"}, "i32[N,T]"},
      {"DecisionTrees leaves=0 depth=0",
       {"f64[3,5]", "i32[M]", "f64[M]", "i32[M,2]", "i32[4]"},
       "i32[3,4]"},
      {"DecisionTrees",
       {"f16[N,5]", "i32[9]", "f16[9]", "i32[9,2]", "i32[2]"},
       "error: features of f16"},
      {"DecisionTrees",
       {"f32[N,5]", "i32[9]", "f64[9]", "i32[9,2]", "i32[2]"},
       "error: input 2 is f64, not f32"},
      {"DecisionTrees",
       {"f32[N,5]", "i64[9]", "f32[9]", "i32[9,2]", "i32[2]"},
       "error: input 1 is i64, not i32"},
      {"DecisionTrees",
       {"f32[N,5]", "i32[8]", "f32[9]", "i32[9,2]", "i32[2]"},
       "error: numbers of nodes"},
      {"DecisionTrees", {"f32[N,5]", "i32[9]", "f32[9]", "i32[9,3]", "i32[2]"}, "error: rows"},
      {"DecisionTrees depth=-1",
       {"f32[N,5]", "i32[9]", "f32[9]", "i32[9,2]", "i32[2]"},
       "error: 1 leaves and a depth of -1"},
      {"DecisionTrees depth=10",
       {"f32[N,5]", "i32[9]", "f32[9]", "i32[9,2]", "i32[2]"},
       "error: 1 leaves and a depth of 10"},
      {"DecisionTrees leaves=2147483648",
       {"f32[N,5]", "i32[M]", "f32[M]", "i32[M,2]", "i32[2]"},
       "error: 2147483648 leaves"},
      {"DecisionTrees",
       {"f32[N,5]", "i32[0]", "f32[0]", "i32[0,2]", "i32[2]"},
       "error: trees without nodes"},
      {"DecisionTrees",
       {"f32[N,0]", "i32[9]", "f32[9]", "i32[9,2]", "i32[2]"},
       "error: rows without features"},
      {"DecisionTrees depth=0", {"f32[N,0]", "i32[9]", "f32[9]", "i32[9,2]", "i32[2]"}, "i32[N,2]"},
  });
}

}  // namespace
}  // namespace anneal
