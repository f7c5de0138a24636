#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {

std::vector<OpCase> detect_op_cases() {
  using enum ResizeMode;
  using enum GridPadding;
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

      {"grid_sample", GridSample{}, {"f32[2,3,7,9]", "f32[2,5,3,2]"}},
      {"grid_sample_corners_border",
       GridSample{kLinear, kBorder, true},
       {"f16[1,7,5,3]", "f32[1,3,7,2]"}},
      {"grid_sample_nearest_reflection",
       GridSample{kNearest, kReflection, false},
       {"f32[1,3,5,7]", "f64[1,23,1,2]=-5..5"}},
      {"grid_sample_cubic", GridSample{kCubic, kZeros, false}, {"f32[2,1,9,7]", "f32[2,5,5,2]"}},
      {"grid_sample_cubic_reflection",
       GridSample{kCubic, kReflection, true},
       {"f64[1,2,1,7]", "f32[1,4,5,2]=-3..3"}},
      {"grid_sample_3d", GridSample{}, {"f32[1,3,3,5,2]", "f32[1,2,3,5,3]"}},
      {"grid_sample_3d_cubic_border",
       GridSample{kCubic, kBorder, false},
       {"bf16[1,2,3,5,4]", "f32[1,2,3,2,3]"}},
      {"grid_sample_1d", GridSample{}, {"f32[2,3,9]", "f32[2,7,1]"}},
      {"grid_sample_nothing", GridSample{}, {"f32[2,3,9,1]", "f32[2,0,7,2]"}},

      {"roi_align",
       RoiAlign{.height = 3, .width = 5, .spatial_scale = 0.5F},
       {"f32[2,3,9,7]", "f32[4,4]=0..12", "i64[4]={0,1,1,0}"}},
      {"roi_align_channels",
       RoiAlign{.height = 2, .width = 2, .sampling_ratio = 2, .half_pixel = false},
       {"f16[1,129,5,7]", "f16[3,4]=-2..9", "i64[3]={0,0,0}"}},
      {"roi_align_max",
       RoiAlign{.kind = PoolKind::kMax, .height = 2, .width = 3, .sampling_ratio = 3},
       {"f64[3,2,7,7]", "f64[5,4]=0..7", "i64[5]={2,0,1,1,2}"}},
      {"roi_align_nothing", RoiAlign{}, {"f32[1,2,3,3]", "f32[0,4]", "i64[0]"}},

      {"resize_by_scales",
       Resize{.mode = kLinear, .axes = {2, 3}},
       {"f32[1,3,5,7]", "-", "-", "f32[2]={1.5,2.3}"}},
      {"resize_by_constant_scales",
       Resize{.mode = kCubic, .axes = {2, 3}},
       {"f32[1,3,9,7]", "-", "-", "const f32[2]={0.7,1}"}},
      {"resize_by_scales_antialias",
       Resize{.mode = kLinear, .axes = {0, 1}, .antialias = true},
       {"f16[23,9]", "-", "-", "f32[2]={0.3,0.55}"}},
  };
}

}  // namespace anneal::testing
