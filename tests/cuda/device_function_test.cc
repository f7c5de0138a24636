// Device functions give right results: on the emulated device, whichever thread goes first, or on
// the card that ANNEAL_TEST_DEVICE names. Faults that are planted in them are found.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/tests/cuda/target_under_test.h"

namespace anneal::cuda {
namespace {

std::vector<float> floats(std::mt19937& random, size_t count) {
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> result(count);
  for (float& value : result) value = values(random);
  return result;
}
std::vector<uint16_t> halves(std::mt19937& random, size_t count) {
  std::vector<uint16_t> result;
  for (const float value : floats(random, count)) result.push_back(to_f16(value).bits);
  return result;
}

// The order of threads is one of the emulated device.
class DeviceFunctions : public testing::TestWithParam<std::string> {
  const OrderSetting order_{GetParam()};

 protected:
  DriverTarget e{driver_under_test(), compiler_under_test()};
  std::mt19937 random{7};
};

TEST_P(DeviceFunctions, IndicesOfThreadsAndBlocks) {
  const auto function = e.function(
      "KERNEL($name, 64)(Out<i32> y) {\n"
      "  const i32 in_block = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * "
      "threadIdx.z);\n"
      "  const i32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
      "  const i32 threads = blockDim.x * blockDim.y * blockDim.z;\n"
      "  y[block * threads + in_block] = block * 1000 + in_block;\n"
      "}");
  const unsigned blocks = 2 * 3 * 4, threads = 5 * 3 * 2;
  CUdeviceptr y = e.allocate(blocks * threads * 4);
  void* parameters[] = {&y};
  DriverTarget::check(
      e.d.cuLaunchKernel(function, 2, 3, 4, 5, 3, 2, 0, e.stream, parameters, nullptr));
  const auto found = e.download<int32_t>(y, blocks * threads);
  for (unsigned i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], static_cast<int32_t>(i / threads * 1000 + i % threads));
}

TEST_P(DeviceFunctions, ParametersOfEverySize) {
  const auto function = e.function(
      "KERNEL($name, 1)(i8 a, In<f64> x, u16 b, f32 c, i64 d, Out<f64> y, bool f) {\n"
      "  y[0] = x[0] + a + b + c + f64(d) + (f ? 0.5 : 0.0);\n"
      "}");
  const auto x = e.upload(std::vector<double>{1000});
  const auto y = e.allocate(8);
  DriverTarget::check(
      e.launch(function, 1, 1, int8_t{-1}, x, uint16_t{20000}, 0.25f, int64_t{1} << 40, y, true));
  EXPECT_EQ(e.download<double>(y, 1)[0], 1000 - 1 + 20000 + 0.75 + std::ldexp(1.0, 40));
}

TEST_P(DeviceFunctions, ReductionByShuffles) {
  const auto function = e.function(
      "KERNEL($name, 256)(In<f32> x, Out<f32> y, i64 n) {\n"
      "  SHARED(f32, partial, 8);\n"
      "  f32 sum = 0;\n"
      "  for (i64 i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];\n"
      "  for (i32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);\n"
      "  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;\n"
      "  __syncthreads();\n"
      "  if (threadIdx.x < 8) {\n"
      "    sum = partial[threadIdx.x];\n"
      "    for (i32 step = 4; step > 0; step /= 2) sum += __shfl_down_sync(0xff, sum, step, 8);\n"
      "    if (threadIdx.x == 0) y[blockIdx.x] = sum;\n"
      "  }\n"
      "}");
  const int64_t blocks = 7, n = 1001;
  const auto values = floats(random, static_cast<size_t>(blocks * n));
  const auto x = e.upload(values), y = e.allocate(blocks * 4);
  DriverTarget::check(e.launch(function, blocks, 256, x, y, n));
  const auto sums = e.download<float>(y, blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    double right = 0;
    for (int64_t i = 0; i < n; ++i) right += values[static_cast<size_t>(b * n + i)];
    EXPECT_NEAR(sums[static_cast<size_t>(b)], right, 1e-4);
  }
}

TEST_P(DeviceFunctions, ShufflesAndVotes) {
  const auto function = e.function(
      "KERNEL($name, 64)(Out<i32> y) {\n"
      "  const i32 lane = threadIdx.x % 32, at = 8 * threadIdx.x;\n"
      "  y[at] = __shfl_sync(0xffffffff, lane, 3);\n"
      "  y[at + 1] = __shfl_sync(0xffffffff, lane, 9, 8);\n"
      "  y[at + 2] = __shfl_up_sync(0xffffffff, lane, 2, 16);\n"
      "  y[at + 3] = __shfl_down_sync(0xffffffff, lane, 5, 16);\n"
      "  y[at + 4] = __shfl_xor_sync(0xffffffff, lane, 5);\n"
      "  y[at + 5] = __ballot_sync(0xffffffff, lane % 3 == 0);\n"
      "  y[at + 6] = __any_sync(0xffffffff, lane == 31) + 2 * __any_sync(0xffffffff, 0);\n"
      "  y[at + 7] = __all_sync(0xffffffff, lane < 32) + 2 * __all_sync(0xffffffff, lane < 31);\n"
      "}");
  const auto y = e.allocate(64 * 8 * 4);
  DriverTarget::check(e.launch(function, 1, 64, y));
  const auto found = e.download<int32_t>(y, 64 * 8);
  int32_t thirds = 0;
  for (int i = 0; i < 32; i += 3) thirds |= static_cast<int32_t>(1u << i);
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32;
    const std::vector<int32_t> mine(found.begin() + 8 * i, found.begin() + 8 * i + 8);
    EXPECT_THAT(
        mine, testing::ElementsAre(3, lane / 8 * 8 + 1, lane % 16 < 2 ? lane : lane - 2,
                                   lane % 16 + 5 >= 16 ? lane : lane + 5, lane ^ 5, thirds, 1, 1));
  }
}

