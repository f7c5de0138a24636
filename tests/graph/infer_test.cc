// Shape rules: types, sizes as expressions, and refusals. Contents are in infer_contents_test.cc.
#include "anneal/core/error.h"
#include "anneal/tests/graph/infer_case.h"

namespace anneal {
namespace {

TEST(Infer, Pointwise) {
  const std::string add = "Pointwise program=\"(f32,f32)->(f32) add($0,$1)\"";
  check_cases({
      {add, {"f32[2,3]", "f32[3]"}, "f32[2,3]"},
      {add, {"f32[2,1]", "f32[7]"}, "f32[2,7]"},
      {add, {"f32[N,1,5]", "f32[7,1]"}, "f32[N,7,5]"},
      {add, {"f32[N]", "f32[M]"}, "f32[broadcast(N, M)]"},
      {add, {"f32[N]", "f32[5]"}, "f32[5]"},
      {add, {"f32[0]", "f32[1]"}, "f32[0]"},
      {add, {"f32[]", "f32[]"}, "f32[]"},
      {"Pointwise program=\"(f16)->(f16,bool) $0, lt(0f32,$0)\"", {"f16[N]"}, "f16[N]; bool[N]"},
      {"Pointwise program=\"(f32)->(i64) index(1)\"", {"f32[2,N]"}, "i64[2,N]"},
      {"Pointwise program=\"(f32)->(i64) index(1)\"", {"f32[2]"}, "error: index(1)"},
      {add, {"f32[2]", "f32[3]"}, "error: do not broadcast"},
      {add, {"f32[0]", "f32[2]"}, "error: do not broadcast"},
      {add, {"f32[2]", "f64[2]"}, "error: input 1 is f64, not f32"},
      {add, {"f32[2]"}, "error: 1 inputs for a program of 2"},
      {add, {"f32[2]", "_"}, "error: input 1 is absent"},
      {add, {"f32[2]", "seq(f32[2])"}, "error: not a tensor"},
      {add, {}, "error: 0 inputs"},
      {"Pointwise", {"f32[2]"}, "error: "},
  });
}

TEST(Infer, Conv) {
  const std::string plain = "Conv strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]";
  const std::string half = "Conv strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]";
  check_cases({
      {plain, {"f32[1,3,7,9]", "f32[5,3,3,3]"}, "f32[1,5,5,7]"},
      {half, {"f32[N,3,224,H]", "f32[64,3,3,3]"}, "f32[N,64,112,(H + 1)//2]"},
      {"Conv strides=[1,1] pads_begin=[0,2] pads_end=[0,1] dilations=[2,1] groups=4",
       {"f16[2,4,7,5]", "f16[8,1,3,3]"},
       "f16[2,8,3,6]"},
      {"Conv strides=[1] pads_begin=[0] pads_end=[0] dilations=[1]",
       {"f32[1,C,8]", "f32[4,2,3]"},
       "f32[1,4,6]"},
      {plain, {"u8[1,3,7,7]", "i8[5,3,3,3]", "u8[]", "i8[5]"}, "i32[1,5,5,5]"},
      {plain, {"u8[1,3,7,7]", "u8[5,3,3,3]", "_", "u8[1]"}, "i32[1,5,5,5]"},
      {plain, {"f32[0,3,7,7]", "f32[5,3,3,3]"}, "f32[0,5,5,5]"},
      {plain, {"f32[1,3,7,7]", "f32[5,4,3,3]"}, "error: input channels"},
      {plain, {"f32[1,3,7,7]", "f32[5,3,3]"}, "error: weights of rank 3"},
      {plain, {"f32[1,3]", "f32[5,3]"}, "error: no spatial axes"},
      {plain, {"f32[1,3,7,7]", "f16[5,3,3,3]"}, "error: operands are f32 and f16"},
      {plain, {"i32[1,3,7,7]", "i32[5,3,3,3]"}, "error: operands are i32"},
      {plain, {"f32[1,3,7,7]", "f32[5,3,3,3]", "f32[]"}, "error: a zero point for f32"},
      {plain, {"u8[1,3,7,7]", "i8[5,3,3,3]", "i8[]"}, "error: input 2 is i8, not u8"},
      {plain, {"u8[1,3,7,7]", "i8[5,3,3,3]", "u8[]", "i8[4]"}, "error: zero point of shape [4]"},
      {plain, {"f32[1,3,2,7]", "f32[5,3,3,3]"}, "error: larger than the padded input of 2"},
      {plain, {"f32[1,3,7,7]", "f32[5,3,0,3]"}, "error: a window of no elements"},
      {"Conv strides=[1]", {"f32[1,3,7,7]", "f32[5,3,3,3]"}, "error: 1 strides for 2"},
      {"Conv strides=[0,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]",
       {"f32[1,3,7,7]", "f32[5,3,3,3]"},
       "error: strides of 0"},
      {"Conv strides=[1,1] pads_begin=[-1,0] pads_end=[0,0] dilations=[1,1]",
       {"f32[1,3,7,7]", "f32[5,3,3,3]"},
       "error: pads_begin of -1"},
      {plain + " groups=2", {"f32[1,4,7,7]", "f32[5,2,3,3]"}, "error: 5 output channels in 2"},
      {plain + " split=[2,3]", {"f32[1,3,7,9]", "f32[5,3,3,3]"}, "f32[1,2,5,7]; f32[1,3,5,7]"},
      {plain + " split=[5]", {"f32[1,3,7,9]", "f32[5,3,3,3]"}, "f32[1,5,5,7]"},
      {plain + " split=[2,3]", {"f32[N,3,7,9]", "f32[K,3,3,3]"}, "f32[N,2,5,7]; f32[N,3,5,7]"},
      {plain + " split=[1,4]",
       {"u8[1,3,7,7]", "i8[5,3,3,3]", "u8[]", "i8[5]"},
       "i32[1,1,5,5]; i32[1,4,5,5]"},
      {plain + " split=[2,2]", {"f32[1,3,7,9]", "f32[5,3,3,3]"}, "error: sum of split 5 and 4"},
      {plain + " split=[5,0]", {"f32[1,3,7,9]", "f32[5,3,3,3]"}, "error: a part of 0"},
      {plain + " split=[9223372036854775807,9223372036854775807]",
       {"f32[1,3,7,9]", "f32[5,3,3,3]"},
       "error: "},
      {plain + " split=[2,2] groups=2", {"f32[1,4,7,7]", "f32[4,2,3,3]"}, "error: of 2 groups"},
      {plain + " groups=0", {"f32[1,4,7,7]", "f32[5,2,3,3]"}, "error: 0 groups"},
      {"Conv strides=[1] pads_begin=[0] pads_end=[0] dilations=[9223372036854775807]",
       {"f32[1,3,7]", "f32[5,3,3]"},
       "error: "},
  });
}

TEST(Infer, ConvTranspose) {
  const std::string twice =
      "ConvTranspose strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] "
      "output_padding=[1,0]";
  check_cases({
      {twice, {"f32[1,8,7,H]", "f32[8,3,3,3]"}, "f32[1,3,14,2*H - 1]"},
      {twice + " groups=2", {"f32[1,8,7,7]", "f32[8,3,4,4]"}, "f32[1,6,15,14]"},
      {twice, {"f32[1,8,7,7]", "f32[7,3,3,3]"}, "error: input channels 8 and 7"},
      {twice, {"f32[1,8,0,7]", "f32[8,3,1,3]"}, "error: a negative size"},
      {twice, {"u8[1,8,7,7]", "u8[8,3,3,3]"}, "error: not a float type"},
      {twice + " groups=3", {"f32[1,8,7,7]", "f32[8,3,3,3]"}, "error: 8 input channels in 3"},
  });
}

TEST(Infer, MatMul) {
  check_cases({
      {"MatMul", {"f32[2,3]", "f32[3,5]"}, "f32[2,5]"},
      {"MatMul", {"f32[B,T,64]", "f32[64,N]"}, "f32[B,T,N]"},
      {"MatMul", {"f16[4,1,2,3]", "f16[7,3,5]"}, "f16[4,7,2,5]"},
      {"MatMul transpose_b=true", {"f32[2,3]", "f32[5,3]"}, "f32[2,5]"},
      {"MatMul transpose_a=true", {"f32[9,3,2]", "f32[3,5]"}, "f32[9,2,5]"},
      {"MatMul", {"u8[2,3]", "i8[3,5]", "u8[2]", "i8[5]"}, "i32[2,5]"},
      {"MatMul", {"i64[2,0]", "i64[0,5]"}, "i64[2,5]"},
      {"MatMul", {"f32[B,T,64]", "i8[64,5]", "_", "_", "f32[1,5]"}, "f32[B,T,5]"},
      {"MatMul transpose_b=true",
       {"f32[B,64]", "u8[5,64]", "_", "u8[5,2]", "f32[5,2]"},
       "f32[B,5]"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "i8[1,1]", "f32[1,1]"}, "f32[2,5]"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "_", "f32[3,5]"}, "error: scales of shape [3,5]"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "_", "f32[0,5]"}, "error: scales of shape [0,5]"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "_", "f32[1,2]"}, "error: scales of shape [1,2]"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "_", "f32[5]"}, "error: scales of rank 1"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "i8[1,5]", "f32[2,5]"}, "error: zero points of"},
      {"MatMul", {"f32[2,64]", "i8[64,5]", "_", "u8[2,5]", "f32[2,5]"}, "error: input 3 is u8"},
      {"MatMul", {"f32[2,64]", "f32[64,5]", "_", "_", "f32[1,5]"}, "error: weights of f32"},
      {"MatMul",
       {"u8[2,64]", "i8[64,5]", "_", "_", "f32[1,5]"},
       "error: quantized weights for data of u8"},
      {"MatMul", {"f16[2,64]", "i8[64,5]", "_", "_", "f32[1,5]"}, "f16[2,5]"},
      {"MatMul transpose_b=true b_encoding=u2",
       {"f32[2,64]", "u8[5,16]", "_", "_", "f32[5,1]"},
       "f32[2,5]"},
      {"MatMul transpose_b=true b_encoding=e4m3",
       {"bf16[2,64]", "u8[5,64]", "_", "_", "f32[5,4]"},
       "bf16[2,5]"},
      {"MatMul b_encoding=u4",
       {"f32[2,64]", "u8[32,5]", "_", "_", "f32[1,5]"},
       "error: codes of weights that are not u8 with a row for each column"},
      {"MatMul transpose_b=true b_encoding=e2m1",
       {"f32[2,64]", "u8[5,32]", "_", "u8[5,1]", "f32[5,1]"},
       "error: zero points of weights that are floats"},
      {"MatMul transpose_b=true b_encoding=nf4",
       {"f32[2,64]", "u8[5,32]"},
       "error: codes of weights without scales"},
      {"MatMul split=[1,4]", {"f32[B,T,3]", "f32[3,5]"}, "f32[B,T,1]; f32[B,T,4]"},
      {"MatMul transpose_b=true split=[2,3]",
       {"u8[2,3]", "i8[5,3]", "u8[2]", "i8[5]"},
       "i32[2,2]; i32[2,3]"},
      {"MatMul split=[1,3]", {"f32[2,3]", "f32[3,5]"}, "error: sum of split 5 and 4"},
      {"MatMul split=[6,-1]", {"f32[2,3]", "f32[3,5]"}, "error: a part of -1"},
      {"MatMul", {"f32[2,3]", "f32[4,5]"}, "error: inner sizes 3 and 4"},
      {"MatMul", {"f32[3]", "f32[3,5]"}, "error: ranks 1 and 2"},
      {"MatMul", {"f32[2,3]", "i32[3,5]"}, "error: operands are f32 and i32"},
      {"MatMul", {"bool[2,3]", "bool[3,5]"}, "error: operands are bool"},
      {"MatMul", {"f32[2,2,3]", "f32[3,3,5]"}, "error: do not broadcast"},
      {"MatMul", {"u8[2,3]", "i8[3,5]", "u8[3]"}, "error: zero point of shape [3] for 2"},
      {"MatMul", {"f32[2,3]"}, "error: 1 inputs for MatMul"},
  });
}

