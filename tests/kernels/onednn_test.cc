// oneDNN's adapter: its declarations against the headers, what it refuses, and how work is cut.
// Without the library most of this is skipped, and says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <limits>

#include "anneal/core/channels_last.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/isa.h"
#include "anneal/core/library.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/onednn/api.h"
#include "anneal/kernels/cpu/onednn/onednn.h"
#include "anneal/kernels/cpu/onednn/pieces.h"
#include "anneal/kernels/cpu/program/register_epilogue.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#endif

namespace anneal::testing {
namespace {

using cpu::onednn::Primitive;
using ::testing::HasSubstr;

std::string why_unavailable() { return cpu::onednn::why_unavailable(current_isa()); }
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
      {ours::kTypeBF16, dnnl_bf16},
      {ours::kTypeF32, dnnl_f32},
      {ours::kTypeS32, dnnl_s32},
      {ours::kTypeS8, dnnl_s8},
      {ours::kTypeU8, dnnl_u8},
      {ours::kTagAny, dnnl_format_tag_any},
      {ours::kForwardInference, dnnl_forward_inference},
      {ours::kConvolutionDirect, dnnl_convolution_direct},
      {ours::kConvolutionWinograd, dnnl_convolution_winograd},
      {ours::kBinaryAdd, dnnl_binary_add},
      {ours::kBinaryMul, dnnl_binary_mul},
      {ours::kEltwiseRound, dnnl_eltwise_round},
      {ours::kEltwiseLinear, dnnl_eltwise_linear},
      {ours::kEltwiseClip, dnnl_eltwise_clip},
      {ours::kPoolingMax, dnnl_pooling_max},
      {ours::kScratchpadUser, dnnl_scratchpad_mode_user},
      {ours::kQueryImplementation, dnnl_query_impl_info_str},
      {ours::kQuerySource, dnnl_query_src_md},
      {ours::kQueryWeights, dnnl_query_weights_md},
      {ours::kQueryOutput, dnnl_query_dst_md},
      {ours::kQueryScratchpad, dnnl_query_scratchpad_md},
      {ours::kArgSource, DNNL_ARG_SRC},
      {ours::kArgSource1, DNNL_ARG_SRC_1},
      {ours::kArgBias, DNNL_ARG_BIAS},
      {ours::kArgPostOp, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0)},
      {2 * ours::kArgPostOp, DNNL_ARG_ATTR_MULTIPLE_POST_OP(1)},
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
      {ours::kIsaBf16, dnnl_cpu_isa_avx512_core_bf16},
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
  const auto refused = Primitive::make(shape, nullptr);
  EXPECT_FALSE(refused);
  EXPECT_THAT(refused.reason(), HasSubstr("ref"));
  shape.x.strides = channels_last_strides(shape.x.dims);
  const auto made = Primitive::make(shape, nullptr);
  EXPECT_TRUE(made) << made.reason();
}

