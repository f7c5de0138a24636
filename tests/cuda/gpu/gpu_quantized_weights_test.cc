// Products by quantized weights on a GPU: engines hold codes, and kernels read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

// Three products of one input, one of a row of each, an epilogue, and an open number of rows.
constexpr std::string_view kProducts = R"text(size N in 1..40 opt 1
graph g(x: f32[N,256])
  const w: u8[512,256] = random(1)
  const s: f32[512,8] = random(2)
  const z: u8[512,8] = random(3)
  const v: i8[512,256] = random(4)
  const t: f32[512,1] = random(5)
  const u: u8[512,256] = random(6)
  const b: f32[512] = random(7)
  blocks = Dequantize(w, s, z) axis=1 block_size=32
  a = MatMul(x, blocks; b) transpose_b=true epilogue="(f32,f32)->(f32) max(add($0,$1),0f32)"
  rows = Dequantize(v, t) axis=1 block_size=256
  c = MatMul(x, rows) transpose_b=true
  floats = Dequantize(u, f32[]{0.25}) encoding=e4m3
  d = MatMul(x, floats) transpose_b=true
  return a, c, d
)text";

GraphBuildOptions options_of_gpu() {
  GraphBuildOptions options;
  options.targets = {test_target()};
  options.passes.cached_weight_bytes = 0;
  return options;
}

int64_t products_by_codes(const EngineFile& file) {
  return std::ranges::count(file.plans[0].steps, "cuda.matmul.coded", &Step::kernel);
}

TEST(GpuQuantizedWeights, StayCodesAndGiveWhatTheReferenceGives) {
  const EngineFile file = build_text(kProducts, options_of_gpu());
  EXPECT_EQ(products_by_codes(file), 3);
  const auto engine = load_on(file, test_device());
  ExecutionContext context(engine, {});
  for (const int64_t rows : {1, 3, 40}) {
    const std::vector<Tensor> inputs = {random_f32({rows, 256}, 8)};
    expect_near(run(context, *engine, inputs), reference(kProducts, inputs));
  }
}

// A product of a model in f16, as onnxruntime-genai writes it for GPUs.
constexpr std::string_view kHalves = R"text(graph g(x: f32[2,256])
  const w: u8[512,256] = random(1)
  const s: f16[512,8] = random(2)
  h = Pointwise(x) program="(f32)->(f16) $0"
  blocks = Dequantize(w, s) axis=1 block_size=32
  p = MatMul(h, blocks) transpose_b=true
  y = Pointwise(p) program="(f16)->(f32) $0"
  return y
)text";

// The same without roundings to f16 but of x.
constexpr std::string_view kInF32 = R"text(graph g(x: f32[2,256])
  const w: u8[512,256] = random(1)
  const s: f16[512,8] = random(2)
  h = Pointwise(x) program="(f32)->(f32) round_f16($0)"
  scales = Pointwise(s) program="(f16)->(f32) $0"
  blocks = Dequantize(w, scales) axis=1 block_size=32
  y = MatMul(h, blocks) transpose_b=true
  return y
)text";

TEST(GpuQuantizedWeights, AreReadByProductsOfHalves) {
  GraphBuildOptions options = options_of_gpu();
  const EngineFile file = build_text(kHalves, options);
  EXPECT_EQ(products_by_codes(file), 1);
  const auto engine = load_on(file, test_device());
  ExecutionContext context(engine, {});
  const std::vector<Tensor> inputs = {random_f32({2, 256}, 8)};
  const std::vector<float> got = run(context, *engine, inputs).at("y"),
                           wanted = reference(kInF32, inputs).at("y");
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], 6e-4F * (0.1F + std::abs(wanted[i]))) << i;

  options.passes.exact = true;
  EXPECT_EQ(products_by_codes(build_text(kHalves, options)), 0)
      << "the model rounds each weight to f16";
}

}  // namespace
}  // namespace anneal::testing
