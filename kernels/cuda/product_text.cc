#include "anneal/kernels/cuda/product_text.h"

#include <fmt/format.h>

namespace anneal::cuda {

TilingText::TilingText(const TileConfig& c, std::string_view accumulator, bool lanes_down)
    : headers{"program.h", "lanes.h", "tile_product.h"},
      definition(fmt::format("using Tile = product::Tile<{}, {}, {}, {}, {}, {}, {}>;\n", c.rows,
                             c.columns, c.depth, c.thread_rows, c.thread_columns, c.slices,
                             lanes_down)),
      function(fmt::format("product::tile_product<Tile, {}>", accumulator)),
      rows(c.rows),
      columns(c.columns),
      threads(c.threads()),
      tactic(tactic_of(c)) {}

TilingText::TilingText(const MmaConfig& c)
    : headers{"program.h", "lanes.h", "mma.h", "tile_product.h", "mma_product.h"},
      definition(fmt::format("using Tile = product::WarpTile<{}, {}, {}, {}, {}, {}>;\n", c.rows,
                             c.columns, c.depth, c.warps_down, c.warps_across, c.stages)),
      function("product::mma_product<Tile>"),
      rows(c.rows),
      columns(c.columns),
      threads(c.threads()),
      shared_bytes(c.stage_bytes()),
      tactic(tactic_of(c)) {}

std::string TilingText::block() const {
  return fmt::format(
      "  const i64 row_blocks = s.rows > 0 ? (s.rows + {0} - 1) / {0} : 1;\n"
      "  const i64 column_blocks = s.columns > 0 ? (s.columns + {1} - 1) / {1} : 1;\n"
      "  i64 rest = blockIdx.x;\n"
      "  const Shape::Index column = rest % column_blocks * {1};\n"
      "  rest /= column_blocks;\n"
      "  const Shape::Index row = rest % row_blocks * {0};\n"
      "  rest /= row_blocks;\n",
      rows, columns);
}

}  // namespace anneal::cuda