TEST(Infer, Pool) {
  const auto pool = [](const std::string& window, const std::string& more) {
    return "Pool " + window + " dilations=[1]" + more;
  };
  const std::string three = "kernel=[3] strides=[2] pads_begin=[0] pads_end=[0]";
  const std::string padded = "kernel=[3] strides=[2] pads_begin=[1] pads_end=[1]";
  check_cases({
      {pool(three, ""), {"f32[1,2,7]"}, "f32[1,2,3]"},
      {pool(three, ""), {"f32[1,2,8]"}, "f32[1,2,3]"},
      {pool(three, " ceil_mode=true"), {"f32[1,2,8]"}, "f32[1,2,4]"},
      {pool(padded, " ceil_mode=true"), {"f32[1,2,8]"}, "f32[1,2,5]"},
      // The fifth window would start in the padding at the end.
      {pool("kernel=[2] strides=[2] pads_begin=[0] pads_end=[1]", " ceil_mode=true"),
       {"f32[1,2,8]"},
       "f32[1,2,4]"},
      {pool("kernel=[1] strides=[3] pads_begin=[0] pads_end=[0]", " ceil_mode=true"),
       {"f32[1,2,5]"},
       "f32[1,2,2]"},
      {pool("kernel=[2] strides=[2] pads_begin=[0] pads_end=[0]", " ceil_mode=true"),
       {"f32[1,2,1]"},
       "f32[1,2,1]"},
      {pool(three, ""), {"f32[1,2,W]"}, "f32[1,2,(W + 1)//2 - 1]"},
      {pool(three, " ceil_mode=true"), {"f32[1,2,W]"}, "f32[1,2,W//2]"},
      {pool(three, " with_indices=true"), {"u8[1,2,7]"}, "u8[1,2,3]; i64[1,2,3]"},
      {pool(three, ""), {"f32[1,2,2]"}, "error: larger than the padded input"},
      {pool(three, " kind=average with_indices=true"), {"f32[1,2,7]"}, "error: without maxima"},
      {pool(three, " kind=average"), {"i64[1,2,7]"}, "error: pooling of i64"},
      {pool(three, " kind=lp p=0"), {"f32[1,2,7]"}, "error: an L0 norm"},
      {pool("kernel=[2] strides=[2] pads_begin=[2] pads_end=[0]", ""),
       {"f32[1,2,8]"},
       "error: pads of 2 and 0"},
      {pool(three, ""), {"f32[1,2,7,7]"}, "error: 1 kernel for 2"},
  });
}

