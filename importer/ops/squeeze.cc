// Axes of one element, taken out and put in.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

struct OpenSizes {
  std::vector<Size> ones, others;  // assumed to be 1, and assumed not to be
};

// Whether an open size is taken for 1. The first attempt does not: a model that calls it open
// hardly means 1. Later layers, and the ranks that the model gives its values, may require it.
bool is_assumed_one(Node& node, Size size) {
  const SizeTable& sizes = node.sizes();
  const auto symbol = sizes.symbol_index(size);
  const Bounds bounds = symbol ? sizes.symbols()[*symbol].bounds : Bounds{};
  const std::string name = fmt::format("size {} is 1", sizes.text(size));
  if (bounds == Bounds{}) return node.assume(name, false);
  return bounds.opt == 1 && node.assume(name, true);  // a caller gave the range
}

// The engine checks what is assumed. Where a lone size is not 1, 1 is not what to optimize for.
void require_sizes(Node& node, const std::vector<Size>& open, bool are_ones) {
  if (open.empty()) return;
  SizeTable& sizes = node.sizes();
  const std::vector<bool> of_inputs = node.graph().symbols_of_inputs();
  for (const Size size : open) {
    const auto symbol = sizes.symbol_index(size);
    if (!symbol || sizes.symbols()[*symbol].bounds != Bounds{}) continue;
    if (!are_ones) {
      sizes.set_bounds(size, {.opt = 2});
    } else if (*symbol < of_inputs.size() && of_inputs[*symbol]) {
      sizes.set_bounds(size, {1, 1, 1});
    }
  }
  const std::string prefix = are_ones ? "ones/" : "";
  const ValueId right = pointwise(node, prefix + (are_ones ? "are_ones" : "open_sizes_differ"),
                                  {node.sizes_value(open, prefix + "open_sizes")}, DataType::kI64,
                                  [&](Expressions in) {
                                    const Expression is_one = in[0] == 1;
                                    return (are_ones ? is_one : !is_one).cast(RegisterType::kI64);
                                  });
  const ValueId all =
      node.layer(Reduce{.kind = ReduceKind::kMin, .keepdims = false},
                 {right, node.integers_value({0}, prefix + "axis")}, prefix + "all_hold");
  const ValueId holds = pointwise(node, prefix + "holds", {all}, DataType::kBool,
                                  [](Expressions in) { return in[0] == 1; });
  // The layer's name is part of the error.
  std::string names;
  for (const Size size : open) names += (names.empty() ? "" : " and ") + sizes.text(size);
  node.layer(Require{}, {holds},
             fmt::format("{} {} 1", names,
                         are_ones ? (open.size() == 1 ? "is" : "are")
                                  : (open.size() == 1 ? "is not" : "are not")));
}

// Without axes every axis of one element goes, and a size that is open decides the rank. The first
// axes are the last to be taken for 1 in place of others: an open batch often means 1.
std::vector<bool> axes_of_one(Node& node) {
  const Shape shape = node.shape(0);
  std::vector<bool> ones(static_cast<size_t>(shape.rank()));
  OpenSizes open;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const Size size = shape[axis];
    const Bounds range = node.sizes().range(size);
    const bool is_open = range.min <= 1 && range.max > 1;
    const bool is_one = is_open ? is_assumed_one(node, size) : range.min == 1 && range.max == 1;
    if (is_open) (is_one ? open.ones : open.others).push_back(size);
    ones[static_cast<size_t>(axis)] = is_one;
  }
  require_sizes(node, open.ones, true);
  require_sizes(node, open.others, false);
  return ones;
}

Outputs reshaped_input(Node& node, const std::vector<Size>& sizes) {
  return reshape_result(node, node.input(0), sizes);
}