TEST_P(DeviceFunctions, TiledTranspose) {
  const auto function = e.function(
      "KERNEL($name, 256)(In<f32> x, Out<f32> y, i64 rows, i64 columns) {\n"
      "  DYNAMIC_SHARED(f32, tile);\n"
      "  const i64 row0 = i64(blockIdx.y) * 32, column0 = i64(blockIdx.x) * 32;\n"
      "  const i32 across = threadIdx.x % 32, down = threadIdx.x / 32;\n"
      "  for (i32 i = down; i < 32; i += 8)\n"
      "    if (row0 + i < rows && column0 + across < columns)\n"
      "      tile[i * 33 + across] = x[(row0 + i) * columns + column0 + across];\n"
      "  __syncthreads();\n"
      "  for (i32 i = down; i < 32; i += 8)\n"
      "    if (column0 + i < columns && row0 + across < rows)\n"
      "      y[(column0 + i) * rows + row0 + across] = tile[across * 33 + i];\n"
      "}");
  int64_t rows = 75, columns = 129;
  const auto values = floats(random, static_cast<size_t>(rows * columns));
  CUdeviceptr x = e.upload(values), y = e.allocate(values.size() * 4);
  void* parameters[] = {&x, &y, &rows, &columns};
  DriverTarget::check(
      e.d.cuLaunchKernel(function, 5, 3, 1, 256, 1, 1, 32 * 33 * 4, e.stream, parameters, nullptr));
  const auto turned = e.download<float>(y, values.size());
  for (size_t r = 0; r < 75; ++r)
    for (size_t c = 0; c < 129; ++c) ASSERT_EQ(turned[c * 75 + r], values[r * 129 + c]);
}

TEST_P(DeviceFunctions, Atomics) {
  const auto function = e.function(
      "KERNEL($name, 64)(Out<i32> y) {\n"
      "  SHARED(i32, s, 1);\n"
      "  if (threadIdx.x == 0) s[0] = 0;\n"
      "  __syncthreads();\n"
      "  atomic_add(s, 0, i32(threadIdx.x));\n"
      "  __syncthreads();\n"
      "  if (threadIdx.x == 0) atomic_add(y, 0, i32(s[0]));\n"
      "  atomic_max(y, 1, i32(threadIdx.x));\n"
      "  atomic_min(y, 2, -i32(threadIdx.x));\n"
      "  atomic_cas(y, 3, 7, 100);\n"
      "}");
  const auto y = e.upload(std::vector<int32_t>{1, 1, 1, 7});
  DriverTarget::check(e.launch(function, 3, 64, y));
  EXPECT_THAT(e.download<int32_t>(y, 4), testing::ElementsAre(1 + 3 * 63 * 32, 63, -63, 100));
}