TEST(Infer, NormalizationAndSoftmax) {
  check_cases({
      {"Softmax axis=1", {"f32[N,3]"}, "f32[N,3]"},
      {"Softmax axis=2", {"f32[N,3]"}, "error: axis 2 of a tensor of rank 2"},
      {"Softmax axis=-1", {"f32[N,3]"}, "error: axis -1"},
      {"Softmax", {"i32[3]"}, "error: not a float type"},
      {"Softmax axis=1 map=\"(f32,f32)->(f16) round_f16(add($0,$1))\"",
       {"f32[N,1]", "f32[3]"},
       "f16[N,3]"},
      {"Softmax map=\"(f32)->(i32) i32($0)\"", {"f32[3]"}, "error: is i32, not a float type"},
      {"Softmax map=\"(f32)->(f32,f32) $0, neg($0)\"", {"f32[3]"}, "error: a map with 2 results"},
      {"Softmax", {"f32[3]", "f32[3]"}, "error: 2 inputs for Softmax"},
      {"Normalize axes=[1,2]", {"f16[N,3,4]"}, "f16[N,3,4]"},
      {"Normalize axes=[2,1]", {"f16[N,3,4]"}, "error: not ascending"},
      {"Normalize axes=[1,1]", {"f16[N,3,4]"}, "error: not ascending"},
      {"Normalize axes=[3]", {"f16[N,3,4]"}, "error: axis 3"},
      {"Normalize", {"f16[N,3,4]"}, "error: no axes"},
  });
}

