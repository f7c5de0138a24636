// Random numbers as importer/ops/random.cc draws them: on the device, with the bits of the CPU
// where no logarithm and no cosine is taken.
#include <gtest/gtest.h>

#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

// SplitMix64 with the seed 7: numbers in [0, 1) as a sum of x and 24 bits, the classes that they
// fall in, and normal ones.
constexpr std::string_view kDraws = R"txt(
graph draws(x: f32[N], sums: f32[M,1,5])
  const zero: bool[] = {false}
  n = SizeTensor() elements=[N]
  m = SizeTensor() elements=[M*90]
  places = Expand(zero, n)
  others = Expand(zero, m)
  y = Pointwise(places, x) program="(bool,f32)->(f32) %0=add(mul(add(u64(index(0)),1u64),11400714819323198485u64),7u64); %1=mul(bitxor(%0,shr(%0,30u64)),13787848793156543929u64); %2=mul(bitxor(%1,shr(%1,27u64)),10723151780598845931u64); add(mul(f32(bitand(shr(bitxor(%2,shr(%2,31u64)),40u64),16777215u64)),5.9604645e-08f32),$1)"
  z = Pointwise(places) program="(bool)->(f32) %0=add(mul(add(u64(index(0)),1u64),11400714819323198485u64),7u64); %1=mul(bitxor(%0,shr(%0,30u64)),13787848793156543929u64); %2=mul(bitxor(%1,shr(%1,27u64)),10723151780598845931u64); %3=bitxor(%2,shr(%2,31u64)); mul(sqrt(neg(mul(log(add(mul(f32(bitand(shr(%3,40u64),16777215u64)),5.9604645e-08f32),5.9604645e-08f32)),2f32))),cos(mul(mul(f32(bitand(shr(%3,16u64),16777215u64)),5.9604645e-08f32),6.2831855f32)))"
  u = Pointwise(others) program="(bool)->(f32) %0=add(mul(add(u64(index(0)),1u64),11400714819323198485u64),7u64); %1=mul(bitxor(%0,shr(%0,30u64)),13787848793156543929u64); %2=mul(bitxor(%1,shr(%1,27u64)),10723151780598845931u64); mul(f32(bitand(shr(bitxor(%2,shr(%2,31u64)),40u64),16777215u64)),5.9604645e-08f32)"
  s = SizeTensor() elements=[M,90,1]
  v = Reshape(u, s)
  b = Pointwise(sums, v) program="(f32,f32)->(i64) i64(le($0,$1))"
  i = Reduce(b, i64{2}) keepdims=false
  c = Pointwise(i) program="(i64)->(f32) f32(min($0,4i64))"
  return y as uniform, z as normal, c as classes
)txt";

TEST(GpuRandom, DrawsTheNumbersOfTheCpu) {
  const auto engine = gpu_engine(kDraws);
  for (const Step& step : plan_of(*engine).steps)
    EXPECT_FALSE(step.kernel.starts_with("cpu.")) << step.kernel;
  ExecutionContext context(engine);
  const Tensor sums = Tensor::of<float>(DataType::kF32, {2, 1, 5},
                                        {{0.1f, 0.3f, 0.5f, 0.7f, 0.999f,  //
                                          0.5f, 0.5f, 0.6f, 0.7f, 0.9f}});
  for (const int64_t count : {1, 1001, 4096}) {
    const std::vector<Tensor> inputs = {random_f32({count}, 3), sums};
    auto got = run(context, *engine, inputs);
    auto wanted = reference(kDraws, inputs);
    EXPECT_EQ(got.at("uniform"), wanted.at("uniform")) << count;
    EXPECT_EQ(got.at("classes"), wanted.at("classes"));
    expect_near(got, wanted);
  }
}

}  // namespace
}  // namespace anneal::testing