// further: inputs of the epilogue.
TestLayer layer_of(Op op, const std::vector<std::string_view>& inputs, std::string_view epilogue,
                   const std::vector<Tensor>& further = {}) {
  TestLayer layer{std::move(op)};
  for (const std::string_view text : inputs)
    layer.inputs.push_back(
        text == "-" ? std::nullopt : std::optional(tensor_from_text(text, layer.inputs.size())));
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  layer.inputs.insert(layer.inputs.end(), further.begin(), further.end());
  if (!epilogue.empty()) layer.epilogues.push_back(parse_program(epilogue));
  SizeTable sizes;
  for (const Fact& fact : infer_with(layer, own_types(layer), sizes)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  return layer;
}

// All inputs of the op but the first are constants, and numbers per channel are.
RunResult run_on(std::string_view kernel, const TestLayer& layer, RunOptions options = {}) {
  for (int i = 1; i < static_cast<int>(layer.inputs.size()); ++i) {
    const bool is_addend =
        i >= layer.op_input_count && layer.inputs[i]->dims().rank() == layer.output_dims[0].rank();
    if (!is_addend) options.constants.push_back(i);
  }
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
    {"bf16", conv2(1, 1), {"bf16[1,64,41,43]", "bf16[67,64,3,3]"}},
    {"bf16, depthwise", conv2(2, 1, 40), {"bf16[1,40,129,127]", "bf16[40,1,3,3]"}},
    {"bf16, single pixels", conv2(1, 0), {"bf16[2,65,43,47]", "bf16[129,65,1,1]"}},
    {"bf16 product", MatMul{}, {"bf16[130,129]", "bf16[129,1030]"}, "cpu.matmul.packed"},
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
    const DataType x = tensor_from_text(each.inputs[0]).dtype();
    const bool int8 = is_8bit(x);
    if (int8 && !cpu::onednn::has_vnni()) continue;
    if (x == DataType::kBF16 && !cpu::onednn::has_bf16()) continue;
    for (const std::string_view epilogue :
         {"", int8 ? "(i32)->(f32) mul(f32($0),0.5f32)" : "(f32)->(f32) max($0,0f32)"}) {
      const TestLayer layer = layer_of(each.op, each.inputs, epilogue);
      const RunResult wanted = run_on(each.own, layer);
      ASSERT_EQ(wanted.why_not, "") << each.what;
      for (const Placement placement :
           {Placement::kRowMajor, Placement::kChannelsLast, Placement::kPadded}) {
        SCOPED_TRACE(std::string(each.what) + " " + std::string(epilogue) + " " +
                     to_string(placement));
        RunOptions options;
        options.placement = placement;
        options.ignore_speed_heuristics = true;
        const RunResult once =
            run_on(product ? "cpu.matmul.onednn" : "cpu.conv.onednn", layer, options);
        ASSERT_EQ(once.why_not, "");
        const auto problem = difference(once.outputs[0], wanted.outputs[0],
                                        int8 ? 0 : default_tolerance(wanted.outputs[0].dtype()));
        EXPECT_FALSE(problem) << *problem;
        options.threads = 3;
        EXPECT_EQ(run_on(product ? "cpu.matmul.onednn" : "cpu.conv.onednn", layer, options).outputs,
                  once.outputs);
      }
    }
  }
}

// A layer, and epilogues in which $1 and $2 are numbers of channels, and $2 may be an addend
// instead.
struct WithPostOps {
  const char* what;
  Op op;
  std::vector<std::string_view> inputs;
  std::string_view per_channel, addend;
};
const WithPostOps kWithPostOps[] = {
    {"windows",
     conv2(1, 1),
     {"f32[2,24,19,17]", "f32[37,24,3,3]"},
     "f32[37,1,1]",
     "f32[2,37,19,17]"},
    {"single pixels",
     conv2(1, 0),
     {"f32[1,65,43,47]", "f32[48,65,1,1]"},
     "f32[48,1,1]",
     "f32[1,48,43,47]"},
    {"depthwise",
     conv2(1, 1, 40),
     {"f32[1,40,67,65]", "f32[40,1,3,3]"},
     "f32[40,1,1]",
     "f32[1,40,67,65]"},
    {"product", MatMul{}, {"f32[130,129]", "f32[129,301]"}, "f32[301]", "f32[130,301]"},
    {"bf16",
     conv2(1, 1),
     {"bf16[1,32,41,43]", "bf16[67,32,3,3]"},
     "f32[67,1,1]",
     "bf16[1,67,41,43]"},
    {"bf16 product", MatMul{}, {"bf16[2,65,128]", "bf16[128,301]"}, "f32[301]", "bf16[2,65,301]"},
    {"8 bits",
     conv2(2, 1),
     {"u8[1,64,41,43]=0..255", "i8[67,64,3,3]=-128..127", "u8[]={3}"},
     "f32[67,1,1]",
     ""},
    {"8 bits, single pixels",
     conv2(1, 0),
     {"i8[2,256,23,27]=-128..127", "i8[67,256,1,1]=-128..127"},
     "f32[67,1,1]",
     ""},
    {"8 bits, depthwise",
     conv2(1, 1, 48),
     {"u8[1,48,31,33]=0..255", "i8[48,1,3,3]=-128..127"},
     "f32[48,1,1]",
     ""},
    {"8-bit product",
     MatMul{},
     {"u8[3,97,260]=0..255", "i8[260,531]=-128..127", "u8[]={99}"},
     "f32[531]",
     ""},
};

