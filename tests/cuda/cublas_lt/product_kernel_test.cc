// Products by cuBLASLt on the device of ANNEAL_TEST_DEVICE: with the fake of
// tests/virtual_card/cublas_lt, or with the library itself on a card. Skipped without a card.
#include "anneal/kernels/cuda/cublas_lt/product_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "anneal/core/bytes.h"
#include "anneal/core/channels_last.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"
#include "anneal/kernels/cuda/cublas_lt/library.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/tests/cuda/cublas_lt/requests.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"
#include "anneal/tests/kernels/tolerance.h"

namespace anneal::cuda {
namespace {

using testing::Asked;
using ::testing::HasSubstr;
using testing::operand;

class CublasLtOnACard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::test_device() != "cuda") GTEST_SKIP() << "ANNEAL_TEST_DEVICE names no card";
    device_ = cuda_backend().open("cuda");
    const std::string& why = lt_handle_of(gpu_of(*device_)).why_not();
    if (!why.empty()) GTEST_SKIP() << why;
    cpu_ = cpu_backend().open("cpu");
  }
  std::unique_ptr<Device> device_, cpu_;
};

struct Case {
  std::string kernel;
  Op op;
  std::vector<std::string> inputs;
  std::string program = {};
  int op_inputs = 2;
  testing::Placement placement = testing::Placement::kRowMajor;
  std::vector<int> constants = {};
};

const Conv kWindow{
    .strides = {1, 1}, .pads_begin = {0, 0}, .pads_end = {0, 0}, .dilations = {1, 1}};
const std::string kGelu =
    "mul(mul(%0,0.5f32),add(tanh(mul(add(%0,mul(mul(mul(%0,%0),%0),0.044715f32)),0.7978846f32)),"
    "1f32))";

// Of BERT, ViT and ResNet, with fewer rows.
std::vector<Case> cases() {
  return {
      {"cublaslt.matmul", MatMul{}, {"f32[2,16,96]", "f32[96,160]"}},
      {"cublaslt.matmul",
       MatMul{},
       {"f16[2,32,768]", "f16[768,3072]", "f16[3072]"},
       "(f32,f16)->(f16) round_f16(add($0,$1))"},
      {"cublaslt.matmul.approximate",
       MatMul{},
       {"f16[2,8,256]", "f16[256,384]", "f16[384]"},
       "(f32,f16)->(f16) %0=add($0,$1); round_f16(" + kGelu + ")"},
      {"cublaslt.matmul.approximate",
       MatMul{},
       {"f32[8,64]", "f32[64,48]"},
       "(f32)->(f32) %0=mul($0,0.5f32); " + kGelu},
      {"cublaslt.matmul.approximate",
       MatMul{},
       {"bf16[16,64]", "bf16[64,1000]", "bf16[1000]"},
       "(f32,bf16)->(bf16) round_bf16(max(add($0,$1),0f32))"},
      {"cublaslt.matmul",
       MatMul{},
       {"f16[2,12,32]", "f16[32,64]", "f32[64]", "f32[2,12,64]"},
       "(f32,f32,f32)->(f32) add($2,add($0,$1))"},
      {"cublaslt.matmul",
       MatMul{.transpose_b = true},
       {"f16[2,6,32,64]", "f16[2,6,40,64]"},
       "(f32)->(f16) round_f16(mul($0,0.125f32))"},
      {"cublaslt.matmul", MatMul{.transpose_a = true}, {"f32[5,24,16]", "f32[5,24,20]"}},
      {"cublaslt.matmul", MatMul{.transpose_b = true}, {"i8[16,64]", "i8[48,64]"}},
      {"cublaslt.matmul",
       MatMul{.transpose_b = true},
       {"i8[16,64]", "i8[48,64]"},
       "(i32)->(i8) saturate_i8(rint(mul(f32($0),0.0013f32)))"},
      {"cublaslt.matmul",
       MatMul{.transpose_b = true},
       {"i8[16,64]", "i8[48,64]"},
       "(i32)->(i8) saturate_i8(rint(max(mul(f32($0),0.0013f32),0f32)))"},
      {"cublaslt.conv.approximate",
       kWindow,
       {"f16[2,64,7,7]", "f16[128,64,1,1]", "f16[128,1,1]", "f16[2,128,7,7]"},
       "(f32,f16,f16)->(f16) round_f16(max(add($2,add($0,$1)),0f32))",
       2,
       testing::Placement::kChannelsLast},
      {"cublaslt.conv", kWindow, {"f32[2,24,5,6]", "f32[32,24,1,1]"}},
      {"cublaslt.matmul", MatMul{}, {"f16[1,64]", "f16[64,1000]"}},
      {"cublaslt.matmul.approximate",
       MatMul{},
       {"f16[8,64]", "f16[64,24]", "f32[24]"},
       "(f32,f32)->(f16) round_f16(max(add($0,$1),0f32))",
       2,
       testing::Placement::kRowMajor,
       {2}},
  };
}

