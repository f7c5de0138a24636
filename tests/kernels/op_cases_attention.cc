#include <fmt/format.h>

#include "anneal/core/parallel.h"
#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {
namespace {

// A mask of that type, [batches, 1, queries, keys].
std::string mask(std::string_view type, int batches, int queries, int keys, std::string_view seen,
                 std::string_view hidden, FunctionRef<bool(int batch, int query, int key)> sees) {
  std::string text = fmt::format("{}[{},1,{},{}]={{", type, batches, queries, keys);
  for (int i = 0; i < batches * queries * keys; ++i) {
    if (i > 0) text += ',';
    text += sees(i / keys / queries, i / keys % queries, i % keys) ? seen : hidden;
  }
  return text + "}";
}

}  // namespace

std::vector<OpCase> attention_op_cases() {
  const auto with_score = [](std::string_view text, bool hidden_is_zero = false) {
    return Attention{parse_program(text), hidden_is_zero};
  };
  const auto scale = with_score("(f32)->(f32) mul($0,0.125f32)");
  // Query i is key i + 160, and sees it, those before it, in a window only the last 50.
  const auto before = [](int, int query, int key) { return key <= query + 160; };
  const auto in_window = [](int, int query, int key) {
    return key <= query + 160 && key > query + 110;
  };
  const std::string add = "add(mul($0,0.125f32),$1)";
  const std::string causal = "select(lt(index(2),index(3)),-inff32,mul($0,0.25f32))";
  return {
      {"attention", Attention{}, {"f32[2,3,7,5]", "f32[2,3,9,5]", "f32[2,3,9,4]"}},
      {"attention_scaled", scale, {"f32[1,4,65,64]", "f32[1,4,65,64]", "f32[1,4,65,64]"}},
      {"attention_one_row", scale, {"f32[2,2,1,23]", "f32[2,2,129,23]", "f32[2,2,129,23]"}},
      // Few rows for a head of k, of multiples of 16 elements.
      {"attention_next_token",
       with_score("(f32,f32)->(f32) add(mul($0,0.125f32),$1)"),
       {"f32[2,6,1,64]", "f32[2,2,39,64]", "f32[2,2,39,64]", "f32[2,1,1,39]=-9..0"}},
      {"attention_next_tokens_causal",
       with_score("(f32)->(f32) " + causal),
       {"f32[2,3,2,16]", "f32[2,3,5,16]", "f32[2,3,5,80]"}},
      {"attention_next_token_of_one_head",
       scale,
       {"f32[1,8,1,96]", "f32[1,1,700,96]", "f32[1,1,700,32]"}},
      {"attention_next_tokens_of_one_head_masked",
       with_score("(f32,f32)->(f32) add(mul($0,0.125f32),$1)"),
       {"f32[1,3,2,64]", "f32[1,1,1101,64]", "f32[1,1,1101,80]", "f32[1,1,2,1101]=-9..0"}},
      {"attention_next_token_hidden",
       with_score("(f32,bool)->(f32) select($1,$0,-inff32)", true),
       {"f32[1,2,2,16]", "f32[1,1,3,16]", "f32[1,1,3,48]", "bool[2,3]={1,0,1,0,0,0}"}},
      {"attention_next_token_large_scores",
       Attention{},
       {"f32[1,5,1,16]=-30..30", "f32[1,1,23,16]=-30..30", "f32[1,1,23,16]"}},
      {"attention_next_token_no_keys", scale, {"f32[1,2,1,16]", "f32[1,2,0,16]", "f32[1,2,0,16]"}},
      {"attention_one_key", scale, {"f32[1,2,9,8]", "f32[1,2,1,8]", "f32[1,2,1,7]"}},
      {"attention_grouped", scale, {"f32[1,6,17,16]", "f32[1,2,33,16]", "f32[1,2,33,16]"}},
      {"attention_of_one_head", scale, {"f32[2,5,4,8]", "f32[2,1,19,8]", "f32[2,1,19,3]"}},
      {"attention_causal",
       with_score("(f32)->(f32) " + causal),
       {"f32[1,3,39,32]", "f32[1,3,39,32]", "f32[1,3,39,32]"}},
      {"attention_mask_of_keys",
       with_score("(f32,f32)->(f32) add(mul($0,0.5f32),$1)"),
       {"f32[2,3,8,8]", "f32[2,3,27,8]", "f32[2,3,27,8]", "f32[2,1,1,27]=-9..0"}},
      {"attention_whole_mask",
       with_score("(f32,f32)->(f32) add($0,$1)"),
       {"f32[2,3,8,8]", "f32[2,3,27,8]", "f32[2,3,27,8]", "f32[2,3,8,27]"}},
      {"attention_boolean_mask",
       with_score("(f32,bool)->(f32) select($1,$0,-inff32)", true),
       {"f32[1,2,3,8]", "f32[1,2,4,8]", "f32[1,2,4,8]", "bool[3,4]={1,0,1,1,0,0,0,0,0,0,1,0}"}},
      {"attention_hidden_is_nan",
       with_score("(f32,bool)->(f32) select($1,$0,-inff32)"),
       {"f32[1,1,2,8]", "f32[1,1,3,8]", "f32[1,1,3,8]", "bool[2,3]={1,0,1,0,0,0}"}},
      {"attention_window_softcap",
       with_score("(f32,i64)->(f32) select(lt(add(index(3),$1),index(2)),-inff32,"
                  "mul(30f32,tanh(div($0,30f32))))"),
       {"f32[1,2,23,16]=-9..9", "f32[1,2,23,16]=-9..9", "f32[1,2,23,16]", "i64[]={5}"}},
      {"attention_alibi",
       with_score("(f32,f32)->(f32) add($0,mul($1,f32(sub(index(3),index(2)))))"),
       {"f32[1,3,9,8]", "f32[1,3,9,8]", "f32[1,3,9,8]", "const f32[3,1,1]=0..1"}},
      {"attention_long",
       scale,
       {"f32[1,1,3,16]=-3..3", "f32[1,1,2100,16]=-3..3", "f32[1,1,2100,16]"}},
      {"attention_wide_values", scale, {"f32[1,1,5,8]", "f32[1,1,39,8]", "f32[1,1,39,270]"}},
      {"attention_large_scores",
       Attention{},
       {"f32[1,2,9,16]=-30..30", "f32[1,2,23,16]=-30..30", "f32[1,2,23,8]"}},
      {"attention_no_keys", scale, {"f32[1,2,3,8]", "f32[1,2,0,8]", "f32[1,2,0,8]"}},
      {"attention_no_rows", scale, {"f32[1,2,0,8]", "f32[1,2,3,8]", "f32[1,2,3,8]"}},
      {"attention_f16",
       with_score("(f32)->(f16) round_f16(mul(round_f16($0),0.125f32))"),
       {"f16[1,2,33,64]", "f16[1,2,40,64]", "f16[1,2,40,64]"}},
      {"attention_bf16_grouped", scale, {"bf16[2,4,9,16]", "bf16[2,2,7,16]", "bf16[2,2,7,16]"}},
      {"attention_f16_image", scale, {"f16[2,3,197,64]", "f16[2,3,197,64]", "f16[2,3,197,64]"}},
      {"attention_f16_causal",
       with_score("(f32)->(f32) " + causal),
       {"f16[1,3,150,128]", "f16[1,1,150,128]", "f16[1,1,150,128]"}},
      {"attention_f16_odd_heads", scale, {"f16[1,2,37,40]", "f16[1,2,70,40]", "f16[1,2,70,36]"}},
      {"attention_f16_narrow_heads", scale, {"f16[1,2,20,5]", "f16[1,2,35,5]", "f16[1,2,35,3]"}},
      {"attention_f16_one_row", scale, {"f16[2,4,1,64]", "f16[2,4,300,64]", "f16[2,4,300,64]"}},
      {"attention_f16_many_heads",
       scale,
       {"f16[8,20,65,16]", "f16[8,20,30,16]", "f16[8,20,30,16]"}},
      {"attention_f16_hidden_is_zero",
       with_score("(f32,bool)->(f32) select($1,$0,-inff32)", true),
       {"f16[1,2,3,8]", "f16[1,2,4,8]", "f16[1,2,4,8]", "bool[3,4]={1,0,1,1,0,0,0,0,0,0,1,0}"}},
      {"attention_f16_hidden_is_nan",
       with_score("(f32,bool)->(f32) select($1,$0,-inff32)"),
       {"f16[1,1,2,8]", "f16[1,1,3,8]", "f16[1,1,3,8]", "bool[2,3]={1,0,1,0,0,0}"}},
      {"attention_f16_large_scores",
       Attention{},
       {"f16[1,2,9,16]=-30..30", "f16[1,2,23,16]=-30..30", "f16[1,2,23,8]"}},
      {"attention_f16_no_keys", scale, {"f16[1,2,3,8]", "f16[1,2,0,8]", "f16[1,2,0,8]"}},
      {"attention_bf16_mask",
       with_score("(f32,f32)->(f32) add(mul($0,0.5f32),$1)"),
       {"bf16[2,3,80,80]", "bf16[2,3,99,80]", "bf16[2,3,99,80]", "f32[2,1,1,99]=-9..0"}},
      // Masks that hide many keys from all neighbouring queries.
      {"attention_mask_hides_the_last_keys",
       with_score("(f32,f32)->(f32) " + add),
       {"f32[1,4,41,32]", "f32[1,2,201,32]", "f32[1,2,201,24]",
        mask("f32", 1, 41, 201, "0.5", "-inf", before)}},
      {"attention_mask_keeps_hidden",
       with_score("(f32,f32)->(f32) select(eq($1,-inff32),$1," + add + ")", true),
       {"f32[1,2,41,32]", "f32[1,2,201,32]", "f32[1,2,201,24]",
        mask("f32", 1, 41, 201, "0", "-inf", in_window)}},
      {"attention_mask_hides_all",
       with_score("(f32,f32)->(f32) " + add, true),
       {"f32[2,2,20,16]", "f32[2,2,150,16]", "f32[2,2,150,16]",
        mask("f32", 2, 20, 150, "0", "-inf",
             [](int batch, int query, int key) {
               return query % 3 != 0 && key < 40 + 60 * batch;
             })}},
      {"attention_lowest_mask_of_keys",
       with_score("(f32,f32)->(f32) add($1,$0)"),
       {"f32[2,2,20,16]", "f32[2,2,300,16]", "f32[2,2,300,16]",
        mask("f32", 2, 1, 300, "0", "-3.4028235e38",
             [](int batch, int, int key) { return key < 70 + 100 * batch; })}},
      {"attention_lowest_mask_of_all_keys",
       with_score("(f32,f32)->(f32) " + add),
       {"f32[1,2,9,16]", "f32[1,2,140,16]", "f32[1,2,140,16]",
        mask("f32", 1, 9, 140, "0", "-3.4028235e38",
             [](int, int query, int key) { return query != 4 && key < 30; })}},
      {"attention_lowest_mask_that_hides_what_another_shows",
       with_score("(f32,f32,bool)->(f32) add(select($2,mul($0,0.125f32),-3.4028235e38f32),$1)"),
       {"f32[1,2,20,16]", "f32[1,2,200,16]", "f32[1,2,200,16]",
        mask("f32", 1, 1, 200, "0", "-3.4028235e38", [](int, int, int key) { return key >= 130; }),
        mask("bool", 1, 20, 200, "1", "0",
             [](int, int query, int key) { return key <= 8 * query; })}},
      {"attention_lowest_selection_beside_a_mask",
       with_score("(f32,bool,f32)->(f32) select($1,add(mul($0,0.125f32),$2),-3.4028235e38f32)"),
       {"f32[1,2,20,16]", "f32[1,2,200,16]", "f32[1,2,200,16]",
        mask("bool", 1, 1, 200, "1", "0", [](int, int, int key) { return key >= 130; }),
        mask("f32", 1, 20, 200, "0", "-3.4028235e38",
             [](int, int query, int key) { return key <= 8 * query; })}},
      {"attention_boolean_window",
       with_score("(f32,bool)->(f32) select($1,mul($0,0.125f32),-inff32)"),
       {"f32[1,2,41,32]", "f32[1,2,201,32]", "f32[1,2,201,24]",
        mask("bool", 1, 41, 201, "1", "0", in_window)}},
      {"attention_boolean_hidden",
       with_score("(f32,bool)->(f32) select($1,-3.4028235e38f32,mul($0,0.125f32))"),
       {"f32[1,2,41,32]", "f32[1,2,201,32]", "f32[1,2,201,24]",
        mask("bool", 1, 41, 201, "0", "1", before)}},
      {"attention_boolean_not_hidden",
       with_score("(f32,bool)->(f32) select(not($1),-inff32,$0)"),
       {"f32[1,2,41,32]", "f32[1,2,201,32]", "f32[1,2,201,24]",
        mask("bool", 1, 41, 201, "1", "0", before)}},
      {"attention_mask_of_one_head_beside_a_bias",
       with_score("(f32,f32,f32)->(f32) add(add(mul($0,0.125f32),$1),$2)"),
       {"f32[1,3,41,32]", "f32[1,3,201,32]", "f32[1,3,201,24]", "f32[3,1,1]=-1..1",
        mask("f32", 1, 41, 201, "0", "-inf", before)}},
      {"attention_next_token_in_a_window",
       with_score("(f32,f32)->(f32) " + add),
       {"f32[2,6,1,64]", "f32[2,2,201,64]", "f32[2,2,201,48]",
        mask("f32", 2, 1, 201, "0", "-inf",
             [](int batch, int, int key) {
               return key > 60 + 40 * batch && key <= 110 + 40 * batch;
             })}},
      {"attention_next_token_of_one_head_in_a_window",
       with_score("(f32,bool)->(f32) select($1,mul($0,0.125f32),-inff32)"),
       {"f32[1,8,1,96]", "f32[1,1,700,96]", "f32[1,1,700,32]",
        mask("bool", 1, 1, 700, "1", "0",
             [](int, int, int key) { return key > 129 && key < 640; })}},
      // Caches of 16 bits.
      {"attention_f16_cache", scale, {"f32[2,4,1,64]", "f16[2,2,300,64]", "f16[2,2,300,64]"}},
      {"attention_bf16_cache", scale, {"f32[1,3,2,16]", "bf16[1,1,33,16]", "bf16[1,1,33,80]"}},
      {"attention_f16_cache_many_rows",
       with_score("(f32)->(f32) " + causal),
       {"f32[1,4,65,64]", "f16[1,2,70,64]", "f16[1,2,70,36]"}},
      {"attention_mixed_cache", Attention{}, {"f32[2,3,7,5]", "f16[2,3,9,5]", "bf16[2,3,9,4]"}},
      {"attention_f16_keys", scale, {"f32[1,1,3,16]", "f16[1,1,19,16]", "f32[1,1,19,16]"}},
      // Quantized caches.
      {"attention_i8_cache",
       scale,
       {"f32[2,4,1,64]=-0.1..0.1", "i8[2,2,301,64]", "i8[2,2,301,64]"}},
      {"attention_i8_cache_three_rows",
       scale,
       {"f32[1,3,1,16]=-0.1..0.1", "i8[1,1,33,16]", "i8[1,1,33,80]"}},
      {"attention_i8_cache_many_rows",
       with_score("(f32)->(f32) " + causal),
       {"f32[1,4,65,64]=-0.1..0.1", "i8[1,2,70,64]", "i8[1,2,70,36]"}},
      {"attention_i8_keys", scale, {"f32[1,1,3,16]=-0.1..0.1", "i8[1,1,19,16]", "f32[1,1,19,16]"}},
      // Of 4 bits, two numbers in a byte.
      {"attention_packed_cache",
       scale,
       {"f32[2,4,1,64]=-0.1..0.1", "u8[2,2,301,32]", "u8[2,2,301,32]"}},
      {"attention_packed_cache_three_rows",
       scale,
       {"f32[1,3,1,32]=-0.1..0.1", "u8[1,1,33,16]", "u8[1,1,33,80]"}},
      {"attention_packed_cache_of_one_head",
       scale,
       {"f32[1,8,1,64]=-0.1..0.1", "u8[1,1,700,32]", "u8[1,1,700,64]"}},
      {"attention_packed_cache_many_rows",
       with_score("(f32)->(f32) " + causal),
       {"f32[1,4,65,64]=-0.1..0.1", "u8[1,2,70,32]", "u8[1,2,70,18]"}},
      {"attention_packed_values",
       scale,
       {"f32[1,1,3,10]=-0.1..0.1", "i8[1,1,19,10]", "u8[1,1,19,7]"}},
      {"attention_f64",
       with_score("(f64,f64)->(f64) add($0,$1)"),
       {"f64[1,2,3,4]", "f64[1,1,5,4]", "f64[1,1,5,3]", "f64[5]"}},
  };
}

}  // namespace anneal::testing
