#include "anneal/kernels/cuda/text/product_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

TilingText::TilingText(const TileConfig& c, DataType accumulator, bool lanes_down)
    : headers{"program.h", "lanes.h", "tile_product.h"},
      definition(fmt::format("using Tile = product::Tile<{}, {}, {}, {}, {}, {}, {}>;\n", c.rows,
                             c.columns, c.depth, c.thread_rows, c.thread_columns, c.slices,
                             lanes_down)),
      function(
          fmt::format("product::tile_product<Tile, {}>", type_text(register_type(accumulator)))),
      rows(c.rows),
      columns(c.columns),
      threads(c.threads()),
      store_lanes(
          std::min<int64_t>(c.thread_columns, 16 / static_cast<int64_t>(size_of(accumulator)))),
      tactic(tactic_of(c)) {}

TilingText::TilingText(const MmaConfig& c, size_t element_bytes)
    : headers{"program.h", "lanes.h", "mma.h", "tile_product.h", "mma_product.h"},
      definition(fmt::format("using Tile = product::WarpTile<{}, {}, {}, {}, {}, {}>;\n", c.rows,
                             c.columns, static_cast<size_t>(c.depth) * 2 / element_bytes,
                             c.warps_down, c.warps_across, c.stages)),
      function("product::mma_product<Tile>"),
      rows(c.rows),
      columns(c.columns),
      threads(c.threads()),
      shared_bytes(c.shared_bytes()),
      store_lanes(8),
      tactic(tactic_of(c)) {}

std::string block_text(int rows, int columns, std::span<const int64_t> split) {
  const std::string row_of_block = fmt::format(
      "  const i64 row_blocks = s.rows > 0 ? (s.rows + {0} - 1) / {0} : 1;\n"
      "  const Shape::Index row = rest % row_blocks * {0};\n"
      "  rest /= row_blocks;\n",
      rows);
  if (split.empty())
    return fmt::format(
        "  const i64 column_blocks = s.columns > 0 ? (s.columns + {0} - 1) / {0} : 1;\n"
        "  i64 rest = blockIdx.x;\n"
        "  const Shape::Index column = rest % column_blocks * {0};\n"
        "  rest /= column_blocks;\n{1}",
        columns, row_of_block);
  // From the last part to the first: "block < 2 ? 0 : block < 5 ? 1 : 2".
  std::string part, begin, end, first_block;
  int64_t column = 0, block = 0;
  const auto choose = [&](std::string& text, int64_t value, bool is_last) {
    text += is_last ? fmt::format("{}", value) : fmt::format("block < {} ? {} : ", block, value);
  };
  for (size_t i = 0; i < split.size(); ++i) {
    const bool is_last = i + 1 == split.size();
    const int64_t from = block;
    block += (split[i] + columns - 1) / columns;
    choose(part, static_cast<int64_t>(i), is_last);
    choose(begin, column, is_last);
    choose(first_block, from, is_last);
    column += split[i];
    choose(end, column, is_last);
  }
  return fmt::format(
      "  i64 rest = blockIdx.x;\n"
      "  const i32 block = i32(rest % {0});\n"
      "  rest /= {0};\n"
      "  [[maybe_unused]] const i32 part = {1};\n"
      "  const Shape::Index part_begin = {2}, part_end = {3};\n"
      "  const Shape::Index column = part_begin + Shape::Index(block - ({4})) * {5};\n{6}",
      block, part, begin, end, first_block, columns, row_of_block);
}

}  // namespace anneal::cuda