testing::TestLayer layer_of(const Case& of) {
  testing::TestLayer layer{.op = of.op};
  for (const std::string& text : of.inputs)
    layer.inputs.emplace_back(testing::tensor_from_text(text, 3 + layer.inputs.size()));
  layer.op_input_count = of.op_inputs;
  if (!of.program.empty()) layer.epilogues = {parse_program(of.program)};
  SizeTable sizes;
  for (const Fact& fact : testing::infer_with(layer, testing::own_types(layer), sizes)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  return layer;
}

std::string text_of(const Case& of) {
  std::string text = of.kernel;
  for (const std::string& input : of.inputs) text += " " + input;
  return text + " " + of.program;
}

// As the library would be asked for this layer, placed in rows.
std::vector<Tactic> tactics_of(const Case& of, const testing::TestLayer& layer, Device& device) {
  std::vector<Operand> inputs, outputs;
  const auto placed = [&](DataType dtype, const Dims& dims) {
    const bool last = of.placement == testing::Placement::kChannelsLast && dims.rank() == 4;
    return operand(dtype, dims, last ? channels_last_strides(dims) : row_major_strides(dims));
  };
  for (const auto& input : layer.inputs) inputs.push_back(placed(input->dtype(), input->dims()));
  for (const int i : of.constants)
    inputs[static_cast<size_t>(i)].constant = &*layer.inputs[static_cast<size_t>(i)];
  outputs.push_back(placed(layer.outputs[0].dtype, layer.output_dims[0]));
  const SizeTable sizes;
  return find_kernel(cuda_backend(), of.kernel)
      ->tactics(
          {layer.op, layer.epilogues, layer.op_input_count, inputs, outputs, sizes, device, {}});
}

TEST_F(CublasLtOnACard, EveryAlgorithmAgreesWithTheReference) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(text_of(each));
    const testing::TestLayer layer = layer_of(each);
    const auto wanted =
        run_layer(*testing::reference_entry(cpu_backend(), layer.op.index()), layer, *cpu_);
    const std::vector<Tactic> tactics = tactics_of(each, layer, *device_);
    // NVIDIA's library offers two for the smallest (13.1 on an H100), the fake six.
    EXPECT_GE(tactics.size(), 2u);
    for (const Tactic& tactic : tactics) {
      const auto vendor = vendor_tactic_of(tactic);
      ASSERT_TRUE(vendor);
      const auto got = run_layer(*find_kernel(cuda_backend(), each.kernel), layer, *device_,
                                 {.placement = each.placement,
                                  .constants = each.constants,
                                  .tactic = tactic,
                                  .is_exact = true});
      ASSERT_EQ(got.why_not, "") << vendor->algorithm;
      EXPECT_EQ(got.tactic, tactic);
      const auto problem = testing::disagreement(layer, got.outputs[0], wanted.outputs[0]);
      EXPECT_FALSE(problem) << vendor->algorithm << ": " << *problem;
    }
  }
}

// Those that the virtual card computes in seconds; 8 bits to the bit.
TEST_F(CublasLtOnACard, AgreesWithOurKernels) {
  constexpr int64_t kMostProducts = 1 << 18;
  int count = 0;
  for (const Case& each : cases()) {
    const testing::TestLayer layer = layer_of(each);
    if (anneal::count(layer.output_dims[0]) * testing::depth_of(layer) > kMostProducts) continue;
    SCOPED_TRACE(text_of(each));
    ++count;
    const auto run = [&](std::string_view kernel) {
      auto result = run_layer(*find_kernel(cuda_backend(), kernel), layer, *device_,
                              {.placement = each.placement, .constants = each.constants});
      EXPECT_EQ(result.why_not, "") << kernel;
      return result.outputs.at(0);
    };
    const bool is_conv = std::holds_alternative<Conv>(each.op);
    const Tensor ours = run(is_conv ? "cuda.conv.direct" : "cuda.matmul.simt");
    const auto problem = testing::disagreement(layer, run(each.kernel), ours);
    EXPECT_FALSE(problem) << *problem;
  }
  EXPECT_GE(count, 8);
}

