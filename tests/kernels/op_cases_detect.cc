#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {

std::vector<OpCase> detect_op_cases() {
  return {
      {"nonzero_rank_3", NonZero{}, {"i8[3,5,7]=-1..1"}},
      {"nonzero_mask", NonZero{}, {"bool[129]"}},
      {"nonzero_f16", NonZero{}, {"f16[7,1]"}},
      {"nonzero_none", NonZero{}, {"f32[0,3]"}},

      {"unique_i64", Unique{}, {"i64[23,7]"}},
      {"unique_f32_as_met", Unique{.sorted = false}, {"f32[129]=-3..3"}},
      {"unique_rows", Unique{.axis = 0, .flatten = false}, {"u8[23,2]=0..2"}},
      {"unique_columns_as_met",
       Unique{.axis = 1, .flatten = false, .sorted = false},
       {"f16[2,27,1]=0..3"}},
      {"unique_bool", Unique{}, {"bool[7]"}},

      {"nms",
       NonMaxSuppression{},
       {"f32[2,129,4]=0..1", "f32[2,3,129]=0..1", "i64[]={23}", "f32[]={0.3}", "f32[]={0.2}"}},
      {"nms_centres",
       NonMaxSuppression{.center_point_box = true},
       {"f32[1,23,4]=0..1", "f32[1,7,23]", "i64[1]={100}", "f32[1]={0.5}"}},
      {"nms_none", NonMaxSuppression{}, {"f32[1,0,4]", "f32[1,2,0]", "i64[]={3}"}},
  };
}

}  // namespace anneal::testing
