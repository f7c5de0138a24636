// Configurations of the kernels for products and windows: tests/golden/product_configs.txt holds
// the choices for a table of sizes, and bytes that are no tactic are refused.
// ANNEAL_UPDATE_GOLDEN=1 writes the table anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "anneal/kernels/cuda/cost/depthwise_config.h"
#include "anneal/kernels/cuda/cost/mma_config.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"
#include "anneal/kernels/cuda/cost/tile_config.h"

namespace anneal::cuda {
namespace {

constexpr int kArchitectures[] = {80, 90, 100, 120};

TEST(ProductConfigs, TacticsAreTextForPeople) {
  for (const MmaConfig& config : mma_configs())
    EXPECT_EQ(tactic_text("cuda.conv.mma", tactic_of(config)), to_string(config));
  for (const TileConfig& config : tile_configs())
    EXPECT_EQ(tactic_text("cuda.matmul.simt", tactic_of(config)), to_string(config));
  const DepthwiseConfig depthwise{4, 2, false};
  EXPECT_EQ(tactic_text("cuda.conv.depthwise", tactic_of(depthwise)), to_string(depthwise));
  EXPECT_EQ(tactic_text("cpu.pointwise.table", std::vector<std::byte>(256)), "table of 256 values");
  EXPECT_EQ(tactic_text("cuda.other", std::vector<std::byte>(5)), "5 bytes");
  EXPECT_EQ(tactic_text("cuda.other", {}), "");
}

TEST(ProductConfigs, Golden) {
  constexpr struct {
    const char* name;
    ProductSizes sizes;
  } products[] = {
      {"matmul 4096 x 4096 x 4096", {4096, 4096, 4096}},
      {"matmul 197 x 768 x 768", {197, 768, 768}},
      {"matmul 1 x 1280 x 1000", {1, 1000, 1280}},
      {"matmul 3 x 1025 x 7", {3, 7, 1025}},
      {"12 matmuls 197 x 64 x 197", {197, 197, 64, 12}},
      {"12 matmuls 197 x 197 x 64", {197, 64, 197, 12}},
      {"matmul f64 512 x 512 x 512", {512, 512, 512, 1, 8}},
      {"matmul of nothing", {0, 5, 3}},
      {"matmul of bytes 197 x 768 x 768",
       {.rows = 197, .columns = 768, .depth = 768, .element_bytes = 1}},
      {"conv 3 -> 64, 7x7, 112 x 112", {112 * 112, 64, 147}},
      {"conv 16 -> 96, 1x1, 112 x 112", {112 * 112, 96, 16}},
      {"conv 96 -> 16, 1x1, 56 x 56", {56 * 56, 16, 96}},
      {"conv 64 -> 64, 3x3, 56 x 56, batch 8", {8 * 56 * 56, 64, 576}},
      {"conv 512 -> 512, 3x3, 7 x 7", {49, 512, 4608}},
      {"conv 1 -> 8, 5x5, 28 x 28", {784, 8, 25}},
      {"conv 32 groups of 4 -> 4, 3x3, 56 x 56", {56 * 56, 4, 36, 32}},
      {"conv 32 groups of 8 -> 8, 3x3, 28 x 28, batch 8", {8 * 28 * 28, 8, 72, 32}},
      {"conv 12 -> 16, 3x3, 208 x 208, batch 8", {8 * 208 * 208, 16, 108}},
  };
  constexpr struct {
    const char* name;
    DepthwiseSizes sizes;
  } depthwise[] = {
      {"depthwise 3x3, 112 x 112 x 32", {9, 1, 112 * 112 * 32, 112, 4}},
      {"depthwise 3x3 stride 2, 56 x 56 x 96", {9, 2, 56 * 56 * 96, 56, 4}},
      {"depthwise 3x3, 7 x 7 x 960", {9, 1, 7 * 7 * 960, 7, 4}},
      {"depthwise 5x5, 56 x 56 x 72, batch 32", {25, 1, 32 * 56 * 56 * 72, 56, 4}},
      {"depthwise 3x3, 112 x 112 x 32, rows adjacent", {9, 1, 112 * 112 * 32, 112, 1}},
      {"depthwise 31x31, 56 x 56 x 128", {961, 1, 56 * 56 * 128, 56, 4}},
      {"depthwise of an unknown kernel", {0, 1, 56 * 56 * 128, 56, 4}},
  };
  std::ostringstream lines;
  for (const auto& each : products) {
    lines << each.name << '\n';
    for (const int architecture : kArchitectures)
      lines << "  sm_" << architecture << ": "
            << to_string(choose_tile(each.sizes, *find_spec(architecture))) << "; tensor cores "
            << to_string(choose_mma(each.sizes, *find_spec(architecture))) << '\n';
  }
  for (const auto& each : depthwise) {
    lines << each.name << '\n';
    for (const int architecture : kArchitectures)
      lines << "  sm_" << architecture << ": "
            << to_string(choose_depthwise(each.sizes, *find_spec(architecture))) << '\n';
  }
  constexpr const char* kGolden = "tests/golden/product_configs.txt";
  if (std::getenv("ANNEAL_UPDATE_GOLDEN") != nullptr) std::ofstream(kGolden) << lines.str();
  std::ostringstream expected;
  expected << std::ifstream(kGolden).rdbuf();
  EXPECT_EQ(lines.str(), expected.str());
}

// The faster mma.sync is against memory, the more a tile that reads little counts.
TEST(ProductConfigs, TheShareOfMmaSyncDecides) {
  const ProductSizes sizes{4096, 4096, 4096};
  DeviceSpec spec = *find_spec(80);
  EXPECT_EQ(spec.mma_share, 1);
  EXPECT_EQ(to_string(choose_mma(sizes, spec)), "128x64x32, 2x2 warps, 4 stages");
  spec.mma_share = 2;
  EXPECT_EQ(to_string(choose_mma(sizes, spec)), "128x128x32, 2x4 warps, 3 stages");
}

TEST(ProductConfigs, TilesComeBackFromTheirTactics) {
  const DeviceSpec& spec = *find_spec(90);
  for (const TileConfig& config : tile_configs())
    EXPECT_EQ(tile_for({7, 7, 7}, spec, tactic_of(config)), config) << to_string(config);
  for (const MmaConfig& config : mma_configs())
    EXPECT_EQ(mma_for({7, 7, 7}, spec, tactic_of(config)), config) << to_string(config);
}

TEST(ProductConfigs, NoTileHasColumnsOfTwoOutputs) {
  ProductSizes sizes{.rows = 65, .columns = 50, .depth = 7, .batches = 2};
  EXPECT_EQ(block_count(sizes, 64, 32), 2 * 2 * 2);
  sizes.split = {33, 1, 16};
  EXPECT_EQ(column_blocks(sizes, 32), 2 + 1 + 1);
  EXPECT_EQ(block_count(sizes, 64, 32), 2 * 4 * 2);
}

TEST(ProductConfigs, DamagedTacticsAreNone) {
  const DeviceSpec& spec = *find_spec(90);
  const ProductSizes product{7, 7, 7};
  const DepthwiseSizes depthwise{9, 1, 49 * 64, 7, 4};
  auto tile = tactic_of(tile_configs()[0]);
  auto warps = tactic_of(mma_configs()[0]);
  auto share = tactic_of(DepthwiseConfig{4, 2, true});
  ASSERT_TRUE(depthwise_for(depthwise, spec, share));
  for (auto* bytes : {&tile, &warps, &share}) {
    const auto whole = *bytes;
    for (size_t i = 0; i < whole.size(); ++i) {
      *bytes = whole;
      (*bytes)[i] ^= std::byte{0x80};
      EXPECT_FALSE(tile_for(product, spec, *bytes)) << i;
      EXPECT_FALSE(mma_for(product, spec, *bytes)) << i;
      EXPECT_FALSE(depthwise_for(depthwise, spec, *bytes)) << i;
      *bytes = {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(i) + 1};
      bytes->push_back(std::byte{1});
      EXPECT_FALSE(tile_for(product, spec, *bytes)) << i;
      EXPECT_FALSE(mma_for(product, spec, *bytes)) << i;
    }
  }
  // Sums of eight bytes do not fit the largest share, nor four channels what has one at a time.
  EXPECT_FALSE(tile_for({7, 7, 7, 1, 8}, spec, tactic_of(tile_configs()[0])));
  EXPECT_FALSE(depthwise_for({9, 1, 49 * 64, 7, 1}, spec, tactic_of(DepthwiseConfig{4, 2, true})));
}

}  // namespace
}  // namespace anneal::cuda