// 10 bits of mantissa: further from the reference than f32, and not further than its rounding.
TEST_F(CublasLtOnACard, Tf32RoundsTheOperands) {
  const Case of{"cublaslt.matmul.tf32", MatMul{}, {"f32[16,64]", "f32[64,48]"}};
  const testing::TestLayer layer = layer_of(of);
  const auto run = [&](const char* kernel) {
    return run_layer(*find_kernel(cuda_backend(), kernel), layer, *device_);
  };
  const auto exact = run("cublaslt.matmul"), rounded = run(of.kernel.c_str());
  ASSERT_EQ(rounded.why_not, "");
  const auto a = exact.outputs[0].as<float>(), b = rounded.outputs[0].as<float>();
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  EXPECT_GT(worst, 1e-6F);
  EXPECT_LT(worst, 64 * 4 * 4 * 0x1p-10F);  // of 64 products of numbers below 4
}

// A tactic of another version, another architecture or with other bytes is refused with the reason.
TEST_F(CublasLtOnACard, RecordedAlgorithmsThatDoNotFitAreRefused) {
  const Case of{"cublaslt.matmul", MatMul{}, {"f32[16,64]", "f32[64,48]"}};
  const testing::TestLayer layer = layer_of(of);
  const auto tactic = vendor_tactic_of(tactics_of(of, layer, *device_).at(0));
  const auto why_not = [&](const std::function<void(VendorTactic&)>& change) {
    VendorTactic other = *tactic;
    change(other);
    const Tactic bytes = tactic_of(other);
    return run_layer(*find_kernel(cuda_backend(), of.kernel), layer, *device_, {.tactic = bytes})
        .why_not;
  };
  EXPECT_EQ(why_not([](VendorTactic&) {}), "");
  EXPECT_THAT(why_not([](VendorTactic& t) { t.library_version += 100; }),
              HasSubstr("its algorithm is recorded by cuBLASLt"));
  EXPECT_THAT(why_not([](VendorTactic& t) { t.architecture = 75; }), HasSubstr("is for sm_75"));
  if (testing::is_virtual_card()) {
    EXPECT_THAT(why_not([](VendorTactic& t) { t.bytes[20] ^= std::byte{1}; }),
                HasSubstr("cublasLtMatmulAlgoCheck: CUBLAS_STATUS_INVALID_VALUE"));
  }
}

// Memory of the card, filled with ones of f16.
struct Halves {
  std::unique_ptr<Buffer> buffer;
  Halves(Device& device, DeviceStream& stream, size_t count) : buffer(device.allocate(count * 2)) {
    const std::vector<uint16_t> ones(count, 0x3c00);
    device.copy(buffer->data(), reinterpret_cast<const std::byte*>(ones.data()), count * 2, stream);
    stream.wait();
  }
};

// At odd addresses the library chooses an algorithm itself.
TEST_F(CublasLtOnACard, OperandsAtOddAddresses) {
  Asked asked{.op = MatMul{},
              .inputs = {operand(DataType::kF16, {16, 64}), operand(DataType::kF16, {64, 32})},
              .outputs = {operand(DataType::kF16, {16, 32})}};
  const Request offline = asked.request();
  const Request request{offline.op,    offline.epilogues, 2,        asked.inputs,
                        asked.outputs, offline.sizes,     *device_, {}};
  auto made = find_kernel(cuda_backend(), "cublaslt.matmul")->make(request);
  ASSERT_TRUE(made) << made.reason();
  const auto stream = device_->make_stream();
  const Halves a(*device_, *stream, 16 * 64 + 1), b(*device_, *stream, 64 * 32 + 8),
      d(*device_, *stream, 16 * 32 + 8);
  const std::vector<TensorView> inputs = {{DataType::kF16, {16, 64}, {64, 1}, a.buffer->data() + 2},
                                          {DataType::kF16, {64, 32}, {32, 1}, b.buffer->data()}};
  const std::vector<TensorView> outputs = {{DataType::kF16, {16, 32}, {32, 1}, d.buffer->data()}};
  const auto prepared = (*made)->prepare(inputs, outputs, 1);
  const auto workspace = device_->allocate(std::max<size_t>(prepared->workspace_bytes, 1));
  ThreadTeam team(1);
  (*made)->launch({inputs, outputs, prepared.get(), workspace->data(), *stream, team});
  stream->wait();
  std::vector<uint16_t> got(16 * 32);
  device_->copy(reinterpret_cast<std::byte*>(got.data()), d.buffer->data(), got.size() * 2,
                *stream);
  stream->wait();
  for (const uint16_t each : got) ASSERT_EQ(each, 0x5400);  // 64
}

