#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {
namespace {

Op program(std::string_view text) { return Pointwise{parse_program(text)}; }

std::vector<OpCase> pointwise_cases() {
  return {
      {"pointwise_relu", program("(f32)->(f32) max($0,0f32)"), {"f32[1,7,23,27]"}},
      {"pointwise_copy", program("(f32)->(f32) $0"), {"f32[2,7,5,3]"}},
      {"pointwise_copy_u8", program("(u8)->(u8) $0"), {"u8[23,7,1]=0..255"}},
      {"pointwise_add_broadcast",
       program("(f32,f32)->(f32) add($0,$1)"),
       {"f32[2,7,5,3]", "const f32[7,1,1]"}},
      {"pointwise_both_broadcast", program("(f32,f32)->(f32) sub($0,$1)"), {"f32[7,1]", "f32[23]"}},
      {"pointwise_scalars", program("(f32,f32)->(f32) div($0,$1)"), {"f32[]", "f32[]=1..2"}},
      {"pointwise_nothing", program("(f32,f32)->(f32) mul($0,$1)"), {"f32[0,7]", "f32[7]"}},
      {"pointwise_swish", program("(f32)->(f32) mul($0,sigmoid($0))"), {"f32[1031]=-8..8"}},
      {"pointwise_gelu",
       program("(f32)->(f32) mul(mul($0,0.5f32),add(erf(mul($0,0.70710677f32)),1f32))"),
       {"f32[3,129]=-5..5"}},
      {"pointwise_functions",
       program("(f32)->(f32) add(add(exp($0),tanh($0)),mul(sin($0),cos($0)))"),
       {"f32[7,27]=-3..3"}},
      {"pointwise_logs",
       program("(f32)->(f32) add(add(log($0),sqrt($0)),add(log1p($0),expm1($0)))"),
       {"f32[129]=0.01..4"}},
      {"pointwise_pow",
       program("(f32,f32)->(f32) pow($0,$1)"),
       {"f32[23]=0.1..3", "f32[23]=-3..3"}},
      {"pointwise_select_index",
       program("(f32)->(f32) select(lt(index(1),index(0)),$0,-1f32)"),
       {"f32[23,27]"}},
      {"pointwise_two_results",
       program("(f32,f32)->(f32,bool) %0=sub($0,$1); %0, lt(%0,0f32)"),
       {"f32[7,5]", "f32[5]"}},
      {"pointwise_f16",
       program("(f16,f16)->(f16) round_f16(mul($0,round_f16(add($0,$1))))"),
       {"f16[7,129]", "f16[129]"}},
      {"pointwise_bf16", program("(bf16)->(bf16) round_bf16(neg($0))"), {"bf16[129]"}},
      {"pointwise_f64", program("(f64)->(f64) exp($0)"), {"f64[3,7]"}},
      {"pointwise_i8",
       program("(i8,i8)->(i8) round_i8(add($0,$1))"),
       {"i8[129]=-128..127", "i8[129]=-128..127"}},
      {"pointwise_i32", program("(i32,i32)->(i32) div(mul($0,$0),$1)"), {"i32[23,7]", "i32[7]"}},
      {"pointwise_i64", program("(i64,i64)->(i64) mod($0,$1)"), {"i64[23]", "i64[23]=-3..5"}},
      {"pointwise_u8_to_f32",
       program("(u8,f32)->(f32) mul(f32($0),$1)"),
       {"u8[1,3,9,7]=0..255", "f32[3,1,1]"}},
      {"pointwise_requantize",
       program("(i8,f32)->(i8) saturate_i8(rint(mul(f32($0),$1)))"),
       {"i8[5,27]=-128..127", "f32[5,1]=-2..2"}},
      {"pointwise_bool", program("(bool,bool)->(bool) and($0,not($1))"), {"bool[23]", "bool[7,1]"}},
      {"pointwise_nan",
       program("(f32,f32)->(f32,bool) max($0,$1), isnan($0)"),
       {"f32[4]={nan,1,-inf,inf}", "f32[4]={0,nan,2,1}"}},
      {"pointwise_per_channel",
       program("(f32,f32)->(f32) add($0,$1)"),
       {"f32[2,7,8,20]", "f32[7,1,1]"}},
      {"pointwise_f16_per_column",
       program("(f16,f32)->(f16) round_f16(mul($0,$1))"),
       {"f16[5,7,40]", "f32[40]"}},
      {"pointwise_u8_long", program("(u8)->(u8) round_u8(add($0,3u32))"), {"u8[7,481]=0..255"}},
      {"pointwise_long_index",
       program("(f32,f32)->(f32) add(mul($0,f32(index(1))),sub($1,f32(index(0))))"),
       {"f32[23,60]", "f32[1,60]"}},
      {"pointwise_rank_8",
       program("(f32,f32)->(f32) add($0,$1)"),
       {"f32[1,2,1,3,1,2,1,2]", "f32[2,1,1,3,1,1,2]"}},
  };
}

std::vector<OpCase> reduce_cases() {
  using enum ReduceKind;
  return {
      {"reduce_sum_last", Reduce{kSum, false}, {"f32[7,129]", "i64[1]={1}"}},
      {"reduce_sum_first", Reduce{kSum, true}, {"f32[129,7]", "i64[1]={0}"}},
      {"reduce_sum_all", Reduce{kSum, false}, {"f32[3,7,23]", "i64[3]={0,1,2}"}},
      {"reduce_sum_none", Reduce{kSum, true}, {"f32[3,7]", "i64[0]"}},
      {"reduce_sum_nothing", Reduce{kSum, true}, {"f32[3,0]", "i64[1]={1}"}},
      {"reduce_mean_spatial", Reduce{kMean, true}, {"f32[2,23,7,9]", "i64[2]={2,-1}"}},
      {"reduce_mean_middle", Reduce{kMean, false}, {"f32[5,7,9]", "i64[1]={1}"}},
      {"reduce_mean_i32", Reduce{kMean, false}, {"i32[5,7]", "i64[1]={1}"}},
      {"reduce_mean_f16", Reduce{kMean, true}, {"f16[3,129]", "i64[1]={1}"}},
      {"reduce_max", Reduce{kMax, true}, {"f32[7,23]", "i64[1]={1}"}},
      {"reduce_max_nan", Reduce{kMax, false}, {"f32[2,3]={1,nan,2,3,1,-inf}", "i64[1]={1}"}},
      {"reduce_min_i8", Reduce{kMin, false}, {"i8[7,23]=-128..127", "i64[1]={0}"}},
      {"reduce_max_u8", Reduce{kMax, false}, {"u8[7,23]=0..255", "i64[2]={0,1}"}},
      {"reduce_any", Reduce{kMax, false}, {"bool[7,3]", "i64[1]={1}"}},
      {"reduce_all", Reduce{kMin, false}, {"bool[7,3]", "i64[1]={1}"}},
      {"reduce_prod", Reduce{kProd, false}, {"f32[7,5]", "i64[1]={1}"}},
      {"reduce_prod_i64", Reduce{kProd, true}, {"i64[7,5]", "i64[1]={0}"}},
      {"reduce_sum_u32", Reduce{kSum, true}, {"u32[7,5]", "i64[1]={0}"}},
      {"reduce_sum_f64", Reduce{kSum, true}, {"f64[7,5]", "i64[1]={0}"}},
      {"reduce_sum_apart", Reduce{kSum, false}, {"f32[3,5,7,2]", "i64[2]={0,2}"}},
      {"reduce_mean_of_images", Reduce{kMean, true}, {"f32[2,270,7,39]", "const i64[2]={2,3}"}},
      {"reduce_max_of_channels", Reduce{kMax, false}, {"f32[2,23,7,9]", "const i64[1]={1}"}},
      {"reduce_min_long", Reduce{kMin, false}, {"f32[3,9001]", "const i64[1]={-1}"}},
      {"reduce_sum_long_columns", Reduce{kSum, false}, {"f32[1025,23]", "const i64[1]={0}"}},
      {"reduce_prod_f16", Reduce{kProd, true}, {"f16[3,5,27]", "const i64[2]={0,2}"}},
      {"reduce_sum_many_columns", Reduce{kSum, false}, {"f32[17,2100]", "const i64[1]={0}"}},
      {"reduce_max_nan_of_columns",
       Reduce{kMax, false},
       {"f32[3,2]={1,nan,2,3,nan,-inf}", "const i64[1]={0}"}},
      {"reduce_mean_of_all", Reduce{kMean, true}, {"bf16[3,7,23]", "const i64[3]={0,1,2}"}},

      {"arg_max_last", ArgReduce{true, 1, false}, {"f32[7,129]"}},
      {"arg_max_first", ArgReduce{true, 0, true}, {"f32[23,7]"}},
      {"arg_min_middle", ArgReduce{false, 1, true}, {"i32[3,23,5]"}},
      {"arg_max_ties", ArgReduce{true, 1, false, false}, {"i8[7,23]=0..2"}},
      {"arg_max_last_of_ties", ArgReduce{true, 1, false, true}, {"u8[7,23]=0..2"}},
      {"arg_max_long", ArgReduce{true, 1, false}, {"f32[3,1031]"}},
      {"arg_min_long_of_ties", ArgReduce{false, 1, true, true}, {"u8[2,1200]=0..3"}},
      {"arg_max_nan", ArgReduce{true, 1, false}, {"f32[2,5]={1,nan,inf,nan,2,-inf,3,3,1,0}"}},
      {"arg_max_f16", ArgReduce{true, 2, true}, {"f16[2,3,27]"}},

      {"cumulative_sum", Cumulative{}, {"f32[7,23]", "i64[]={1}"}},
      {"cumulative_sum_first", Cumulative{}, {"f32[23,7]", "i64[]={0}"}},
      {"cumulative_sum_reverse_exclusive",
       Cumulative{CumulativeKind::kSum, true, true},
       {"i64[3,7,5]", "i64[]={-2}"}},
      {"cumulative_product_i32", Cumulative{CumulativeKind::kProd}, {"i32[5,9]", "i64[]={1}"}},
      {"cumulative_product_f64",
       Cumulative{CumulativeKind::kProd, true},
       {"f64[5,9]", "i64[]={1}"}},
      {"cumulative_sum_f16", Cumulative{}, {"f16[3,27]", "i64[]={1}"}},

      {"topk_largest", TopK{1}, {"f32[7,129]", "i64[1]={5}"}},
      {"topk_smallest_first", TopK{0, false}, {"f32[23,7]", "i64[1]={3}"}},
      {"topk_all_ties", TopK{1}, {"i8[3,23]=0..3", "i64[1]={23}"}},
      {"topk_none", TopK{1}, {"f32[3,5]", "i64[1]={0}"}},
      {"topk_f16_middle", TopK{1}, {"f16[2,9,5]", "i64[1]={4}"}},
  };
}

std::vector<OpCase> quantize_cases() {
  return {
      {"quantize_u8",
       Quantize{0, 0, DataType::kU8},
       {"f32[1,7,9,5]=-9..9", "f32[]={0.05}", "u8[]={128}"}},
      {"quantize_i8", Quantize{0, 0, DataType::kI8}, {"f32[129]=-9..9", "f32[1]={0.05}"}},
      {"quantize_axis",
       Quantize{1, 0, DataType::kI8},
       {"f32[2,3,7,5]", "f32[3]={0.01,0.02,0.5}", "i8[3]={0,-5,7}"}},
      {"quantize_ties",
       Quantize{0, 0, DataType::kI8},
       {"f32[6]={0.5,1.5,-0.5,-1.5,1e9,-inf}", "f32[]={1}"}},
      {"quantize_i32", Quantize{0, 0, DataType::kI8}, {"i32[23]=-1000..1000", "f32[]={3}"}},
      {"quantize_u16_f16", Quantize{0, 0, DataType::kU16}, {"f16[23]", "f16[]={0.5}", "u16[]={9}"}},
      {"quantize_blocks",
       Quantize{1, 4, DataType::kI8},
       {"f32[3,10]", "f32[3,3]=0.01..0.1", "i8[3,3]"}},

      {"dequantize_u8", Dequantize{}, {"u8[1,7,9,5]=0..255", "f32[]={0.05}", "u8[]={128}"}},
      {"dequantize_axis",
       Dequantize{1},
       {"i8[2,3,7]=-128..127", "f32[3]={0.01,0.02,0.5}", "i8[3]={0,-5,7}"}},
      {"dequantize_i32", Dequantize{0}, {"i32[5,3]=-100000..100000", "f32[5]=0.01..0.02"}},
      {"dequantize_f16", Dequantize{}, {"i8[23]=-128..127", "f16[]={0.5}"}},
      {"dequantize_blocks", Dequantize{0, 3}, {"i16[7,5]", "f32[3,5]=0.01..0.1", "i16[3,5]"}},
  };
}

}  // namespace

std::vector<OpCase> arithmetic_op_cases() {
  std::vector<OpCase> cases;
  for (auto* family : {pointwise_cases, reduce_cases, quantize_cases})
    for (OpCase& each : family()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
