// oneDNN's adapter: its declarations against the headers, what it refuses, and how work is cut.
// Without the library most of this is skipped, and says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "anneal/core/library.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/onednn.h"
#include "anneal/kernels/cpu/onednn_api.h"
#include "anneal/kernels/cpu/onednn_pieces.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#endif

namespace anneal::testing {
namespace {

using cpu::onednn::Primitive;
using ::testing::HasSubstr;

std::string why_unavailable() { return cpu::onednn::why_unavailable(*cpu_backend().open("cpu")); }
#define NEEDS_ONEDNN() \
  if (const std::string why = why_unavailable(); !why.empty()) GTEST_SKIP() << "no oneDNN: " << why

#if __has_include(<oneapi/dnnl/dnnl.h>) && DNNL_VERSION_MAJOR == 2

// Whether values of both types are passed in the same way.
template <class Ours, class Theirs>
constexpr bool same_value() {
  if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>)
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  else
    return std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
           sizeof(Ours) == sizeof(Theirs);  // NOLINT(bugprone-sizeof-expression): of pointers too
}
template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return same_value<R, S>() && (same_value<A, B>() && ...);
  }();
};

TEST(OneDnn, DeclarationsAreThoseOfTheHeaders) {
  namespace ours = cpu::onednn;
#define X(function, ...)                                                                   \
  EXPECT_TRUE((SameFunction<decltype(ours::Api::function), decltype(&::function)>::value)) \
      << #function;
  ANNEAL_FOR_EACH_DNNL_FUNCTION(X)
#undef X
  EXPECT_EQ(sizeof(ours::MemoryDesc), sizeof(dnnl_memory_desc_t));
  EXPECT_EQ(sizeof(ours::ConvolutionDesc), sizeof(dnnl_convolution_desc_t));
  EXPECT_EQ(sizeof(ours::MatMulDesc), sizeof(dnnl_matmul_desc_t));
  EXPECT_EQ(sizeof(ours::PoolingDesc), sizeof(dnnl_pooling_v2_desc_t));
  EXPECT_EQ(sizeof(ours::DnnDims), sizeof(dnnl_dims_t));
  EXPECT_EQ(sizeof(ours::ExecArg), sizeof(dnnl_exec_arg_t));
  EXPECT_EQ(offsetof(ours::ExecArg, memory), offsetof(dnnl_exec_arg_t, memory));
  EXPECT_EQ(sizeof(ours::Version), sizeof(dnnl_version_t));
  EXPECT_EQ(offsetof(ours::Version, cpu_runtime), offsetof(dnnl_version_t, cpu_runtime));
  const std::pair<int, int> constants[] = {
      {ours::kStatusSuccess, dnnl_success},
      {ours::kEngineCpu, dnnl_cpu},
      {ours::kTypeF32, dnnl_f32},
      {ours::kTypeS32, dnnl_s32},
      {ours::kTypeS8, dnnl_s8},
      {ours::kTypeU8, dnnl_u8},
      {ours::kTagAny, dnnl_format_tag_any},
      {ours::kForwardInference, dnnl_forward_inference},
      {ours::kConvolutionDirect, dnnl_convolution_direct},
      {ours::kPoolingMax, dnnl_pooling_max},
      {ours::kScratchpadUser, dnnl_scratchpad_mode_user},
      {ours::kQueryImplementation, dnnl_query_impl_info_str},
      {ours::kQueryWeights, dnnl_query_weights_md},
      {ours::kQueryScratchpad, dnnl_query_scratchpad_md},
      {ours::kArgSource, DNNL_ARG_SRC},
      {ours::kArgOutput, DNNL_ARG_DST},
      {ours::kArgWeights, DNNL_ARG_WEIGHTS},
      {ours::kArgScratchpad, DNNL_ARG_SCRATCHPAD},
      {ours::kStreamDefault, dnnl_stream_default_flags},
      {ours::kRuntimeSequential, DNNL_RUNTIME_SEQ},
      {ours::kRuntimeOpenMp, DNNL_RUNTIME_OMP},
      {ours::kIsaAll, dnnl_cpu_isa_all},
      {ours::kIsaAvx2, dnnl_cpu_isa_avx2},
      {ours::kIsaAvx512, dnnl_cpu_isa_avx512_core},
      {ours::kIsaVnni, dnnl_cpu_isa_avx512_core_vnni},
  };
  for (size_t i = 0; i < std::size(constants); ++i)
    EXPECT_EQ(constants[i].first, constants[i].second) << "constant " << i;
}

#else