TEST(Infer, Attention) {
  const std::string mask = "Attention score=\"(f32,f32)->(f32) add($0,$1)\"";
  check_cases({
      {"Attention", {"f32[N,8,L,64]", "f32[N,8,S,64]", "f32[N,8,S,32]"}, "f32[N,8,L,32]"},
      {"Attention", {"f16[N,H,L,64]", "f16[2,G,S,64]", "f16[N,G,9,64]"}, "f16[2,H,L,64]"},
      {"Attention", {"f32[1,8,L,64]", "f32[1,2,S,64]", "f32[1,2,S,64]"}, "f32[1,8,L,64]"},
      {"Attention",
       {"f32[1,8,3,64]", "f32[1,3,S,64]", "f32[1,3,S,64]"},
       "error: 8 heads of q for 3"},
      {"Attention",
       {"f32[1,8,3,64]", "f32[1,0,S,64]", "f32[1,0,S,64]"},
       "error: 8 heads of q for 0"},
      {"Attention", {"f32[1,8,3,64]", "f32[1,8,5,32]", "f32[1,8,5,64]"}, "error: inner sizes"},
      {"Attention", {"f32[1,8,3,64]", "f32[1,8,5,64]", "f32[1,8,6,64]"}, "error: numbers of keys"},
      {"Attention", {"f32[1,8,3,64]", "bf16[1,8,5,64]", "f16[1,8,5,64]"}, "f32[1,8,3,64]"},
      {"Attention", {"f32[1,8,3,64]", "u8[1,8,S,32]", "u8[1,8,S,E]"}, "f32[1,8,3,2*E]"},
      {"Attention", {"f32[1,8,3,64]", "u8[1,8,5,64]", "u8[1,8,5,32]"}, "error: inner sizes"},
      {"Attention", {"f16[1,8,3,64]", "f16[1,8,5,64]", "f32[1,8,5,64]"}, "error: input 2 is f32"},
      {"Attention", {"f32[8,3,64]", "f32[8,5,64]", "f32[8,5,64]"}, "error: input 0 has rank 3"},
      {"Attention", {"i32[1,1,3,4]", "i32[1,1,3,4]", "i32[1,1,3,4]"}, "error: not a float type"},
      {mask, {"f16[1,8,3,64]", "f16[1,8,5,64]", "f16[1,8,5,64]", "f32[3,5]"}, "f16[1,8,3,64]"},
      {mask,
       {"f32[1,8,3,64]", "f32[1,8,5,64]", "f32[1,8,5,64]"},
       "error: 1 inputs for a program of 2"},
      {mask,
       {"f32[1,8,3,64]", "f32[1,8,5,64]", "f32[1,8,5,64]", "f32[4,5]"},
       "error: input 1 of shape [4,5] does not broadcast"},
      {"Attention score=\"(f32)->(i32) i32($0)\"",
       {"f32[1,8,3,64]", "f32[1,8,5,64]", "f32[1,8,5,64]"},
       "error: a score that is not one result"},
  });
}

TEST(Infer, Quantization) {
  check_cases({
      {"Quantize", {"f32[N,3]", "f32[]", "u8[]"}, "u8[N,3]"},
      {"Quantize axis=1 dtype=i8", {"f16[N,3]", "f16[3]", "i8[3]"}, "i8[N,3]"},
      {"Quantize axis=1 block_size=4", {"f32[5,10]", "f32[5,3]"}, "u8[5,10]"},
      {"Quantize", {"i32[2]", "f32[1]"}, "u8[2]"},
      {"Quantize", {"f32[2]", "f32[]", "i8[]"}, "error: input 2 is i8, not u8"},
      {"Quantize axis=1", {"f32[N,3]", "f32[4]"}, "error: scales and axis 4 and 3"},
      {"Quantize axis=2", {"f32[N,3]", "f32[3]"}, "error: axis 2"},
      {"Quantize axis=1 block_size=4", {"f32[5,10]", "f32[5,2]"}, "error: scales and blocks"},
      {"Quantize dtype=f16", {"f32[2]", "f32[]"}, "error: quantization to f16"},
      {"Quantize", {"f32[2]", "i32[]"}, "error: not a float type"},
      {"Quantize", {"f32[2]", "f32[2]", "u8[]"}, "error: zero points of rank 0"},
      {"Dequantize", {"u8[N,3]", "f16[]"}, "f16[N,3]"},
      {"Dequantize axis=1", {"i32[N,3]", "f32[3]", "i32[3]"}, "f32[N,3]"},
      {"Dequantize", {"i64[2]", "f32[]"}, "error: dequantization of i64"},
      {"Dequantize encoding=e4m3", {"u8[N,3]", "f16[]"}, "f16[N,3]"},
      {"Dequantize encoding=e4m3", {"i8[2]", "f32[]"}, "error: input 0 is i8"},
      {"Dequantize encoding=e2m1", {"u8[2]", "f32[]", "u8[]"}, "error: a zero point of floats"},
      {"Dequantize encoding=u4", {"u8[2]", "f32[]"}, "error: codes of less than 8 bits"},
      {"Dequantize", {"f32[2]", "f32[]"}, "error: dequantization of f32"},
  });
}

TEST(Infer, Resize) {
  check_cases({
      {"Resize axes=[2,3]", {"f32[1,3,4,5]", "i64{8,W}"}, "f32[1,3,8,W]"},
      {"Resize axes=[2,3]", {"f32[1,3,4,5]", "i64[2]"}, "f32[1,3,?,?]"},
      {"Resize axes=[2,3] scales=[2,0.5]", {"f32[1,3,H,W]"}, "f32[1,3,2*H,W//2]"},
      {"Resize axes=[2] scales=[0.6]", {"f32[1,3,5]", "_", "_"}, "f32[1,3,3]"},
      {"Resize axes=[2] scales=[0.7]", {"f32[1,3,10]"}, "f32[1,3,7]"},
      {"Resize axes=[2] scales=[0.7]", {"f32[1,3,H]"}, "f32[1,3,?]"},
      {"Resize axes=[0,1] policy=not_larger", {"f32[2,4]", "i64{7,8}"}, "f32[4,8]"},
      {"Resize axes=[0,1] policy=not_smaller", {"f32[2,4]", "i64{7,8}"}, "f32[7,14]"},
      {"Resize axes=[0,1] policy=not_larger", {"f32[3,4]", "i64{7,6}"}, "f32[5,6]"},  // 4.5
      {"Resize axes=[0] policy=not_larger", {"f32[3,4]", "i64{7}"}, "f32[7,4]"},
      {"Resize axes=[0] coordinates=tf_crop_and_resize",
       {"f32[3,4]", "i64{7}", "f32[2]"},
       "f32[7,4]"},
      {"Resize axes=[2,3]", {"f32[1,3,4,5]", "i64{8}"}, "error: 1 sizes for 2 axes"},
      {"Resize axes=[2,3]", {"f32[1,3,4,5]"}, "error: input 1 is absent"},
      {"Resize axes=[3,2]", {"f32[1,3,4,5]", "i64{8,8}"}, "error: not ascending"},
      {"Resize axes=[4]", {"f32[1,3,4,5]", "i64{8}"}, "error: axis 4"},
      {"Resize axes=[2]", {"f32[1,3,4,5]", "i64{-8}"}, "error: a negative size"},
      {"Resize axes=[2]", {"f32[1,3,0,5]", "i64{8}"}, "error: without elements"},
      {"Resize axes=[2] scales=[0]", {"f32[1,3,4,5]"}, "error: a scale of 0"},
      {"Resize axes=[2] scales=[2,2]", {"f32[1,3,4,5]"}, "error: 2 scales for 1"},
      {"Resize axes=[2] scales=[2]", {"f32[1,3,4,5]", "i64{8}"}, "error: scales and sizes"},
      {"Resize axes=[0] coordinates=tf_crop_and_resize",
       {"f32[3,4]", "i64{7}"},
       "error: without a region"},
      {"Resize axes=[0]", {"f32[3,4]", "i64{7}", "f32[3]"}, "error: a region of shape [3]"},
      {"Resize axes=[0]", {"bool[3,4]", "i64{7}"}, "error: resizing of bool"},
  });
}

