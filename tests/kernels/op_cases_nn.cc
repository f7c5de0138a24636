#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {
namespace {

Conv conv2(int64_t stride, int64_t pad, int64_t dilation = 1, int64_t groups = 1) {
  return {{stride, stride}, {pad, pad}, {pad, pad}, {dilation, dilation}, groups};
}

Conv split2(int64_t stride, int64_t pad, std::vector<int64_t> split) {
  Conv op = conv2(stride, pad);
  op.split = std::move(split);
  return op;
}

ConvTranspose back2(int64_t stride, int64_t pad, int64_t output_padding, int64_t groups = 1) {
  return {
      {stride, stride}, {pad, pad}, {pad, pad}, {1, 1}, {output_padding, output_padding}, groups};
}

Pool pool2(PoolKind kind, int64_t kernel, int64_t stride, int64_t pad) {
  Pool pool;
  pool.kind = kind;
  pool.kernel = {kernel, kernel}, pool.strides = {stride, stride};
  pool.pads_begin = pool.pads_end = {pad, pad}, pool.dilations = {1, 1};
  return pool;
}

template <class T, class F>
T with(T op, F change) {
  change(op);
  return op;
}

Resize resize(ResizeMode mode, ResizeCoordinates coordinates, std::vector<float> scales) {
  Resize op;
  op.mode = mode, op.coordinates = coordinates, op.scales = std::move(scales);
  op.axes = {2, 3};
  return op;
}

std::vector<OpCase> conv_cases() {
  return {
      {"conv_1x1", conv2(1, 0), {"f32[1,7,5,3]", "const f32[23,7,1,1]"}},
      {"conv_1x1_wide", conv2(1, 0), {"f32[2,129,3,3]", "const f32[27,129,1,1]"}},
      {"conv_1x1_stride_2", conv2(2, 0), {"f32[1,23,7,9]", "const f32[7,23,1,1]"}},
      {"conv_3x3", conv2(1, 1), {"f32[2,3,23,27]", "const f32[7,3,3,3]"}},
      {"conv_3x3_channels", conv2(1, 1), {"f32[1,27,7,7]", "const f32[23,27,3,3]"}},
      {"conv_3x3_tiles", conv2(1, 1), {"f32[2,19,11,14]", "const f32[23,19,3,3]"}},
      {"conv_3x3_tiles_unpadded", conv2(1, 0), {"f32[1,16,12,17]", "const f32[16,16,3,3]"}},
      {"conv_3x3_tiles_chunks", conv2(1, 2), {"f32[1,17,9,7]", "const f32[133,17,3,3]"}},
      {"conv_3x3_tiles_uneven_pads",
       Conv{{1, 1}, {0, 2}, {2, 1}, {1, 1}, 1},
       {"f32[1,24,14,9]", "const f32[32,24,3,3]"}},
      {"conv_3x3_tiles_far_pads", conv2(1, 9), {"f32[1,16,1,2]", "const f32[16,16,3,3]"}},
      {"conv_3x3_tiles_wide", conv2(1, 1), {"f32[1,16,5,131]", "const f32[16,16,3,3]"}},
      {"conv_3x3_tiles_tiny_images", conv2(1, 1), {"f32[9,17,1,3]", "const f32[16,17,3,3]"}},
      {"conv_3x3_stride_2", conv2(2, 1), {"f32[1,7,27,23]", "const f32[9,7,3,3]"}},
      {"conv_3x3_dilated", conv2(1, 2, 2), {"f32[1,3,9,7]", "const f32[5,3,3,3]"}},
      {"conv_7x7_stride_2", conv2(2, 3), {"f32[1,3,29,31]", "const f32[16,3,7,7]"}},
      {"conv_uneven_pads",
       Conv{{2, 1}, {0, 2}, {1, 0}, {1, 3}, 1},
       {"f32[1,5,7,23]", "const f32[7,5,3,5]"}},
      {"conv_depthwise", conv2(1, 1, 1, 23), {"f32[1,23,7,9]", "const f32[23,1,3,3]"}},
      {"conv_depthwise_5x5_stride_2", conv2(2, 2, 1, 9), {"f32[2,9,13,27]", "const f32[9,1,5,5]"}},
      {"conv_depthwise_stride_2", conv2(2, 1, 1, 37), {"f32[1,37,13,29]", "const f32[37,1,3,3]"}},
      {"conv_depthwise_5x5", conv2(1, 2, 1, 40), {"f32[2,40,7,19]", "const f32[40,1,5,5]"}},
      {"conv_depthwise_5x5_stride_2_wide",
       conv2(2, 2, 1, 33),
       {"f32[1,33,9,31]", "const f32[33,1,5,5]"}},
      {"conv_depthwise_7x7", conv2(1, 3, 1, 21), {"f32[1,21,9,17]", "const f32[21,1,7,7]"}},
      {"conv_depthwise_many_channels",
       conv2(1, 1, 1, 200),
       {"f32[1,200,4,40]", "const f32[200,1,3,3]"}},
      {"conv_depthwise_pixel", conv2(1, 1, 1, 37), {"f32[1,37,1,1]", "const f32[37,1,3,3]"}},
      {"conv_depthwise_bf16", conv2(1, 1, 1, 41), {"bf16[2,41,9,11]", "const bf16[41,1,3,3]"}},
      {"conv_depthwise_bf16_stride_2",
       conv2(2, 1, 1, 48),
       {"bf16[1,48,13,23]", "const bf16[48,1,3,3]"}},
      {"conv_depthwise_bf16_5x5", conv2(1, 2, 1, 72), {"bf16[1,72,7,5]", "const bf16[72,1,5,5]"}},
      {"conv_depthwise_bf16_7x7_stride_2",
       conv2(2, 3, 1, 17),
       {"bf16[1,17,11,23]", "const bf16[17,1,7,7]"}},
      {"conv_depthwise_bf16_dilated_rows",
       Conv{{1, 1}, {2, 1}, {2, 1}, {2, 1}, 32},
       {"bf16[1,32,7,9]", "const bf16[32,1,3,3]"}},
      {"conv_depthwise_bf16_3d",
       Conv{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 33},
       {"bf16[1,33,3,5,7]", "const bf16[33,1,3,3,3]"}},
      {"conv_depthwise_twice", conv2(1, 1, 1, 7), {"f32[1,7,5,5]", "const f32[14,1,3,3]"}},
      {"conv_depthwise_twice_wide", conv2(1, 1, 1, 23), {"f32[2,23,9,7]", "const f32[46,1,3,3]"}},
      {"conv_depthwise_8_times", conv2(2, 1, 1, 3), {"f32[1,3,11,9]", "const f32[24,1,3,3]"}},
      {"conv_depthwise_f16_twice", conv2(1, 0, 2, 9), {"f16[1,9,7,13]", "f16[18,1,3,3]"}},
      {"conv_groups_2_to_2", conv2(1, 1, 1, 19), {"f32[1,38,5,9]", "const f32[38,2,3,3]"}},
      {"conv_groups_4_to_2", conv2(1, 1, 1, 9), {"f32[1,36,5,7]", "const f32[18,4,3,3]"}},
      {"conv_groups_8_to_8", conv2(2, 2, 1, 5), {"f32[1,40,9,7]", "const f32[40,8,5,5]"}},
      {"conv_groups_8_to_1", conv2(1, 1, 1, 5), {"f32[1,40,5,7]", "const f32[5,8,3,3]"}},
      {"conv_groups_1d", Conv{{1}, {2}, {4}, {3}, 3}, {"f32[2,9,29]", "const f32[15,3,3]"}},
      {"conv_groups_few", conv2(1, 1, 1, 2), {"f32[1,2,5,5]", "const f32[4,1,3,3]"}},
      {"conv_groups", conv2(1, 1, 1, 3), {"f32[1,21,5,7]", "const f32[27,7,3,3]"}},
      {"conv_1d", Conv{{1}, {2}, {2}, {1}, 1}, {"f32[2,7,129]", "const f32[5,7,5]"}},
      {"conv_columns",
       Conv{{2, 1}, {2, 0}, {3, 0}, {1, 1}, 1},
       {"f32[2,24,131,1]", "const f32[40,24,5,1]"}},
      {"conv_columns_padded",
       Conv{{1, 2}, {0, 1}, {0, 0}, {2, 1}, 1},
       {"f32[1,8,37,1]", "const f32[5,8,3,1]"}},
      {"conv_columns_u8_i8",
       Conv{{1, 1}, {1, 0}, {1, 0}, {1, 1}, 1},
       {"u8[1,16,45,1]=0..255", "const i8[8,16,3,1]=-128..127"}},
      {"conv_3d",
       Conv{{1, 2, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 1}, 1},
       {"f32[1,3,5,6,7]", "const f32[4,3,2,3,3]"}},
      {"conv_weights_are_a_value", conv2(1, 1), {"f32[1,3,7,7]", "f32[5,3,3,3]"}},
      {"conv_no_batch", conv2(1, 1), {"f32[0,3,7,7]", "const f32[5,3,3,3]"}},
      {"conv_f64", conv2(1, 1), {"f64[1,3,7,9]", "const f64[5,3,3,3]"}},
      {"conv_f16", conv2(1, 1), {"f16[1,7,7,9]", "const f16[5,7,3,3]"}},
      {"conv_bf16", conv2(2, 1), {"bf16[1,7,7,9]", "const bf16[5,7,3,3]"}},
      {"conv_bf16_image", conv2(2, 3), {"bf16[2,3,23,21]", "const bf16[40,3,7,7]"}},
      {"conv_bf16_gray", conv2(1, 2), {"bf16[1,1,9,7]", "const bf16[5,1,5,5]"}},
      {"conv_bf16_even", conv2(1, 1), {"bf16[1,64,11,9]", "const bf16[72,64,3,3]"}},
      {"conv_bf16_odd_large", conv2(1, 0), {"bf16[1,129,7,9]", "const bf16[33,129,1,1]"}},
      {"conv_bf16_1x1", conv2(1, 0), {"bf16[2,24,11,13]", "const bf16[100,24,1,1]"}},
      {"conv_f16_channels_of_8", conv2(1, 1), {"f16[1,40,9,7]", "const f16[24,40,3,3]"}},
      {"conv_f16_1x1_channels_of_8", conv2(1, 0), {"f16[2,40,5,7]", "const f16[19,40,1,1]"}},
      {"conv_bf16_groups_of_8", conv2(2, 2, 2, 2), {"bf16[1,64,11,9]", "const bf16[20,32,3,3]"}},
      {"conv_u8_i8",
       conv2(1, 1),
       {"u8[1,7,9,5]=0..255", "const i8[23,7,3,3]=-128..127", "u8[]={131}", "i8[]={0}"}},
      {"conv_i8_i8_per_channel",
       conv2(1, 0),
       {"i8[1,27,5,5]=-128..127", "const i8[7,27,1,1]=-128..127", "-",
        "i8[7]={0,1,-1,3,-7,127,-128}"}},
      {"conv_i8_u8", conv2(2, 1, 1, 2), {"i8[1,4,7,7]=-128..127", "const u8[6,2,3,3]=0..255"}},
      {"conv_u8_u8_depthwise",
       conv2(1, 1, 1, 7),
       {"u8[1,7,7,7]=0..255", "const u8[7,1,3,3]=0..255", "u8[]={255}", "u8[]={1}"}},
      {"conv_u8_i8_depthwise",
       conv2(1, 1, 1, 144),
       {"u8[1,144,5,14]=0..255", "const i8[144,1,3,3]=-128..127", "u8[]={131}"}},
      {"conv_i8_i8_depthwise_5x5",
       conv2(1, 2, 1, 83),
       {"i8[2,83,7,7]=-128..127", "const i8[83,1,5,5]=-128..127", "i8[]={-77}", "i8[]={0}"}},
      {"conv_u8_u8_depthwise_5x5_stride_2",
       conv2(2, 2, 1, 96),
       {"u8[1,96,13,27]=0..255", "const u8[96,1,5,5]=0..255", "u8[]={3}", "u8[]={128}"}},
      {"conv_i8_u8_depthwise_zero_points",
       conv2(2, 1, 1, 40),
       {"i8[1,40,9,11]=-128..127", "const u8[40,1,3,3]=0..255", "i8[]={127}", "u8[40]=0..255"}},
      {"conv_u8_i8_depthwise_7x7",
       conv2(1, 3, 1, 20),
       {"u8[1,20,5,31]=0..255", "const i8[20,1,7,7]=-128..127", "u8[]={255}"}},
      {"conv_u8_u8_depthwise_7x7_stride_2_zero_points",
       conv2(2, 3, 1, 69),
       {"u8[1,69,11,13]=0..255", "const u8[69,1,7,7]=0..255", "u8[]={1}", "u8[]={254}"}},
      {"conv_u8_i8_depthwise_dilated",
       conv2(1, 2, 2, 24),
       {"u8[1,24,9,7]=0..255", "const i8[24,1,3,3]=-128..127", "u8[]={9}"}},
      {"conv_i8_i8_depthwise_1d",
       Conv{{1}, {15}, {15}, {1}, 32},
       {"i8[1,32,129]=-128..127", "const i8[32,1,31]=-128..127", "i8[]={5}"}},
      {"conv_u8_i8_depthwise_3d",
       Conv{{1, 2, 3}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}, 18},
       {"u8[1,18,4,5,9]=0..255", "const i8[18,1,3,2,4]=-128..127", "u8[]={200}"}},
      {"conv_i8_u8_depthwise_weights_are_a_value",
       conv2(1, 1, 1, 30),
       {"i8[1,30,4,5]=-128..127", "u8[30,1,3,3]=0..255", "i8[]={3}", "u8[]={200}"}},
      {"conv_u8_i8_depthwise_long_rows",
       conv2(1, 1, 1, 16),
       {"u8[1,16,2,259]=0..255", "const i8[16,1,3,5]=-128..127", "u8[]={17}"}},
      {"conv_i8_i8_depthwise_many_channels",
       conv2(1, 1, 1, 200),
       {"i8[1,200,4,40]=-128..127", "const i8[200,1,3,3]=-128..127", "i8[]={-128}"}},
      {"conv_u8_i8_depthwise_few_channels",
       conv2(2, 2, 1, 3),
       {"u8[2,3,7,9]=0..255", "const i8[3,1,5,5]=-128..127", "u8[]={77}"}},
      {"conv_u8_i8_depthwise_no_padding",
       conv2(1, 0, 1, 50),
       {"u8[1,50,4,6]=0..255", "const i8[50,1,3,3]=-128..127"}},
      {"conv_u8_i8_channels_of_4",
       conv2(1, 1),
       {"u8[1,12,5,7]=0..255", "const i8[9,12,3,3]=-128..127", "u8[]={131}", "i8[]={0}"}},
      {"conv_i8_i8_channels_of_16_zero_points",
       conv2(2, 1),
       {"i8[2,48,5,3]=-128..127", "const i8[20,48,3,3]=-128..127", "i8[]={-128}",
        "i8[20]=-128..127"}},
      {"conv_u8_u8_1x1",
       conv2(1, 0),
       {"u8[1,24,5,7]=0..255", "const u8[18,24,1,1]=0..255", "u8[]={7}", "u8[]={128}"}},
      {"conv_i8_u8_groups_of_4",
       conv2(1, 2, 2, 3),
       {"i8[1,12,7,5]=-128..127", "const u8[6,4,3,3]=0..255", "i8[]={-3}", "u8[6]=0..255"}},
      {"conv_u8_i8_picture",
       conv2(2, 1),
       {"u8[2,3,9,11]=0..255", "const i8[20,3,3,3]=-128..127", "u8[]={131}", "i8[20]=-128..127"}},
      {"conv_i8_u8_5_channels",
       conv2(1, 2, 2),
       {"i8[1,5,7,6]=-128..127", "const u8[9,5,3,3]=0..255", "-", "u8[]={77}"}},
      // In the depth of a tile more kernel elements than 32 bits tell apart.
      {"conv_i8_i8_picture_1x1_padded",
       conv2(1, 1),
       {"i8[1,3,6,5]=-128..127", "const i8[16,3,1,1]=-128..127", "i8[]={-9}"}},
      {"conv_f16_picture", conv2(2, 3), {"f16[2,3,13,15]", "const f16[24,3,7,7]"}},
      {"conv_f16_6_channels", conv2(1, 1), {"f16[1,6,9,7]", "const f16[20,6,3,3]"}},
      {"conv_f16_groups_of_4", conv2(1, 1, 1, 6), {"f16[1,24,9,7]", "const f16[48,4,3,3]"}},
      {"conv_split_1x1", split2(1, 0, {7, 23, 1}), {"f32[1,27,5,3]", "const f32[31,27,1,1]"}},
      {"conv_split_1x1_wide", split2(1, 0, {64, 96}), {"f32[2,129,3,5]", "const f32[160,129,1,1]"}},
      {"conv_split_1x1_stride_2", split2(2, 0, {3, 4}), {"f32[2,23,7,9]", "const f32[7,23,1,1]"}},
      {"conv_split_3x3", split2(1, 1, {16, 33}), {"f32[2,5,9,13]", "const f32[49,5,3,3]"}},
      {"conv_split_3x3_tiles",
       split2(1, 1, {16, 33, 40}),
       {"f32[2,18,9,13]", "const f32[89,18,3,3]"}},
      {"conv_split_one", split2(1, 1, {7}), {"f32[1,5,9,3]", "const f32[7,5,3,3]"}},
      {"conv_split_1d",
       Conv{{1}, {2}, {2}, {1}, 1, {1, 1, 3}},
       {"f32[2,7,129]", "const f32[5,7,5]"}},
      {"conv_split_f16", split2(1, 1, {16, 24, 8}), {"f16[1,40,9,7]", "const f16[48,40,3,3]"}},
      {"conv_split_bf16_1x1", split2(1, 0, {7, 25}), {"bf16[2,40,5,7]", "const bf16[32,40,1,1]"}},
      {"conv_split_f64", split2(1, 1, {2, 3}), {"f64[1,3,7,9]", "const f64[5,3,3,3]"}},
      {"conv_split_no_batch", split2(1, 1, {2, 3}), {"f32[0,3,7,7]", "const f32[5,3,3,3]"}},
      {"conv_split_u8_i8_per_channel",
       split2(1, 0, {3, 20}),
       {"u8[1,27,5,5]=0..255", "const i8[23,27,1,1]=-128..127", "u8[]={131}", "i8[23]=-128..127"}},

      {"conv_transpose_2x2_stride_2", back2(2, 0, 0), {"f32[1,7,5,9]", "const f32[7,3,2,2]"}},
      {"conv_transpose_3x3", back2(2, 1, 1), {"f32[2,5,7,3]", "const f32[5,7,3,3]"}},
      {"conv_transpose_groups", back2(1, 1, 0, 3), {"f32[1,9,5,7]", "const f32[9,2,3,3]"}},
      {"conv_transpose_depthwise", back2(2, 1, 0, 7), {"f32[1,7,5,7]", "const f32[7,1,4,4]"}},
      {"conv_transpose_1d_dilated",
       ConvTranspose{{3}, {1}, {2}, {2}, {1}, 1},
       {"f32[1,3,23]", "const f32[3,5,3]"}},
      {"conv_transpose_3d",
       ConvTranspose{{1, 2, 1}, {0, 1, 0}, {1, 0, 0}, {1, 1, 2}, {0, 1, 0}, 1},
       {"f32[1,3,2,3,4]", "const f32[3,2,2,3,2]"}},
      {"conv_transpose_f16", back2(2, 0, 0), {"f16[1,7,3,3]", "const f16[7,3,2,2]"}},
      {"conv_transpose_f64", back2(1, 0, 0), {"f64[1,2,3,3]", "const f64[2,3,3,3]"}},
  };
}

