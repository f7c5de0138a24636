// The tiles of a product on tensor cores (device/mma_product.h), as a pure function of its sizes
// and the device's figures.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/cost/tile_config.h"

namespace anneal::cuda {

struct MmaConfig {
  int rows = 0, columns = 0;  // of a block
  int depth = 0;              // of elements of 16 bits; twice as deep of those of 8
  int warps_down = 0, warps_across = 0;
  int stages = 0;
  int threads() const { return 32 * warps_down * warps_across; }
  int shared_bytes() const;  // the stages, and after the last the sums on their way to memory
  bool operator==(const MmaConfig&) const = default;
};

std::span<const MmaConfig> mma_configs();
// Those that a block of the device has shared memory for; there is always one.
MmaConfig choose_mma(const ProductSizes& sizes, const DeviceSpec& spec);
std::string to_string(const MmaConfig& config);  // "128x128x32, 2x4 warps, 3 stages"

// As tactic_of(), tile_for() and tile_tactics() of tile_config.h.
std::vector<std::byte> tactic_of(const MmaConfig& config);
std::optional<MmaConfig> mma_for(const ProductSizes& sizes, const DeviceSpec& spec,
                                 std::span<const std::byte> tactic);
std::vector<std::vector<std::byte>> mma_tactics(const ProductSizes& sizes, const DeviceSpec& spec);

}  // namespace anneal::cuda