// C[64][64] += A[64][k] * B[k][64] with three stages in flight, a warp to each 16 x 64 strip.
constexpr const char* kProduct =
    "KERNEL($name, 128)(In<h16> a, In<h16> b, Out<f32> c, i32 depth) {\n"
    "  constexpr i32 kStages = 3, kPitchA = 40, kPitchB = 72;\n"
    "  SHARED(h16, sa, kStages * 64 * kPitchA);\n"
    "  SHARED(h16, sb, kStages * 32 * kPitchB);\n"
    "  const i32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;\n"
    "  auto fetch = [&](i32 k, i32 stage) {\n"
    "    for (i32 i = thread; i < 64 * 4; i += 128)\n"
    "      copy_async<16>(sa, (stage * 64 + i / 4) * kPitchA + i % 4 * 8, a,\n"
    "                     i64(i / 4) * depth + k + i % 4 * 8, k + i % 4 * 8 < depth);\n"
    "    for (i32 i = thread; i < 32 * 8; i += 128)\n"
    "      copy_async<16>(sb, (stage * 32 + i / 8) * kPitchB + i % 8 * 8, b,\n"
    "                     i64(k + i / 8) * 64 + i % 8 * 8, k + i / 8 < depth);\n"
    "  };\n"
    "  Vec<f32, 4> sums[8] = {};\n"
    "  for (i32 s = 0; s < kStages - 1; ++s) {\n"
    "    fetch(32 * s, s);\n"
    "    copy_async_commit();\n"
    "  }\n"
    "  for (i32 k = 0, stage = 0; k < depth; k += 32, stage = (stage + 1) % kStages) {\n"
    "    copy_async_wait<kStages - 2>();\n"
    "    __syncthreads();\n"
    "    fetch(k + 32 * (kStages - 1), (stage + kStages - 1) % kStages);\n"
    "    copy_async_commit();\n"
    "    for (i32 part = 0; part < 32; part += 16) {\n"
    "      const auto fa = ldmatrix_x4(\n"
    "          sa, (stage * 64 + warp * 16 + lane % 16) * kPitchA + part + lane / 16 * 8);\n"
    "      for (i32 n = 0; n < 4; ++n) {\n"
    "        const auto fb = ldmatrix_x4_trans(\n"
    "            sb, (stage * 32 + part + lane % 16) * kPitchB + n * 16 + lane / 16 * 8);\n"
    "        mma_m16n8k16<h16>(sums[2 * n], fa, fb[0], fb[1]);\n"
    "        mma_m16n8k16<h16>(sums[2 * n + 1], fa, fb[2], fb[3]);\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "  copy_async_wait<0>();\n"
    "  for (i32 n = 0; n < 8; ++n)\n"
    "    for (i32 i = 0; i < 4; ++i)\n"
    "      c[(warp * 16 + lane / 4 + i / 2 * 8) * 64 + n * 8 + lane % 4 * 2 + i % 2] = "
    "sums[n][i];\n"
    "}";

TEST_P(DeviceFunctions, ProductOnTensorCores) {
  const int depth = 200;
  const auto left = halves(random, 64 * depth), right = halves(random, depth * 64);
  const auto function = e.function(kProduct, {"mma.h"});
  const auto a = e.upload(left), b = e.upload(right), c = e.allocate(64 * 64 * 4);
  DriverTarget::check(e.launch(function, 1, 128, a, b, c, depth));
  const auto found = e.download<float>(c, 64 * 64);
  for (size_t m = 0; m < 64; ++m)
    for (size_t n = 0; n < 64; ++n) {
      double sum = 0;
      for (size_t k = 0; k < depth; ++k)
        sum += static_cast<double>(to_f32(Float16{left[m * depth + k]})) *
               static_cast<double>(to_f32(Float16{right[k * 64 + n]}));
      ASSERT_NEAR(found[m * 64 + n], sum, 1e-4) << m << " " << n;
    }
}