std::vector<OpCase> matmul_cases() {
  return {
      {"matmul_1x1", MatMul{}, {"f32[1,1]", "f32[1,1]"}},
      {"matmul_vector", MatMul{}, {"f32[1,129]", "const f32[129,23]"}},
      {"matmul", MatMul{}, {"f32[27,23]", "const f32[23,129]"}},
      {"matmul_large", MatMul{}, {"f32[65,129]", "const f32[129,257]"}},
      {"matmul_deep", MatMul{}, {"f32[3,1025]", "const f32[1025,7]"}},
      {"matmul_transpose_a", MatMul{true, false}, {"f32[23,7]", "f32[23,27]"}},
      {"matmul_transpose_b", MatMul{false, true}, {"f32[7,23]", "const f32[27,23]"}},
      {"matmul_transpose_both", MatMul{true, true}, {"f32[23,7]", "f32[27,23]"}},
      {"matmul_batch", MatMul{}, {"f32[2,3,7,5]", "f32[2,3,5,9]"}},
      {"matmul_batch_broadcast", MatMul{}, {"f32[2,1,7,5]", "f32[3,5,9]"}},
      {"matmul_batch_one_weight", MatMul{}, {"f32[3,7,23]", "const f32[23,27]"}},
      {"matmul_attention", MatMul{false, true}, {"f32[1,2,27,8]", "f32[1,2,23,8]"}},
      {"matmul_no_depth", MatMul{}, {"f32[3,0]", "f32[0,5]"}},
      {"matmul_no_rows", MatMul{}, {"f32[0,3]", "f32[3,5]"}},
      {"matmul_f64", MatMul{}, {"f64[7,23]", "f64[23,5]"}},
      {"matmul_f16", MatMul{}, {"f16[7,23]", "const f16[23,27]"}},
      {"matmul_bf16", MatMul{false, true}, {"bf16[7,23]", "const bf16[27,23]"}},
      {"matmul_bf16_large", MatMul{}, {"bf16[70,136]", "const bf16[136,72]"}},
      {"matmul_bf16_odd_depth", MatMul{}, {"bf16[3,33,23]", "bf16[3,23,65]"}},
      {"matmul_bf16_deep", MatMul{false, true}, {"bf16[17,1300]", "const bf16[40,1300]"}},
      {"matmul_bf16_vector", MatMul{}, {"bf16[1,129]", "const bf16[129,300]"}},
      {"matmul_bf16_no_depth", MatMul{}, {"bf16[3,0]", "bf16[0,5]"}},
      {"matmul_f16_rows_of_8", MatMul{}, {"f16[33,40]", "const f16[40,24]"}},
      {"matmul_f16_large", MatMul{}, {"f16[70,136]", "const f16[136,72]"}},
      {"matmul_f16_attention", MatMul{false, true}, {"f16[2,3,17,64]", "f16[1,3,40,64]"}},
      {"matmul_bf16_transpose_both", MatMul{true, true}, {"bf16[72,40]", "bf16[136,72]"}},
      {"matmul_i32", MatMul{}, {"i32[3,7]", "i32[7,5]"}},
      {"matmul_i64", MatMul{}, {"i64[3,7]", "i64[7,5]"}},
      {"matmul_u32", MatMul{true, false}, {"u32[7,3]", "u32[7,5]"}},
      {"matmul_u64", MatMul{}, {"u64[3,7]", "u64[7,5]"}},
      {"matmul_u8_i8",
       MatMul{},
       {"u8[7,129]=0..255", "const i8[129,23]=-128..127", "u8[]={131}", "i8[]={0}"}},
      {"matmul_i8_i8_zero_points",
       MatMul{false, true},
       {"i8[3,23]=-128..127", "const i8[5,23]=-128..127", "i8[3]={1,-2,3}",
        "i8[5]={5,4,3,2,-128}"}},
      {"matmul_split", MatMul{false, false, {64, 1, 64}}, {"f32[27,23]", "const f32[23,129]"}},
      {"matmul_split_vector", MatMul{false, false, {5, 18}}, {"f32[1,129]", "const f32[129,23]"}},
      {"matmul_split_large",
       MatMul{false, true, {96, 96, 65}},
       {"f32[2,33,129]", "const f32[257,129]"}},
      {"matmul_split_batch", MatMul{true, false, {4, 5}}, {"f32[2,3,5,7]", "f32[2,3,5,9]"}},
      {"matmul_split_no_depth", MatMul{false, false, {2, 3}}, {"f32[3,0]", "f32[0,5]"}},
      {"matmul_split_f16", MatMul{false, false, {24, 40, 8}}, {"f16[2,33,40]", "const f16[40,72]"}},
      {"matmul_split_bf16", MatMul{false, true, {23, 4}}, {"bf16[7,24]", "const bf16[27,24]"}},
      {"matmul_split_f64", MatMul{false, false, {2, 3}}, {"f64[7,23]", "f64[23,5]"}},
      {"matmul_split_i64", MatMul{false, false, {2, 3}}, {"i64[3,7]", "i64[7,5]"}},
      {"matmul_split_i8_zero_points",
       MatMul{false, true, {3, 20}},
       {"i8[3,23]=-128..127", "const i8[23,23]=-128..127", "i8[3]={1,-2,3}", "i8[23]=-128..127"}},
      {"matmul_u8_u8_batch", MatMul{}, {"u8[2,3,7]=0..255", "u8[2,7,5]=0..255"}},
      // What tensor cores take: squares of 4 by 4 at least, and zero points of each kind.
      {"matmul_u8_i8_squares",
       MatMul{},
       {"u8[19,36]=0..255", "const i8[36,20]=-128..127", "u8[]={131}", "const i8[20]=0..0"}},
      {"matmul_i8_u8_squares_zero_points",
       MatMul{},
       {"i8[3,132]=-128..127", "const u8[132,12]=0..255", "i8[3]={1,-2,3}", "u8[12]=0..255"}},
      {"matmul_u8_u8_depth_first",
       MatMul{false, true},
       {"u8[2,17,40]=0..255", "const u8[9,40]=0..255", "u8[]={255}", "u8[9]=0..255"}},
      {"matmul_i8_i8_lines_first",
       MatMul{true, false},
       {"i8[2,32,20]=-128..127", "i8[1,32,68]=-128..127", "i8[20]=-128..127", "i8[]={-128}"}},
      {"matmul_split_u8_i8_squares",
       MatMul{false, false, {4, 24}},
       {"u8[5,16]=0..255", "const i8[16,28]=-128..127", "u8[]={3}"}},
  };
}

