// Cases of the ops that detectors end with: selection by value, and sampling of regions.
#include "anneal/tests/kernels/reference_cases.h"

namespace anneal::testing {
namespace {

std::vector<ReferenceCase> select_cases() {
  const std::string boxes =
      "f32[1,6,4]={0,0,1,1, 0,0.1,1,1.1, 0,-0.1,1,0.9, 0,10,1,11, 0,10.1,1,11.1, 0,100,1,101}";
  const std::string flipped =
      "f32[1,6,4]={1,1,0,0, 0,0.1,1,1.1, 0,0.9,1,-0.1, 0,10,1,11, 1,10.1,0,11.1, 1,101,0,100}";
  const std::string centres =
      "f32[1,6,4]={.5,.5,1,1, .5,.6,1,1, .5,.4,1,1, .5,10.5,1,1, .5,10.6,1,1, .5,100.5,1,1}";
  const std::string scores = "f32[1,1,6]={.9,.75,.6,.95,.5,.3}";
  return {
      {"nonzero", NonZero{}, {"f32[2,3]={1,0,-2,0,nan,-0}"}, {"i64[2,3]={0,0,1,0,2,1}"}},
      {"nonzero_bool", NonZero{}, {"bool[3]={1,0,1}"}, {"i64[1,2]={0,2}"}},
      {"nonzero_scalar", NonZero{}, {"i32[]={7}"}, {"i64[0,1]"}},
      {"nonzero_none", NonZero{}, {"f16[2,2]={0,0,0,0}"}, {"i64[2,0]"}},
      {"nonzero_of_nothing", NonZero{}, {"u8[3,0]"}, {"i64[2,0]"}},
      {"nonzero_epilogue",
       NonZero{},
       {"f32[3]={1,0,1}", "i64[1]={5}"},
       {"i64[1,2]={5,7}"},
       {"(i64,i64)->(i64) add($0,$1)"}},

      {"unique",
       Unique{},
       {"f32[6]={2,1,1,3,4,3}"},
       {"f32[4]={1,2,3,4}", "i64[4]={1,0,3,4}", "i64[6]={1,0,0,2,3,2}", "i64[4]={2,1,2,1}"}},
      {"unique_as_met",
       Unique{.sorted = false},
       {"f32[6]={2,1,1,3,4,3}"},
       {"f32[4]={2,1,3,4}", "i64[4]={0,1,3,4}", "i64[6]={0,1,1,2,3,2}", "i64[4]={1,2,2,1}"}},
      {"unique_rows",
       Unique{.axis = 0, .flatten = false},
       {"f32[3,3]={1,0,0,1,0,0,2,3,4}"},
       {"f32[2,3]={1,0,0,2,3,4}", "i64[2]={0,2}", "i64[3]={0,0,1}", "i64[2]={2,1}"}},
      {"unique_along_last",
       Unique{.axis = 2, .flatten = false},
       {"i32[2,2,3]={1,0,1, 2,0,2, 0,1,0, 1,1,1}"},
       {"i32[2,2,2]={0,1, 0,2, 1,0, 1,1}", "i64[2]={1,0}", "i64[3]={1,0,1}", "i64[2]={1,2}"}},
      {"unique_nan_and_zeros",
       Unique{},
       {"f16[5]={nan,0,inf,nan,-0}"},
       {"f16[3]={0,inf,nan}", "i64[3]={1,2,0}", "i64[5]={2,0,1,2,0}", "i64[3]={2,1,2}"}},
      {"unique_of_nothing", Unique{}, {"i64[0]"}, {"i64[0]", "i64[0]", "i64[0]", "i64[0]"}},
      {"unique_bool",
       Unique{},
       {"bool[2,2]={1,0,1,1}"},
       {"bool[2]={0,1}", "i64[2]={1,0}", "i64[4]={1,0,1,1}", "i64[2]={1,3}"}},

      {"nms",
       NonMaxSuppression{},
       {boxes, scores, "i64[]={3}", "f32[]={0.5}", "f32[]={0}"},
       {"i64[3,3]={0,0,3,0,0,0,0,0,5}"}},
      {"nms_flipped",
       NonMaxSuppression{},
       {flipped, scores, "i64[1]={3}", "f32[1]={0.5}", "f32[1]={0}"},
       {"i64[3,3]={0,0,3,0,0,0,0,0,5}"}},
      {"nms_centres",
       NonMaxSuppression{.center_point_box = true},
       {centres, scores, "i64[1]={3}", "f32[1]={0.5}", "f32[1]={0}"},
       {"i64[3,3]={0,0,3,0,0,0,0,0,5}"}},
      {"nms_of_two",
       NonMaxSuppression{},
       {boxes, scores, "i64[1]={2}", "f32[1]={0.5}"},
       {"i64[2,3]={0,0,3,0,0,0}"}},
      {"nms_above_a_score",
       NonMaxSuppression{},
       {boxes, scores, "i64[1]={3}", "f32[1]={0.5}", "f32[1]={0.4}"},
       {"i64[2,3]={0,0,3,0,0,0}"}},
      {"nms_without_a_number_is_nothing", NonMaxSuppression{}, {boxes, scores}, {"i64[0,3]"}},
      {"nms_no_threshold",
       NonMaxSuppression{},
       {boxes, scores, "i64[]={9}"},
       {"i64[3,3]={0,0,3,0,0,0,0,0,5}"}},
      {"nms_equals_keep_their_order",
       NonMaxSuppression{},
       {"f32[1,3,4]={0,0,1,1,5,5,6,6,8,8,9,9}", "f32[1,1,3]={0.5,nan,0.5}", "i64[]={9}"},
       {"i64[2,3]={0,0,0,0,0,2}"}},
      {"nms_images_and_classes",
       NonMaxSuppression{},
       {"f32[2,2,4]={0,0,1,1,0,0.1,1,1.1, 0,0,1,1,0,5,1,6}", "f32[2,2,2]={.1,.2,.4,.3,.1,.2,.4,.3}",
        "i64[]={9}", "f32[]={0.5}"},
       {"i64[6,3]={0,0,1, 0,1,0, 1,0,1, 1,0,0, 1,1,0, 1,1,1}"}},
  };
}

std::vector<ReferenceCase> sample_cases() {
  using enum ResizeMode;
  using enum GridPadding;
  const std::string x = "f32[1,1,3,2]=iota";  // rows 0 1, 2 3, 4 5
  const std::string grid =
      "f32[1,2,4,2]={-10,-10,-5,-5,-0.2,-0.2,10,10, 10,10,-0.2,-0.2,5,5,10,10}";
  const std::string inner =
      "f32[1,2,4,2]={-1,-0.8,-0.6,-0.5,-0.1,-0.2,0.7,0, 0,0.4,0.2,-0.2,-0.3,0.5,-1,1}";
  const std::string halves = "f32[1,1,4,2]={-0.5,-0.5,-0.5,0.5,-0.5,-0.5,-0.5,0.5}";
  return {
      {"grid_sample_zeros", GridSample{}, {x, grid}, {"f32[1,1,2,4]={0,0,1.7,0,0,1.7,0,0}"}},
      {"grid_sample_border",
       GridSample{kLinear, kBorder, false},
       {x, grid},
       {"f32[1,1,2,4]={0,0,1.7,5,5,1.7,5,5}"}},
      {"grid_sample_reflection",
       GridSample{kLinear, kReflection, false},
       {x, grid},
       {"f32[1,1,2,4]={2.5,0,1.7,2.5,2.5,1.7,5,2.5}"}},
      {"grid_sample_corners",
       GridSample{kLinear, kZeros, true},
       {x, inner},
       {"f32[1,1,2,4]={0.4,1.2,2.05,2.85,3.3,2.2,3.35,4}"}},
      {"grid_sample_cubic",
       GridSample{kCubic, kZeros, false},
       {x, inner},
       {"f32[1,1,2,4]={-0.17325,0.28426462,1.9231062,2.568,5.1703749,2.284414,"
        "4.7448444,1.046875}"}},
      // The numbers of PyTorch and ONNX Runtime.
      {"grid_sample_cubic_border",
       GridSample{kCubic, kBorder, false},
       {x, "f32[1,2,4,2]={-10,-10,-1,-0.9,-0.6,-0.5,1.1,1.2, 0,0.4,0.2,-0.2,1.4,-1.3,9,1}"},
       {"f32[1,1,2,4]={0,-0.3155618,0.32206255,5.1199985,3.8679988,1.9425015,1.0031861,5.1875}"}},
      {"grid_sample_nearest_nan_is_minus_one",
       GridSample{kNearest, kBorder, false},
       {"f32[1,1,1,3]={7,8,9}", "f32[1,1,3,2]={nan,0,inf,0,-inf,0}"},
       {"f32[1,1,1,3]={7,9,7}"}},
      {"grid_sample_3d_one_element",
       GridSample{kLinear, kReflection, true},
       {"f32[1,2,1,1,1]={3,5}", "f32[1,1,1,2,3]={0.3,inf,-9,0,0,0}"},
       {"f32[1,2,1,1,2]={3,3,5,5}"}},

      {"roi_align_of_a_plane",
       RoiAlign{.height = 2, .width = 2, .sampling_ratio = 2, .half_pixel = false},
       {"f32[1,1,4,4]=iota", "f32[1,4]={0,0,2,2}", "i64[1]={0}"},
       {"f32[1,1,2,2]={2.5,3.5,6.5,7.5}"}},
      {"roi_align_empty_region_is_one_pixel",
       RoiAlign{.sampling_ratio = 1, .half_pixel = false},
       {"f32[1,1,4,4]=iota", "f32[1,4]={1,1,1,1}", "i64[1]={0}"},
       {"f32[1,1,1,1]={7.5}"}},
      {"roi_align_empty_region",
       RoiAlign{.half_pixel = true},
       {"f32[1,1,4,4]=iota", "f32[1,4]={2,2,1,1}", "i64[1]={0}"},
       {"f32[1,1,1,1]={0}"}},
      {"roi_align_far_larger_than_the_image",
       RoiAlign{.half_pixel = true},
       {"f64[1,1,2,2]={1,1,1,1}", "f64[1,4]={-1e9,-1e9,1e9,1e9}", "i64[1]={0}"},
       {"f64[1,1,1,1]={4e-18}"}},
  };
}

}  // namespace

std::vector<ReferenceCase> detect_reference_cases() {
  std::vector<ReferenceCase> cases;
  for (auto* family : {select_cases, sample_cases})
    for (ReferenceCase& each : family()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
