#include "anneal/importer/ops/group_cache.h"

#include <fmt/format.h>

#include <string>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

// The rows that a windowed cache of `rows` rows holds after t positions: it drops several at once,
// never one of the window.
Expression held_after(Expression t, Expression rows, int64_t window) {
  const Expression slack = max(rows - static_cast<double>(window - 1), rows.number(1));
  return select(t <= rows, t, t - (t - rows + slack - 1) / slack * slack);
}

// i64 of a shape, each element its index along the axis and the number of its batch.
ValueId indices_from(Node& node, const std::vector<Size>& shape, int axis, ValueId first,
                     const std::string& name) {
  const ValueId zero = scalar_value(node, 0, name + "/zero");
  const ValueId zeros = expanded(node, zero, shape, name + "/zeros");
  return pointwise(node, name, {zeros, first}, DataType::kI64,
                   [&](Expressions in) { return in[0].index(axis) + in[1]; });
}

// Indices that are no rows are of padding, whose values do not matter.
ValueId clamped(Node& node, ValueId indices, Size count, const std::string& name) {
  const ValueId limit = node.sizes_value({count}, name + "/count");
  return pointwise(node, name, {indices, limit}, DataType::kI64,
                   [](Expressions in) { return max(min(in[0], in[1] - 1.0), in[0].number(0)); });
}

// The past rows, with zeros behind them.
ValueId grown(Node& node, ValueId past, ValueId growth, const std::string& name) {
  const auto zeros = [&](int64_t count, const char* suffix) {
    return node.integers_value(std::vector<int64_t>(static_cast<size_t>(count)), name + suffix);
  };
  const ValueId pads = node.layer(Concat{.axis = 0},
                                  {zeros(6, "no_pads"), growth, zeros(1, "no_pad")}, name + "pads");
  const DataType dtype = node.graph().value(past).type().dtype;
  const ValueId zero = node.constant_value(tensor_of(dtype, {}, {0}), name + "zero");
  return node.layer(Pad{}, {past, pads, zero}, name + "grown");
}

// By how much the present rows exceed the past ones: up to the total length of the longest batch,
// or 0 where the buffer of the past is longer.
ValueId growth_to_longest(Node& node, ValueId longest, Size past, const std::string& name) {
  const ValueId total =
      reshape(node, as_i64(node, longest, name + "total_i64"), {1}, name + "total");
  const ValueId buffer = node.sizes_value({past}, name + "past_length");
  return pointwise(node, name + "growth", {total, buffer}, DataType::kI64,
                   [](Expressions in) { return max(in[0], in[1]) - in[1]; });
}

}  // namespace

CacheCodes::CacheCodes(Node& node, int bits, ValueId scale, int64_t heads, Size width,
                       std::string name)
    : bits_(bits), heads_(heads), name_(std::move(name)) {
  if (!width.known())
    node.unsupported("a quantized cache of heads whose width is known only at run time");
  if (bits_ == 4 && width.value() % 2 != 0)
    node.unsupported(fmt::format("a cache of 4 bits of heads of {} elements", width.value()));
  Size count = 1;
  for (const Size& size : shape_of(node, scale)) count = node.sizes().mul(count, size);
  const bool is_one = count == Size(1);
  if (!is_one && count != Size(heads * width.value()))
    node.invalid(
        fmt::format("the scale of the {} is neither one number nor one for each of {} x {} columns",
                    name_, heads, width.value()));
  const std::vector<Size> of_scale = {1, is_one ? 1 : heads, 1, is_one ? Size(1) : width};
  scale_ = reshape(node, scale, of_scale, name_ + "/scale");
}