std::vector<OpCase> pool_cases() {
  using enum PoolKind;
  return {
      {"max_pool_2x2", pool2(kMax, 2, 2, 0), {"f32[1,7,9,23]"}},
      {"max_pool_3x3_stride_2", pool2(kMax, 3, 2, 1), {"f32[2,23,7,9]"}},
      {"max_pool_ceil",
       with(pool2(kMax, 3, 2, 0), [](Pool& op) { op.ceil_mode = true; }),
       {"f32[1,3,8,6]"}},
      {"max_pool_dilated",
       with(pool2(kMax, 3, 1, 1),
            [](Pool& op) {
              op.dilations = {2, 1};
            }),
       {"f32[1,5,9,7]"}},
      {"max_pool_indices",
       with(pool2(kMax, 3, 2, 1), [](Pool& op) { op.with_indices = true; }),
       {"f32[2,3,7,9]"}},
      {"max_pool_indices_column_major",
       with(pool2(kMax, 2, 1, 0),
            [](Pool& op) { op.with_indices = true, op.column_major_indices = true; }),
       {"f32[1,2,5,3]"}},
      {"max_pool_u8", pool2(kMax, 3, 1, 1), {"u8[1,7,7,5]=0..255"}},
      {"max_pool_i8", pool2(kMax, 2, 2, 0), {"i8[1,7,6,4]=-128..127"}},
      {"max_pool_f16", pool2(kMax, 3, 2, 1), {"f16[1,7,7,5]"}},
      {"max_pool_bf16", pool2(kMax, 3, 2, 1), {"bf16[1,70,7,5]"}},
      {"max_pool_bf16_negative", pool2(kMax, 2, 1, 0), {"bf16[1,150,4,5]=-3..-1"}},
      {"max_pool_infinities",
       pool2(kMax, 2, 1, 0),
       {"f32[1,1,2,4]={-inf,-inf,inf,1,-inf,-inf,2,nan}"}},
      {"average_pool_3x3", pool2(kAverage, 3, 1, 1), {"f32[1,23,7,9]"}},
      {"average_pool_counts_padding",
       with(pool2(kAverage, 3, 2, 1), [](Pool& op) { op.count_include_pad = true; }),
       {"f32[2,7,8,6]"}},
      {"average_pool_ceil_uneven",
       with(pool2(kAverage, 3, 2, 0),
            [](Pool& op) {
              op.ceil_mode = op.count_include_pad = true;
              op.pads_begin = {0, 1}, op.pads_end = {2, 0};
            }),
       {"f32[1,3,8,8]"}},
      {"average_pool_global", pool2(kAverage, 7, 1, 0), {"f32[2,129,7,7]"}},
      {"average_pool_f64", pool2(kAverage, 2, 1, 0), {"f64[1,2,5,3]"}},
      {"average_pool_1d", Pool{kAverage, {5}, {3}, {2}, {1}, {1}}, {"bf16[1,3,23]"}},
      {"average_pool_3d",
       Pool{kAverage, {2, 3, 2}, {1, 2, 2}, {0, 1, 0}, {1, 1, 0}, {1, 1, 1}},
       {"f32[1,3,4,5,6]"}},
      {"lp_pool", pool2(kLp, 3, 2, 1), {"f32[1,7,9,5]"}},
      {"lp_pool_p3", with(pool2(kLp, 2, 1, 0), [](Pool& op) { op.p = 3; }), {"f32[1,2,5,5]"}},
  };
}

