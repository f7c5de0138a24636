// Layers as products that cuBLASLt takes: column-major matrices, batches, epilogues, refusals.
#include "anneal/kernels/cuda/cublas_lt/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/cuda/cublas_lt/requests.h"

namespace anneal::cuda {
namespace {

using testing::Asked;
using ::testing::HasSubstr;
using testing::operand;

constexpr auto kF32 = DataType::kF32, kF16 = DataType::kF16, kI8 = DataType::kI8,
               kI32 = DataType::kI32;

Result<LtProblem> problem_of(Asked asked, LtArithmetic wanted = {}) {
  const Request request = asked.request();
  if (const auto* const conv = std::get_if<Conv>(&asked.op))
    return lt_problem(*conv, request, wanted);
  return lt_problem(std::get<MatMul>(asked.op), request, wanted);
}
LtProblem expected(Asked asked, LtArithmetic wanted = {}) {
  auto problem = problem_of(std::move(asked), wanted);
  EXPECT_TRUE(problem) << problem.reason();
  return problem ? *problem : LtProblem{};
}
std::string refusal(Asked asked, LtArithmetic wanted = {}) {
  return problem_of(std::move(asked), wanted).reason();
}
Asked matmul(DataType in, DataType out, const Dims& a, const Dims& b, const Dims& y,
             const MatMul& op = {}) {
  return {.op = op, .inputs = {operand(in, a), operand(in, b)}, .outputs = {operand(out, y)}};
}
LtMatrix matrix(size_t at, cudaDataType type, int64_t rows, int64_t columns, int64_t leading,
                int64_t batch_stride = 0, uint32_t alignment = 16) {
  return {.operand = at,
          .type = type,
          .rows = rows,
          .columns = columns,
          .leading = leading,
          .batch_stride = batch_stride,
          .alignment = alignment};
}

// Row-major y[m,n] = a[m,k] b[k,n] is column-major y^T = b^T a^T.
TEST(LtProblem, RowMajorOperandsChangePlaces) {
  const LtProblem p = expected(matmul(kF16, kF16, {32, 64}, {64, 96}, {32, 96}));
  EXPECT_EQ(p.a, matrix(1, CUDA_R_16F, 96, 64, 96));
  EXPECT_EQ(p.b, matrix(0, CUDA_R_16F, 64, 32, 64));
  EXPECT_EQ(p.d, matrix(0, CUDA_R_16F, 96, 32, 96));
  EXPECT_FALSE(p.transpose_a || p.transpose_b || p.c || p.bias);
  EXPECT_EQ(p.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(p.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(p.batches, 1);
}

TEST(LtProblem, TransposedOperands) {
  const LtProblem p = expected(
      matmul(kF32, kF32, {64, 32}, {96, 64}, {32, 96}, {.transpose_a = true, .transpose_b = true}));
  EXPECT_EQ(p.a, matrix(1, CUDA_R_32F, 64, 96, 64));
  EXPECT_TRUE(p.transpose_a);
  EXPECT_EQ(p.b, matrix(0, CUDA_R_32F, 32, 64, 32));
  EXPECT_TRUE(p.transpose_b);
}

// BERT's linear layers: one weight for a batch of sequences is one product.
TEST(LtProblem, BatchesOfOneWeightAreRows) {
  const LtProblem p = expected(matmul(kF16, kF16, {8, 128, 768}, {768, 3072}, {8, 128, 3072}));
  EXPECT_EQ(p.batches, 1);
  EXPECT_EQ(p.b, matrix(0, CUDA_R_16F, 768, 1024, 768));
  EXPECT_EQ(p.d, matrix(0, CUDA_R_16F, 3072, 1024, 3072));
}

TEST(LtProblem, BatchesOfAttention) {
  const LtProblem p = expected(matmul(kF16, kF16, {8, 12, 128, 64}, {8, 12, 128, 64},
                                      {8, 12, 128, 128}, {.transpose_b = true}));
  EXPECT_EQ(p.batches, 96);
  EXPECT_EQ(p.a, matrix(1, CUDA_R_16F, 64, 128, 64, 128 * 64));
  EXPECT_TRUE(p.transpose_a);
  EXPECT_EQ(p.b, matrix(0, CUDA_R_16F, 64, 128, 64, 128 * 64));
  EXPECT_EQ(p.d, matrix(0, CUDA_R_16F, 128, 128, 128, 128 * 128));
}

// Heads that lie beside each other: [S, H, D] read as [H, S, D].
TEST(LtProblem, HeadsInRows) {
  Asked asked = matmul(kF16, kF16, {12, 128, 64}, {12, 64, 128}, {12, 128, 128});
  asked.inputs[0] = operand(kF16, {12, 128, 64}, {64, 768, 1});
  asked.inputs[1] = operand(kF16, {12, 64, 128}, {64, 1, 768});
  const LtProblem p = expected(asked);
  EXPECT_EQ(p.batches, 12);
  EXPECT_EQ(p.a, matrix(1, CUDA_R_16F, 64, 128, 768, 64));
  EXPECT_TRUE(p.transpose_a);
  EXPECT_EQ(p.b, matrix(0, CUDA_R_16F, 64, 128, 768, 64));
  // Of two images they would be two batches.
  Asked two = matmul(kF16, kF16, {2, 12, 128, 64}, {2, 12, 64, 128}, {2, 12, 128, 128});
  two.inputs[0] = operand(kF16, {2, 12, 128, 64}, {128 * 768, 64, 768, 1});
  EXPECT_EQ(refusal(two), "batch axes that are not one");
}

TEST(LtProblem, AnOperandThatIsTheSameForAllBatches) {
  const LtProblem p = expected(matmul(kF32, kF32, {32, 64}, {5, 64, 96}, {5, 32, 96}));
  EXPECT_EQ(p.batches, 5);
  EXPECT_EQ(p.b.batch_stride, 0);
  EXPECT_EQ(p.a.batch_stride, 64 * 96);
}

TEST(LtProblem, ResultsWhoseRowsAreAdjacent) {
  Asked asked = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  asked.outputs[0] = operand(kF32, {32, 96}, {1, 32});
  const LtProblem p = expected(asked);
  EXPECT_EQ(p.a, matrix(0, CUDA_R_32F, 64, 32, 64));
  EXPECT_TRUE(p.transpose_a);
  EXPECT_EQ(p.d, matrix(0, CUDA_R_32F, 32, 96, 32));
}

TEST(LtProblem, Vectors) {
  const LtProblem row = expected(matmul(kF32, kF32, {1, 64}, {64, 96}, {1, 96}));
  EXPECT_EQ(row.d, matrix(0, CUDA_R_32F, 96, 1, 96));
  EXPECT_EQ(row.b, matrix(0, CUDA_R_32F, 64, 1, 64));
  const LtProblem column = expected(matmul(kF32, kF32, {32, 64}, {64, 1}, {32, 1}));
  EXPECT_EQ(column.d.columns * column.d.rows, 32);
  EXPECT_GE(column.d.leading, column.d.rows);
  EXPECT_EQ(expected(matmul(kF32, kF32, {7, 1, 64}, {64, 96}, {7, 1, 96})).d.columns, 7);
}

TEST(LtProblem, AlignmentIsThatOfAllColumns) {
  EXPECT_EQ(expected(matmul(kF16, kF16, {32, 64}, {64, 1000}, {32, 1000})).d.alignment, 16u);
  EXPECT_EQ(expected(matmul(kF16, kF16, {32, 64}, {64, 1001}, {32, 1001})).d.alignment, 2u);
  EXPECT_EQ(expected(matmul(kF32, kF32, {32, 64}, {64, 1001}, {32, 1001})).d.alignment, 4u);
}

TEST(LtProblem, BiasAndActivations) {
  Asked asked = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  asked.inputs.push_back(operand(kF32, {96}));
  const auto epilogue_of = [&](const std::string& program, LtArithmetic wanted = {}) {
    asked.epilogue = program;
    const LtProblem p = expected(asked, wanted);
    EXPECT_EQ(p.bias, 2u);
    EXPECT_FALSE(p.c);
    return p.epilogue;
  };
  EXPECT_EQ(epilogue_of("(f32,f32)->(f32) add($0,$1)"), CUBLASLT_EPILOGUE_BIAS);
  const std::string relu = "(f32,f32)->(f32) max(add($0,$1),0f32)";
  EXPECT_EQ(epilogue_of(relu, {.approximate = true}), CUBLASLT_EPILOGUE_RELU_BIAS);
  EXPECT_EQ(refusal(asked), "ReLU, which may not pass NaN on");
  const std::string gelu =
      "(f32,f32)->(f32) %0=add($0,$1); "
      "mul(mul(%0,0.5f32),add(tanh(mul(add(%0,mul(mul(mul(%0,%0),%0),0.044715f32)),0.7978846f32)),"
      "1f32))";
  EXPECT_EQ(epilogue_of(gelu, {.approximate = true}), CUBLASLT_EPILOGUE_GELU_BIAS);
  EXPECT_EQ(refusal(asked), "GELU, which the library approximates");
  asked.epilogue = "(f32,f32)->(f32) add($0,$1)";
  EXPECT_EQ(refusal(asked, {.approximate = true}), "nothing is approximate");
  asked.epilogue = "(f32,f32)->(f32) sub($0,$1)";
  EXPECT_EQ(refusal(asked), "an epilogue that cuBLASLt does not have");
}

// Builds with --fp16 keep biases in f32.
TEST(LtProblem, ABiasThatIsRounded) {
  Asked asked = matmul(kF16, kF16, {32, 64}, {64, 96}, {32, 96});
  asked.inputs.push_back(operand(kF32, {96}));
  asked.epilogue = "(f32,f32)->(f16) round_f16(max(add($0,$1),0f32))";
  EXPECT_THAT(refusal(asked, {.approximate = true}), HasSubstr("that is no constant"));
  const std::vector<float> values(96, 0.1F);
  const Tensor bias = Tensor::of<float>(kF32, {96}, values);
  asked.inputs[2].constant = &bias;
  EXPECT_EQ(refusal(asked), "ReLU, which may not pass NaN on");
  const LtProblem p = expected(asked, {.approximate = true});
  EXPECT_TRUE(p.rounds_bias);
  EXPECT_EQ(p.epilogue, CUBLASLT_EPILOGUE_RELU_BIAS);
  // f16 has neither 1e6 nor 1e-9.
  for (const float beyond : {1e6F, 1e-9F}) {
    const Tensor other = Tensor::of<float>(kF32, {96}, std::vector<float>(96, beyond));
    asked.inputs[2].constant = &other;
    EXPECT_EQ(refusal(asked, {.approximate = true}),
              "a bias that the type of the result does not hold");
  }
  asked.inputs[2].constant = &bias;
  asked.epilogue = "(f32,f32)->(f16) round_f16(add($0,$1))";
  EXPECT_EQ(refusal(asked), "a bias that is rounded to the type of the result");
  asked.outputs[0] = operand(kF32, {32, 96});
  asked.epilogue = "(f32,f32)->(f32) add($0,$1)";
  EXPECT_FALSE(expected(asked).rounds_bias);
}

// A bias of the rows is one of D's columns, unless the rows are adjacent in the result.
TEST(LtProblem, ABiasOfTheRows) {
  Asked asked = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  asked.inputs.push_back(operand(kF32, {32, 1}));
  asked.epilogue = "(f32,f32)->(f32) add($0,$1)";
  EXPECT_THAT(refusal(asked), HasSubstr("neither a bias of the columns nor a residual"));
  asked.outputs[0] = operand(kF32, {32, 96}, {1, 32});
  EXPECT_EQ(expected(asked).bias, 2u);
}

TEST(LtProblem, AResidualIsC) {
  Asked asked = matmul(kF16, kF32, {2, 32, 64}, {64, 96}, {2, 32, 96});
  asked.inputs.push_back(operand(kF32, {96}));
  asked.inputs.push_back(operand(kF32, {2, 32, 96}, {64 * 128, 128, 1}));
  asked.epilogue = "(f32,f32,f32)->(f32) max(add($2,add($0,$1)),0f32)";
  // The residual's distances are others than those of the result, so that images stay apart.
  const LtProblem p = expected(asked, {.approximate = true});
  EXPECT_EQ(p.batches, 2);
  EXPECT_EQ(p.bias, 2u);
  EXPECT_EQ(p.c, matrix(3, CUDA_R_32F, 96, 32, 128, 64 * 128));
  EXPECT_EQ(p.epilogue, CUBLASLT_EPILOGUE_RELU_BIAS);
  asked.inputs[3] = operand(kF16, {2, 32, 96});
  asked.epilogue = "(f32,f32,f16)->(f32) max(add($2,add($0,$1)),0f32)";
  EXPECT_EQ(refusal(asked), "a residual of another type than the result");
  asked.inputs[3] = operand(kF32, {32, 96});
  asked.epilogue = "(f32,f32,f32)->(f32) max(add($2,add($0,$1)),0f32)";
  EXPECT_THAT(refusal(asked), HasSubstr("neither"));
}

TEST(LtProblem, AFactorIsAlpha) {
  Asked asked = matmul(kF16, kF16, {32, 64}, {64, 96}, {32, 96});
  asked.epilogue = "(f32)->(f16) round_f16(mul($0,0.125f32))";
  EXPECT_EQ(expected(asked).alpha, 0.125F);
}

TEST(LtProblem, Types) {
  const auto types = [](DataType in, DataType out) {
    return refusal(matmul(in, out, {32, 64}, {64, 96}, {32, 96}));
  };
  EXPECT_EQ(types(DataType::kBF16, DataType::kBF16), "");
  EXPECT_EQ(types(kF32, kF16), "results of f16 from operands of f32");
  EXPECT_EQ(types(DataType::kF64, DataType::kF64), "elements of f64");
  EXPECT_EQ(types(DataType::kU8, kI32), "elements of u8");
  Asked mixed = matmul(kF16, kF16, {32, 64}, {64, 96}, {32, 96});
  mixed.inputs[1] = operand(DataType::kBF16, {64, 96});
  EXPECT_EQ(refusal(mixed), "operands of f16 and bf16");
  const Asked f32 = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  EXPECT_EQ(expected(f32, {.tf32 = true}).compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(refusal(matmul(kF16, kF16, {32, 64}, {64, 96}, {32, 96}), {.tf32 = true}),
            "TF32 is for operands of f32");
}

// 8 bits want both operands with the depth adjacent ("TN"), and multiples of 4.
TEST(LtProblem, Bytes) {
  const MatMul transposed{.transpose_b = true};
  const LtProblem p = expected(matmul(kI8, kI32, {32, 64}, {96, 64}, {32, 96}, transposed));
  EXPECT_TRUE(p.transpose_a);
  EXPECT_FALSE(p.transpose_b);
  EXPECT_EQ(p.compute, CUBLAS_COMPUTE_32I);
  EXPECT_EQ(p.scale, CUDA_R_32I);
  EXPECT_THAT(refusal(matmul(kI8, kI32, {32, 64}, {64, 96}, {32, 96})),
              HasSubstr("along whose depth elements are not adjacent"));
  EXPECT_THAT(refusal(matmul(kI8, kI32, {32, 66}, {96, 66}, {32, 96}, transposed)),
              HasSubstr("multiples of 4"));
  EXPECT_THAT(refusal(matmul(kI8, kI32, {32, 64}, {98, 64}, {32, 98}, transposed)),
              HasSubstr("multiples of 4"));
  Asked scaled = matmul(kI8, kI8, {32, 64}, {96, 64}, {32, 96}, transposed);
  scaled.epilogue = "(i32)->(i8) saturate_i8(rint(mul(f32($0),0.01f32)))";
  EXPECT_EQ(expected(scaled).alpha, 0.01F);
  EXPECT_EQ(expected(scaled).scale, CUDA_R_32F);
  scaled.epilogue = "(i32)->(i8) saturate_i8(rint(max(mul(f32($0),0.01f32),0f32)))";
  EXPECT_EQ(expected(scaled).epilogue, CUBLASLT_EPILOGUE_RELU);
  scaled.inputs.push_back(operand(kF32, {96}));
  scaled.epilogue = "(i32,f32)->(i8) saturate_i8(rint(mul(mul($1,f32($0)),0.01f32)))";
  EXPECT_THAT(refusal(scaled), HasSubstr("8-bit results with a bias, a scale for each channel"));
}

TEST(LtProblem, RefusesWhatIsNoProduct) {
  EXPECT_EQ(refusal(matmul(kF32, kF32, {32, 0}, {0, 96}, {32, 96})), "an empty product");
  Asked open = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  open.inputs[0].type.shape[0] = Size::unknown();
  EXPECT_EQ(refusal(open), "sizes that are not constants");
  Asked split = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 48}, {.split = {48, 48}});
  split.outputs.push_back(split.outputs[0]);
  EXPECT_EQ(refusal(split), "several results");
  Asked apart = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  apart.inputs[0] = operand(kF32, {32, 64}, {128, 2});
  EXPECT_THAT(refusal(apart), HasSubstr("adjacent along neither axis"));
  Asked repeated = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  repeated.inputs[0] = operand(kF32, {32, 64}, {0, 1});
  EXPECT_THAT(refusal(repeated), HasSubstr("columns 0 elements apart, fewer than its 64 rows"));
  Asked reversed = matmul(kF32, kF32, {32, 64}, {64, 96}, {32, 96});
  reversed.inputs[0] = operand(kF32, {32, 64}, {-64, 1});
  EXPECT_THAT(refusal(reversed), HasSubstr("columns -64 elements apart"));
  Asked zero_point = matmul(kI8, kI32, {32, 64}, {96, 64}, {32, 96}, {.transpose_b = true});
  zero_point.inputs.push_back(operand(kI8, {}));
  zero_point.op_inputs = 3;
  EXPECT_EQ(refusal(zero_point), "zero points or scales of 8-bit operands");
}

// ResNet's 1x1 convolutions, whose pixels are rows.
TEST(LtProblem, Convolutions) {
  const auto channels_last = [](const Dims& dims) {
    return Dims{dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
  };
  const Dims x = {8, 64, 56, 56}, y = {8, 256, 56, 56};
  Asked asked{
      .op = Conv{.strides = {1, 1}, .pads_begin = {0, 0}, .pads_end = {0, 0}, .dilations = {1, 1}},
      .inputs = {operand(kF16, x, channels_last(x)), operand(kF16, {256, 64, 1, 1}),
                 operand(kF16, {256, 1, 1}), operand(kF16, y, channels_last(y))},
      .outputs = {operand(kF16, y, channels_last(y))},
      .epilogue = "(f32,f16,f16)->(f16) round_f16(max(add($2,add($0,$1)),0f32))"};
  const LtProblem p = expected(asked, {.approximate = true});
  const int64_t pixels = int64_t{8} * 56 * 56;
  EXPECT_EQ(p.a, matrix(1, CUDA_R_16F, 64, 256, 64));
  EXPECT_TRUE(p.transpose_a);
  EXPECT_EQ(p.b, matrix(0, CUDA_R_16F, 64, pixels, 64));
  EXPECT_EQ(p.d, matrix(0, CUDA_R_16F, 256, pixels, 256));
  EXPECT_EQ(p.c, matrix(3, CUDA_R_16F, 256, pixels, 256));
  EXPECT_EQ(p.bias, 2u);
  std::get<Conv>(asked.op).strides = {2, 2};
  EXPECT_THAT(refusal(asked), HasSubstr("strides or padding"));
  Asked wide = asked;
  std::get<Conv>(wide.op).strides = {1, 1};
  wide.inputs[1] = operand(kF16, {256, 64, 3, 3});
  EXPECT_EQ(refusal(wide), "windows of more than one place");
}

// Channels first: the pixels of each image are adjacent, and the bias is one of D's columns.
TEST(LtProblem, ConvolutionsWithChannelsFirst) {
  Asked asked{
      .op = Conv{.strides = {1, 1}, .pads_begin = {0, 0}, .pads_end = {0, 0}, .dilations = {1, 1}},
      .inputs = {operand(kF32, {8, 64, 14, 14}), operand(kF32, {256, 64, 1, 1})},
      .outputs = {operand(kF32, {8, 256, 14, 14})}};
  const LtProblem p = expected(asked);
  EXPECT_EQ(p.batches, 8);
  EXPECT_EQ(p.d, matrix(0, CUDA_R_32F, 196, 256, 196, 256 * 196));
  asked.inputs.push_back(operand(kF32, {256, 1, 1}));
  asked.epilogue = "(f32,f32)->(f32) add($0,$1)";
  EXPECT_THAT(refusal(asked), HasSubstr("neither a bias"));
}

TEST(LtProblem, RulesThatTheLibraryDoesNotCheck) {
  LtProblem p = expected(matmul(kF16, kF16, {32, 64}, {64, 96}, {32, 96}));
  EXPECT_EQ(broken_rule(p), "");
  p.a.leading = 8;
  EXPECT_EQ(broken_rule(p), "A has columns 8 elements apart, fewer than its 96 rows");
  p = expected(matmul(kF16, kF16, {5, 32, 64}, {5, 64, 96}, {5, 32, 96}));
  p.d.batch_stride = 96;
  EXPECT_EQ(broken_rule(p), "results of a batch that overlap");
  p.d.batch_stride = -32 * 96;
  EXPECT_EQ(broken_rule(p), "D has batches in descending order");
}

}  // namespace
}  // namespace anneal::cuda