TEST(Infer, Reductions) {
  check_cases({
      {"Reduce", {"f32[N,3,4]", "i64{1}"}, "f32[N,1,4]"},
      {"Reduce keepdims=false", {"f32[N,3,4]", "i64{-1,0}"}, "f32[3]"},
      {"Reduce", {"f32[N,3]", "i64{}"}, "f32[N,3]"},
      {"Reduce", {"f32[N,3]", "i64[1]"}, "f32[?,?]"},
      {"Reduce keepdims=false", {"f32[N,3]", "i64[1]"}, "f32[?]"},
      {"Reduce kind=max", {"bool[2,3]", "i64{0}"}, "bool[1,3]"},
      {"Reduce keepdims=false", {"f32[N,3]", "i64[K]"}, "error: the rank depends on it"},
      {"Reduce", {"f32[N,3]", "i64{2}"}, "error: axis 2"},
      {"Reduce map=\"(f32,f32)->(i32) i32(mul($0,$1))\"",
       {"f32[N,1]", "i64{1}", "f32[2,1,3]"},
       "i32[2,1,3]"},
      {"Reduce map=\"(f32,f32)->(f32) mul($0,$1)\"", {"f32[3]", "i64{0}"}, "error: of 2"},
      {"Reduce", {"f32[3]", "i64{0}", "f32[3]"}, "error: 3 inputs for Reduce"},
      {"Reduce", {"f32[N,3]", "i64{1,-1}"}, "error: given twice"},
      {"Reduce", {"f32[N,3]", "i32{1}"}, "error: input 1 is i32, not i64"},
      {"Reduce", {"bool[2]", "i64{0}"}, "error: a reduction of bool"},
      {"Reduce", {"i8[2]", "i64{0}"}, "error: a reduction of i8"},
      {"ArgReduce axis=1", {"f32[N,3]"}, "i64[N,1]"},
      {"ArgReduce axis=1 keepdims=false", {"u8[N,3]"}, "i64[N]"},
      {"ArgReduce axis=1", {"f32[N,0]"}, "error: no elements"},
      {"ArgReduce axis=2", {"f32[N,3]"}, "error: axis 2"},
      {"ArgReduce", {"bool[3]"}, "error: the largest of bool"},
      {"Cumulative", {"f32[N,3]", "i64[]{-1}"}, "f32[N,3]"},
      {"Cumulative", {"f32[N,3]", "i64[]"}, "f32[N,3]"},
      {"Cumulative", {"f32[N,3]", "i64[]{2}"}, "error: axis 2"},
      {"Cumulative", {"f32[N,3]", "i64[2]"}, "error: no scalar"},
      {"Cumulative", {"bool[3]", "i64[]{0}"}, "error: cumulative sum of bool"},
      {"TopK axis=1", {"f32[N,10]", "i64{5}"}, "f32[N,5]; i64[N,5]"},
      {"TopK axis=1", {"f32[N,10]", "i64{K}"}, "f32[N,K]; i64[N,K]"},
      {"TopK axis=1", {"f32[N,10]", "i64[1]"}, "f32[N,?]; i64[N,?]"},
      {"TopK axis=1", {"f32[N,10]", "i64{11}"}, "error: k is 11 of 10"},
      {"TopK axis=1", {"f32[N,10]", "i64{-1}"}, "error: a negative k"},
      {"TopK axis=1", {"f32[N,10]", "i64{5,5}"}, "error: no scalar"},
      {"TopK axis=2", {"f32[N,10]", "i64{5}"}, "error: axis 2"},
      {"TopK axis=1 of=softmax", {"f16[N,10]", "i64{5}"}, "f16[N,5]; i64[N,5]"},
      {"TopK axis=1 of=softmax", {"i32[N,10]", "i64{5}"}, "error: not a float type"},
  });
}