class PostOps : public ::testing::Test {
 protected:
  static std::string_view kernel_of(const WithPostOps& each, bool is_reference = false) {
    if (std::holds_alternative<MatMul>(each.op))
      return is_reference ? "cpu.matmul.reference" : "cpu.matmul.onednn_post_ops";
    return is_reference ? "cpu.conv.reference" : "cpu.conv.onednn_post_ops";
  }
  static bool is_8bit(const WithPostOps& each) { return each.addend.empty(); }
  static bool is_bf16(const WithPostOps& each) { return each.inputs[0].starts_with("bf16"); }
  static bool has_instructions(const WithPostOps& each) {
    return (!is_8bit(each) || cpu::onednn::has_vnni()) &&
           (!is_bf16(each) || cpu::onednn::has_bf16());
  }
  static Tensor numbers_of(const WithPostOps& each, const char* values, uint64_t seed) {
    return tensor_from_text(std::string(each.per_channel) + values, seed);
  }
  static RunOptions options_of(const WithPostOps& each) {
    RunOptions options{.ignore_speed_heuristics = true};
    if (std::holds_alternative<Conv>(each.op)) options.placement = Placement::kChannelsLast;
    return options;
  }
  // 8 bits are the reference's, bit by bit.
  static void expect_as_reference(const WithPostOps& each, std::string_view epilogue,
                                  const std::vector<Tensor>& further) {
    SCOPED_TRACE(::testing::Message() << each.what << ", " << epilogue);
    const TestLayer layer = layer_of(each.op, each.inputs, epilogue, further);
    RunOptions options = options_of(each);
    const RunResult wanted = run_on(kernel_of(each, true), layer, options);
    ASSERT_EQ(wanted.why_not, "");
    for (const int threads : {1, 3}) {
      options.threads = threads;
      const RunResult got = run_on(kernel_of(each), layer, options);
      ASSERT_EQ(got.why_not, "");
      const Tensor& y = got.outputs[0];
      const auto problem =
          difference(y, wanted.outputs[0], is_8bit(each) ? 0 : default_tolerance(y.dtype()));
      EXPECT_FALSE(problem) << *problem << ", " << threads << " threads";
    }
  }
};

TEST_F(PostOps, RequantizeAsTheReferenceDoes) {
  NEEDS_ONEDNN();
  for (const WithPostOps& each : kWithPostOps) {
    if (!is_8bit(each) || !has_instructions(each)) continue;
    const std::vector<Tensor> two = {numbers_of(each, "=0.0001..0.002", 3),
                                     numbers_of(each, "", 4)};
    for (const char* epilogue :
         {"(i32,f32,f32)->(u8) saturate_u8(rint(mul(add($2,mul($1,f32($0))),7.5f32)))",
          "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(add($2,mul($1,f32($0))),7.5f32)),99f32))",
          "(i32,f32,f32)->(i8) saturate_i8(rint(mul(max(add($2,mul($1,f32($0))),0f32),7.5f32)))",
          "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(min(max(add($2,mul($1,f32($0))),0f32),"
          "6f32),7.5f32)),5f32))"})
      expect_as_reference(each, epilogue, two);
    expect_as_reference(each, "(i32)->(i8) saturate_i8(add(rint(mul(f32($0),0.5f32)),-3f32))", {});
  }
}