ValueId CacheCodes::of(Node& node, ValueId rows) const {
  if (!are_integers()) return rows;
  const auto integer = [&](Expressions in) {
    return (in[0].cast(RegisterType::kF32) / in[1]).apply(Opcode::kRoundEven);
  };
  if (bits_ == 8)
    return pointwise(node, name_ + "/codes", {rows, scale_}, DataType::kI8,
                     [&](Expressions in) { return integer(in).saturate(DataType::kI8); });
  const ValueId codes =
      pointwise(node, name_ + "/codes", {rows, scale_}, DataType::kU8, [&](Expressions in) {
        const Expression x = integer(in);
        return min(max(x, x.number(-8)), x.number(7)) + 8.0;
      });
  const Shape shape = shape_of(node, rows);
  const Size bytes = Size(shape[3].value() / 2);
  const ValueId pairs =
      reshape(node, codes, {shape[0], shape[1], shape[2], bytes, 2}, name_ + "/pairs");
  const ValueId packed =
      pointwise(node, name_ + "/packed",
                {slice_of(node, pairs, 4, 0, 1, name_ + "/low"),
                 slice_of(node, pairs, 4, 1, 2, name_ + "/high")},
                DataType::kU8, [](Expressions in) { return in[0] + in[1] * 16.0; });
  return reshape(node, packed, {shape[0], shape[1], shape[2], bytes}, name_ + "/bytes");
}

ValueId CacheCodes::numbers(Node& node, ValueId cache, DataType dtype) const {
  if (!are_integers()) return cache;
  ValueId codes = cache;
  if (bits_ == 4) {
    const Shape shape = shape_of(node, cache);
    const ValueId apart =
        reshape(node, cache, {shape[0], shape[1], shape[2], 1, shape[3]}, name_ + "/rows_of_bytes");
    const ValueId shifts =
        node.constant_value(tensor_of(DataType::kU8, {2, 1}, {0, 4}), name_ + "/shifts");
    const ValueId integers =
        pointwise(node, name_ + "/integers", {apart, shifts}, DataType::kI8, [](Expressions in) {
          return in[0].apply(Opcode::kShiftRight, in[1]).apply(Opcode::kBitAnd, in[0].number(15)) -
                 8.0;
        });
    codes = reshape(node, integers, {shape[0], shape[1], shape[2], Size(2 * shape[3].value())},
                    name_ + "/columns");
  }
  return as_type(node, codes, dtype, name_ + "/numbers");
}

ValueId CacheCodes::scaled_queries(Node& node, ValueId queries) const {
  if (!are_integers()) return queries;
  const ValueId scaled = by_query_head(node, queries);
  return bits_ == 4 ? swap_halves(node, scaled, false, "queries") : scaled;
}

ValueId CacheCodes::scaled_results(Node& node, ValueId results) const {
  if (!are_integers()) return results;
  return by_query_head(node, bits_ == 4 ? swap_halves(node, results, true, "results") : results);
}

// rows times the scales of the heads of the cache that their heads share.
ValueId CacheCodes::by_query_head(Node& node, ValueId rows) const {
  const Shape shape = shape_of(node, rows), of_scale = shape_of(node, scale_);
  ValueId scale = scale_;
  if (of_scale[1] != Size(1)) {
    const Size group = node.sizes().floor_div(shape[1], heads_);
    const ValueId apart =
        reshape(node, scale, {1, of_scale[1], 1, 1, of_scale[3]}, name_ + "/scale_of_groups");
    const ValueId all =
        expanded(node, apart, {1, of_scale[1], group, 1, of_scale[3]}, name_ + "/scale_by_query");
    scale = reshape(node, all, {1, shape[1], 1, of_scale[3]}, name_ + "/scale_of_queries");
  }
  return pointwise(node, name_ + "/scaled", {rows, scale}, node.graph().value(rows).type().dtype,
                   [](Expressions in) { return in[0] * in[1]; });
}

// From columns 0, 1, 2, 3 to 0, 2, 1, 3; are_apart: back.
ValueId CacheCodes::swap_halves(Node& node, ValueId rows, bool are_apart,
                                const std::string& name) const {
  const Shape shape = shape_of(node, rows);
  const Size half = Size(shape[3].value() / 2), first = are_apart ? Size(2) : half;
  const ValueId pairs =
      reshape(node, rows, {shape[0], shape[1], shape[2], first, are_apart ? half : Size(2)},
              name_ + "/pairs_of_" + name);
  const ValueId swapped = node.layer(Transpose{{0, 1, 2, 4, 3}}, {pairs}, name_ + "/" + name);
  return reshape(node, swapped, {shape[0], shape[1], shape[2], shape[3]},
                 name_ + "/columns_of_" + name);
}