// The fake itself: what the real library takes without a word.
class StrictFake : public CublasLtOnACard {
 protected:
  void SetUp() override {
    CublasLtOnACard::SetUp();
    if (IsSkipped()) return;
    if (!testing::is_virtual_card()) GTEST_SKIP() << "the library is the real one";
    handle_ = &lt_handle_of(gpu_of(*device_));
    Asked asked{.op = MatMul{},
                .inputs = {operand(DataType::kF16, {16, 64}), operand(DataType::kF16, {64, 32})},
                .outputs = {operand(DataType::kF16, {16, 32})}};
    problem_ = *lt_problem(MatMul{}, asked.request(), {});
  }
  size_t algorithms(const std::function<void(LtProblem&)>& change) const {
    LtProblem other = problem_;
    change(other);
    return algorithms_for(*handle_, other, uint64_t{32} << 20).size();
  }
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes,
                          size_t offset_of_a = 0) {
    const auto stream = device_->make_stream();
    const Halves a(*device_, *stream, 16 * 64 + 8), b(*device_, *stream, 64 * 32),
        d(*device_, *stream, 16 * 32);
    const auto workspace = device_->allocate(std::max<size_t>(workspace_bytes, 1));
    const auto of = LtDescriptors::make(*handle_, problem_);
    const float alpha = 1, beta = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    gpu_stream_of(*stream).call([&](CUstream on) {
      status = handle_->library().cublasLtMatmul(
          handle_->handle(), of->product(), &alpha, b.buffer->data(), of->a(),
          a.buffer->data() + offset_of_a, of->b(), &beta, d.buffer->data(), of->c(),
          d.buffer->data(), of->d(), &algorithm, workspace->data(), workspace_bytes, on);
    });
    stream->wait();
    return status;
  }

  const LtHandle* handle_ = nullptr;
  LtProblem problem_;
};

TEST_F(StrictFake, LayoutsThatDoNotFit) {
  EXPECT_GE(algorithms([](LtProblem&) {}), 3u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.a.leading = 8; }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.d.rows = 31; }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.transpose_a = true; }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.b.type = CUDA_R_16BF; }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.epilogue = static_cast<cublasLtEpilogue_t>(8); }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) { p.epilogue = CUBLASLT_EPILOGUE_BIAS; }), 0u);
  EXPECT_EQ(algorithms([](LtProblem& p) {
              p.batches = 2;
              p.a.batch_stride = p.b.batch_stride = 4096;
              p.d.batch_stride = 16;
            }),
            0u);
}

TEST_F(StrictFake, AttributesOfAnotherSize) {
  const CublasLt& library = handle_->library();
  const auto of = LtDescriptors::make(*handle_, problem_);
  const uint8_t small = 1;
  EXPECT_EQ(library.cublasLtMatmulDescSetAttribute(of->product(), CUBLASLT_MATMUL_DESC_TRANSA,
                                                   &small, sizeof(small)),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(library.cublasLtMatrixLayoutSetAttribute(of->a(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                     &small, sizeof(small)),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(StrictFake, AddressesAndWorkspace) {
  const auto found = algorithms_for(*handle_, problem_, uint64_t{32} << 20);
  const auto split =
      std::ranges::find_if(found, [](const auto& each) { return each.workspaceSize > 0; });
  ASSERT_NE(split, found.end());
  EXPECT_EQ(multiply(split->algo, split->workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(split->algo, split->workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(found[0].algo, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(found[0].algo, 0, 2), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(found[0].algo, 0, 1), CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatmulAlgo_t other = found[0].algo;
  other.data[2] ^= 1;
  EXPECT_EQ(multiply(other, 0), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(cublasLtMatmulAlgo_t{}, 0), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(StrictFake, ACallWithoutTheContext) {
  const auto of = LtDescriptors::make(*handle_, problem_);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasLtMatmulAlgo_t algorithm = algorithms_for(*handle_, problem_, 0).at(0).algo;
  EXPECT_EQ(
      handle_->library().cublasLtMatmulAlgoCheck(handle_->handle(), of->product(), of->a(), of->b(),
                                                 of->c(), of->d(), &algorithm, &result),
      CUBLAS_STATUS_NOT_INITIALIZED);
}

}  // namespace
}  // namespace anneal::cuda