TEST(Infer, Reshape) {
  check_cases({
      {"Reshape", {"f32[2,3,4]", "i64{4,6}"}, "f32[4,6]"},
      {"Reshape", {"f32[2,3,4]", "i64{0,-1}"}, "f32[2,12]"},
      {"Reshape", {"f32[2,3,4]", "i64{-1}"}, "f32[24]"},
      {"Reshape", {"f32[N,512,7,7]", "i64{0,-1}"}, "f32[N,25088]"},
      {"Reshape", {"f32[N,512,7,7]", "i64{N,-1}"}, "f32[N,25088]"},
      {"Reshape", {"f32[N,512,7,7]", "i64{-1,25088}"}, "f32[N,25088]"},
      {"Reshape", {"f32[N,C,H,W]", "i64{N,C,-1}"}, "f32[N,C,H*W]"},
      {"Reshape", {"f32[B,T,768]", "i64{B,T,12,64}"}, "f32[B,T,12,64]"},
      {"Reshape", {"f32[B,T,768]", "i64{0,0,12,-1}"}, "f32[B,T,12,64]"},
      {"Reshape", {"f32[N,3]", "i64{-1,4}"}, "f32[N - (N + 3)//4,4]"},
      {"Reshape", {"f32[N,4]", "i64{-1,2}"}, "f32[2*N,2]"},
      {"Reshape", {"f32[N,4]", "i64{?,2}"}, "f32[2*N,2]"},
      {"Reshape", {"f32[N,4]", "i64{?,-1}"}, "f32[?,?]"},
      {"Reshape", {"f32[N,4]", "i64[3]"}, "f32[?,?,?]"},
      {"Reshape", {"f32[N,4]", "i64{1,4}"}, "f32[1,4]"},
      {"Reshape allow_zero=true", {"f32[0,4]", "i64{0,7}"}, "f32[0,7]"},
      {"Reshape", {"f32[0,4]", "i64{4,0}"}, "error: has not as many"},
      {"Reshape", {"f32[]", "i64{1,1}"}, "f32[1,1]"},
      {"Reshape", {"f32[1]", "i64{}"}, "f32[]"},
      {"Reshape allow_zero=true", {"f32[0,4]", "i64{0,-1}"}, "error: a size of -1 beside"},
      {"Reshape", {"f32[0,4]", "i64{0,-1}"}, "error: a size of -1 beside"},
      {"Reshape", {"f32[2,3]", "i64{-1,-1}"}, "error: two sizes of -1"},
      {"Reshape", {"f32[2,3]", "i64{-2,3}"}, "error: a size of -2"},
      {"Reshape", {"f32[2,3]", "i64{4,-1}"}, "error: does not divide"},
      {"Reshape", {"f32[2,3]", "i64{7}"}, "error: has not as many"},
      {"Reshape", {"f32[2,3]", "i64{2,3,0}"}, "error: copies axis 2"},
      {"Reshape", {"f32[2,3]", "i64[K]"}, "error: the rank depends on it"},
      {"Reshape", {"f32[2,3]", "i64[2,1]"}, "error: rank 2, not 1"},
      {"Reshape", {"f32[2,3]", "i32{6}"}, "error: not i64"},
      {"Reshape", {"f32[2,3]", "i64{1,1,1,1,1,1,1,1,6}"}, "error: more than 8 axes"},
      {"Reshape", {"f32[2,3]", "i64{9223372036854775807,9223372036854775807}"}, "error: "},
  });
}

TEST(Infer, MovingElements) {
  check_cases({
      {"Transpose permutation=[2,0,1]", {"f32[N,3,4]"}, "f32[4,N,3]"},
      {"Transpose permutation=[0,0]", {"f32[2,3]"}, "error: given twice"},
      {"Transpose permutation=[0]", {"f32[2,3]"}, "error: 1 axes for rank 2"},
      {"Transpose permutation=[0,2]", {"f32[2,3]"}, "error: axis 2"},
      {"BitCast dtype=i32", {"f32[N,3]"}, "i32[N,3]"},
      {"BitCast dtype=u8", {"bool[3]"}, "u8[3]"},
      {"BitCast dtype=i64", {"f32[3]"}, "error: the bits of f32 as i64"},
      {"BitCast dtype=bool", {"u8[3]"}, "error: bits as bool"},
      {"Require", {"bool[1,N]"}, "bool[1,N]"},
      {"Require", {"bool[1]{0}"}, "error: false with these sizes"},
      {"Require", {"bool[2]"}, "error: not one bool"},
      {"Require", {"i64[]"}, "error: not one bool"},
      {"Require", {"bool[]", "bool[]"}, "error: numbers for an error are no i64 vector"},
      {"Require", {"bool[]", "i64[2,2]"}, "error: numbers for an error are no i64 vector"},
      {"Require", {"bool[]", "i64[3]"}, "bool[]"},
      {"BitCast dtype=i8", {"string[3]"}, "error: the bits of strings"},
      {"Concat axis=1", {"f32[N,3]", "f32[N,C]", "f32[N,5]"}, "f32[N,C + 8]"},
      {"Concat axis=1", {"f32[N,3]", "f32[2,3]"}, "f32[2,6]"},
      {"Concat", {"string[2]", "string[3]"}, "string[5]"},
      {"Concat axis=1", {"f32[2,3]", "f32[4,3]"}, "error: sizes 2 and 4 differ"},
      {"Concat", {"f32[2]", "f16[2]"}, "error: not f32"},
      {"Concat", {"f32[2]", "f32[2,2]"}, "error: ranks 1 and 2"},
      {"Concat axis=2", {"f32[2,3]"}, "error: axis 2"},
      {"Expand", {"f32[3,1]", "i64{2,1,6}"}, "f32[2,3,6]"},
      {"Expand", {"f32[N,1]", "i64{1,W}"}, "f32[N,W]"},
      {"Expand", {"f32[3]", "i64{}"}, "f32[3]"},
      {"Expand", {"f32[3,1]", "i64{2,2}"}, "error: do not broadcast"},
      {"Expand", {"f32[3,1]", "i64{-1}"}, "error: a size of -1"},
      {"Expand", {"f32[3,1]", "i64[R]"}, "error: the rank depends on it"},
      {"Tile", {"f32[N,3]", "i64{2,R}"}, "f32[2*N,3*R]"},
      {"Tile", {"f32[2,3]", "i64{0,1}"}, "f32[0,3]"},
      {"Tile", {"f32[2,3]", "i64[2]"}, "f32[?,?]"},
      {"Tile", {"f32[2,3]", "i64{2}"}, "error: 1 repeats for rank 2"},
      {"Tile", {"f32[2,3]", "i64{2,-1}"}, "error: -1 repeats"},
      {"Pad", {"f32[N,3]", "i64{0,1,2,-1}"}, "f32[N + 2,3]"},
      {"Pad", {"f32[2,3]", "i64[4]", "f32[]"}, "f32[?,?]"},
      {"Pad", {"f32[2,3]", "i64{0,1}"}, "error: 2 pads for rank 2"},
      {"Pad", {"f32[2,3]", "i64{0,-2,0,-2}"}, "error: a negative size"},
      {"Pad", {"f32[2]", "i64{0,1}", "f16[]"}, "error: input 2 is f16"},
      {"Pad mode=edge", {"f32[0]", "i64{0,1}"}, "error: padding of no elements"},
      {"Pad mode=reflect", {"f32[3]", "i64{-3,1}"}, "error: padding of no elements"},
      {"Pad mode=wrap", {"f32[3]", "i64{-2,4}"}, "f32[5]"},
  });
}