TEST(OneDnn, DeclarationsAreThoseOfTheHeaders) { GTEST_SKIP() << "no headers of oneDNN 2"; }

#endif

TEST(OneDnn, SlowImplementationsAreRefusedByName) {
  using cpu::onednn::why_refused;
  EXPECT_EQ(why_refused("ref:any"), "oneDNN has only ref:any for it");
  EXPECT_EQ(why_refused("simple:any"), "oneDNN has only simple:any for it");
  EXPECT_EQ(why_refused("ref_int8:any"), "oneDNN has only ref_int8:any for it");
  EXPECT_EQ(why_refused("brgconv:avx512_core"), "");
  EXPECT_EQ(why_refused("gemm:jit"), "");
}

// A channel slice of wider pixels, which oneDNN runs by its reference alone.
TEST(OneDnn, ConvolutionOfASliceOfChannelsIsRefused) {
  NEEDS_ONEDNN();
  cpu::onednn::ConvShape shape;
  shape.x = {DataType::kF32, {1, 16, 8, 8}, {8 * 8 * 32, 1, 8 * 32, 32}};
  shape.w = {DataType::kF32, {16, 16, 3, 3}, {16 * 9, 9, 3, 1}};
  shape.y = {DataType::kF32, {1, 16, 8, 8}, {8 * 8 * 16, 1, 8 * 16, 16}};
  shape.strides = shape.dilations = shape.pads_begin = shape.pads_end = {1, 1};
  std::string why_not;
  EXPECT_EQ(Primitive::make(shape, nullptr, why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("ref"));
  shape.x.strides = channels_last_strides(shape.x.dims);
  EXPECT_NE(Primitive::make(shape, nullptr, why_not), nullptr) << why_not;
}

TestLayer layer_of(Op op, const std::vector<std::string_view>& inputs, std::string_view epilogue) {
  TestLayer layer{std::move(op)};
  for (const std::string_view text : inputs)
    layer.inputs.push_back(
        text == "-" ? std::nullopt : std::optional(tensor_from_text(text, layer.inputs.size())));
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  if (!epilogue.empty()) layer.epilogues.push_back(parse_program(epilogue));
  SizeTable sizes;
  for (const Fact& fact : infer_with(layer, own_types(layer), sizes)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  return layer;
}

// All inputs but the first are constants.
RunResult run_on(std::string_view kernel, const TestLayer& layer, RunOptions options = {}) {
  for (int i = 1; i < layer.op_input_count; ++i) options.constants.push_back(i);
  return run_layer(*find_kernel(cpu_backend(), kernel), layer, *cpu_backend().open("cpu"), options);
}

Conv conv2(int64_t stride, int64_t pad, int64_t groups = 1) {
  return {{stride, stride}, {pad, pad}, {pad, pad}, {1, 1}, groups};
}

// Layers that are cut into pieces: too much work for the naive reference, so they are compared with
// our own fast kernel, which the op suite has compared with it.
struct Large {
  const char* what;
  Op op;
  std::vector<std::string_view> inputs;
  const char* own = "cpu.conv.nhwc";
};
const Large kLarge[] = {
    {"rows", conv2(1, 1), {"f32[1,32,27,29]", "f32[23,32,3,3]"}},
    {"rows and columns", conv2(2, 1), {"f32[1,130,39,41]", "f32[131,130,3,3]"}},
    {"two images", conv2(2, 0), {"f32[2,64,37,29]", "f32[48,64,3,3]"}},
    {"single pixels", conv2(1, 0), {"f32[2,65,43,47]", "f32[129,65,1,1]"}},
    {"groups", conv2(1, 1, 2), {"f32[1,64,41,43]", "f32[96,32,3,3]"}},
    {"depthwise", conv2(2, 2, 40), {"f32[1,40,229,127]", "f32[40,1,5,5]"}},
    {"three axes",
     Conv{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1},
     {"f32[1,8,13,17,19]", "f32[16,8,3,3,3]"}},
    {"8 bits", conv2(1, 1), {"u8[1,64,41,43]=0..255", "i8[67,64,3,3]=-128..127", "u8[]={3}"}},
    {"8 bits, signed, single pixels",
     conv2(1, 0),
     {"i8[1,256,53,57]=-128..127", "i8[67,256,1,1]=-128..127", "i8[]={-7}"}},
    {"product", MatMul{false, true}, {"f32[130,129]", "f32[1030,129]"}, "cpu.matmul.packed"},
    {"deep product", MatMul{}, {"f32[2,41,1030]", "f32[1030,301]"}, "cpu.matmul.packed"},
    {"8-bit vector",
     MatMul{},
     {"i8[1,1030]=-128..127", "i8[1030,701]=-128..127"},
     "cpu.matmul.packed"},
    {"8-bit product",
     MatMul{},
     {"u8[3,97,260]=0..255", "i8[260,531]=-128..127", "u8[]={99}"},
     "cpu.matmul.packed"},
};

TEST(OneDnn, PiecesGiveTheSameAsOneWhole) {
  NEEDS_ONEDNN();
  for (const Large& each : kLarge) {
    const bool product = std::holds_alternative<MatMul>(each.op);
    const bool int8 = each.inputs[0].substr(0, 3) != "f32";
    if (int8 && !cpu::onednn::has_vnni()) continue;
    for (const std::string_view epilogue :
         {"", int8 ? "(i32)->(f32) mul(f32($0),0.5f32)" : "(f32)->(f32) max($0,0f32)"}) {
      const TestLayer layer = layer_of(each.op, each.inputs, epilogue);
      const RunResult wanted = run_on(each.own, layer);
      ASSERT_EQ(wanted.why_not, "") << each.what;
      for (const Placement placement :
           {Placement::kRowMajor, Placement::kChannelsLast, Placement::kPadded}) {
        SCOPED_TRACE(std::string(each.what) + " " + std::string(epilogue) + " " + name(placement));
        RunOptions options;
        options.placement = placement;
        options.at_any_speed = true;
        const RunResult once =
            run_on(product ? "cpu.matmul.onednn" : "cpu.conv.onednn", layer, options);
        ASSERT_EQ(once.why_not, "");
        const auto problem = difference(once.outputs[0], wanted.outputs[0],
                                        int8 ? 0 : default_tolerance(DataType::kF32));
        EXPECT_FALSE(problem) << *problem;
        options.threads = 3;
        EXPECT_EQ(run_on(product ? "cpu.matmul.onednn" : "cpu.conv.onednn", layer, options).outputs,
                  once.outputs);
      }
    }
  }
}

int64_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// Two pools of threads would steal each other's cores.
TEST(OneDnn, StartsNoThreadsAndLeavesOpenMpAsItWas) {
  NEEDS_ONEDNN();
  std::string why;
  const auto openmp = Library::open("libgomp.so.1", why);
  if (!openmp) GTEST_SKIP() << why;
  const auto set = reinterpret_cast<void (*)(int)>(openmp->find("omp_set_num_threads"));
  const auto get = reinterpret_cast<int (*)()>(openmp->find("omp_get_max_threads"));
  const int before = get();
  set(7);
  RunOptions options;
  options.threads = 2;
  static_cast<void>(Team(options.threads).size());  // its worker is ours
  const int64_t threads = threads_of_this_process();
  for (const Large& each : kLarge)
    run_on(std::holds_alternative<MatMul>(each.op) ? "cpu.matmul.onednn" : "cpu.conv.onednn",
           layer_of(each.op, each.inputs, ""), options);
  EXPECT_EQ(threads_of_this_process(), threads);
  EXPECT_EQ(get(), 7);
  set(before);
}

std::string why_not(Op op, const std::vector<std::string_view>& inputs, bool at_any_speed = false) {
  const bool product = std::holds_alternative<MatMul>(op);
  RunOptions options;
  options.at_any_speed = at_any_speed;
  return run_on(product ? "cpu.matmul.onednn" : "cpu.conv.onednn",
                layer_of(std::move(op), inputs, ""), options)
      .why_not;
}

TEST(OneDnn, RefusesWhatItCannotDoExactly) {
  NEEDS_ONEDNN();
  EXPECT_EQ(why_not(conv2(1, 0), {"u8[1,7,5,5]", "i8[3,7,1,1]", "-", "i8[3]={0,1,-1}"}),
            "weights with a zero point");
  EXPECT_THAT(why_not(conv2(1, 0), {"u8[1,7,5,5]", "u8[3,7,1,1]"}), HasSubstr("signed weights"));
  EXPECT_THAT(why_not(conv2(1, 0), {"f16[1,7,5,5]", "f16[3,7,1,1]"}), HasSubstr("only f32"));
  EXPECT_THAT(why_not(MatMul{}, {"f64[3,5]", "f64[5,7]"}), HasSubstr("only f32"));
  EXPECT_EQ(why_not(MatMul{}, {"f32[2,3,5]", "f32[2,5,7]"}), "a batch of right sides");
  if (!cpu::onednn::has_avx512()) {
    EXPECT_THAT(why_not(MatMul{}, {"f32[99,5]", "f32[5,7]"}), HasSubstr("with AVX2"));
  } else {
    EXPECT_EQ(why_not(MatMul{}, {"f32[99,5]", "f32[5,7]"}), "");
    EXPECT_THAT(why_not(MatMul{}, {"f32[3,5]", "f32[5,7]"}), HasSubstr("few rows"));
  }
  if (cpu::onednn::has_vnni()) {
    EXPECT_EQ(why_not(conv2(1, 0), {"u8[1,7,5,5]", "i8[3,7,1,1]", "-", "i8[3]={0,0,0}"}), "");
  }
}

TEST(OneDnn, RefusesNothingForSpeedIfAClockChooses) {
  NEEDS_ONEDNN();
  const Op grouped = conv2(1, 0, 2);
  EXPECT_NE(why_not(MatMul{}, {"f32[3,5]", "f32[5,7]"}), "");
  EXPECT_NE(why_not(grouped, {"f32[1,6,5,5]", "f32[4,3,1,1]"}), "");
  EXPECT_EQ(why_not(MatMul{}, {"f32[3,5]", "f32[5,7]"}, true), "");
  EXPECT_EQ(why_not(grouped, {"f32[1,6,5,5]", "f32[4,3,1,1]"}, true), "");
}

TEST(OneDnn, MaximaAreThoseOfBytesAlone) {
  NEEDS_ONEDNN();
  Pool pool;
  pool.kernel = {3, 3}, pool.strides = pool.dilations = {1, 1};
  pool.pads_begin = pool.pads_end = {1, 1};
  const auto why_not_pool = [&](std::string_view input) {
    return run_on("cpu.pool.onednn", layer_of(pool, {input}, "")).why_not;
  };
  EXPECT_EQ(why_not_pool("u8[1,7,9,5]"), "");
  EXPECT_EQ(why_not_pool("i8[2,70,90,55]"), "");
  EXPECT_EQ(why_not_pool("f32[1,7,9,5]"), "only maxima of 8-bit elements");
  pool.kernel = {7, 7}, pool.pads_begin = pool.pads_end = {3, 3};
  EXPECT_THAT(why_not_pool("u8[1,7,9,5]"), HasSubstr("large windows"));
}

TEST(OneDnn, OtherTargetsThanThisCpuAreRefused) {
  NEEDS_ONEDNN();
  EXPECT_NE(cpu::onednn::why_unavailable(*cpu_backend().open("cpu:baseline")), "");
}

TEST(OneDnnCut, PiecesAreAboutAsMuchWork) {
  using cpu::onednn::cut;
  using cpu::onednn::Product;
  // 64 channels of 56 x 56 by 3 x 3: weights stay near, so rows are cut.
  auto pieces =
      cut({.rows = 56, .columns = 64, .operations = 231'211'008, .weight_bytes = 147'456});
  EXPECT_EQ(pieces.piece_columns, 64);
  EXPECT_EQ(pieces.row_pieces, 56);
  // 512 channels of 7 x 7: weights are far, so columns are cut.
  pieces = cut({.rows = 7,
                .columns = 512,
                .least_rows = 7,
                .elements = 25'088,
                .operations = 231'211'008,
                .weight_bytes = 9'437'184});
  EXPECT_EQ(pieces.piece_columns, 64);
  EXPECT_EQ(pieces.row_pieces, 1);
  // A vector by a matrix.
  pieces = cut({.rows = 1, .columns = 1000, .operations = 2'560'000, .weight_bytes = 5'120'000});
  EXPECT_EQ(pieces.piece_columns, 128);
  EXPECT_EQ(pieces.row_pieces, 1);
  // Little work is one piece.
  pieces = cut({.rows = 9, .columns = 23, .operations = 5'000, .weight_bytes = 500});
  EXPECT_EQ(pieces.piece_columns, 23);
  EXPECT_EQ(pieces.row_pieces, 1);
}

TEST(OneDnnCut, PiecesCoverAllRows) {
  for (int64_t pieces = 1; pieces <= 7; ++pieces) {
    EXPECT_EQ(cpu::onednn::piece_begin(7, pieces, 0), 0);
    EXPECT_EQ(cpu::onednn::piece_begin(7, pieces, pieces), 7);
    for (int64_t i = 0; i < pieces; ++i)
      EXPECT_LT(cpu::onednn::piece_begin(7, pieces, i), cpu::onednn::piece_begin(7, pieces, i + 1));
  }
}

}  // namespace
}  // namespace anneal::testing