Outputs squeeze(Node& node, const std::optional<std::vector<int64_t>>& given) {
  const Shape shape = node.shape(0);
  const auto axes = given ? node.resolve_axes(*given, shape.rank()) : std::vector<int64_t>{};
  const std::vector<bool> ones = given ? std::vector<bool>{} : axes_of_one(node);
  std::vector<Size> kept;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool listed = std::ranges::binary_search(axes, axis);
    if (listed && shape[axis].known() && shape[axis].value() != 1)
      node.invalid(fmt::format("axis {} has {} elements, not 1", axis, shape[axis].value()));
    if (given ? !listed : !ones[static_cast<size_t>(axis)]) kept.push_back(shape[axis]);
  }
  return reshaped_input(node, kept);
}
// The number of axes in input 1, which decides the rank, where the axes are known only at run time.
int64_t axis_count(Node& node) {
  node.dtype(1, kIndices);
  if (node.rank(1) > 1) node.invalid(fmt::format("axes of {} axes", node.rank(1)));
  const Size count = node.rank(1) == 0 ? Size(1) : node.shape(1)[0];
  if (!count.known()) node.unsupported("a number of axes known only at run time");
  if (count.value() > kMaxRank) node.unsupported(fmt::format("{} axes", count.value()));
  return count.value();
}

// Those axes of `rank` axes, counted from the front, as i64[count].
ValueId run_time_axes(Node& node, int64_t count, int64_t rank) {
  const ValueId axes = reshape(node, as_i64(node, node.input(1), "axes"), {count}, "axis_list");
  return pointwise(node, "from_front", {axes}, DataType::kI64, [&](Expressions in) {
    return select(in[0] < 0, in[0] + static_cast<double>(rank), in[0]);
  });
}

ValueId counted(Node& node, int64_t count, std::string_view suffix) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return node.integers_value(numbers, suffix);
}

// Each is an axis of `rank` axes, listed once, and its size is 1 where `sizes` is given.
void require_axes(Node& node, ValueId axes, int64_t count, int64_t rank, ValueId sizes) {
  const ValueId column = reshape(node, axes, {count, 1}, "listed/column");
  const ValueId places = counted(node, rank, "listed/places");
  const ValueId each =
      pointwise(node, "listed/each", {column, places}, DataType::kI64,
                [](Expressions in) { return (in[0] == in[1]).cast(RegisterType::kI64); });
  const auto sum = [&](ValueId from, const char* suffix) {
    return node.layer(Reduce{.kind = ReduceKind::kSum, .keepdims = false},
                      {from, node.integers_value({0}, std::string(suffix) + "_axis")}, suffix);
  };
  const ValueId times = sum(each, "listed/times");
  std::vector<ValueId> inputs = {times};
  if (sizes != ValueId::kNone) inputs.push_back(sizes);
  const ValueId good = pointwise(node, "listed/good", inputs, DataType::kI64, [](Expressions in) {
    const Expression once = in[0] == 1;
    return (in.size() == 2 ? once && in[1] == 1 : once).cast(RegisterType::kI64);
  });
  const ValueId holds =
      pointwise(node, "listed/holds", {sum(good, "listed/good_count")}, DataType::kBool,
                [&](Expressions in) { return in[0] == static_cast<double>(count); });
  const ValueId wanted = sizes != ValueId::kNone ? sizes : places;
  node.layer(Require{}, {holds, axes, wanted},
             sizes != ValueId::kNone ? "axes_differ_and_have_one_element" : "axes_differ");
}

// The axes that are left: 0, 1, 2..., moved by one for each squeezed axis at or before them.
Outputs squeeze_at_run_time(Node& node) {
  const int64_t rank = node.rank(0), count = axis_count(node);
  if (count > rank) node.invalid(fmt::format("{} of {} axes", count, rank));
  const ValueId sizes = node.layer(ShapeOf{.end = rank}, {node.input(0)}, "sizes");
  const ValueId axes = run_time_axes(node, count, rank);
  require_axes(node, axes, count, rank, sizes);
  const ValueId sorted = node.layers(TopK{.largest = false},
                                     {axes, node.integers_value({count}, "count")}, "sorted")[0];
  ValueId left = counted(node, rank - count, "first");
  for (int64_t i = 0; i < count; ++i) {
    const ValueId axis =
        node.layer(Gather{}, {sorted, node.integers_value({i}, fmt::format("place{}", i))},
                   fmt::format("axis{}", i));
    left = pointwise(node, fmt::format("left{}", i), {left, axis}, DataType::kI64,
                     [](Expressions in) { return select(in[0] < in[1], in[0], in[0] + 1); });
  }
  const ValueId shape = node.layer(Gather{}, {sizes, left}, "shape");
  return node.result(Reshape{.allow_zero = true}, {node.input(0), shape});
}

