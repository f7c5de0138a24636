#include "anneal/kernels/cuda/cost/mma_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/cost/config_space.h"
#include "anneal/kernels/cuda/cost/cost_model.h"

namespace anneal::cuda {
namespace {

constexpr MmaConfig kMmaConfigs[] = {
    {128, 128, 32, 2, 4, 3},  //
    {128, 64, 32, 2, 2, 4},   //
    {64, 128, 32, 2, 2, 4},   //
    {64, 64, 64, 2, 2, 3},    //
    {128, 32, 64, 4, 1, 3},   // few output channels, many pixels
    {32, 64, 64, 2, 2, 3},    //
    {64, 32, 64, 2, 2, 3},    //
    {32, 32, 64, 2, 2, 4},    //
    {128, 16, 64, 4, 1, 3},   // a group of few output channels
    {128, 16, 32, 4, 1, 4},   // and of few input channels
    {64, 16, 64, 4, 1, 4},    //
    {16, 128, 64, 1, 4, 3},   // few rows
    {16, 64, 64, 1, 4, 4},    //
};

constexpr ConfigSpace<MmaConfig> kMmaSpace(kMmaConfigs);

double mma_cost(const MmaConfig& c, const ProductSizes& sizes, const DeviceSpec& spec) {
  // Tensor cores multiply bytes twice as fast: a piece takes as long.
  const int64_t depth = c.depth * 2 / static_cast<int64_t>(sizes.element_bytes);
  const int64_t pieces = std::max<int64_t>(ceil_div(sizes.depth, depth), 1);
  // Fragments of small parts of a tile are read more often than they are multiplied.
  const double down = static_cast<double>(c.rows) / c.warps_down;
  const double across = static_cast<double>(c.columns) / c.warps_across;
  const double share = down * across / (down * across + 16 * (down + across));
  // A tile multiplies elements beyond the product, but does not read them.
  const double filled =
      static_cast<double>(sizes.depth) / (static_cast<double>(pieces) * static_cast<double>(depth));
  const double lines = static_cast<double>(std::min<int64_t>(c.rows, sizes.rows) +
                                           std::min<int64_t>(c.columns, sizes.columns));
  return seconds_of(
      spec, {.blocks = block_count(sizes, c.rows, c.columns),
             .pieces = pieces,
             .resident_blocks = resident_blocks(spec, {.threads_per_block = c.threads(),
                                                       .shared_bytes_per_block = c.shared_bytes(),
                                                       .registers_per_thread = 128}),
             .threads_per_block = c.threads(),
             // A product and a sum are one operation here.
             .operations_per_second = spec.f16_tensor_flops * spec.mma_share / 2,
             // Four warps keep the tensor cores at half of their rate, eight at most of it.
             .full_rate_threads = 8 * 32,
             .piece_operations = static_cast<double>(c.rows) * c.columns * c.depth / share,
             .piece_bytes = 2.0 * lines * c.depth * filled,
             .piece_latency = 0.6e-6 / (c.stages - 1),  // hidden by the stages behind it
             // Of equal tiles the one that wastes less.
             .exposed_operations = 0.01,
             // Filling the stages, and storing.
             .start_seconds = 1.5e-6});
}

// A side of bytes may be turned on its way, by every thread a square of 4 by 4 at least.
bool mma_fits(const MmaConfig& config, const ProductSizes& sizes, const DeviceSpec& spec) {
  const int squares = config.depth * 2 / 4 * (std::min(config.rows, config.columns) / 4);
  if (sizes.element_bytes == 1 && squares < config.threads()) return false;
  return config.shared_bytes() <= spec.shared_bytes_per_block;
}

}  // namespace

int MmaConfig::shared_bytes() const {
  const int pieces = stages * (rows + columns) * depth * 2;
  const int sums = warps_down * warps_across * 16 * (columns / warps_across + 8) * 4;
  return std::max(pieces, sums);
}

std::span<const MmaConfig> mma_configs() { return kMmaConfigs; }

MmaConfig choose_mma(const ProductSizes& sizes, const DeviceSpec& spec) {
  const MmaConfig* const best =
      kMmaSpace.cheapest([&](const MmaConfig& config) { return mma_fits(config, sizes, spec); },
                         [&](const MmaConfig& config) { return mma_cost(config, sizes, spec); });
  check(best != nullptr, "some tile fits every device");
  return *best;
}

std::string to_string(const MmaConfig& c) {
  return fmt::format("{}x{}x{}, {}x{} warps, {} stages", c.rows, c.columns, c.depth, c.warps_down,
                     c.warps_across, c.stages);
}

std::vector<std::byte> tactic_of(const MmaConfig& config) {
  ByteWriter to;
  for (const int number : {config.rows, config.columns, config.depth, config.warps_down,
                           config.warps_across, config.stages})
    to.number(static_cast<uint16_t>(number));
  return to.take();
}

std::optional<MmaConfig> mma_for(const ProductSizes& sizes, const DeviceSpec& spec,
                                 std::span<const std::byte> tactic) {
  if (tactic.empty()) return choose_mma(sizes, spec);
  return kMmaSpace.of_tactic(
      tactic, [&](const MmaConfig& config) { return mma_fits(config, sizes, spec); });
}

std::vector<std::vector<std::byte>> mma_tactics(const ProductSizes& sizes, const DeviceSpec& spec) {
  return kMmaSpace.tactics([&](const MmaConfig& config) { return mma_fits(config, sizes, spec); },
                           [&](const MmaConfig& config) { return mma_cost(config, sizes, spec); });
}

}  // namespace anneal::cuda
