// The tiles of a product in the text of its function, on CUDA cores or on tensor cores.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/kernels/cuda/cost/mma_config.h"
#include "anneal/kernels/cuda/cost/tile_config.h"

namespace anneal::cuda {

// Statements that take blockIdx apart into `column` and `row`, where a tile of that size begins,
// and `rest`, the product of the batch. split: columns of each output, or empty. Else `part` is the
// block's output, whose columns are [part_begin, part_end).
std::string block_text(int rows, int columns, std::span<const int64_t> split);

struct TilingText {
  TilingText(const TileConfig& config, DataType accumulator, bool lanes_down);
  TilingText(const MmaConfig& config, size_t element_bytes);

  std::vector<std::string_view> headers;  // besides those of the sides
  std::string definition;                 // "using Tile = ...;"
  std::string function;                   // "product::tile_product<Tile, f32>"
  int rows, columns, threads;
  int shared_bytes = 0;  // dynamic
  int64_t store_lanes;   // the most neighbouring columns that a thread stores at once
  std::vector<std::byte> tactic;

  std::string block(std::span<const int64_t> split) const {
    return block_text(rows, columns, split);
  }
};

}  // namespace anneal::cuda
