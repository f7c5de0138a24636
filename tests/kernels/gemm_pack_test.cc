// Packed right-hand sides of products: where each element of a matrix goes.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "anneal/core/isa.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/tests/kernels/pack_all.h"

namespace anneal::cpu {
namespace {

// f(k, offset) for all k, in order.
template <class F>
void for_each_k(const PackSource& source, F f) {
  for (int64_t k = 0; k < count(source.k_dims); ++k) {
    int64_t rest = k, offset = 0;
    for (int axis = source.k_dims.rank() - 1; axis >= 0; --axis) {
      offset += rest % source.k_dims[axis] * source.k_strides[axis];
      rest /= source.k_dims[axis];
    }
    f(k, offset);
  }
}

constexpr int64_t kOutputs = 37, kChannels = 6, kTaps = 9;
constexpr int64_t kWeights = kOutputs * kChannels * kTaps;

struct Arrangement {
  const char* name;
  int64_t column_stride;
  Dims k_dims, k_strides;
  int64_t tap;
};
const Arrangement kArrangements[] = {
    {"a matrix by columns", kChannels* kTaps, {kChannels * kTaps}, {1}, 0},
    {"a matrix by rows", 1, {kChannels * kTaps}, {kOutputs}, 0},
    {"a convolution, dense", kChannels* kTaps, {3, 3, kChannels}, {3, 1, kTaps}, kChannels},
    {"rows as taps", kChannels* kTaps, {3, 3, kChannels}, {3, 1, kTaps}, 3 * kChannels},
    {"every other tap", kChannels* kTaps, {2, 2, kChannels}, {6, 2, kTaps}, kChannels},
    {"taps of whole lanes", 8 * 4, {2, 2, 8}, {2, 1, 4}, 8},
    {"one channel", kTaps, {3, 3, 1}, {3, 1, 1}, 1},
};

void expect_same_in_cache(const PackLayout& layout, const PackSource& source,
                          std::span<const std::byte> packed, const char* name) {
  std::vector<std::byte> in_cache(packed.size());
  for (int64_t panel = 0; panel < layout.panels(); ++panel)
    pack_panel(layout, source, panel, in_cache.data(), PackTo::kCache);
  // The memory between the last panel or sum and the end is unused.
  const int64_t sums = layout.kind == GemmKind::kU8S8 ? layout.padded_columns() * 4 : 0;
  EXPECT_EQ(
      std::memcmp(in_cache.data(), packed.data(), static_cast<size_t>(layout.sums_offset() + sums)),
      0)
      << name;
}

TEST(GemmPack, FloatsOfEveryArrangement) {
  std::vector<float> weights(kWeights);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i) + 1;
  const GemmKernels kernels = f32_gemm(current_isa());
  for (const Arrangement& each : kArrangements) {
    PackSource source;
    source.data = std::as_bytes(std::span(weights)).data();
    source.column_stride = each.column_stride;
    source.k_dims = each.k_dims, source.k_strides = each.k_strides;
    const PackLayout layout(kernels, count(source.k_dims), kOutputs, each.tap);
    std::vector<float> packed(layout.bytes() / 4, -1);
    pack(layout, source, reinterpret_cast<std::byte*>(packed.data()));
    expect_same_in_cache(layout, source, std::as_bytes(std::span(packed)), each.name);
    const int64_t width = layout.tile_columns;
    for_each_k(source, [&](int64_t k, int64_t offset) {
      for (int64_t column = 0; column < layout.padded_columns(); ++column) {
        const float expected =
            column < kOutputs ? weights[static_cast<size_t>(offset + column * source.column_stride)]
                              : 0;
        const int64_t at = column / width * layout.panel_bytes() / 4 + k * width + column % width;
        ASSERT_EQ(packed[static_cast<size_t>(at)], expected)
            << each.name << ": k " << k << ", column " << column;
      }
    });
  }
}

TEST(GemmPack, HalvesOfEveryArrangement) {
  const GemmKernels kernels = gemm_of(DataType::kBF16, current_isa());
  if (kernels.kind != GemmKind::kBf16) GTEST_SKIP() << "without AVX512_BF16";
  std::vector<uint16_t> weights(kWeights);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<uint16_t>(i + 1);
  for (const Arrangement& each : kArrangements) {
    PackSource source;
    source.dtype = DataType::kBF16;
    source.data = std::as_bytes(std::span(weights)).data();
    source.column_stride = each.column_stride;
    source.k_dims = each.k_dims, source.k_strides = each.k_strides;
    const PackLayout layout(kernels, count(source.k_dims), kOutputs, each.tap);
    std::vector<std::byte> packed(layout.bytes());
    pack(layout, source, packed.data());
    expect_same_in_cache(layout, source, packed, each.name);
    const int64_t width = layout.tile_columns;
    for_each_k(source, [&](int64_t k, int64_t offset) {
      for (int64_t column = 0; column < layout.padded_columns(); ++column) {
        const int64_t place = layout.place(k);
        uint16_t found = 0;
        std::memcpy(&found,
                    packed.data() + column / width * layout.panel_bytes() +
                        (place / 2 * width + column % width) * 4 + place % 2 * 2,
                    sizeof(found));
        const int64_t at = offset + column * source.column_stride;
        ASSERT_EQ(found, column < kOutputs ? weights[static_cast<size_t>(at)] : 0)
            << each.name << ": k " << k << ", column " << column;
      }
    });
  }
}

TEST(GemmPack, BytesOfEveryArrangement) {
  std::vector<int8_t> weights(kWeights);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 37);
  const std::vector<int8_t> zeros(kOutputs, 3);
  const GemmKernels kernels = int8_gemm(current_isa());
  const int64_t lane = kernels.elements_per_lane;
  for (const Arrangement& each : kArrangements) {
    PackSource source;
    source.dtype = DataType::kI8;
    source.data = std::as_bytes(std::span(weights)).data();
    source.column_stride = each.column_stride;
    source.k_dims = each.k_dims, source.k_strides = each.k_strides;
    source.zero = std::as_bytes(std::span(zeros)).data();
    source.zero_stride = 1;
    const PackLayout layout(kernels, count(source.k_dims), kOutputs, each.tap);
    std::vector<std::byte> packed(layout.bytes());
    pack(layout, source, packed.data());
    expect_same_in_cache(layout, source, packed, each.name);
    const int64_t width = layout.tile_columns;
    std::vector<int32_t> sums(static_cast<size_t>(layout.padded_columns()));
    for_each_k(source, [&](int64_t k, int64_t offset) {
      for (int64_t column = 0; column < kOutputs; ++column) {
        const int64_t from = offset + column * source.column_stride;
        const auto value = int32_t{weights[static_cast<size_t>(from)]};
        sums[static_cast<size_t>(column)] += value;
        const int64_t place = layout.place(k);
        const std::byte* const at = packed.data() + column / width * layout.panel_bytes() +
                                    (place / lane * width + column % width) * 4 +
                                    place % lane * static_cast<int64_t>(kernels.element_size());
        int16_t pair = 0;
        std::memcpy(&pair, at, sizeof(pair));
        const bool is_i16 = kernels.kind == GemmKind::kI16;
        ASSERT_EQ(is_i16 ? pair : *reinterpret_cast<const int8_t*>(at), is_i16 ? value - 3 : value)
            << each.name;
      }
    });
    if (kernels.kind != GemmKind::kU8S8) continue;
    EXPECT_EQ(std::memcmp(packed.data() + layout.sums_offset(), sums.data(), sums.size() * 4), 0)
        << each.name;
  }
}

}  // namespace
}  // namespace anneal::cpu
