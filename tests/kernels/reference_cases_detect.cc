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

}  // namespace

std::vector<ReferenceCase> detect_reference_cases() {
  std::vector<ReferenceCase> cases;
  for (auto* family : {select_cases})
    for (ReferenceCase& each : family()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