std::string mutated(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

class DeviceFunctionMutations : public testing::TestWithParam<std::string> {
  const OrderSetting order_{GetParam()};
};

TEST_P(DeviceFunctionMutations, AProductWithTooFewWaitsOrBarriers) {
  if (!finds_faults()) GTEST_SKIP() << "a GPU does not notice";
  std::mt19937 random(7);
  for (const std::string& text :
       {mutated(kProduct, "copy_async_wait<kStages - 2>", "copy_async_wait<kStages - 1>"),
        mutated(kProduct, "    __syncthreads();\n", ""),
        mutated(kProduct, "(stage + kStages - 1) % kStages", "(stage + kStages - 2) % kStages")}) {
    SCOPED_TRACE(text);
    DriverTarget e(driver_under_test(), compiler_under_test());
    const auto function = e.function(text, {"mma.h"});
    const auto a = e.upload(halves(random, 64 * 200)), b = e.upload(halves(random, 200 * 64)),
               c = e.allocate(64 * 64 * 4);
    DriverTarget::check(e.launch(function, 1, 128, a, b, c, 200));
    if (!is_emulated()) testing::internal::CaptureStderr();
    EXPECT_EQ(e.wait(), CUDA_ERROR_LAUNCH_FAILED);
    if (is_emulated())
      EXPECT_THAT(emulated_fault(), testing::HasSubstr("of shared s"));
    else
      EXPECT_THAT(testing::internal::GetCapturedStderr(),
                  testing::AllOf(testing::HasSubstr("virtual card: f_"),
                                 testing::HasSubstr("shared memory")));
  }
}

// No rule of a device is broken: the comparison of results names the rows.
TEST_P(DeviceFunctions, AProductWithSwappedRows) {
  const int depth = 200;
  const auto a = e.upload(halves(random, 64 * depth)), b = e.upload(halves(random, depth * 64)),
             c = e.allocate(64 * 64 * 4);
  const auto rows_of = [&](const std::string& text) {
    const auto function = e.function(text, {"mma.h"});
    DriverTarget::check(e.launch(function, 1, 128, a, b, c, depth));
    const auto all = e.download<float>(c, 64 * 64);
    std::vector<std::vector<float>> rows;
    for (auto row = all.begin(); row != all.end(); row += 64) rows.emplace_back(row, row + 64);
    return rows;
  };
  const auto right = rows_of(kProduct),
             swapped = rows_of(mutated(kProduct, "warp * 16 + lane % 16) * kPitchA",
                                       "warp * 16 + (lane + 8) % 16) * kPitchA"));
  for (size_t row = 0; row < 64; ++row)
    EXPECT_EQ(swapped[row], right[row / 16 * 16 + (row + 8) % 16]) << row;
}

// Registers as PTX lays them out, filled from plain matrices.
template <class A, class B>
void multiply_bytes(DriverTarget& e, std::mt19937& random, const std::string& types) {
  std::uniform_int_distribution<int> bytes(0, 255);
  std::vector<uint8_t> a(16 * 32), b(32 * 8);
  for (auto& value : a) value = static_cast<uint8_t>(bytes(random));
  for (auto& value : b) value = static_cast<uint8_t>(bytes(random));
  const auto function = e.function(
      "KERNEL($name, 32)(In<u8> a, In<u8> b, Out<i32> c) {\n"
      "  const i32 g = threadIdx.x / 4, t = threadIdx.x % 4;\n"
      "  auto pack = [&](In<u8> from, i32 at, i32 step) {\n"
      "    u32 bits = 0;\n"
      "    for (i32 i = 0; i < 4; ++i) bits |= u32(from[at + i * step]) << 8 * i;\n"
      "    return bits;\n"
      "  };\n"
      "  Vec<u32, 4> fa;\n"
      "  for (i32 r = 0; r < 4; ++r)\n"
      "    fa[r] = pack(a, (g + r % 2 * 8) * 32 + r / 2 * 16 + t * 4, 1);\n"
      "  Vec<i32, 4> sums = {{1, 1, 1, 1}};\n"
      "  mma_m16n8k32<" +
          types +
          ">(sums, fa, pack(b, t * 4 * 8 + g, 8),\n"
          "                              pack(b, (16 + t * 4) * 8 + g, 8));\n"
          "  for (i32 i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = sums[i];\n"
          "}",
      {"mma.h"});
  const auto da = e.upload(a), db = e.upload(b), dc = e.allocate(16 * 8 * 4);
  DriverTarget::check(e.launch(function, 1, 32, da, db, dc));
  const auto found = e.download<int32_t>(dc, 16 * 8);
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 8; ++n) {
      int32_t sum = 1;
      for (size_t k = 0; k < 32; ++k)
        sum += static_cast<A>(a[m * 32 + k]) * static_cast<B>(b[k * 8 + n]);
      ASSERT_EQ(found[m * 8 + n], sum) << m << " " << n;
    }
}