void keep_window(Node& node, GroupCache& cache, int64_t window, ValueId past) {
  const Size rows = shape_of(node, past)[2];
  if (rows.known() && rows.value() < window)
    node.invalid(fmt::format("a cache of {} rows for a window of {}", rows.value(), window));
  const ValueId capacity = node.sizes_value({rows}, "cache_rows");
  if (!rows.known()) {
    const ValueId fits = reshape(
        node,
        pointwise(
            node, "window_in_cache", {capacity}, DataType::kBool,
            [&](Expressions in) { return in[0].number(static_cast<double>(window)) <= in[0]; }),
        {}, "window_fits");
    const ValueId least = node.integers_value({window}, "rows_of_window");
    node.layer(Require{}, {fits, capacity, least}, "cache_holds_the_window");
  }
  cache.held = pointwise(node, "held_rows", {cache.past, capacity}, DataType::kI64,
                         [&](Expressions in) { return held_after(in[0], in[1], window); });
  cache.dropped = pointwise(node, "dropped_rows", {cache.past, cache.total, capacity},
                            DataType::kI64, [&](Expressions in) {
                              return held_after(in[0], in[2], window) + in[1] - in[0] -
                                     held_after(in[1], in[2], window);
                            });
}

CachedRows add_rows(Node& node, const GroupCache& cache, ValueId own, ValueId past, int output) {
  const std::string name = output == 1 ? "keys/" : "values/";
  const Shape old = shape_of(node, past), shape = shape_of(node, own);
  if (old.rank() != 4) node.invalid(fmt::format("past keys of {} axes", old.rank()));
  const auto growth = [&] {
    if (cache.is_windowed()) return node.sizes_value({shape[2]}, name + "growth");
    if (!cache.rows) return growth_to_longest(node, cache.longest, old[2], name);
    return node.sizes_value({node.sizes().sub(*cache.rows, old[2])}, name + "growth");
  };
  const ValueId rows = grown(node, past, growth(), name);
  const ValueId places =
      indices_from(node, {shape.begin(), shape.end()}, 2, cache.first_row(), name + "places");
  const ScatterElements op{.axis = 2};
  if (!cache.is_windowed()) {
    const ValueId all = node.result(op, {rows, places, own}, name + "present", output)[0];
    return {all, all};
  }
  const ValueId all = node.layer(op, {rows, places, own}, name + "all");
  const ValueId kept = indices_from(node, {shape[0], shape[1], old[2], Size(1)}, 2, cache.dropped,
                                    name + "kept_rows");
  const Size count = node.sizes().add(old[2], shape[2]);
  return {all,
          node.result(GatherND{.batch_dims = 2}, {all, clamped(node, kept, count, name + "kept")},
                      name + "present", output)[0]};
}

ValueId by_row(Node& node, const GroupCache& cache, ValueId bias, Size batch, Size rows) {
  const Shape shape = shape_of(node, bias);
  const ValueId first = pointwise(node, "first_position", {cache.past, cache.held}, DataType::kI64,
                                  [](Expressions in) { return in[0] - in[1]; });
  const ValueId positions =
      indices_from(node, {batch, shape[1], shape[2], rows}, 3, first, "positions_of_rows");
  const ValueId target = node.sizes_value({batch, shape[1], shape[2], shape[3]}, "bias_of_batches");
  return node.layer(GatherElements{.axis = 3},
                    {node.layer(Expand{}, {bias, target}, "bias_by_position"),
                     clamped(node, positions, shape[3], "bias_columns")},
                    "bias_by_row");
}

}  // namespace anneal
