// What tiles make of sums in registers, against the same formula applied to sums that they store.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/core/isa.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/tests/kernels/pack_all.h"

namespace anneal::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kDepth = 24, kGap = 5;  // elements along k; behind every row of results

// A product of random numbers with every way to finish it.
class Product {
 public:
  Product(const GemmKernels& kernels, DataType operands, int64_t rows, int64_t columns)
      : kernels_(kernels),
        rows_(rows),
        columns_(columns),
        layout_(kernels, kDepth, columns),
        a_(static_cast<size_t>(rows * row_bytes())),
        packed_(layout_.bytes()),
        sums_(static_cast<size_t>(rows * columns)) {
    std::mt19937 random(static_cast<unsigned>(rows * 1000 + columns));
    std::vector<std::byte> b(static_cast<size_t>(kDepth * columns) * 4);
    fill(operands, a_, random);
    fill(operands == DataType::kU8 ? DataType::kI8 : operands, b, random);
    PackSource source;
    source.dtype = operands == DataType::kU8 ? DataType::kI8 : operands;
    source.data = b.data();
    source.column_stride = kDepth;
    source.k_dims = {kDepth};
    source.k_strides = {1};
    pack(layout_, source, packed_.data());
    std::normal_distribution<float> normal;
    for (auto* numbers : {&scale_, &offset_, &addend_})
      for (int64_t i = 0; i < rows * (columns + kGap); ++i) numbers->push_back(normal(random));
    scale_[0] = std::ldexp(1.0f, -130);  // results that bf16 has no normal number for
    offset_[0] = 0;
    if (operands == DataType::kF32) {
      const float what[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity};
      std::memcpy(a_.data(), what, sizeof(what));
    }
  }

  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& offset() const { return offset_; }
  const std::vector<float>& addend() const { return addend_; }

  // Bytes of results with the gaps between rows, of which only results are written.
  std::vector<std::byte> by_tiles(RegisterEpilogue finish) {
    std::vector<std::byte> y = blank(finish.storage);
    finish.y = y.data();
    finish.y_stride = static_cast<int64_t>(size_of(finish.storage)) * (columns_ + kGap);
    run(&finish);
    return y;
  }
  std::vector<std::byte> by_formula(const RegisterEpilogue& finish) {
    run(nullptr);
    std::vector<std::byte> y = blank(finish.storage);
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t column = 0; column < columns_; ++column)
        store(finish, value(finish, row, column),
              y.data() + (row * (columns_ + kGap) + column) *
                             static_cast<int64_t>(size_of(finish.storage)));
    return y;
  }

 private:
  int64_t row_bytes() const { return kDepth * static_cast<int64_t>(kernels_.element_size()); }

  static void fill(DataType dtype, std::vector<std::byte>& bytes, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (size_t at = 0; at + size_of(dtype) <= bytes.size(); at += size_of(dtype)) {
      if (dtype == DataType::kF32) {
        const float number = normal(random);
        std::memcpy(&bytes[at], &number, sizeof(number));
      } else if (dtype == DataType::kBF16) {
        const BFloat16 number = to_bf16(normal(random));
        std::memcpy(&bytes[at], &number, sizeof(number));
      } else {
        bytes[at] = static_cast<std::byte>(random());
      }
    }
  }
  std::vector<std::byte> blank(DataType storage) const {
    return std::vector<std::byte>(static_cast<size_t>(rows_ * (columns_ + kGap)) * size_of(storage),
                                  std::byte{0x55});
  }

  // In two parts along k.
  void run(const RegisterEpilogue* finish) {
    GemmBlock block;
    block.a_stride = row_bytes();
    block.panel_stride = layout_.panel_bytes();
    block.c = reinterpret_cast<std::byte*>(sums_.data());
    block.c_stride = columns_;
    block.rows = rows_, block.columns = columns_;
    for (const auto& [lane, lanes] :
         {std::pair<int64_t, int64_t>{0, 2}, {2, layout_.lanes() - 2}}) {
      block.a = a_.data() + lane * 4;
      block.b = packed_.data() + lane * layout_.tile_columns * 4;
      block.lanes = lanes;
      block.finish = lane > 0 ? finish : nullptr;
      kernels_.block(block);
      block.accumulate = true;
    }
  }

  float value(const RegisterEpilogue& finish, int64_t row, int64_t column) const {
    float sum;
    std::memcpy(&sum, &sums_[static_cast<size_t>(row * columns_ + column)], sizeof(sum));
    if (!kernels_.sums_are_f32())
      sum = static_cast<float>(sums_[static_cast<size_t>(row * columns_ + column)]);
    if (finish.scale != nullptr) sum *= finish.scale[column];
    if (finish.offset != nullptr) sum += finish.offset[column];
    if (finish.addend == nullptr) return sum;
    const std::byte* const at = finish.addend + row * finish.addend_stride +
                                column * static_cast<int64_t>(size_of(finish.storage));
    if (finish.storage == DataType::kF32) return sum + *reinterpret_cast<const float*>(at);
    return sum + to_f32(*reinterpret_cast<const BFloat16*>(at));
  }
  static void store(const RegisterEpilogue& finish, float v, std::byte* to) {
    if (is_8bit(finish.storage)) {
      const float cut = std::clamp(v * finish.factor, finish.low, finish.high);
      const auto whole = static_cast<int32_t>(std::nearbyint(cut)) + finish.zero;
      *to = static_cast<std::byte>(whole);
      return;
    }
    if (!std::isnan(v)) v = std::clamp(v, finish.low, finish.high);
    const BFloat16 rounded = to_bf16(v);
    if (finish.storage == DataType::kF32) {
      std::memcpy(to, &v, sizeof(v));
    } else {
      std::memcpy(to, &rounded, sizeof(rounded));
    }
  }

  GemmKernels kernels_;
  int64_t rows_, columns_;
  PackLayout layout_;
  std::vector<std::byte> a_, packed_;
  std::vector<int32_t> sums_;
  std::vector<float> scale_, offset_, addend_;
};