TEST_F(PostOps, MoveSumsAndAddResiduals) {
  NEEDS_ONEDNN();
  for (const WithPostOps& each : kWithPostOps) {
    if (is_8bit(each) || !has_instructions(each)) continue;
    const Tensor offset = numbers_of(each, "", 3);
    const Tensor addend = tensor_from_text(each.addend, 5);
    expect_as_reference(each, "(f32,f32)->(f32) add($0,$1)", {offset});
    if (is_bf16(each)) {
      expect_as_reference(each, "(f32,f32,bf16)->(bf16) round_bf16(add($2,add($0,$1)))",
                          {offset, addend});
    } else {
      expect_as_reference(each, "(f32,f32,f32)->(f32) add($2,add($0,$1))", {offset, addend});
      expect_as_reference(each, "(f32,f32)->(f32) add($0,$1)", {addend});
    }
  }
}

TEST_F(PostOps, KeepWhatIsNoNumber) {
  NEEDS_ONEDNN();
  for (const WithPostOps& each : kWithPostOps) {
    if (is_8bit(each) || !has_instructions(each)) continue;
    const Tensor offset = numbers_of(each, "", 3);
    auto* const numbers = kernel_view(offset).as<float>();
    numbers[1] = std::numeric_limits<float>::quiet_NaN();
    numbers[2] = -std::numeric_limits<float>::infinity();
    expect_as_reference(each, "(f32,f32)->(f32) add($0,$1)", {offset});
  }
}

TEST_F(PostOps, AreNotForEpiloguesWithOtherResults) {
  NEEDS_ONEDNN();
  const WithPostOps& each = kWithPostOps[0];
  const std::vector<Tensor> two = {numbers_of(each, "", 3), numbers_of(each, "", 4)};
  const auto why_not = [&](std::string_view epilogue, const std::vector<Tensor>& further,
                           const RunOptions& options) {
    return run_on(kernel_of(each), layer_of(each.op, each.inputs, epilogue, further), options)
        .why_not;
  };
  const RunOptions options = options_of(each);
  EXPECT_THAT(why_not("(f32,f32)->(f32) max(add($0,$1),0f32)", {two[0]}, options),
              HasSubstr("NaN"));
  EXPECT_THAT(why_not("(f32,f32,f32)->(f32) add($2,mul($0,$1))", two, options),
              HasSubstr("scales"));
  EXPECT_THAT(why_not("(f32,f32)->(f32) sigmoid(add($0,$1))", {two[0]}, options),
              HasSubstr("no list of post-ops"));
  EXPECT_EQ(why_not("", {}, options), "no epilogue");
  EXPECT_EQ(
      why_not("(f32,f32)->(f32) add($0,$1)", {two[0]}, {.placement = Placement::kChannelsLast}),
      "chosen by measured times only");
  // Rows that are not contiguous.
  EXPECT_THAT(why_not("(f32,f32)->(f32) add($0,$1)", {two[0]},
                      {.placement = Placement::kPadded, .ignore_speed_heuristics = true}),
              HasSubstr("no list of post-ops"));
}

