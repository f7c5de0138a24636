// Programs as pointwise operations of cuDNN. Needs no library.
#include "anneal/kernels/cuda/cudnn/program_operations.h"

#include <gmock/gmock.h>

#include "anneal/core/channels_last.h"
#include "anneal/core/dims.h"

namespace anneal::cuda {
namespace {

// The operations of a program whose accumulator is %0, whose output is %1 and whose further inputs
// are a bias %2 and a whole tensor %3; or why there are none.
std::string translation(const std::string& text, bool residual_first) {
  const Program program = parse_program(text);
  const Dims whole = {2, 8, 4, 4}, bias = {1, 8, 1, 1};
  Operations graph;
  const auto add = [&](TensorPlace place, const Dims& dims, cudnnDataType_t dtype) {
    return graph.add(
        {.place = place, .dtype = dtype, .dims = dims, .strides = channels_last_strides(dims)});
  };
  const TensorIndex from = add(TensorPlace::kVirtual, whole, CUDNN_DATA_FLOAT);
  const TensorIndex to = add(TensorPlace::kOutput, whole, CUDNN_DATA_HALF);
  const TensorIndex second = add(TensorPlace::kInput, bias, CUDNN_DATA_FLOAT);
  const TensorIndex third = add(TensorPlace::kInput, whole, CUDNN_DATA_HALF);
  const auto made = add_program(
      graph, program,
      {.accumulator = from,
       .input = [&](int input) { return Result<TensorIndex>(input == 1 ? second : third); },
       .output = to,
       .has_axes = true,
       .residual_first = residual_first});
  if (!made) return "refused: " + made.reason();
  const std::string all = to_string(graph);
  return all.substr(std::min(all.find("%3: "), all.size()));
}
// Without the line of the last input.
std::string operations(const std::string& text, bool residual_first = false) {
  const std::string all = translation(text, residual_first);
  return all.starts_with("refused") ? all : all.substr(all.find('\n') + 1);
}

TEST(CudnnProgram, BiasAndRelu) {
  EXPECT_EQ(operations("(f32,f32)->(f16) round_f16(max(add($0,$1),0f32))"),
            "%4: f32[2,8,4,4]\n"
            "%4 = add(%0, %2)\n"
            "%1 = relu(%4)\n");
}

TEST(CudnnProgram, TheResidualMayComeBeforeTheBias) {
  const std::string right =
      "%4: f32[2,8,4,4]\n"
      "%5: f32[2,8,4,4]\n"
      "%4 = add(%0, %3)\n"
      "%5 = add(%4, %2)\n"
      "%1 = relu(%5)\n";
  const std::string bias_first = "(f32,f32,f16)->(f16) round_f16(max(add($2,add($0,$1)),0f32))";
  EXPECT_EQ(operations(bias_first, true), right);
  EXPECT_EQ(operations("(f32,f32,f16)->(f16) round_f16(max(add($1,add($0,$2)),0f32))", true),
            right);
  EXPECT_THAT(operations(bias_first), testing::HasSubstr("= add(%0, %2)\n"));
}

TEST(CudnnProgram, ClipIsOneOperation) {
  EXPECT_EQ(operations("(f32)->(f16) round_f16(min(max($0,-1f32),6f32))"),
            "%1 = relu(%0) from -1 to 6\n");
  EXPECT_EQ(operations("(f32)->(f16) round_f16(max(min($0,6f32),0f32))"),
            "%1 = relu(%0) from 0 to 6\n");
}

TEST(CudnnProgram, FunctionsOfSeveralInstructions) {
  EXPECT_EQ(operations("(f32)->(f16) round_f16(mul($0,sigmoid($0)))"), "%1 = swish(%0) beta=1\n");
  EXPECT_EQ(operations("(f32)->(f16) round_f16(mul($0,sigmoid(mul($0,1.702f32))))"),
            "%1 = swish(%0) beta=1.702\n");
  for (const char* const gelu :
       {"(f32)->(f16) round_f16(mul(mul($0,0.5f32),add(erf(mul($0,0.70710677f32)),1f32)))",
        "(f32)->(f16) round_f16(mul(mul($0,add(erf(div($0,1.4142135f32)),1f32)),0.5f32))"})
    EXPECT_EQ(operations(gelu), "%1 = gelu(%0)\n") << gelu;
  EXPECT_EQ(operations("(f32)->(f16) round_f16(mul(mul($0,0.5f32),add(tanh(mul(add($0,mul(mul($0,"
                       "mul($0,$0)),0.044715f32)),0.7978846f32)),1f32)))"),
            "%1 = gelu_tanh(%0)\n");
}

TEST(CudnnProgram, OtherwiseOneOperationForEachInstruction) {
  EXPECT_EQ(operations("(f32)->(f16) round_f16(tanh(mul($0,0.25f32)))"),
            "%4: f32[1,1,1,1] = 0.25\n"
            "%5: f32[2,8,4,4]\n"
            "%5 = mul(%0, %4)\n"
            "%1 = tanh(%5)\n");
}

TEST(CudnnProgram, AMaskShowsWhatItDoesNotHide) {
  EXPECT_EQ(operations("(f32)->(f16) round_f16(select(lt(index(2),index(3)),-inff32,$0))"),
            "%4: i32[2,8,4,4]\n"
            "%5: i32[2,8,4,4]\n"
            "%6: f32[1,1,1,1] = -inf\n"
            "%7: bool[2,8,4,4]\n"
            "%4 = index(%0) axis=2\n"
            "%5 = index(%0) axis=3\n"
            "%7 = ge(%4, %5) in bool\n"
            "%1 = select(%0, %6, %7)\n");
}

TEST(CudnnProgram, AMaskOfWhatItShows) {
  EXPECT_THAT(
      operations("(f32)->(f16) round_f16(select(le(index(3),index(2)),$0,-inff32))"),
      testing::HasSubstr("= index(%0) axis=3\n%5 = index(%0) axis=2\n%6 = ge(%5, %4) in bool\n"));
}

TEST(CudnnProgram, Refusals) {
  EXPECT_EQ(operations("(f32)->(f16) round_f16(asinh($0))"),
            "refused: cuDNN has no operation \"asinh\"");
  EXPECT_EQ(operations("(f32)->(f16) round_f16(add(cast_f16(exp($0)),1f32))"),
            "refused: a rounding that the model asks for in the middle of an epilogue");
  EXPECT_EQ(operations("(f32)->(f32) cast_f16(exp($0))"),
            "refused: a rounding that the model asks for in the middle of an epilogue");
  EXPECT_EQ(operations("(f32)->(f16) cast_f16(tanh($0))"), "%1 = tanh(%0)\n");
  EXPECT_EQ(operations("(f32)->(f16,f16) round_f16($0), round_f16(exp($0))"),
            "refused: an epilogue with several results");
  EXPECT_EQ(operations("(f32)->(i8) saturate_i8(rint($0))"),
            "refused: cuDNN does not document how it rounds to 8 bits");
  EXPECT_EQ(operations("(f32)->(f16) round_f16(f32(add(f64($0),1f64)))"),
            "refused: a conversion of f64 to f32");
  EXPECT_EQ(operations("(f32,i64)->(f16) round_f16(select(lt($1,index(3)),-inff32,$0))"),
            "refused: a computation in i64");
  EXPECT_EQ(operations("(f32,i64)->(f16) round_f16(select(le(index(3),$1),$0,-inff32))"),
            "refused: a computation in i64");
  EXPECT_EQ(operations("(f32,u32)->(f16) round_f16(mul($0,f32(add($1,$1))))"),
            "refused: a computation in u32");
}

TEST(CudnnProgram, FloatsAreComparedAsFloats) {
  EXPECT_THAT(operations("(f32)->(f16) round_f16(select(lt($0,1f32),$0,0f32))"),
              testing::HasSubstr("= lt(%0, %4)\n"));
}

TEST(CudnnProgram, BitsOfIntegerProducts) {
  EXPECT_EQ(why_bits_may_differ(parse_program("(i32,f32)->(f32) mul($1,f32($0))")), "");
  EXPECT_EQ(why_bits_may_differ(parse_program("(i32,f32)->(f32) max(mul($1,f32($0)),0f32)")), "");
  EXPECT_EQ(why_bits_may_differ(parse_program("(i32,f32,f32)->(f32) add($2,mul($1,f32($0)))")),
            "cuDNN may round a product and a sum once, where we round twice");
  EXPECT_EQ(why_bits_may_differ(parse_program("(i32)->(f32) tanh(f32($0))")),
            "cuDNN may compute \"tanh\" with other last bits");
  EXPECT_EQ(
      why_bits_may_differ(parse_program("(i32,f32)->(i8) saturate_i8(rint(mul($1,f32($0))))")),
      "cuDNN does not document how it rounds to 8 bits");
}

}  // namespace
}  // namespace anneal::cuda
