#include "anneal/kernels/cuda/model/tile_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/bytes.h"
#include "anneal/core/error.h"

namespace anneal::cuda {
namespace {

constexpr TileConfig kConfigs[] = {
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

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Eight-byte sums of a large share do not fit a thread's registers.
bool fits(const TileConfig& config, size_t accumulator_bytes) {
  return accumulator_bytes <= 4 || config.thread_rows * config.thread_columns <= 16;
}

// In seconds, roughly: what one multiprocessor spends on its blocks.
double cost(const TileConfig& c, const ProductSizes& sizes, const DeviceSpec& spec) {
  const int64_t blocks = block_count(sizes, c.rows, c.columns);
  const int64_t pieces = std::max<int64_t>(ceil_div(sizes.depth, c.depth), 1);
  // That one multiprocessor gets.
  const int64_t most_blocks = std::max<int64_t>(ceil_div(blocks, spec.multiprocessors), 1);
  const int resident = std::max(spec.threads_per_multiprocessor / c.threads() / 2, 1);
  const auto at_once = static_cast<double>(std::min<int64_t>(most_blocks, resident));
  // Each step of the depth reads thread_rows + thread_columns numbers to multiply them all, and
  // each number that comes to shared memory costs a few instructions on its way.
  const double products = c.thread_rows * c.thread_columns;
  const double share = products / (products + 0.5 * (c.thread_rows + c.thread_columns) + 2);
  const double numbers = static_cast<double>(c.rows + c.columns) * c.depth;
  const double steps = static_cast<double>(c.rows) * c.columns * c.depth / share + 6 * numbers;
  const double busy = std::min(1.0, at_once * c.threads() / 512.0);
  const double rate = spec.f32_flops / 2 / spec.multiprocessors * busy;
  // Caches give what many blocks read, about this much faster than memory.
  const double traffic = 2.5 * spec.bandwidth / spec.multiprocessors;
  const double bytes = numbers * static_cast<double>(sizes.accumulator_bytes);
  constexpr double kLatency = 0.3e-6;  // from one piece to the next, if nothing else is to do
  const double piece = std::max({steps * at_once / rate, bytes * at_once / traffic, kLatency});
  return static_cast<double>(most_blocks) / at_once * static_cast<double>(pieces) * piece;
}

}  // namespace

std::span<const TileConfig> tile_configs() { return kConfigs; }

TileConfig choose_tile(const ProductSizes& sizes, const DeviceSpec& spec) {
  const TileConfig* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const TileConfig& config : kConfigs) {
    if (!fits(config, sizes.accumulator_bytes)) continue;
    const double now = cost(config, sizes, spec);
    if (now < least) least = now, best = &config;
  }
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
  for (const TileConfig& config : kConfigs) {
    const auto bytes = tactic_of(config);
    if (fits(config, sizes.accumulator_bytes) && std::ranges::equal(bytes, tactic)) return config;
  }
  return std::nullopt;
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
