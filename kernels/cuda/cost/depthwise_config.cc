#include "anneal/kernels/cuda/cost/depthwise_config.h"

#include <fmt/format.h>

#include "anneal/core/bytes.h"
#include "anneal/kernels/cuda/cost/config_space.h"

namespace anneal::cuda {
namespace {

// Registers of weights and sums that leave a multiprocessor enough threads.
bool depthwise_fits(const DepthwiseConfig& config, const DepthwiseSizes& sizes) {
  if (!config.holds_weights) return config.channels == 1 && config.columns == 1;
  const auto words = static_cast<int64_t>(sizes.accumulator_bytes / 4);
  const int64_t held = (sizes.taps + config.columns) * config.channels * words;
  return sizes.taps > 0 && held <= 64 && config.channels <= sizes.most_channels;
}

constexpr DepthwiseConfig kDepthwiseConfigs[] = {
    {4, 4, true}, {4, 2, true}, {4, 1, true}, {2, 4, true}, {2, 2, true},
    {2, 1, true}, {1, 4, true}, {1, 2, true}, {1, 1, true}, {1, 1, false},
};

}  // namespace

DepthwiseConfig choose_depthwise(const DepthwiseSizes& sizes, const DeviceSpec& spec) {
  // Every multiprocessor wants a quarter of the threads that it holds, before a thread gets more.
  const int64_t threads = int64_t{spec.multiprocessors} * spec.threads_per_multiprocessor / 4;
  for (const DepthwiseConfig& config : kDepthwiseConfigs) {
    if (!depthwise_fits(config, sizes)) continue;
    const int64_t each = int64_t{config.channels} * config.columns;
    const bool is_least = each == 1;
    // Columns share inputs only where windows overlap, and should not hang over a row's end.
    const bool shares =
        config.columns == 1 || (sizes.stride <= 2 && sizes.columns >= 2 * int64_t{config.columns});
    if (is_least || (shares && sizes.outputs / each >= threads)) return config;
    if (config.columns == 1 && config.channels == sizes.most_channels) return config;
  }
  return {1, 1, false};
}

std::string to_string(const DepthwiseConfig& config) {
  return fmt::format("{} channels x {} columns a thread{}", config.channels, config.columns,
                     config.holds_weights ? "" : ", weights in memory");
}

std::vector<std::byte> tactic_of(const DepthwiseConfig& config) {
  ByteWriter to;
  to.number(static_cast<uint8_t>(config.channels));
  to.number(static_cast<uint8_t>(config.columns));
  to.number(static_cast<uint8_t>(config.holds_weights));
  return to.take();
}

std::optional<DepthwiseConfig> depthwise_for(const DepthwiseSizes& sizes, const DeviceSpec& spec,
                                             std::span<const std::byte> tactic) {
  if (tactic.empty()) return choose_depthwise(sizes, spec);
  return ConfigSpace<DepthwiseConfig>(kDepthwiseConfigs)
      .of_tactic(tactic,
                 [&](const DepthwiseConfig& config) { return depthwise_fits(config, sizes); });
}

std::vector<std::vector<std::byte>> depthwise_tactics(const DepthwiseSizes& sizes,
                                                      const DeviceSpec& spec) {
  const DepthwiseConfig chosen = choose_depthwise(sizes, spec);
  return ConfigSpace<DepthwiseConfig>(kDepthwiseConfigs)
      .tactics([&](const DepthwiseConfig& config) { return depthwise_fits(config, sizes); },
               [&](const DepthwiseConfig& config) { return config == chosen ? 0.0 : 1.0; });
}

}  // namespace anneal::cuda