TEST(Infer, Slice) {
  const std::string max = "i64{9223372036854775807}", min = "i64{-9223372036854775808}";
  const auto slice = [](const std::string& x, const std::string& start, const std::string& end,
                        const std::string& step) {
    return std::vector<std::string>{x, start, end, "i64{0}", step};
  };
  check_cases({
      {"Slice", slice("f32[10]", "i64{2}", "i64{7}", "i64{1}"), "f32[5]"},
      {"Slice", slice("f32[10]", "i64{2}", "i64{7}", "i64{2}"), "f32[3]"},
      {"Slice", slice("f32[10]", "i64{-3}", max, "i64{1}"), "f32[3]"},
      {"Slice", slice("f32[10]", "i64{-30}", "i64{-5}", "i64{1}"), "f32[5]"},
      {"Slice", slice("f32[10]", "i64{5}", "i64{3}", "i64{1}"), "f32[0]"},
      {"Slice", slice("f32[10]", "i64{20}", max, "i64{1}"), "f32[0]"},
      {"Slice", slice("f32[10]", max, min, "i64{-1}"), "f32[10]"},
      {"Slice", slice("f32[10]", "i64{-1}", min, "i64{-3}"), "f32[4]"},
      {"Slice", slice("f32[10]", "i64{3}", "i64{-20}", "i64{-1}"), "f32[4]"},
      {"Slice", slice("f32[10]", "i64{3}", "i64{-1}", "i64{-1}"), "f32[0]"},
      {"Slice", slice("f32[0]", max, min, "i64{-1}"), "f32[0]"},
      {"Slice", slice("f32[10]", "i64{0}", max, max), "f32[1]"},
      {"Slice", slice("f32[10]", max, min, min), "f32[1]"},
      {"Slice", slice("f32[N]", "i64{0}", max, "i64{1}"), "f32[N]"},
      {"Slice", slice("f32[N]", max, min, "i64{-1}"), "f32[N]"},
      {"Slice", slice("f32[N + 2]", "i64{1}", max, "i64{1}"), "f32[N + 1]"},
      {"Slice", slice("f32[N + 2]", "i64{1}", "i64{-1}", "i64{1}"), "f32[N]"},
      {"Slice", slice("f32[N + 1]", "i64{0}", "i64{N}", "i64{1}"), "f32[N]"},
      {"Slice", slice("f32[N]", "i64{0}", "i64{3}", "i64{1}"), "f32[min(N, 3)]"},
      {"Slice", slice("f32[N]", "i64{0}", max, "i64{2}"), "f32[(N + 1)//2]"},
      {"Slice", slice("f32[N]", "i64[1]", max, "i64{1}"), "f32[?]"},
      {"Slice", slice("f32[9]", "i64{0}", max, "i64[1]"), "f32[?]"},
      {"Slice", {"f32[9,4]", "i64{0}", "i64{2}", "i64[1]", "i64{1}"}, "f32[?,?]"},
      {"Slice", {"f32[9,4]", "i64{0,1}", "i64{2,3}", "i64{-1,0}", "i64{1,1}"}, "f32[2,2]"},
      {"Slice", {"f32[9,4]", "i64{}", "i64{}", "i64{}", "i64{}"}, "f32[9,4]"},
      {"Slice", slice("f32[10]", "i64{2}", "i64{7}", "i64{0}"), "error: in steps of 0"},
      {"Slice", {"f32[9]", "i64{0}", "i64{2}", "i64{1}", "i64{1}"}, "error: axis 1"},
      {"Slice", {"f32[9]", "i64{0,0}", "i64{2,2}", "i64{0,0}", "i64{1,1}"}, "error: given twice"},
      {"Slice", {"f32[9]", "i64{0,0}", "i64{2}", "i64{0}", "i64{1}"}, "error: lengths of starts"},
      {"Slice", {"f32[9]", "i32{0}", "i64{2}", "i64{0}", "i64{1}"}, "error: not i64"},
      {"Slice", {"f32[9]", "i64{0}", "i64{2}", "i64{0}"}, "error: 4 inputs for Slice"},
  });
}