TEST_P(DeviceFunctions, ProductsOfBytes) {
  multiply_bytes<int8_t, int8_t>(e, random, "i8, i8");
  multiply_bytes<uint8_t, int8_t>(e, random, "u8, i8");
  multiply_bytes<int8_t, uint8_t>(e, random, "i8, u8");
  multiply_bytes<uint8_t, uint8_t>(e, random, "u8, u8");
}

TEST_P(DeviceFunctions, ConversionsAreThoseOfTheHost) {
  const auto function = e.function(
      "KERNEL($name, 256)(In<u32> x, Out<f32> wide, Out<f32> brain, Out<u16> half, Out<u16> b,\n"
      "                   Out<u16> of_double, In<f64> d) {\n"
      "  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;\n"
      "  wide[i] = to_f32(h16{u16(i)});\n"
      "  brain[i] = to_f32(bf16{u16(i)});\n"
      "  half[i] = to_h16(__uint_as_float(x[i])).bits;\n"
      "  b[i] = to_bf16(__uint_as_float(x[i])).bits;\n"
      "  of_double[i] = to_h16(d[i]).bits;\n"
      "}");
  constexpr size_t kCount = 65536;
  std::vector<uint32_t> bits(kCount);
  std::vector<double> doubles(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    // Every second one near or at the middle between two halves.
    const float middle = to_f32(Float16{static_cast<uint16_t>(i)});
    uint32_t of_middle;
    std::memcpy(&of_middle, &middle, 4);
    bits[i] = i % 2 == 0 ? static_cast<uint32_t>(random()) : of_middle + 0x1000 + random() % 3 - 1;
    doubles[i] = std::ldexp(static_cast<double>(static_cast<int64_t>(random()) - (1ll << 31)),
                            static_cast<int>(random() % 48) - 60);
    if (i % 2 != 0)
      doubles[i] = static_cast<double>(middle) * (1 + std::ldexp(1.0, -11)) +
                   std::ldexp(static_cast<double>(random() % 3) - 1, -50);
  }
  const auto x = e.upload(bits), d = e.upload(doubles), wide = e.allocate(kCount * 4),
             brain = e.allocate(kCount * 4), half = e.allocate(kCount * 2),
             b = e.allocate(kCount * 2), of_double = e.allocate(kCount * 2);
  DriverTarget::check(e.launch(function, kCount / 256, 256, x, wide, brain, half, b, of_double, d));
  const auto wides = e.download<uint32_t>(wide, kCount),
             brains = e.download<uint32_t>(brain, kCount);
  const auto hs = e.download<uint16_t>(half, kCount), bs = e.download<uint16_t>(b, kCount),
             ds = e.download<uint16_t>(of_double, kCount);
  const auto same_half = [](uint16_t a, uint16_t right, int mantissa_bits) {
    const int most = (0x7fff >> mantissa_bits) << mantissa_bits;  // infinity
    return a == right || ((a & 0x7fff) > most && (right & 0x7fff) > most);
  };
  for (size_t i = 0; i < kCount; ++i) {
    float value, found;
    std::memcpy(&value, &bits[i], 4);
    std::memcpy(&found, &wides[i], 4);
    const float right = to_f32(Float16{static_cast<uint16_t>(i)});
    ASSERT_TRUE(std::isnan(right) ? std::isnan(found) : std::memcmp(&right, &found, 4) == 0) << i;
    ASSERT_EQ(brains[i], static_cast<uint32_t>(i) << 16);
    ASSERT_TRUE(same_half(hs[i], to_f16(value).bits, 10)) << bits[i] << " " << hs[i];
    ASSERT_TRUE(same_half(bs[i], to_bf16(value).bits, 7)) << bits[i] << " " << bs[i];
    ASSERT_TRUE(same_half(ds[i], to_f16(doubles[i]).bits, 10)) << doubles[i] << " " << ds[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, DeviceFunctionMutations, testing::Values("forward", "reversed"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Orders, DeviceFunctions, testing::Values("forward", "reversed"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace anneal::cuda
