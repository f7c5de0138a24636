#include "anneal/kernels/cuda/cost/tile_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/cost/config_space.h"
#include "anneal/kernels/cuda/cost/cost_model.h"

namespace anneal::cuda {
namespace {

constexpr TileConfig kTileConfigs[] = {
    {128, 128, 8, 8, 8, 1},  //
    {128, 64, 8, 8, 4, 1},   //
    {64, 128, 8, 4, 8, 1},   //
    {64, 64, 16, 4, 4, 1},   //
    {128, 32, 16, 4, 4, 1},  // few output channels, many pixels
    {32, 128, 16, 4, 4, 1},  // few rows, many columns
    {128, 16, 16, 4, 4, 2},  //
    {16, 128, 16, 4, 4, 2},  //
    {64, 32, 16, 4, 4, 2},   //
    {32, 64, 16, 4, 4, 2},   //
    {32, 32, 32, 4, 4, 4},   //
    {16, 16, 32, 2, 2, 4},   //
    {4, 32, 32, 4, 1, 8},    // a few vectors through one matrix
    {1, 32, 64, 1, 1, 8},    // one vector
};

constexpr ConfigSpace<TileConfig> kTileSpace(kTileConfigs);

// Eight-byte sums of a large share do not fit a thread's registers.
bool tile_fits(const TileConfig& config, size_t accumulator_bytes) {
  return accumulator_bytes <= 4 || config.thread_rows * config.thread_columns <= 16;
}

double tile_cost(const TileConfig& c, const ProductSizes& sizes, const DeviceSpec& spec) {
  // Each step of the depth reads thread_rows + thread_columns numbers to multiply them all, and
  // each number that comes to shared memory costs a few instructions on its way.
  const double products = c.thread_rows * c.thread_columns;
  const double share = products / (products + 0.5 * (c.thread_rows + c.thread_columns) + 2);
  const double numbers = static_cast<double>(c.rows + c.columns) * c.depth;
  return seconds_of(
      spec,
      {.blocks = block_count(sizes, c.rows, c.columns),
       .pieces = std::max<int64_t>(ceil_div(sizes.depth, c.depth), 1),
       .resident_blocks = spec.threads_per_multiprocessor / c.threads() / 2,
       .threads_per_block = c.threads(),
       .operations_per_second = spec.f32_flops / 2,
       .full_rate_threads = 512,
       .piece_operations = static_cast<double>(c.rows) * c.columns * c.depth / share + 6 * numbers,
       .piece_bytes = numbers * static_cast<double>(sizes.accumulator_bytes),
       .piece_latency = 0.3e-6});
}

}  // namespace

std::span<const TileConfig> tile_configs() { return kTileConfigs; }

TileConfig choose_tile(const ProductSizes& sizes, const DeviceSpec& spec) {
  const TileConfig* const best = kTileSpace.cheapest(
      [&](const TileConfig& config) { return tile_fits(config, sizes.accumulator_bytes); },
      [&](const TileConfig& config) { return tile_cost(config, sizes, spec); });
  check(best != nullptr, "some tile fits every product");
  return *best;
}

std::string to_string(const TileConfig& c) {
  return fmt::format("{}x{}x{}, {}x{} a thread, {} slice{}", c.rows, c.columns, c.depth,
                     c.thread_rows, c.thread_columns, c.slices, c.slices == 1 ? "" : "s");
}

std::vector<std::byte> tactic_of(const TileConfig& config) {
  ByteWriter to;
  for (const int number : {config.rows, config.columns, config.depth, config.thread_rows,
                           config.thread_columns, config.slices})
    to.number(static_cast<uint16_t>(number));
  return to.take();
}

std::optional<TileConfig> tile_for(const ProductSizes& sizes, const DeviceSpec& spec,
                                   std::span<const std::byte> tactic) {
  if (tactic.empty()) return choose_tile(sizes, spec);
  return kTileSpace.of_tactic(
      tactic, [&](const TileConfig& config) { return tile_fits(config, sizes.accumulator_bytes); });
}

std::vector<std::vector<std::byte>> tile_tactics(const ProductSizes& sizes,
                                                 const DeviceSpec& spec) {
  return kTileSpace.tactics(
      [&](const TileConfig& config) { return tile_fits(config, sizes.accumulator_bytes); },
      [&](const TileConfig& config) { return tile_cost(config, sizes, spec); });
}

int64_t column_blocks(const ProductSizes& sizes, int columns) {
  if (sizes.split.empty()) return ceil_div(sizes.columns, columns);
  int64_t blocks = 0;
  for (const int64_t part : sizes.split) blocks += ceil_div(part, columns);
  return blocks;
}

int64_t block_count(const ProductSizes& sizes, int rows, int columns) {
  return ceil_div(sizes.rows, rows) * column_blocks(sizes, columns) * sizes.batches;
}

}  // namespace anneal::cuda