void check(const GemmKernels& kernels, DataType operands, DataType storage) {
  if (!kernels.finishes(storage)) return;
  for (const int64_t rows : {1, 2, 3, 5, 7, 13, 14, 31})
    for (const int64_t columns : {16, 32, 48, 80, 128}) {
      SCOPED_TRACE(::testing::Message() << to_string(storage) << ", " << rows << " x " << columns);
      Product product(kernels, operands, rows, columns);
      RegisterEpilogue finish{.storage = storage, .low = -kInfinity, .high = kInfinity};
      if (is_8bit(storage))
        finish.low = storage == DataType::kI8 ? -130 : -3,
        finish.high = storage == DataType::kI8 ? 125 : 252, finish.factor = 0.0625f,
        finish.zero = storage == DataType::kI8 ? 2 : 3;
      EXPECT_EQ(product.by_tiles(finish), product.by_formula(finish)) << "plain";
      finish.scale = product.scale().data();
      EXPECT_EQ(product.by_tiles(finish), product.by_formula(finish)) << "scaled";
      finish.offset = product.offset().data();
      EXPECT_EQ(product.by_tiles(finish), product.by_formula(finish)) << "with an offset";
      if (is_8bit(storage)) continue;
      finish.low = 0, finish.high = 1.5f;
      EXPECT_EQ(product.by_tiles(finish), product.by_formula(finish)) << "cut";
      std::vector<BFloat16> rounded;
      for (const float number : product.addend()) rounded.push_back(to_bf16(number));
      finish.addend = storage == DataType::kF32 ? std::as_bytes(std::span(product.addend())).data()
                                                : std::as_bytes(std::span(rounded)).data();
      finish.addend_stride = static_cast<int64_t>(size_of(storage)) * (columns + kGap);
      EXPECT_EQ(product.by_tiles(finish), product.by_formula(finish)) << "with an addend";
    }
}

TEST(GemmRegisterEpilogue, AsTheFormulaOfItsHeader) {
  const Isa isa = current_isa();
  const GemmKernels f32 = f32_gemm(isa), int8 = int8_gemm(isa);
  EXPECT_EQ(f32.finishes(DataType::kF32), isa >= Isa::kAvx512);
  EXPECT_EQ(int8.finishes(DataType::kU8), isa == Isa::kFull);
  check(f32, DataType::kF32, DataType::kF32);
  check(int8, DataType::kU8, DataType::kU8);
  check(int8, DataType::kU8, DataType::kI8);
  if (!computes_bf16(isa)) return;
  const GemmKernels bf16 = gemm_of(DataType::kBF16, isa);
  EXPECT_TRUE(bf16.finishes(DataType::kBF16));
  check(bf16, DataType::kBF16, DataType::kBF16);
}

}  // namespace
}  // namespace anneal::cpu
