#include "anneal/core/shape.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/core/new_tensor.h"

#include <gtest/gtest.h>

#include "anneal/core/channels_last.h"
#include "anneal/core/dtype.h"
#include "anneal/core/tensor.h"
#include "anneal/core/type.h"

namespace anneal {
namespace {

constexpr int64_t kBig = int64_t{1} << 40;

ErrorCode code_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(DataType, NamesGoThereAndBack) {
  EXPECT_EQ(all_dtypes().size(), 14u);
  for (DataType dtype : all_dtypes()) {
    EXPECT_EQ(dtype_from_name(to_string(dtype)), dtype);
    if (dtype == DataType::kString) continue;
    EXPECT_GE(size_of(dtype), 1u);
    EXPECT_LE(is_float(dtype) + is_signed_integer(dtype) + is_unsigned_integer(dtype), 1);
  }
  for (const char* wrong : {"", "F32", "f33", "float", "f32 "})
    EXPECT_FALSE(dtype_from_name(wrong)) << wrong;
  EXPECT_EQ(code_of([] { size_of(DataType::kString); }), ErrorCode::kInternal);
  EXPECT_EQ(code_of([] { to_string(static_cast<DataType>(0)); }), ErrorCode::kInvalidArgument);
}

TEST(Shape, CountsAndStrides) {
  struct Case {
    Dims dims;
    int64_t count;
    Dims row_major, channels_last;
    const char* text;
  };
  const Case cases[] = {
      {{}, 1, {}, {}, "[]"},
      {{7}, 7, {1}, {1}, "[7]"},
      {{3, 5}, 15, {5, 1}, {5, 1}, "[3,5]"},
      {{2, 3, 7}, 42, {21, 7, 1}, {21, 1, 3}, "[2,3,7]"},
      {{1, 3, 23, 27}, 1863, {1863, 621, 27, 1}, {1863, 1, 81, 3}, "[1,3,23,27]"},
      {{2, 3, 4, 5, 6}, 720, {360, 120, 30, 6, 1}, {360, 1, 90, 18, 3}, "[2,3,4,5,6]"},
      {{5, 0, 3}, 0, {0, 3, 1}, {0, 1, 0}, "[5,0,3]"},
  };
  for (const Case& it : cases) {
    EXPECT_EQ(count(it.dims), it.count) << it.text;
    EXPECT_EQ(row_major_strides(it.dims), it.row_major) << it.text;
    EXPECT_EQ(channels_last_strides(it.dims), it.channels_last) << it.text;
    EXPECT_EQ(to_string(it.dims), it.text);
    EXPECT_EQ(dims_of(shape_of(it.dims)), it.dims);
    EXPECT_TRUE(known(shape_of(it.dims)));
  }
}

TEST(Shape, RefusesWhatDoesNotFit) {
  const Dims wrong[] = {{kBig, kBig}, {0, kBig, kBig}, {-1}, {3, -7}, {INT64_MAX, 2}};
  for (const Dims& dims : wrong)
    EXPECT_EQ(code_of([&] { count(dims); }), ErrorCode::kInvalidArgument) << to_string(dims);
  Dims dims = Dims::filled(kMaxRank, 1);
  EXPECT_EQ(code_of([&] { dims.push_back(1); }), ErrorCode::kUnsupported);
  EXPECT_FALSE(known(Shape{3, Size::expression(0)}));
  EXPECT_EQ(code_of([] { dims_of({Size::expression(0)}); }), ErrorCode::kInternal);
}

TEST(Tensor, IsAlignedZeroedAndComparedByContent) {
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}, Dims{23}, Dims{7, 129}}) {
    const NewTensor fresh = allocate_tensor(DataType::kF32, dims);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(fresh.data.data()) % 64, 0u);
    EXPECT_EQ(fresh.data.size(), static_cast<size_t>(count(dims)) * 4);
    for (float value : fresh.tensor.as<float>()) EXPECT_EQ(value, 0.0f);
    EXPECT_TRUE(fresh.tensor == allocate_tensor(DataType::kF32, dims).tensor);
    EXPECT_FALSE(fresh.tensor == allocate_tensor(DataType::kI32, dims).tensor);
    EXPECT_TRUE(is_row_major(fresh.tensor.view()));
    EXPECT_EQ(fresh.view().as<const float>(), fresh.tensor.as<float>().data());
  }
  const int32_t values[] = {1, -2, 3};
  const Tensor a = Tensor::of<int32_t>(DataType::kI32, {3}, values);
  EXPECT_EQ(a.as<int32_t>()[1], -2);
  EXPECT_FALSE(a == (Tensor::of<int32_t>(DataType::kI32, {1, 3}, values)));
  EXPECT_FALSE(a == allocate_tensor(DataType::kI32, {3}).tensor);
  EXPECT_EQ(code_of([&] { Tensor::of<int32_t>(DataType::kI32, {4}, values); }),
            ErrorCode::kInvalidArgument);
}

TEST(Tensor, RefusesSizesThatOverflow) {
  for (const Dims& dims : {Dims{INT64_MAX}, Dims{INT64_MAX / 8, 2}, Dims{kBig, kBig}, Dims{-1}})
    EXPECT_EQ(code_of([&] { allocate_tensor(DataType::kF64, dims); }), ErrorCode::kInvalidArgument);
}

TEST(TensorView, KnowsDenseLayouts) {
  struct Case {
    Dims dims, strides;
    bool row_major, channels_last;
  };
  const Case cases[] = {
      {{2, 3, 5, 7}, {105, 35, 7, 1}, true, false},
      {{2, 3, 5, 7}, {105, 1, 21, 3}, false, true},
      {{2, 1, 5, 7}, {35, 1, 7, 1}, true, true},
      {{1, 3, 1, 1}, {99, 1, 99, 99}, true, true},
      {{2, 3, 5, 7}, {106, 35, 7, 1}, false, false},
      {{2, 3}, {0, 1}, false, false},
      {{2, 0, 5}, {1, 2, 3}, true, true},
      {{}, {}, true, true},
  };
  for (const Case& it : cases) {
    const TensorView view{DataType::kF32, it.dims, it.strides, nullptr};
    EXPECT_EQ(is_row_major(view), it.row_major) << to_string(it.dims) << to_string(it.strides);
    EXPECT_EQ(is_channels_last(view), it.channels_last)
        << to_string(it.dims) << to_string(it.strides);
  }
}

}  // namespace
}  // namespace anneal