// Its transforms round differently, as ours do (conv_winograd_test.cc).
TEST(OneDnn, WinogradIsTheSameConvolution) {
  NEEDS_ONEDNN();
  if (!cpu::onednn::has_avx512()) GTEST_SKIP() << "oneDNN's Winograd needs AVX-512";
  for (const auto& inputs :
       {std::vector<std::string_view>{"f32[2,32,43,29]", "f32[64,32,3,3]"},
        std::vector<std::string_view>{"f32[1,128,13,15]", "f32[48,128,3,3]"}}) {
    const TestLayer layer =
        layer_of(conv2(1, 1), inputs, "(f32,f32)->(f32) max(add($0,$1),0f32)",
                 {tensor_from_text("f32[" + std::string(inputs[1].substr(4, 2)) + ",1,1]")});
    const RunResult wanted = run_on("cpu.conv.nhwc", layer);
    RunOptions options;
    options.ignore_speed_heuristics = true;
    for (const Placement placement : {Placement::kRowMajor, Placement::kChannelsLast}) {
      options.placement = placement;
      for (const int threads : {1, 3}) {
        options.threads = threads;
        const RunResult got = run_on("cpu.conv.onednn_winograd", layer, options);
        ASSERT_EQ(got.why_not, "");
        const auto problem = difference(got.outputs[0], wanted.outputs[0], 1e-4);
        EXPECT_FALSE(problem) << *problem;
      }
    }
  }
  RunOptions options;
  const auto why_not_of = [&](Op op, const std::vector<std::string_view>& inputs) {
    options.ignore_speed_heuristics = true;
    return run_on("cpu.conv.onednn_winograd", layer_of(std::move(op), inputs, ""), options).why_not;
  };
  EXPECT_THAT(why_not_of(conv2(1, 0), {"f32[1,16,14,14]", "f32[16,16,1,1]"}), HasSubstr("windows"));
  EXPECT_NE(why_not_of(conv2(2, 1), {"f32[1,16,14,14]", "f32[16,16,3,3]"}), "");
  EXPECT_EQ(find_kernel(cpu_backend(), "cpu.conv.onednn_winograd")->exact, false);
}

int64_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// Two pools of threads would steal each other's cores.
TEST(OneDnn, StartsNoThreadsAndLeavesOpenMpAsItWas) {
  NEEDS_ONEDNN();
  const auto openmp = Library::open("libgomp.so.1");
  if (!openmp) GTEST_SKIP() << openmp.reason();
  const auto set = reinterpret_cast<void (*)(int)>(openmp->find("omp_set_num_threads"));
  const auto get = reinterpret_cast<int (*)()>(openmp->find("omp_get_max_threads"));
  const int before = get();
  set(7);
  RunOptions options;
  options.threads = 2;
  static_cast<void>(ThreadTeam(options.threads).size());  // its worker is ours
  const int64_t threads = threads_of_this_process();
  for (const Large& each : kLarge)
    run_on(std::holds_alternative<MatMul>(each.op) ? "cpu.matmul.onednn" : "cpu.conv.onednn",
           layer_of(each.op, each.inputs, ""), options);
  EXPECT_EQ(threads_of_this_process(), threads);
  EXPECT_EQ(get(), 7);
  set(before);
}

std::string why_not(Op op, const std::vector<std::string_view>& inputs,
                    bool ignore_speed_heuristics = false) {
  const bool product = std::holds_alternative<MatMul>(op);
  RunOptions options;
  options.ignore_speed_heuristics = ignore_speed_heuristics;
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
  if (!cpu::onednn::has_bf16()) {
    EXPECT_EQ(why_not(conv2(1, 0), {"bf16[1,7,5,5]", "bf16[3,7,1,1]"}, true),
              "bf16 needs AVX512_BF16");
    EXPECT_EQ(why_not(MatMul{}, {"bf16[3,5]", "bf16[5,7]"}, true), "bf16 needs AVX512_BF16");
  }
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

// Speech: our own kernel is several times as fast, up to the taps that it takes.
TEST(OneDnn, DepthwiseConvolutionsAlongOneAxisAreOurs) {
  NEEDS_ONEDNN();
  Conv op = conv2(1, 0, 64);
  op.strides = op.dilations = {1}, op.pads_begin = op.pads_end = {0};
  EXPECT_THAT(why_not(op, {"f32[1,64,1000]", "f32[64,1,31]"}), HasSubstr("of one axis"));
  EXPECT_EQ(why_not(op, {"f32[1,64,1000]", "f32[64,1,257]"}), "");
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
  EXPECT_NE(cpu::onednn::why_unavailable(Isa::kBaseline), "");
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
