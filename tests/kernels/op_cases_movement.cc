#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {

std::vector<OpCase> movement_op_cases() {
  using enum ScatterReduction;
  return {
      {"reshape", Reshape{}, {"f32[2,3,7,5]", "i64[3]={0,-1,5}"}},
      {"reshape_scalar", Reshape{}, {"i64[1,1]", "i64[0]"}},
      {"reshape_u8", Reshape{}, {"u8[7,23]=0..255", "i64[1]={-1}"}},
      {"reshape_nothing", Reshape{true}, {"f16[0,3]", "i64[2]={7,0}"}},

      {"transpose_matrix", Transpose{{1, 0}}, {"f32[23,129]"}},
      {"transpose_to_few_columns", Transpose{{1, 0}}, {"f32[3,37]"}},
      {"transpose_uneven", Transpose{{0, 2, 1}}, {"f32[2,38,35]"}},
      {"transpose_nchw_nhwc", Transpose{{0, 2, 3, 1}}, {"f32[2,3,7,9]"}},
      {"transpose_heads", Transpose{{0, 2, 1, 3}}, {"f16[1,7,3,8]"}},
      {"transpose_i8_reversed", Transpose{{2, 1, 0}}, {"i8[5,7,9]"}},
      {"transpose_bool", Transpose{{0, 2, 1}}, {"bool[2,9,23]"}},
      {"transpose_f64", Transpose{{1, 0, 2}}, {"f64[3,5,2]"}},
      {"transpose_rank_8", Transpose{{7, 6, 5, 4, 3, 2, 1, 0}}, {"f32[1,2,3,1,2,2,1,3]"}},

      {"concat_channels", Concat{1}, {"f32[1,7,5,3]", "f32[1,23,5,3]", "f32[1,1,5,3]"}},
      {"concat_last", Concat{2}, {"f16[2,3,5]", "f16[2,3,7]"}},
      {"concat_empty", Concat{0}, {"i64[3]", "i64[0]", "i64[2]"}},
      {"concat_long", Concat{1}, {"f32[3,5000]", "f32[3,70]"}},
      {"concat_one", Concat{0}, {"bool[7]"}},

      {"slice",
       Slice{},
       {"f32[7,23]", "i64[2]={1,-9}", "i64[2]={5,100}", "i64[2]={0,1}", "i64[2]={1,2}"}},
      {"slice_backwards",
       Slice{},
       {"f32[5,7,3]", "i64[2]={-1,5}", "i64[2]={-100,0}", "i64[2]={0,-2}", "i64[2]={-1,-2}"}},
      {"slice_by_constants",
       Slice{},
       {"f32[2,23,9,7]", "const i64[3]={-1,2,100}", "const i64[3]={-30,100,-100}",
        "const i64[3]={1,2,-1}", "const i64[3]={-2,3,-1}"}},
      {"slice_one_by_largest_steps",
       Slice{},
       {"f32[3,5]", "const i64[2]={1,-1}",
        "const i64[2]={9223372036854775807,-9223372036854775807}", "const i64[2]={0,1}",
        "const i64[2]={9223372036854775807,-9223372036854775807}"}},
      {"slice_nothing", Slice{}, {"u8[7]", "i64[1]={5}", "i64[1]={5}", "i64[1]={0}", "i64[1]={1}"}},
      {"slice_no_axes", Slice{}, {"f16[3,5]", "i64[0]", "i64[0]", "i64[0]", "i64[0]"}},

      {"pad_by_constants", Pad{}, {"f16[2,3,5,7]", "const i64[8]={0,0,1,2,0,0,3,-1}", "f16[]={3}"}},
      {"pad_by_nothing", Pad{}, {"u8[5,7]", "const i64[4]={0,0,0,0}"}},
      {"pad_spatial", Pad{}, {"f32[1,3,5,7]", "i64[8]={0,0,1,2,0,0,3,0}"}},
      {"pad_value_and_crop", Pad{}, {"i32[5,7]", "i64[4]={-1,2,3,-4}", "i32[]={-7}"}},
      {"pad_reflect", Pad{PadMode::kReflect}, {"f32[2,5,3]", "i64[6]={0,2,1,0,4,2}"}},
      {"pad_edge_u8", Pad{PadMode::kEdge}, {"u8[3,5]=0..255", "i64[4]={1,0,2,3}"}},
      {"pad_reflect_long", Pad{PadMode::kReflect}, {"f32[3,4]", "i64[4]={5,9,7,10}"}},
      {"pad_reflect_one", Pad{PadMode::kReflect}, {"u8[1,3]", "i64[4]={2,0,1,0}"}},
      {"pad_crop_and_wrap", Pad{PadMode::kWrap}, {"i64[6,5]", "i64[4]={-2,3,5,-1}"}},
      {"pad_edge_of_crop", Pad{PadMode::kEdge}, {"f32[2,6,3]", "i64[6]={0,-3,2,1,4,-1}"}},
      {"pad_an_empty_axis", Pad{}, {"f32[0,3]", "i64[4]={2,1,0,1}", "f32[]={5}"}},
      {"pad_wrap_f16", Pad{PadMode::kWrap}, {"f16[3,5]", "i64[4]={4,0,2,7}"}},

      {"expand_rows", Expand{}, {"f32[7]", "i64[2]={23,7}"}},
      {"expand_both_ways", Expand{}, {"f32[5,1,3]", "i64[2]={7,1}"}},
      {"expand_bool", Expand{}, {"bool[1]", "i64[3]={2,3,5}"}},
      {"require", Require{}, {"bool[]={1}"}},
      {"require_of_axes", Require{}, {"bool[1,1]={1}"}},
      {"require_of_numbers", Require{}, {"bool[]={1}", "i64[2]={3,4}", "i64[1]={7}"}},

      {"tile", Tile{}, {"f32[3,7]", "i64[2]={2,3}"}},
      {"tile_i64_3d", Tile{}, {"i64[2,1,5]", "i64[3]={1,7,2}"}},
      {"tile_never", Tile{}, {"f32[3,7]", "i64[2]={0,3}"}},

      {"gather_rows", Gather{0}, {"const f32[23,7]", "i64[5]={0,22,-1,3,3}"}},
      {"gather_columns", Gather{1}, {"f32[5,23]", "i32[2,3]=-9..9"}},
      {"gather_scalar", Gather{1}, {"f16[2,3,5]", "i64[]={-2}"}},
      {"gather_u8_nothing", Gather{0}, {"u8[3,5]", "i64[0]"}},

      {"gather_embedding", Gather{0}, {"const f32[300,96]", "i64[2,9]=-300..299"}},
      {"gather_embedding_f16", Gather{0}, {"f16[23,128]", "i32[17]=-23..22"}},
      {"gather_middle_bf16", Gather{1}, {"bf16[3,7,64]", "i64[2,3]=-7..6"}},
      {"gather_row", Gather{0}, {"f32[5,2048]", "i64[]={-2}"}},
      {"gather_nothing_left", Gather{1}, {"bool[3,5,0]", "i64[2]={4,-5}"}},
      {"gather_7d", Gather{3}, {"i64[2,1,3,4,2,1,2]", "i32[3,1]={-1,0,-4}"}},

      {"gather_elements", GatherElements{1}, {"f32[5,7]", "i64[5,9]=-7..6"}},
      {"gather_elements_first", GatherElements{0}, {"i8[5,7]", "i32[3,4]=-5..4"}},
      {"gather_elements_3d", GatherElements{2}, {"f64[2,3,5]", "i64[2,2,7]=-5..4"}},

      {"gather_elements_bool", GatherElements{0}, {"bool[9]", "i64[23]=-9..8"}},
      {"gather_elements_bf16", GatherElements{1}, {"bf16[3,4,9,2]", "i64[3,6,9,2]=-4..3"}},

      // Enough for accesses of 16 bytes.
      {"gather_elements_many", GatherElements{1}, {"f32[4,9,64]", "i64[4,8,64]=-9..8"}},
      {"gather_elements_many_f16", GatherElements{0}, {"f16[11,256]", "i32[9,256]=-11..10"}},
      {"gather_elements_many_last", GatherElements{1}, {"i64[8,300]", "i64[8,256]=-300..299"}},

      {"gather_nd_elements", GatherND{}, {"f32[5,7]", "i64[9,2]=-5..4"}},
      {"gather_nd_rows", GatherND{}, {"f16[5,7,3]", "i64[2,4,1]=-5..4"}},
      {"gather_nd_batches", GatherND{1}, {"i32[3,5,7]", "i64[3,2]=-5..4"}},

      {"gather_nd_wide_rows", GatherND{}, {"f32[5,7,64]", "i64[23,2]=-5..4"}},
      {"gather_nd_batches_of_rows", GatherND{1}, {"i8[3,5,48]", "i32[3,9,1]=-5..4"}},

      {"scatter_elements", ScatterElements{1}, {"f32[5,7]", "i64[2,3]={0,6,-2,1,2,3}", "f32[2,3]"}},
      {"scatter_elements_add",
       ScatterElements{0, kAdd},
       {"f32[5,7]", "i64[9,7]=-5..4", "f32[9,7]"}},
      {"scatter_elements_mul_i32",
       ScatterElements{1, kMul},
       {"i32[2,5]", "i32[2,9]=-5..4", "i32[2,9]"}},
      {"scatter_elements_max_f16", ScatterElements{0, kMax}, {"f16[5]", "i64[9]=-5..4", "f16[9]"}},
      {"scatter_elements_min_u8", ScatterElements{0, kMin}, {"u8[5]", "i64[9]=-5..4", "u8[9]"}},

      {"gather_nd_scalars_u8", GatherND{}, {"u8[5,7,3]", "i32[23,3]=-3..2"}},
      {"gather_nd_one", GatherND{}, {"f16[5,7]", "i64[1]={-5}"}},
      {"gather_nd_nothing", GatherND{}, {"f32[5,7]", "i64[0,2]"}},
      {"scatter_nd_f16_last_wins", ScatterND{}, {"f16[7]", "i64[9,1]=-5..4", "f16[9]"}},
      {"scatter_nd_blocks", ScatterND{}, {"u8[5,7,9]", "i32[2,3,1]={4,3,2,1,0,-1}", "u8[2,3,7,9]"}},
      {"scatter_nd_nothing", ScatterND{}, {"f32[5,7]", "i64[0,1]", "f32[0,7]"}},
      {"scatter_nd_elements", ScatterND{}, {"f32[5,7]", "i64[3,2]={0,0,4,6,-1,-2}", "f32[3]"}},
      {"scatter_nd_rows", ScatterND{}, {"i64[5,7]", "i64[2,1]={-1,2}", "i64[2,7]"}},
      // More updates than positions, and far fewer.
      {"scatter_elements_bins", ScatterElements{0, kAdd}, {"f32[7]", "i64[301]=-7..6", "f32[301]"}},
      {"scatter_elements_few", ScatterElements{0}, {"f16[5003]", "i32[9]=-5003..5002", "f16[9]"}},
      {"scatter_elements_part",
       ScatterElements{0},
       {"i8[23,5,7]", "i64[40,3,6]=-23..22", "i8[40,3,6]"}},
      {"scatter_elements_columns_bf16",
       ScatterElements{2, kAdd},
       {"bf16[3,2,70]", "i64[3,2,90]=-70..69", "bf16[3,2,90]"}},
      {"scatter_elements_max_f64",
       ScatterElements{1, kMax},
       {"f64[3,5,9]", "i64[2,7,9]=-5..4", "f64[2,7,9]"}},
      {"scatter_elements_min_i64",
       ScatterElements{0, kMin},
       {"i64[5,9]", "i32[9,9]=-5..4", "i64[9,9]"}},
      // One index for each row, as caches are written.
      {"scatter_elements_rows",
       ScatterElements{1},
       {"f32[2,23,5]",
        "i64[2,3,5]={0,0,0,0,0,7,7,7,7,7,-1,-1,-1,-1,-1,7,7,7,7,7,7,7,7,7,7,2,2,3,2,2}",
        "f32[2,3,5]"}},
      {"scatter_elements_bool", ScatterElements{0}, {"bool[9]", "i64[23]=-9..8", "bool[23]"}},
      {"scatter_nd_cells_add_i8", ScatterND{kAdd}, {"i8[5,7,3]", "i64[2,9,2]=-5..4", "i8[2,9,3]"}},
      {"scatter_nd_mul_f16", ScatterND{kMul}, {"f16[5,7]", "i64[9,2]=-5..4", "f16[9]"}},
      {"scatter_nd_max_f32", ScatterND{kMax}, {"f32[5,70]", "i64[9,1]=-5..4", "f32[9,70]"}},
      {"scatter_nd_min_u16", ScatterND{kMin}, {"u16[9]", "i32[40,1]=-9..8", "u16[40]"}},
      // Several slices at a time for each place, elements that are not beside each other.
      {"scatter_nd_add_blocks",
       ScatterND{kAdd},
       {"f32[5,3,70]", "i64[2,9,1]=-5..4", "f32[2,9,3,70]"}},
      {"scatter_nd_mul_i64", ScatterND{kMul}, {"i64[5,7]", "i64[300,2]=-5..4", "i64[300]"}},
      {"scatter_elements_add_graph",
       ScatterElements{0, kAdd},
       {"f32[23,300]", "i32[70,300]=-23..22", "f32[70,300]"}},
      {"scatter_elements_max_middle",
       ScatterElements{1, kMax},
       {"f32[2,5,131]", "i64[2,9,130]=-5..4", "f32[2,9,130]"}},
      {"scatter_elements_add_i32",
       ScatterElements{1, kAdd},
       {"i32[3,700]", "i64[3,600]=-700..699", "i32[3,600]"}},
      {"scatter_nd_add", ScatterND{kAdd}, {"f32[5,7]", "i64[9,1]=-5..4", "f32[9,7]"}},

      {"reverse_sequence", ReverseSequence{1, 0}, {"f32[7,3,5]", "i64[3]={7,0,4}"}},
      {"reverse_sequence_batch_first", ReverseSequence{0, 1}, {"u8[2,23]", "i64[2]={1,22}"}},
      {"reverse_sequence_far_axes", ReverseSequence{0, 2}, {"f16[2,3,5,2]", "i64[2]={5,2}"}},
      {"reverse_sequence_bool", ReverseSequence{0, 1}, {"bool[3,7]", "i64[3]={7,1,3}"}},
      {"reverse_sequence_f64", ReverseSequence{2, 0}, {"f64[5,2,3]", "i64[3]={0,5,2}"}},
      {"reverse_sequence_nothing", ReverseSequence{1, 0}, {"i64[3,0]", "i64[0]"}},

      {"bit_cast_f32", BitCast{DataType::kI32}, {"f32[3,7]"}},
      {"bit_cast_u8", BitCast{DataType::kI8}, {"u8[23]=0..255"}},
      {"bit_cast_i16_f16", BitCast{DataType::kF16}, {"i16[2,5]=0..2000"}},
      {"bit_cast_f64", BitCast{DataType::kU64}, {"f64[129]"}},

      {"shape_of", ShapeOf{0, 4}, {"f32[2,3,7,5]"}},
      {"shape_of_some", ShapeOf{1, 3}, {"u8[2,3,7,5]"}},
      {"shape_of_none", ShapeOf{1, 1}, {"f32[2,3]"}},

      {"size_tensor", SizeTensor{{3, 0, -7, 1 << 20}}, {}},
      {"size_tensor_scalar", SizeTensor{{23}, true}, {}},
      {"size_tensor_empty", SizeTensor{}, {}},

      {"range_i64", Range{}, {"i64[]={3}", "i64[]={27}", "i64[]={5}"}},
      {"range_down_i32", Range{}, {"i32[]={7}", "i32[]={-7}", "i32[]={-2}"}},
      {"range_f32", Range{}, {"f32[]={0.5}", "f32[]={3}", "f32[]={0.3}"}},
      {"range_constant_i64",
       Range{},
       {"const i64[]={-7}", "const i64[]={6000}", "const i64[]={4}"}},
      {"range_constant_down_i16",
       Range{},
       {"const i16[]={30000}", "const i16[]={-30000}", "const i16[]={-1700}"}},
      {"range_constant_u32", Range{}, {"const u32[]={4}", "const u32[]={50}", "const u32[]={7}"}},
      {"range_constant_f16",
       Range{},
       {"const f16[]={0.5}", "const f16[]={3}", "const f16[]={0.3}"}},
      {"range_constant_f32",
       Range{},
       {"const f32[]={0.1}", "const f32[]={300}", "const f32[]={0.3}"}},
      {"range_constant_f64",
       Range{},
       {"const f64[]={3}", "const f64[]={-1}", "const f64[]={-0.1}"}},
      {"range_empty", Range{}, {"f64[]={3}", "f64[]={1}", "f64[]={1}"}},
  };
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (auto* family : {conv_op_cases, nn_op_cases, attention_op_cases, arithmetic_op_cases,
                       movement_op_cases, recurrent_op_cases, detect_op_cases})
    for (OpCase& each : family()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
