#include "anneal/kernels/cuda/model/mma_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/bytes.h"
#include "anneal/core/error.h"

namespace anneal::cuda {
namespace {

constexpr MmaConfig kConfigs[] = {
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

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// In seconds, roughly: what one multiprocessor spends on its blocks.
double cost(const MmaConfig& c, const ProductSizes& sizes, const DeviceSpec& spec) {
  // Tensor cores multiply bytes twice as fast: a piece takes as long.
  const int64_t depth = c.depth * 2 / static_cast<int64_t>(sizes.element_bytes);
  const int64_t pieces = std::max<int64_t>(ceil_div(sizes.depth, depth), 1);
  const int64_t blocks = block_count(sizes, c.rows, c.columns);
  // That one multiprocessor gets.
  const int64_t most_blocks = std::max<int64_t>(ceil_div(blocks, spec.multiprocessors), 1);
  const int resident = std::min({spec.shared_bytes_per_multiprocessor / (c.shared_bytes() + 1024),
                                 spec.threads_per_multiprocessor / c.threads(), 512 / c.threads()});
  const auto at_once = static_cast<double>(std::min<int64_t>(most_blocks, std::max(resident, 1)));
  const double warps = at_once * c.warps_down * c.warps_across;
  // Four warps keep the tensor cores at half of their rate, eight at most of it; fragments of small
  // parts of a tile are read more often than they are multiplied.
  const double busy = std::min(1.0, warps / 8.0);
  const double down = static_cast<double>(c.rows) / c.warps_down;
  const double across = static_cast<double>(c.columns) / c.warps_across;
  const double share = down * across / (down * across + 16 * (down + across));
  const double rate = spec.f16_tensor_flops / 2 / spec.multiprocessors * busy * share;
  const double products = static_cast<double>(c.rows) * c.columns * c.depth;
  // Of what a tile covers beyond the product nothing is read, though it is multiplied.
  const double filled =
      static_cast<double>(sizes.depth) / (static_cast<double>(pieces) * static_cast<double>(depth));
  const double lines = static_cast<double>(std::min<int64_t>(c.rows, sizes.rows) +
                                           std::min<int64_t>(c.columns, sizes.columns));
  const double bytes = 2.0 * lines * c.depth * filled;
  // Caches give what many blocks read, about this much faster than memory.
  const double traffic = 2.5 * spec.bandwidth / spec.multiprocessors;
  constexpr double kLatency = 0.6e-6;  // of a piece, hidden by the stages behind it
  const double multiplying = products * at_once / rate;
  // A little of what is multiplied hides behind nothing: of equals the tile that wastes less.
  const double piece =
      std::max({multiplying, bytes * at_once / traffic, kLatency / (c.stages - 1)}) +
      multiplying / 100;
  constexpr double kStart = 1.5e-6;  // filling the stages, and storing
  return static_cast<double>(most_blocks) / at_once *
         (static_cast<double>(pieces) * piece + kStart);
}

// A side of bytes may be turned on its way, by every thread a square of 4 by 4 at least.
bool fits(const MmaConfig& config, const ProductSizes& sizes, const DeviceSpec& spec) {
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

std::span<const MmaConfig> mma_configs() { return kConfigs; }

MmaConfig choose_mma(const ProductSizes& sizes, const DeviceSpec& spec) {
  const MmaConfig* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const MmaConfig& config : kConfigs) {
    if (!fits(config, sizes, spec)) continue;
    const double now = cost(config, sizes, spec);
    if (now < least) least = now, best = &config;
  }
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
  for (const MmaConfig& config : kConfigs) {
    const auto bytes = tactic_of(config);
    if (fits(config, sizes, spec) && std::ranges::equal(bytes, tactic)) return config;
  }
  return std::nullopt;
}

}  // namespace anneal::cuda
