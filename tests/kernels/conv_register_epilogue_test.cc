// Epilogues that kernels finish in registers, against the reference, and the same ones in forms
// that no kernel finishes.
#include <gtest/gtest.h>

#include <limits>

#include "anneal/core/isa.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/program/epilogue.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

struct Case {
  const char* name;
  const char* kernel;
  const char *x, *w;
  int64_t groups, pad;
};
constexpr Case kIntegers[] = {
    {"pixels", "cpu.conv.implicit_gemm", "u8[2,32,5,6]", "i8[48,32,1,1]", 1, 0},
    {"windows", "cpu.conv.implicit_gemm", "i8[1,24,6,5]", "i8[64,24,3,3]", 1, 1},
    {"odd channels", "cpu.conv.implicit_gemm", "u8[1,24,6,5]", "i8[37,24,1,1]", 1, 0},
    {"depthwise", "cpu.conv.depthwise_int8", "u8[1,40,7,9]", "i8[40,1,3,3]", 40, 1},
};
constexpr Case kFloats[] = {
    {"pixels", "cpu.conv.implicit_gemm", "f32[2,32,5,6]", "f32[48,32,1,1]", 1, 0},
    {"windows", "cpu.conv.implicit_gemm", "f32[1,24,6,5]", "f32[64,24,3,3]", 1, 1},
    {"depthwise", "cpu.conv.depthwise_nhwc", "f32[1,40,7,9]", "f32[40,1,3,3]", 40, 1},
    {"pixels of bf16", "cpu.conv.implicit_gemm", "bf16[1,32,5,6]", "bf16[48,32,1,1]", 1, 0},
    {"depthwise of bf16", "cpu.conv.depthwise_nhwc", "bf16[1,40,7,9]", "bf16[40,1,3,3]", 40, 1},
};

