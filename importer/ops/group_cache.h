// The past keys (or values) of GroupQueryAttention, and those of this call behind them.
#pragma once
#include <cstdint>
#include <optional>

#include "anneal/importer/node/node.h"

namespace anneal {

// i64[batch,1,1,1] each. The new rows come behind the past ones of their batch.
struct GroupCache {
  ValueId total = ValueId::kNone, past = ValueId::kNone;  // positions with this call, and before it
  ValueId longest = ValueId::kNone;                       // the total of the longest batch, scalar
  // Of the present keys, once they are made: the values have as many. Where the total is an input
  // of the model, no sizes would say so.
  std::optional<Size> rows = {};
  // For a windowed cache, which holds the last rows of the past: how many it holds, and how many
  // rows, old and new, it drops.
  ValueId held = ValueId::kNone, dropped = ValueId::kNone;

  bool is_windowed() const { return held != ValueId::kNone; }
  ValueId first_row() const { return is_windowed() ? held : past; }  // of the new ones
};

// [batch, heads, rows, width].
struct CachedRows {
  ValueId all = ValueId::kNone;      // that queries of this call may see
  ValueId present = ValueId::kNone;  // for the next call
};

// Makes it a windowed cache, of as many rows as `past` has; at least those of the window.
void keep_window(Node& node, GroupCache& cache, int64_t window, ValueId past);
// own: [batch, heads, new rows, width]. The present rows are that output.
CachedRows add_rows(Node& node, const GroupCache& cache, ValueId own, ValueId past, int output);
// [batch or 1, heads or 1, queries, positions] as [.., queries, rows] of a windowed cache.
ValueId by_row(Node& node, const GroupCache& cache, ValueId bias, Size batch, Size rows);

}  // namespace anneal
