#include "anneal/kernels/cuda/mma_config.h"

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
    {16, 128, 64, 1, 4, 3},   // few rows
    {16, 64, 64, 1, 4, 4},    //
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int shared_bytes(const MmaConfig& config) { return config.stage_bytes() + config.exchange_bytes(); }

// In seconds, roughly: what one multiprocessor spends on its blocks.
double cost(const MmaConfig& c, const ProductSizes& sizes, const DeviceSpec& spec) {
  // Tensor cores multiply bytes twice as fast: a piece takes as long.
  const int64_t depth = c.depth * 2 / static_cast<int64_t>(sizes.element_bytes);
  const int64_t pieces = std::max<int64_t>(ceil_div(sizes.depth, depth), 1);
  const int64_t blocks = block_count(sizes, c.rows, c.columns);
  // That one multiprocessor gets.
  const int64_t most_blocks = std::max<int64_t>(ceil_div(blocks, spec.multiprocessors), 1);
  const int resident = std::min({spec.shared_bytes_per_multiprocessor / (shared_bytes(c) + 1024),
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
  const double bytes = 2.0 * (c.rows + c.columns) * c.depth;
  // Caches give what many blocks read, about this much faster than memory.
  const double traffic = 2.5 * spec.bandwidth / spec.multiprocessors;
  constexpr double kLatency = 0.6e-6;  // of a piece, hidden by the stages behind it
  const double piece =
      std::max({products * at_once / rate, bytes * at_once / traffic, kLatency / (c.stages - 1)});
  constexpr double kStart = 1.5e-6;  // filling the stages, and storing
  return static_cast<double>(most_blocks) / at_once *
         (static_cast<double>(pieces) * piece + kStart);
}

bool fits(const MmaConfig& config, const DeviceSpec& spec) {
  return shared_bytes(config) <= spec.shared_bytes_per_block;
}

}  // namespace

int MmaConfig::exchange_bytes() const {
  return warps_down * warps_across * 16 * (columns / warps_across + 4) * 4;
}

std::span<const MmaConfig> mma_configs() { return kConfigs; }

MmaConfig choose_mma(const ProductSizes& sizes, const DeviceSpec& spec) {
  const MmaConfig* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const MmaConfig& config : kConfigs) {
    if (!fits(config, spec)) continue;
    const double now = cost(config, sizes, spec);
    if (now < least) least = now, best = &config;
  }
  check(best != nullptr, "some tile fits every device");
  return *best;
}

std::string to_text(const MmaConfig& c) {
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
    if (fits(config, spec) && std::ranges::equal(bytes, tactic)) return config;
  }
  return std::nullopt;
}

}  // namespace anneal::cuda
