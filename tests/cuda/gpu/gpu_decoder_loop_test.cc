// A decoder whose cache of keys and values stays on the GPU: the emulated one, or the card that
// ANNEAL_TEST_DEVICE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "anneal/tests/cuda/emulated.h"
#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

constexpr int64_t kTokens = 64, kHeads = 2, kHeadSize = 16;

constexpr std::string_view kDecoder = R"txt(
size P in 0..64 opt 32
graph decoder(token: i64[1], keys: f32[1,2,P,16], values: f32[1,2,P,16])
  const table: f32[50,32] = random(1)
  const wq: f32[32,32] = random(2)
  const wk: f32[32,32] = random(3)
  const wv: f32[32,32] = random(4)
  const wo: f32[32,50] = random(5)
  x = Gather(table, token) axis=0
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  q4 = Reshape(q, i64{1, 2, 1, 16})
  k4 = Reshape(k, i64{1, 2, 1, 16})
  v4 = Reshape(v, i64{1, 2, 1, 16})
  present_keys = Concat(keys, k4) axis=2
  present_values = Concat(values, v4) axis=2
  a = Attention(q4, present_keys, present_values) score="(f32)->(f32) mul($0,0.25f32)"
  row = Reshape(a, i64{1, 32})
  sum = Pointwise(row, x) program="(f32,f32)->(f32) add($0,$1)"
  logits = MatMul(sum, wo)
  next = ArgReduce(logits) largest=true axis=1 keepdims=false select_last=false
  return next, present_keys, present_values
)txt";

// The tokens that an engine for the CPU gives, with the cache in memory of the host.
std::vector<int64_t> tokens_of_cpu() {
  const auto engine = engine_of(build_text(kDecoder));
  ExecutionContext context(engine);
  std::vector<int64_t> tokens = {7};
  Tensor keys = random_f32({1, kHeads, 0, kHeadSize}, 1), values = keys;
  for (int64_t past = 0; past < kTokens; ++past) {
    const Tensor token = Tensor::of<int64_t>(DataType::kI64, {1}, {{tokens.back()}});
    context.set_input("token", token.view());
    context.set_input("keys", keys.view());
    context.set_input("values", values.view());
    context.run();
    tokens.push_back(context.output("next").span<int64_t>()[0]);
    const Dims dims = {1, kHeads, past + 1, kHeadSize};
    keys = Tensor::of<float>(DataType::kF32, dims, elements(context.output("present_keys")));
    values = Tensor::of<float>(DataType::kF32, dims, elements(context.output("present_values")));
  }
  return tokens;
}

// Memory of the GPU for the longest cache; runs take turns between two.
class Cache {
 public:
  Cache() : device_(cuda_backend().open(test_device())) {
    for (auto& buffer : buffers_)
      buffer = device_->allocate(kHeads * (kTokens + 1) * kHeadSize * sizeof(float));
  }
  TensorView view(int64_t turn, int64_t past) const {
    const Dims dims = {1, kHeads, past, kHeadSize};
    return {DataType::kF32, dims, row_major_strides(dims),
            buffers_[static_cast<size_t>(turn % 2)]->data(),
            MemoryPlace{MemoryKind::kCuda, *gpu_number(*device_)}};
  }

 private:
  std::unique_ptr<Device> device_;
  std::array<std::unique_ptr<Buffer>, 2> buffers_;
};

TEST(GpuDecoderLoop, OnlyTheTokenCrossesTheBus) {
  const std::vector<int64_t> wanted = tokens_of_cpu();
  const auto engine = gpu_engine(kDecoder);
  ExecutionContext context(engine);
  const Cache keys, values;
  const bool counts = test_device() == "emulated";
  std::vector<int64_t> tokens = {wanted[0]};
  for (int64_t past = 0; past < kTokens; ++past) {
    const Tensor token = Tensor::of<int64_t>(DataType::kI64, {1}, {{tokens.back()}});
    context.set_input("token", token.view());
    context.set_input("keys", keys.view(past, past));
    context.set_input("values", values.view(past, past));
    context.set_output("present_keys", keys.view(past + 1, past + 1));
    context.set_output("present_values", values.view(past + 1, past + 1));
    const uint64_t before = counts ? cuda::emulated_bus_bytes() : 0;
    context.run();
    if (counts) {
      ASSERT_EQ(cuda::emulated_bus_bytes() - before, 2 * sizeof(int64_t)) << past << " tokens";
    }
    tokens.push_back(context.output("next").span<int64_t>()[0]);
  }
  EXPECT_EQ(tokens, wanted);
}

// As above, with caches that the context keeps on the GPU.
TEST(GpuDecoderLoop, AContextKeepsTheCacheOnTheGpu) {
  const std::vector<int64_t> wanted = tokens_of_cpu();
  GraphBuildOptions options;
  options.targets = {test_target()};
  options.states = {{"keys", "present_keys"}, {"values", "present_values"}};
  ExecutionContext context(load_on(build_text(kDecoder, options), test_device()));
  const bool counts = test_device() == "emulated";
  std::vector<int64_t> tokens = {wanted[0]};
  for (int64_t past = 0; past < kTokens; ++past) {
    const Tensor token = Tensor::of<int64_t>(DataType::kI64, {1}, {{tokens.back()}});
    context.set_input("token", token.view());
    const uint64_t before = counts ? cuda::emulated_bus_bytes() : 0;
    context.run();
    if (counts) {
      ASSERT_EQ(cuda::emulated_bus_bytes() - before, 2 * sizeof(int64_t)) << past << " tokens";
    }
    tokens.push_back(context.output("next").span<int64_t>()[0]);
  }
  EXPECT_EQ(tokens, wanted);
  EXPECT_EQ(context.output("present_keys").place.kind, MemoryKind::kCuda);
  // An application's cache is read in its place, and the next run continues behind it.
  const Tensor token = Tensor::of<int64_t>(DataType::kI64, {1}, {{wanted[0]}});
  const Tensor none = random_f32({1, kHeads, 0, kHeadSize}, 1);
  context.set_input("token", token.view());
  for (const char* const name : {"keys", "values"}) context.set_input(name, none.view());
  context.run();
  EXPECT_EQ(context.output("next").span<int64_t>()[0], wanted[1]);
  EXPECT_EQ(context.output("present_keys").place.kind, MemoryKind::kHost);
  for (const char* const name : {"keys", "values"}) context.set_input(name, {});
  const Tensor second = Tensor::of<int64_t>(DataType::kI64, {1}, {{wanted[1]}});
  context.set_input("token", second.view());
  context.run();
  EXPECT_EQ(context.output("next").span<int64_t>()[0], wanted[2]);
}

}  // namespace
}  // namespace anneal::testing
