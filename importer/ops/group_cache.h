// The past keys (or values) of GroupQueryAttention, and those of this call behind them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

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

// How a cache stores keys or values: as floats, or as integers times scales. Integers of 4 bits
// have 8 added, and two share a byte, the first in its low bits.
class CacheCodes {
 public:
  CacheCodes() = default;  // floats
  // bits: 8 or 4. scale: f32, one number or heads * width numbers, in any shape. Fails if the
  // columns of a row do not fill whole bytes.
  CacheCodes(Node& node, int bits, ValueId scale, int64_t heads, Size width, std::string name);

  bool are_integers() const { return bits_ != 0; }
  // The type of the cache. REQUIRES: are_integers()
  DataType dtype() const { return bits_ == 8 ? DataType::kI8 : DataType::kU8; }
  // rows: floats, [batch, heads, rows, width].
  ValueId of(Node& node, ValueId rows) const;
  // The rows of a cache, not yet times their scales; of 4 bits, the columns of even number come
  // before those of odd number. Attention by such rows is the same with scaled queries (of keys) or
  // results (of values), which are [batch, heads of queries, queries, width].
  ValueId numbers(Node& node, ValueId cache, DataType dtype) const;
  ValueId scaled_queries(Node& node, ValueId queries) const;
  ValueId scaled_results(Node& node, ValueId results) const;

 private:
  ValueId by_query_head(Node& node, ValueId rows) const;
  ValueId swap_halves(Node& node, ValueId rows, bool are_apart, const std::string& name) const;

  int bits_ = 0;
  ValueId scale_ = ValueId::kNone;  // [1, heads or 1, 1, width or 1]
  int64_t heads_ = 1;
  std::string name_;
};

// Makes it a windowed cache, of as many rows as `past` has; at least those of the window.
void keep_window(Node& node, GroupCache& cache, int64_t window, ValueId past);
// own: [batch, heads, new rows, width]. The present rows are that output.
CachedRows add_rows(Node& node, const GroupCache& cache, ValueId own, ValueId past, int output);
// [batch or 1, heads or 1, queries, positions] as [.., queries, rows] of a windowed cache.
ValueId by_row(Node& node, const GroupCache& cache, ValueId bias, Size batch, Size rows);

}  // namespace anneal