std::vector<OpCase> attention_cases() {
  const auto with_score = [](std::string_view text, bool hidden_is_zero = false) {
    return Attention{parse_program(text), hidden_is_zero};
  };
  const auto scale = with_score("(f32)->(f32) mul($0,0.125f32)");
  const std::string causal = "select(lt(index(2),index(3)),-inff32,mul($0,0.25f32))";
  return {
      {"attention", Attention{}, {"f32[2,3,7,5]", "f32[2,3,9,5]", "f32[2,3,9,4]"}},
      {"attention_scaled", scale, {"f32[1,4,65,64]", "f32[1,4,65,64]", "f32[1,4,65,64]"}},
      {"attention_one_row", scale, {"f32[2,2,1,23]", "f32[2,2,129,23]", "f32[2,2,129,23]"}},
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
      {"attention_f64",
       with_score("(f64,f64)->(f64) add($0,$1)"),
       {"f64[1,2,3,4]", "f64[1,1,5,4]", "f64[1,1,5,3]", "f64[5]"}},
  };
}

std::vector<OpCase> norm_cases() {
  return {
      {"softmax_last", Softmax{1}, {"f32[7,129]=-9..9"}},
      {"softmax_long", Softmax{0}, {"f32[1027]=-50..50"}},
      {"softmax_middle", Softmax{1}, {"f32[2,23,7]"}},
      {"softmax_one", Softmax{2}, {"f32[3,5,1]"}},
      {"softmax_masked", Softmax{1}, {"f32[2,3]={-inf,0,1,-inf,-inf,-inf}"}},
      {"softmax_f16", Softmax{1}, {"f16[3,27]=-9..9"}},
      {"softmax_f64", Softmax{1}, {"f64[3,27]=-9..9"}},
      {"softmax_nothing", Softmax{1}, {"f32[0,3]"}},
      {"softmax_very_long", Softmax{1}, {"f32[2,9001]=-9..9"}},
      {"softmax_wide_middle", Softmax{1}, {"f32[2,39,270]=-9..9"}},
      {"softmax_map_scale_and_mask",
       Softmax{2, false, parse_program("(f32,f32)->(f32) add(mul($0,0.125f32),$1)")},
       {"f32[2,7,39]=-50..50", "f32[1,39]"}},
      {"softmax_map_of_columns",
       Softmax{1, true, parse_program("(f32,f32)->(f32) mul($0,$1)")},
       {"f32[2,23,7]", "f32[23,1]"}},
      {"softmax_map_causal",
       Softmax{1, false, parse_program("(f32)->(f32) select(lt(index(0),index(1)),-inff32,$0)")},
       {"f32[9,9]=-9..9"}},
      {"softmax_map_broadcasts_x",
       Softmax{2, false, parse_program("(f32,f32)->(f32) mul($0,$1)")},
       {"f32[5,1]", "f32[3,1,129]"}},
      {"softmax_map_f16",
       Softmax{1, false, parse_program("(f16,bool)->(f16) select($1,$0,-inff32)")},
       {"f16[3,27]=-9..9", "bool[27]={1,1,0,1,1,1,0,0,1,1,1,0,1,0,1,1,1,1,1,0,0,0,1,1,1,0,1}"}},
      {"log_softmax", Softmax{1, true}, {"f32[7,23]=-20..20"}},
      {"log_softmax_first_bf16", Softmax{0, true}, {"bf16[23,5]"}},

      {"normalize_layer", Normalize{{2}, 1e-5f, true}, {"f32[2,7,129]=-3..5"}},
      {"normalize_instance", Normalize{{2, 3}, 1e-5f, true}, {"f32[2,3,7,9]=-3..5"}},
      {"normalize_group", Normalize{{2, 3, 4}, 1e-3f, true}, {"f32[1,2,3,5,4]"}},
      {"normalize_apart", Normalize{{0, 2}, 1e-5f, true}, {"f32[5,7,9]"}},
      {"normalize_rms", Normalize{{1}, 1e-6f, false}, {"f32[23,27]"}},
      {"normalize_large_mean", Normalize{{1}, 1e-5f, true}, {"f32[3,129]=1000..1001"}},
      {"normalize_f16", Normalize{{1}, 1e-5f, true}, {"f16[3,129]"}},
      {"normalize_f64", Normalize{{1}, 1e-5f, true}, {"f64[3,7]"}},
      {"normalize_large_images", Normalize{{2, 3}, 1e-5f, true}, {"f32[1,3,97,101]=-3..5"}},
      {"normalize_long_rms", Normalize{{1}, 1e-6f, false}, {"f32[2,9001]"}},
  };
}

