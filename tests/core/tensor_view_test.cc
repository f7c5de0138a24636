// Views from containers: the element type, the count and the order of elements are checked.
#include "anneal/core/tensor_view.h"
#include "anneal/core/error.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace anneal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NewTensor, LargeOnesAreZeroedAndAlignedEachTime) {
  for (const int64_t bytes : {1, 4000, 1 << 20, 2 << 20, (5 << 20) + 3})
    for (int round = 0; round < 3; ++round) {
      const NewTensor made = allocate_tensor(DataType::kU8, {bytes});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(made.data.data()) % 64, 0U);
      EXPECT_TRUE(
          std::ranges::all_of(made.data, [](std::byte byte) { return byte == std::byte{0}; }));
      std::ranges::fill(made.data, std::byte{0xff});
    }
}

TEST(View, TakesTheElementTypeOfTheContainer) {
  std::vector<float> f32(6);
  const std::array<int64_t, 6> i64{};
  EXPECT_EQ(view(f32, {2, 3}).dtype, DataType::kF32);
  EXPECT_EQ(view(i64, {6}).dtype, DataType::kI64);
  EXPECT_EQ(view(std::span<const bool>(), {0}).dtype, DataType::kBool);
  EXPECT_EQ(view(std::span<const uint8_t>(), {0, 3}).dtype, DataType::kU8);
  static_assert(std::is_same_v<decltype(view(f32, {6})), TensorView>);
  static_assert(std::is_same_v<decltype(view(i64, {6})), ConstTensorView>);
  EXPECT_EQ(view(f32, {2, 3}).strides, (Dims{3, 1}));
  EXPECT_EQ(static_cast<void*>(view(f32, {2, 3}).data), f32.data());
}

TEST(View, HalfPrecisionIsGivenByName) {
  std::vector<uint16_t> bits(4);
  EXPECT_EQ(view(bits, {4}).dtype, DataType::kU16);
  EXPECT_EQ(view(bits, {4}, DataType::kBF16).dtype, DataType::kBF16);
  EXPECT_THAT(error_of([&] { view(bits, {4}, DataType::kF32); }),
              HasSubstr("f32 has elements of 4 bytes, the memory of 2"));
}

#ifdef __FLT16_MAX__
TEST(View, TakesTheCompilersHalfPrecision) {
  std::vector<_Float16> halves = {1, 2};
  const TensorView all = view(halves, {2});
  EXPECT_EQ(all.dtype, DataType::kF16);
  all.span<_Float16>()[1] = 3;
  EXPECT_EQ(static_cast<float>(halves[1]), 3);
  EXPECT_EQ(view(std::span<const _Float16>(halves), {2}).dtype, DataType::kF16);
}
#endif
#ifdef __STDCPP_BFLOAT16_T__
TEST(View, TakesTheCompilersBrainFloats) {
  std::vector<decltype(0.0bf16)> values = {1, 2};
  EXPECT_EQ(view(values, {2}).dtype, DataType::kBF16);
}
#endif

TEST(View, CountsElements) {
  const std::vector<float> five(5);
  EXPECT_THAT(error_of([&] {
                view(five, {2, 3});
              }),
              HasSubstr("a view of shape [2,3] has 6 elements, the memory holds 5"));
  EXPECT_THAT(error_of([&] { view(five, {-1, 5}); }), HasSubstr("a negative size"));
  EXPECT_THAT(error_of([&] { view(five, {5}, DataType::kString); }),
              HasSubstr("a view or tensor cannot hold strings"));
  EXPECT_EQ(view(std::span<const float>(five).first(1), {}).dims.rank(), 0);
}

TEST(View, SpanChecksTypeOrderAndPlace) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  TensorView all = view(values, {2, 3});
  EXPECT_THAT(all.span<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  all.span<float>()[0] = 7;
  EXPECT_EQ(values[0], 7);
  EXPECT_THAT(ConstTensorView(all).span<float>(), ElementsAre(7, 2, 3, 4, 5, 6));
  EXPECT_THAT(error_of([&] { all.span<int32_t>(); }),
              HasSubstr("the tensor holds f32, its elements are read as i32"));
  TensorView transposed = all;
  transposed.dims = {3, 2};
  transposed.strides = {1, 3};
  EXPECT_THAT(error_of([&] { transposed.span<float>(); }), HasSubstr("not dense and row-major"));
  all.place = {MemoryKind::kCuda, 0};
  EXPECT_THAT(error_of([&] { all.span<float>(); }), HasSubstr("copy it to the host first"));
}

TEST(Tensor, IsReadOnlyAndChecksTheSizeOfElements) {
  const std::vector<float> values{1, 2};
  const Tensor tensor = Tensor::of(DataType::kF32, {2}, std::span(values));
  static_assert(std::is_same_v<decltype(tensor.view().data), const std::byte*>);
  EXPECT_THAT(tensor.view().span<float>(), ElementsAre(1, 2));
  EXPECT_THAT(tensor.as<uint32_t>(), ElementsAre(0x3f800000, 0x40000000));
  EXPECT_THAT(error_of([&] { tensor.as<double>(); }),
              HasSubstr("f32 has elements of 4 bytes, the memory of 8"));
}

}  // namespace
}  // namespace anneal
