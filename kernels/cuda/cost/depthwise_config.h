// The number of outputs per thread of a depthwise convolution, as a pure function of its sizes and
// the device's figures.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/cost/device_spec.h"

namespace anneal::cuda {

struct DepthwiseSizes {
  int64_t taps = 0;  // elements of a kernel; 0: not known
  int64_t stride = 1;
  int64_t outputs = 0, columns = 0;  // of all channels; in a row
  int64_t most_channels = 1;         // that can be read at once
  size_t accumulator_bytes = 4;
};

struct DepthwiseConfig {
  int channels = 1, columns = 1;
  bool holds_weights = true;  // in registers
  bool operator==(const DepthwiseConfig&) const = default;
};

DepthwiseConfig choose_depthwise(const DepthwiseSizes& sizes, const DeviceSpec& spec);
std::string to_string(const DepthwiseConfig& config);  // "4 channels x 2 columns a thread"

// As a tactic, which is empty where the choice is free; nullopt unless its bytes are those of a
// configuration that these sizes allow.
std::vector<std::byte> tactic_of(const DepthwiseConfig& config);
std::optional<DepthwiseConfig> depthwise_for(const DepthwiseSizes& sizes, const DeviceSpec& spec,
                                             std::span<const std::byte> tactic);
// Of all that these sizes allow: choose_depthwise()'s, then those of most outputs per thread.
std::vector<std::vector<std::byte>> depthwise_tactics(const DepthwiseSizes& sizes,
                                                      const DeviceSpec& spec);

}  // namespace anneal::cuda