std::vector<OpCase> resize_cases() {
  using enum ResizeMode;
  using enum ResizeCoordinates;
  return {
      {"resize_nearest_2x", resize(kNearest, kAsymmetric, {2, 2}), {"f32[1,7,5,3]"}},
      {"resize_nearest_sizes",
       resize(kNearest, kHalfPixel, {}),
       {"u8[1,3,5,7]=0..255", "i64[2]={13,4}"}},
      {"resize_linear_2x", resize(kLinear, kHalfPixel, {2, 2}), {"f32[1,7,5,3]"}},
      {"resize_linear_sizes",
       resize(kLinear, kPytorchHalfPixel, {}),
       {"f32[2,3,7,9]", "i64[2]={1,23}"}},
      {"resize_linear_align_corners",
       resize(kLinear, kAlignCorners, {1.5f, 2.5f}),
       {"f32[1,3,7,5]"}},
      {"resize_linear_antialias",
       with(resize(kLinear, kHalfPixel, {0.4f, 0.6f}), [](Resize& op) { op.antialias = true; }),
       {"f32[1,3,23,27]"}},
      {"resize_cubic", resize(kCubic, kHalfPixel, {1.7f, 0.7f}), {"f32[1,2,7,9]"}},
      {"resize_linear_f16", resize(kLinear, kHalfPixel, {2, 2}), {"f16[1,3,5,3]"}},
      {"resize_crop",
       with(resize(kLinear, kTfCropAndResize, {}), [](Resize& op) { op.extrapolation_value = 7; }),
       {"f32[1,2,9,7]", "i64[2]={5,4}", "f32[4]={0.1,-0.2,0.7,1.3}"}},
  };
}

}  // namespace

std::vector<OpCase> nn_op_cases() {
  std::vector<OpCase> cases;
  for (auto* family :
       {conv_cases, matmul_cases, pool_cases, attention_cases, norm_cases, resize_cases})
    for (OpCase& each : family()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