TEST(Infer, GatherAndScatter) {
  check_cases({
      {"Gather axis=1", {"f32[N,10,4]", "i64[2,3]"}, "f32[N,2,3,4]"},
      {"Gather", {"f32[10]", "i32[]"}, "f32[]"},
      {"Gather axis=1", {"f32[10]", "i64[]"}, "error: axis 1"},
      {"Gather", {"f32[10]", "i8[]"}, "error: indices are i8"},
      {"Gather", {"f32[10]", "i64[]{10}"}, "error: index 10 of 10"},
      {"Gather", {"f32[10]", "i64[]{-11}"}, "error: index -11 of 10"},
      {"Gather", {"f32[2,2,2,2,2]", "i64[1,1,1,1,1]"}, "error: more than 8 axes"},
      {"GatherElements axis=1", {"f32[4,5]", "i64[3,9]"}, "f32[3,9]"},
      {"GatherElements", {"f32[4,5]", "i64[3,9]"}, "error: indices of shape [3,9]"},
      {"GatherElements", {"f32[4,5]", "i64[3]"}, "error: indices of rank 1"},
      {"GatherND", {"f32[4,5,6]", "i64[7,2]"}, "f32[7,6]"},
      {"GatherND batch_dims=1", {"f32[B,5,6]", "i64[B,2,1]"}, "f32[B,2,6]"},
      {"GatherND", {"f32[4,5]", "i64[7,3]"}, "error: an index of 3 axes"},
      {"GatherND", {"f32[4,5]", "i64[7,K]"}, "error: the rank depends on it"},
      {"GatherND batch_dims=1", {"f32[3,5,6]", "i64[4,2,1]"}, "error: batch sizes"},
      {"GatherND batch_dims=2", {"f32[3,5]", "i64[3,5,1]"}, "error: 2 batch axes"},
      {"ScatterElements axis=1", {"f32[4,5]", "i64[3,2]", "f32[3,2]"}, "f32[4,5]"},
      {"ScatterElements", {"f32[4,5]", "i64[3,2]", "f32[3,3]"}, "error: updates and indices"},
      {"ScatterElements", {"f32[4,5]", "i64[3,2]", "f16[3,2]"}, "error: not f32"},
      {"ScatterElements reduction=add", {"bool[4]", "i64[3]", "bool[3]"}, "error: of bool"},
      {"ScatterND", {"f32[4,5,6]", "i64[7,2]", "f32[7,6]"}, "f32[4,5,6]"},
      {"ScatterND", {"f32[4,5,6]", "i64[7,2]", "f32[7,5]"}, "error: sizes of the updates"},
      {"ScatterND", {"f32[4,5,6]", "i64[]", "f32[5]"}, "error: indices are a scalar"},
  });
}

TEST(Infer, Epilogues) {
  struct Row {
    std::string op;
    std::vector<std::string> epilogues, inputs;
    int op_inputs;
    std::string expected;
  };
  const std::string topk = "TopK", softmax = "Softmax axis=1";
  const std::string half = "(f32)->(f16) mul($0,2f32)";
  const std::string bias = "(f32,f32)->(f32) add($0,$1)";
  for (const Row& row : std::vector<Row>{
           {softmax, {}, {"f16[N,3]"}, 1, "f16[N,3]"},
           {softmax, {""}, {"f16[N,3]"}, 1, "f16[N,3]"},
           {softmax, {"(f32)->(f32) neg($0)"}, {"f16[N,3]"}, 1, "f32[N,3]"},
           {softmax, {bias}, {"f32[N,3]", "f32[3]"}, 1, "f32[N,3]"},
           {softmax, {bias}, {"f32[N,3]", "f32[N,1]"}, 1, "f32[N,3]"},
           {softmax, {"(f32)->(f32,bool) $0, lt($0,1f32)"}, {"f32[2,3]"}, 1, "f32[2,3]; bool[2,3]"},
           {topk, {"", "(i64)->(i32) i32($0)"}, {"f32[9]", "i64{2}"}, 2, "f32[2]; i32[2]"},
           {topk,
            {bias, "(i64,i64)->(i64) add($0,$1)"},
            {"f32[9]", "i64{2}", "f32[2]", "i64[]"},
            2,
            "f32[2]; i64[2]"},
           {"MatMul",
            {"(i32,f32)->(f32) mul(f32($0),$1)"},
            {"u8[2,3]", "u8[3,4]", "f32[4]"},
            2,
            "f32[2,4]"},
           {softmax, {bias}, {"f32[N,3]", "f32[2,N,3]"}, 1, "error: input 1 has rank 3"},
           {softmax, {bias}, {"f32[2,1]", "f32[2,3]"}, 1, "error: does not broadcast to [2,1]"},
           {softmax, {bias}, {"f32[2,3]", "f16[3]"}, 1, "error: input 1 is f16"},
           {softmax, {"(f16)->(f16) $0"}, {"f16[2,3]"}, 1, "error: input 0 is f32, not f16"},
           {softmax, {bias}, {"f32[2,3]"}, 1, "error: takes 2 inputs, and 1 are left"},
           {softmax, {bias}, {"f32[2,3]", "f32[3]", "f32[3]"}, 1, "error: no epilogue takes"},
           {softmax, {}, {"f32[2,3]", "f32[3]"}, 1, "error: 0 epilogues for 1"},
           {topk, {""}, {"f32[9]", "i64{2}"}, 2, "error: 1 epilogues for 2"},
           {softmax, {""}, {"f32[2,3]"}, 2, "error: 2 of 1 inputs"},
       }) {
    SCOPED_TRACE(row.op + " " + row.expected);
    SizeTable sizes;
    InferRunner runner(sizes);
    std::vector<InferRunner::Input> inputs(row.inputs.size());
    std::vector<InferInput> given;
    for (size_t i = 0; i < inputs.size(); ++i)
      given.push_back(runner.read(row.inputs[i], inputs[i], false));
    std::vector<Program> epilogues;
    for (const std::string& text : row.epilogues)
      epilogues.push_back(text.empty() ? Program() : parse_program(text));
    std::string result;
    try {
      result = runner.text(infer_layer(op_from_text(row.op, sizes), epilogues, row.op_inputs,
                                       InferInputs(given, sizes)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidModel);
      result = std::string("error: ") + error.what();
    }
    if (row.expected.starts_with("error: ")) {
      EXPECT_NE(result.find(row.expected.substr(7)), result.npos) << result;
    } else {
      EXPECT_EQ(result, row.expected);
    }
  }
}

}  // namespace
}  // namespace anneal