Outputs import_squeeze_attribute(Node& node) {
  node.expect_inputs(1, 1);
  return squeeze(node, node.find_integers("axes"));
}
Outputs import_squeeze(Node& node) {
  node.expect_inputs(1, 2);
  if (!node.has_input(1)) return squeeze(node, std::nullopt);
  node.dtype(1, kIndices);
  if (const auto axes = node.known_integers(1)) return squeeze(node, axes);
  return squeeze_at_run_time(node);
}

Outputs unsqueeze(Node& node, const std::vector<int64_t>& given) {
  const Shape& shape = node.shape(0);
  const int rank = shape.rank() + static_cast<int>(std::min<size_t>(given.size(), kMaxRank + 1));
  const auto axes = node.resolve_axes(given, rank);
  std::vector<Size> sizes;
  for (int axis = 0, from = 0; axis < rank; ++axis)
    sizes.push_back(std::ranges::binary_search(axes, axis) ? Size(1) : shape[from++]);
  return reshaped_input(node, sizes);
}
// An axis of the result has one element, or the size of the axis of x that comes when those before
// it are left out.
Outputs unsqueeze_at_run_time(Node& node) {
  const int64_t old = node.rank(0), count = axis_count(node), rank = old + count;
  if (old == 0) return reshaped_input(node, std::vector<Size>(static_cast<size_t>(count), 1));
  const ValueId listed = run_time_axes(node, count, rank);
  require_axes(node, listed, count, rank, ValueId::kNone);
  const ValueId axes = reshape(node, listed, {count, 1}, "column");
  const ValueId all = counted(node, rank, "all");
  const ValueId before = pointwise(node, "before", {axes, all}, DataType::kI64, [](Expressions in) {
    return (in[0] < in[1]).cast(RegisterType::kI64);
  });
  const ValueId here = pointwise(node, "here", {axes, all}, DataType::kI64, [](Expressions in) {
    return (in[0] == in[1]).cast(RegisterType::kI64);
  });
  const Reduce sum{.kind = ReduceKind::kSum, .keepdims = false};
  const ValueId first = node.integers_value({0}, "first");
  const ValueId skipped = node.layer(sum, {before, first}, "skipped");
  const ValueId added = node.layer(sum, {here, first}, "added");
  const ValueId from = pointwise(node, "from", {all, skipped}, DataType::kI64, [&](Expressions in) {
    return min(max(in[0] - in[1], in[0].number(0)), in[0].number(static_cast<double>(old - 1)));
  });
  const ValueId sizes = node.layer(ShapeOf{.end = old}, {node.input(0)}, "sizes");
  const ValueId own = node.layer(Gather{}, {sizes, from}, "own");
  const ValueId shape = pointwise(node, "shape", {added, own}, DataType::kI64, [](Expressions in) {
    return select(in[0] == 0, in[1], in[1].number(1));
  });
  return node.result(Reshape{.allow_zero = true}, {node.input(0), shape});
}

Outputs import_unsqueeze_attribute(Node& node) {
  node.expect_inputs(1, 1);
  const auto axes = node.find_integers("axes");
  if (!axes) node.invalid("attribute \"axes\" is missing");
  return unsqueeze(node, *axes);
}
Outputs import_unsqueeze(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, kIndices);
  if (const auto axes = node.known_integers(1)) return unsqueeze(node, *axes);
  return unsqueeze_at_run_time(node);
}

// One axis, a scalar.
Outputs import_expand_dims(Node& node) {
  if (node.rank(1) != 0 && node.shape(1)[0] != Size(1)) node.invalid("several axes");
  return import_unsqueeze(node);
}

constexpr OpRow kSqueezeRows[] = {
    {"", "Squeeze", 1, 12, import_squeeze_attribute},
    {"", "Squeeze", 13, kLatest, import_squeeze},
    {"", "Unsqueeze", 1, 12, import_unsqueeze_attribute},
    {"", "Unsqueeze", 13, kLatest, import_unsqueeze},
    {kMicrosoft, "ExpandDims", 1, kLatest, import_expand_dims},
};

}  // namespace

std::span<const OpRow> squeeze_rows() { return kSqueezeRows; }

}  // namespace anneal