// further: inputs of the epilogue. Each kernel's output is compared with the reference's.
void expect_as_reference(const Case& each, const char* epilogue, const std::vector<Tensor>& further,
                         bool are_constants = true) {
  SCOPED_TRACE(::testing::Message() << each.name << ", " << epilogue);
  TestLayer layer{Conv{{1, 1}, {each.pad, each.pad}, {each.pad, each.pad}, {1, 1}, each.groups}};
  layer.inputs = {tensor_from_text(each.x, 1), tensor_from_text(each.w, 2)};
  layer.op_input_count = 2;
  layer.epilogues = {parse_program(epilogue)};
  RunOptions options{.placement = Placement::kChannelsLast, .constants = {1}};
  for (const Tensor& tensor : further) {
    if (are_constants) options.constants.push_back(static_cast<int>(layer.inputs.size()));
    layer.inputs.emplace_back(tensor);
  }
  SizeTable sizes;
  for (const Fact& fact : infer_with(layer, own_types(layer), sizes)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  const auto device = cpu_backend().open("cpu");
  const RunResult wanted =
      run_layer(*find_kernel(cpu_backend(), "cpu.conv.reference"), layer, *device, options);
  ASSERT_EQ(wanted.why_not, "");
  for (const int threads : {1, 3}) {
    options.threads = threads;
    const RunResult got =
        run_layer(*find_kernel(cpu_backend(), each.kernel), layer, *device, options);
    ASSERT_EQ(got.why_not, "");
    const Tensor &y = got.outputs[0], &reference = wanted.outputs[0];
    const auto what = difference(y, reference, default_tolerance(y.dtype()));
    EXPECT_FALSE(what) << *what << ", " << threads << " threads";
  }
}

int64_t channels_of(const Case& each) { return tensor_from_text(each.w).dims()[0]; }

Tensor per_channel(const Case& each, const char* values, uint64_t seed) {
  return tensor_from_text("f32[" + std::to_string(channels_of(each)) + ",1,1]" + values, seed);
}

constexpr const char* kCutOnBothSides =
    "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(min(max(add($2,mul($1,f32($0))),0f32),6f32),"
    "7.5f32)),5f32))";

// Whether kernels that can finish for any storage would finish this.
bool can_run_in_registers(const char* epilogue) {
  const Program program = parse_program(epilogue);
  const Tensor numbers = tensor_from_text("f32[8,1,1]");
  std::vector<Operand> inputs;
  for (const DataType dtype : program.inputs().subspan(1))
    inputs.push_back({.type = {dtype, Shape{8, 1, 1}},
                      .constant = dtype == DataType::kF32 ? &numbers : nullptr});
  const Operand output{.type = {program.results()[0].dtype, Shape{1, 8, 4, 4}}};
  const Op op = Conv{};
  const SizeTable sizes;
  const auto device = cpu_backend().open("cpu");
  const Request request{op, {&program, 1}, 0, inputs, {&output, 1}, sizes, *device, {}};
  const auto made = cpu::Epilogues::make(request, program.inputs()[0], 1);
  EXPECT_TRUE(made) << epilogue << ": " << made.reason();
  return made && made->can_run_in_registers([](DataType) { return true; });
}

TEST(ConvRegisterEpilogue, IsForTheMostFrequentEpilogues) {
  for (const char* epilogue :
       {"(f32,f32)->(f32) add($0,$1)", "(f32,f32)->(f32) max(add($0,$1),0f32)",
        "(f32,f32)->(f32) min(max(add($0,$1),0f32),6f32)",
        "(f32,f32,f32)->(f32) max(add($2,add($0,$1)),0f32)",
        "(f32,f32,f32)->(bf16) round_bf16(min(max(add($1,mul($0,$2)),0f32),6f32))",
        "(f32,f32,bf16)->(bf16) round_bf16(max(add($2,add($0,$1)),0f32))",
        "(i32,f32,f32)->(u8) saturate_u8(rint(mul(add($2,mul($1,f32($0))),0.5f32)))",
        "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(add($2,mul($1,f32($0))),0.5f32)),7f32))",
        "(i32,f32,f32)->(i8) saturate_i8(rint(mul(max(add($2,mul($1,f32($0))),0f32),0.5f32)))",
        kCutOnBothSides})
    EXPECT_TRUE(can_run_in_registers(epilogue)) << epilogue;
  for (const char* epilogue :
       {"(f32,f32)->(f32) max(sub($0,$1),0f32)", "(f32,f32)->(f32) sigmoid(add($0,$1))",
        "(f32,f32,u8)->(f32) add(f32($2),add($0,$1))", "(f32,f32)->(f16) round_f16(add($0,$1))",
        "(i32,f32,f32)->(i8) saturate_i8(rint(mul(max(add($2,mul($1,f32($0))),0f32),-2f32)))"})
    EXPECT_FALSE(can_run_in_registers(epilogue)) << epilogue;
}

// Sums are exact, and so are results of 8 bits.
TEST(ConvRegisterEpilogue, IntegersAreRequantizedAsTheReferenceDoes) {
  for (const Case& each : kIntegers) {
    const std::vector<Tensor> further = {per_channel(each, "=0.001..0.02", 3),
                                         per_channel(each, "", 4)};
    for (const char* epilogue :
         {"(i32,f32,f32)->(u8) saturate_u8(rint(mul(add($2,mul($1,f32($0))),7.5f32)))",
          "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(add($2,mul($1,f32($0))),7.5f32)),99f32))",
          "(i32,f32,f32)->(i8) saturate_i8(rint(mul(max(add($2,mul($1,f32($0))),0f32),7.5f32)))",
          kCutOnBothSides,
          "(i32,f32,f32)->(i8) saturate_i8(rint(mul(max(add($2,mul($1,f32($0))),0f32),-7.5f32)))",
          "(i32,f32,f32)->(i8) saturate_i8(rint(add($2,mul($1,f32($0)))))"}) {
      expect_as_reference(each, epilogue, further);
      expect_as_reference(each, epilogue, further, false);
    }
  }
}

// The bias of QLinearConv: of each channel, the same for all, or of each row, which stays in the
// epilogue; also where the sum of i32 wraps.
TEST(ConvRegisterEpilogue, SumsStartAtTheIntegersThatAreAdded) {
  constexpr const char* kBias =
      "(i32,f32,i32)->(u8) saturate_u8(add(rint(mul($1,f32(add($0,$2)))),99f32))";
  constexpr const char* kTwice =
      "(i32,f32,i32)->(i8) saturate_i8(rint(add(mul($1,f32(add($0,$2))),f32($2))))";
  for (const Case& each : kIntegers) {
    const Tensor scale = per_channel(each, "=0.001..0.02", 3);
    const std::string channels = std::to_string(channels_of(each));
    for (const std::string& bias :
         {"i32[" + channels + ",1,1]=-9000..9000", std::string("i32[]={700}"),
          std::string("i32[6,1]=-9000..9000"), "i32[" + channels + ",1,1]={2147483640" + [&] {
            std::string more;
            for (int64_t i = 1; i < channels_of(each); ++i) more += ",-2147483648";
            return more + "}";
          }()}) {
      if (bias == "i32[6,1]=-9000..9000" && each.x != std::string_view("i8[1,24,6,5]")) continue;
      const std::vector<Tensor> further = {scale, tensor_from_text(bias, 4)};
      expect_as_reference(each, kBias, further);
      expect_as_reference(each, kBias, further, false);
      expect_as_reference(each, kTwice, further);
    }
  }
}

TEST(ConvRegisterEpilogue, NumbersThatAreNoneBecomeWhatTheReferenceMakesOfThem) {
  for (const Case& each : kIntegers) {
    const Tensor scale = per_channel(each, "=0.001..0.02", 3);
    auto* const numbers = kernel_view(scale).as<float>();
    numbers[1] = std::numeric_limits<float>::quiet_NaN();
    numbers[2] = std::numeric_limits<float>::infinity();
    const std::vector<Tensor> further = {scale, per_channel(each, "", 4)};
    expect_as_reference(
        each,
        "(i32,f32,f32)->(i8) saturate_i8(rint(mul(max(add($2,mul($1,f32($0))),0f32),7.5f32)))",
        further);
    expect_as_reference(
        each,
        "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(add($2,mul($1,f32($0))),7.5f32)),9f32))",
        further);
  }
}

TEST(ConvRegisterEpilogue, FloatsAreCutAndRoundedAsTheReferenceDoes) {
  for (const Case& each : kFloats) {
    const std::vector<Tensor> further = {per_channel(each, "", 3), per_channel(each, "", 4)};
    for (const char* epilogue : {"(f32,f32,f32)->(f32) add($2,mul($1,$0))",
                                 "(f32,f32,f32)->(f32) min(max(add($2,mul($1,$0)),0f32),6f32)",
                                 "(f32,f32,f32)->(bf16) round_bf16(max(add($2,mul($1,$0)),0f32))",
                                 "(f32,f32,f32)->(bf16) round_bf16(max(sub($2,mul($1,$0)),0f32))"})
      expect_as_reference(each, epilogue, further);
    const Tensor y = tensor_from_text(each.x);
    const std::string dims = "[" + std::to_string(y.dims()[0]) + "," +
                             std::to_string(channels_of(each)) + "," + std::to_string(y.dims()[2]) +
                             "," + std::to_string(y.dims()[3]) + "]";
    expect_as_reference(each, "(f32,f32,f32)->(f32) max(add($2,add($1,$0)),0f32)",
                        {further[0], tensor_from_text("f32" + dims, 5)}, false);
    expect_as_reference(each, "(f32,f32)->(f32) max(add($0,$1),0f32)",
                        {tensor_from_text("f32" + dims, 5)}, false);
    expect_as_reference(each, "(f32,f32,bf16)->(bf16) round_bf16(add($2,add($1,$0)))",
                        {further[0], tensor_from_text("bf16" + dims, 5)}, false);
  }
}

TEST(ConvRegisterEpilogue, DenormalNumbersAreRoundedAsOthers) {
  for (const Case& each : kFloats) {
    const std::vector<Tensor> further = {per_channel(each, "=-2e-39..2e-39", 3),
                                         per_channel(each, "=-2e-38..2e-38", 4)};
    for (const char* epilogue : {"(f32,f32,f32)->(f32) add($2,mul($1,$0))",
                                 "(f32,f32,f32)->(bf16) round_bf16(add($2,mul($1,$0)))"})
      expect_as_reference(each, epilogue, further);
  }
}

}  // namespace
}  // namespace anneal::testing
