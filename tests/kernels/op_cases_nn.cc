#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {
namespace {

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

MatMul coded(WeightEncoding encoding) { return {.transpose_b = true, .b_encoding = encoding}; }

std::vector<OpCase> matmul_cases() {
  return {
      // A matrix that is no constant, read where it lies.
      {"matmul_few_rows", MatMul{}, {"f32[3,37]", "f32[37,531]"}},
      {"matmul_few_rows_of_batches", MatMul{}, {"f32[3,4,1,64]", "f32[4,64,33]"}},
      {"matmul_few_rows_by_transposed",
       MatMul{.transpose_b = true},
       {"f32[2,7,51]", "f32[2,70,51]"}},
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
      {"matmul_weights8",
       MatMul{},
       {"f32[1,129]", "const i8[129,300]=-128..127", "-", "-", "const f32[1,300]"}},
      {"matmul_weights8_zero_points",
       MatMul{false, true},
       {"f32[2,3,23]", "const u8[37,23]=0..255", "-", "const u8[37,1]=0..255", "const f32[37,1]"}},
      {"matmul_weights8_one_scale",
       MatMul{},
       {"f32[65,129]", "const u8[129,257]=0..255", "-", "const u8[1,1]={131}", "const f32[1,1]"}},
      {"matmul_weights8_blocks",
       MatMul{true, false},
       {"f32[96,5]", "const i8[96,37]=-128..127", "-", "const i8[3,37]=-9..9", "const f32[3,37]"}},
      {"matmul_weights8_blocks_of_all",
       MatMul{false, true},
       {"f32[17,1400]", "const i8[40,1400]=-128..127", "-", "-", "const f32[1,2]"}},
      {"matmul_weights8_split",
       MatMul{false, false, {64, 1, 64}},
       {"f32[27,46]", "const u8[46,129]=0..255", "-", "const u8[2,129]=0..255",
        "const f32[2,129]"}},
      {"matmul_weights8_no_rows",
       MatMul{},
       {"f32[0,3]", "const i8[3,5]", "-", "-", "const f32[1,5]"}},
      {"matmul_weights4",
       MatMul{},
       {"f32[1,129]", "const i8[129,300]=-8..7", "-", "-", "const f32[1,300]"}},
      {"matmul_weights4_zero_points",
       MatMul{false, true},
       {"f32[2,3,23]", "const u8[37,23]=0..15", "-", "const u8[37,1]=0..15", "const f32[37,1]"}},
      {"matmul_weights4_one_scale",
       MatMul{},
       {"f32[65,129]", "const u8[129,257]=0..15", "-", "const u8[1,1]={8}", "const f32[1,1]"}},
      {"matmul_weights4_blocks",
       MatMul{false, true},
       {"f32[96,1376]", "const u8[40,1376]=3..18", "-", "const u8[40,43]=0..255",
        "const f32[40,43]"}},
      {"matmul_weights4_split",
       MatMul{false, false, {64, 1, 64}},
       {"f32[7,46]", "const u8[46,129]=240..255", "-", "-", "const f32[2,129]"}},
      {"matmul_u4",
       coded(WeightEncoding::kU4),
       {"f32[1,128]", "const u8[300,64]=0..255", "-", "-", "const f32[300,4]"}},
      {"matmul_u4_zero_points",
       with(coded(WeightEncoding::kU4),
            [](MatMul& op) {
              op.split = {64, 1, 64};
            }),
       {"f32[2,3,1376]", "const u8[129,688]=0..255", "-", "const u8[129,43]=0..255",
        "const f32[129,43]"}},
      {"matmul_u2",
       coded(WeightEncoding::kU2),
       {"f32[7,264]", "const u8[37,66]=0..255", "-", "-", "const f32[1,1]"}},
      {"matmul_u2_zero_points",
       with(coded(WeightEncoding::kU2), [](MatMul& op) { op.transpose_a = true; }),
       {"f32[96,5]", "const u8[37,24]=0..255", "-", "const u8[37,3]=0..3", "const f32[37,3]"}},
      {"matmul_e4m3",
       coded(WeightEncoding::kE4M3),
       {"f32[5,600]", "const u8[33,600]=0..126", "-", "-", "const f32[33,1]"}},
      {"matmul_e4m3_negative",
       coded(WeightEncoding::kE4M3),
       {"f32[1,64]", "const u8[17,64]=128..254", "-", "-", "const f32[17,2]"}},
      {"matmul_e5m2_negative",
       coded(WeightEncoding::kE5M2),
       {"f32[1,64]", "const u8[17,64]=128..208", "-", "-", "const f32[1,1]"}},
      {"matmul_e5m2",
       coded(WeightEncoding::kE5M2),
       {"f32[1,64]", "const u8[40,64]=0..80", "-", "-", "const f32[40,2]"}},
      {"matmul_e2m1",
       coded(WeightEncoding::kE2M1),
       {"f32[9,1040]", "const u8[70,520]=0..255", "-", "-", "const f32[70,65]"}},
      {"matmul_nf4",
       coded(WeightEncoding::kNf4),
       {"f32[3,64]", "const u8[45,32]=0..255", "-", "-", "const f32[45,1]"}},
      {"matmul_fp4",
       coded(WeightEncoding::kFp4),
       {"f32[40,66]", "const u8[17,33]=0..255", "-", "-", "const f32[17,3]"}},
      {"matmul_f16_u4",
       coded(WeightEncoding::kU4),
       {"f16[3,288]", "const u8[40,144]=0..255", "-", "const u8[40,9]=0..15", "const f32[40,9]"}},
      {"matmul_bf16_i8",
       coded(WeightEncoding::kIntegers),
       {"bf16[1,2,40]", "const i8[24,40]=-128..127", "-", "-", "const f32[24,1]"}},
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
      {"resize_nearest_bytes", resize(kNearest, kAsymmetric, {2, 3}), {"i8[2,16,5,3]=-128..127"}},
      {"resize_nearest_ceil",
       with(resize(kNearest, kAsymmetric, {1.7f, 0.6f}),
            [](Resize& op) { op.nearest = ResizeNearest::kCeil; }),
       {"f32[1,4,7,9]"}},
      {"resize_nearest_floor",
       with(resize(kNearest, kTfHalfPixelForNn, {2.3f, 0.4f}),
            [](Resize& op) { op.nearest = ResizeNearest::kFloor; }),
       {"f32[1,4,7,9]"}},
      {"resize_nearest_prefers_ceil",
       with(resize(kNearest, kHalfPixel, {0.5f, 3}),
            [](Resize& op) { op.nearest = ResizeNearest::kRoundPreferCeil; }),
       {"i64[1,2,8,5]=-9..9"}},
      {"resize_linear_symmetric",
       resize(kLinear, kHalfPixelSymmetric, {1.3f, 0.7f}),
       {"f32[1,3,9,8]"}},
      {"resize_linear_channels", resize(kLinear, kHalfPixel, {2, 2}), {"f16[2,24,9,7]"}},
      {"resize_linear_21_channels", resize(kLinear, kAlignCorners, {2.2f, 3}), {"f32[2,21,9,7]"}},
      {"resize_linear_down_by_planes",
       resize(kLinear, kHalfPixel, {0.4f, 0.3f}),
       {"f32[2,3,40,61]"}},
      {"resize_nearest_down_by_planes",
       resize(kNearest, kHalfPixel, {0.4f, 0.3f}),
       {"u8[1,3,40,61]=0..255"}},
      {"resize_cubic_antialias_channels",
       with(resize(kCubic, kHalfPixel, {0.3f, 1}), [](Resize& op) { op.antialias = true; }),
       {"f32[1,19,31,9]"}},
      {"resize_linear_bf16", resize(kLinear, kAsymmetric, {2, 1.5f}), {"bf16[1,8,5,6]"}},
      {"resize_linear_f64", resize(kLinear, kHalfPixel, {1.5f, 2}), {"f64[1,2,5,4]"}},
      {"resize_linear_line",
       with(resize(kLinear, kHalfPixel, {2.5f}), [](Resize& op) { op.axes = {2}; }),
       {"f32[2,5,9]"}},
      {"resize_linear_volume",
       with(resize(kLinear, kHalfPixel, {2, 0.6f, 1.5f}),
            [](Resize& op) {
              op.axes = {2, 3, 4};
            }),
       {"f32[1,3,4,7,5]"}},
      {"resize_linear_one_axis",
       with(resize(kLinear, kAlignCorners, {2.2f}), [](Resize& op) { op.axes = {3}; }),
       {"f32[1,3,4,5]"}},
      {"resize_linear_of_one_pixel", resize(kLinear, kPytorchHalfPixel, {3, 1}), {"f32[1,3,1,1]"}},
      {"resize_cubic_excludes_outside",
       with(resize(kCubic, kHalfPixel, {0.7f, 1.7f}),
            [](Resize& op) { op.exclude_outside = true, op.cubic_coefficient = -0.5f; }),
       {"f32[1,2,9,7]"}},
      {"resize_cubic_antialias",
       with(resize(kCubic, kHalfPixel, {0.3f, 0.45f}), [](Resize& op) { op.antialias = true; }),
       {"f32[1,2,31,27]"}},
      {"resize_crop",
       with(resize(kLinear, kTfCropAndResize, {}), [](Resize& op) { op.extrapolation_value = 7; }),
       {"f32[1,2,9,7]", "i64[2]={5,4}", "f32[4]={0.1,-0.2,0.7,1.3}"}},
  };
}

}  // namespace

std::vector<OpCase> nn_op_cases() {
  std::vector<OpCase> cases;
  for (auto* family : {matmul_cases, pool_cases, norm_cases, resize_cases})
    for (OpCase& each : family()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace anneal::testing
