// The tiles of a product on CUDA cores (device/tile_product.h), as a pure function of its sizes and
// the device's figures.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/cost/device_spec.h"

namespace anneal::cuda {

struct TileConfig {
  int rows = 0, columns = 0, depth = 0;     // of a block
  int thread_rows = 0, thread_columns = 0;  // of a thread
  int slices = 1;                           // threads that share one sum
  int threads() const { return rows / thread_rows * (columns / thread_columns) * slices; }
  bool operator==(const TileConfig&) const = default;
};

// The sizes of `batches` products.
struct ProductSizes {
  int64_t rows = 0, columns = 0, depth = 0, batches = 1;
  size_t accumulator_bytes = 4;
  std::vector<int64_t> split =
      {};                    // columns of each output, if there are several: no tile has two's
  size_t element_bytes = 2;  // of the operands of tensor cores
};

std::span<const TileConfig> tile_configs();
TileConfig choose_tile(const ProductSizes& sizes, const DeviceSpec& spec);
std::string to_string(const TileConfig& config);  // "128x128x8, 8x8 a thread, 1 slice"

// As a tactic, which is empty where the choice is free; nullopt unless its bytes are those of a
// tile for such accumulators.
std::vector<std::byte> tactic_of(const TileConfig& config);
std::optional<TileConfig> tile_for(const ProductSizes& sizes, const DeviceSpec& spec,
                                   std::span<const std::byte> tactic);
// Of all that fit, from the least modelled time to the longest: choose_tile()'s is the first.
std::vector<std::vector<std::byte>> tile_tactics(const ProductSizes& sizes, const DeviceSpec& spec);

// The number of tiles with these rows and columns.
int64_t column_blocks(const ProductSizes& sizes, int columns);
int64_t block_count(const ProductSizes& sizes, int rows, int columns);

}  // namespace anneal::cuda
