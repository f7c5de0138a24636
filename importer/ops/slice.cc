// Parts of tensors and tensors of parts: slices, splits, concatenations.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

Outputs import_slice_attributes(Node& node) {
  node.expect_inputs(1, 1);
  const auto starts = node.find_integers("starts");
  const auto ends = node.find_integers("ends");
  if (!starts || !ends || starts->size() != ends->size())
    node.invalid("attributes \"starts\" and \"ends\" of equal length are needed");
  std::vector<int64_t> all(starts->size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<int64_t> axes = node.find_integers("axes").value_or(all);
  if (axes.size() != starts->size()) node.invalid("as many axes as starts are needed");
  for (int64_t& axis : axes) axis = node.resolve_axis(axis, node.rank(0));
  return node.result(Slice{},
                     {node.input(0), node.integers_value(*starts, "starts"),
                      node.integers_value(*ends, "ends"), node.integers_value(axes, "axes"),
                      node.integers_value(std::vector<int64_t>(axes.size(), 1), "steps")});
}

Outputs import_slice(Node& node) {
  node.expect_inputs(3, 5);
  for (int i = 1; i < node.input_count(); ++i)
    if (node.has_input(i)) node.dtype(i, kIndices);
  // Where a run alone knows how many starts there are, one is expected: it fails if there are
  // others.
  size_t count = 1;
  for (int i = node.input_count(); --i >= 1;) {
    if (!node.has_input(i)) continue;
    if (node.rank(i) != 1) node.invalid(fmt::format("input {} is no list", i));
    const Size size = node.shape(i)[0];
    if (size.known()) count = static_cast<size_t>(size.value());
  }
  const auto bounds = [&](int i, const char* name) {
    return reshape(node, as_i64(node, node.input(i), name), {static_cast<int64_t>(count)},
                   std::string(name) + "/counted");
  };
  if (count > kMaxRank) node.invalid(fmt::format("{} axes are sliced", count));
  ValueId axes, steps;
  if (!node.has_input(3)) {
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    axes = node.integers_value(all, "axes");
  } else {
    auto given = node.known_integers(3);
    if (given)
      for (int64_t& axis : *given) axis = node.resolve_axis(axis, node.rank(0));
    axes = given ? node.integers_value(*given, "axes") : as_i64(node, node.input(3), "axes");
  }
  if (!node.has_input(4)) {
    steps = node.integers_value(std::vector<int64_t>(count, 1), "steps");
  } else {
    steps = as_i64(node, node.input(4), "steps");
  }
  return node.result(Slice{}, {node.input(0), bounds(1, "starts"), bounds(2, "ends"), axes, steps});
}

// The input, whose axis must be as long as all parts together: a slice alone would silently take
// fewer elements.
ValueId with_total(Node& node, int64_t axis, const std::vector<Size>& parts) {
  Size total = 0;
  for (const Size part : parts) total = node.sizes().add(total, part);
  std::vector<Size> shape(node.shape(0).begin(), node.shape(0).end());
  Size& whole = shape[static_cast<size_t>(axis)];
  if (std::ranges::any_of(shape, [](Size size) { return size.is_unknown(); }) ||
      total.is_unknown() || whole == total)
    return node.input(0);
  whole = total;
  return reshape(node, node.input(0), shape, "whole");
}

// One Slice for each output.
Outputs split(Node& node, int64_t axis, const std::vector<Size>& parts) {
  if (static_cast<int>(parts.size()) < node.output_count())
    node.invalid(fmt::format("{} parts for {} outputs", parts.size(), node.output_count()));
  const ValueId axes = node.integers_value({axis}, "axes");
  const ValueId steps = node.integers_value({1}, "steps");
  const ValueId whole = with_total(node, axis, parts);
  Outputs outputs;
  Size start = 0;
  for (int i = 0; i < node.output_count(); ++i) {
    const Size end = node.sizes().add(start, parts[static_cast<size_t>(i)]);
    const ValueId from = node.sizes_value({start}, fmt::format("start{}", i));
    const ValueId to = node.sizes_value({end}, fmt::format("end{}", i));
    outputs.push_back(
        node.result(Slice{}, {whole, from, to, axes, steps}, fmt::format("{}", i), i).front());
    start = end;
  }
  return outputs;
}

std::vector<Size> given_parts(Node& node, int64_t axis, const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes)
    if (size < 0 || __builtin_add_overflow(sum, size, &sum)) node.invalid("a negative part");
  const Size whole = node.shape(0)[static_cast<int>(axis)];
  if (whole.known() && whole.value() != sum)
    node.invalid(fmt::format("parts of {} elements in all, of {}", sum, whole.value()));
  return {sizes.begin(), sizes.end()};
}

// Parts of ceil(size / count), the last one smaller.
std::vector<Size> equal_parts(Node& node, int64_t axis, int64_t count) {
  if (count < 1 || count != node.output_count())
    node.invalid(fmt::format("{} parts for {} outputs", count, node.output_count()));
  const Size whole = node.shape(0)[static_cast<int>(axis)];
  SizeTable& sizes = node.sizes();
  const Size part = sizes.ceil_div(whole, count);
  std::vector<Size> parts(static_cast<size_t>(count), part);
  parts.back() = sizes.sub(whole, sizes.mul(part, count - 1));
  if (parts.back().known() && parts.back().value() < 0)
    node.invalid(fmt::format("{} elements in {} parts", whole.value(), count));
  return parts;
}

std::vector<Size> divided_parts(Node& node, int64_t axis, int64_t count) {
  const Size whole = node.shape(0)[static_cast<int>(axis)];
  if (whole.known() && count > 0 && whole.value() % count != 0)
    node.invalid(fmt::format("{} elements in {} equal parts", whole.value(), count));
  return equal_parts(node, axis, count);
}

int64_t split_axis(Node& node) { return node.resolve_axis(node.integer("axis", 0), node.rank(0)); }

// Parts that only a run tells: each begins where those before it end.
Outputs split_at_run_time(Node& node, int64_t axis) {
  const Size count = node.shape(1)[0];
  if (count.known() && count.value() != node.output_count())
    node.invalid(fmt::format("{} parts for {} outputs", count.value(), node.output_count()));
  const ValueId first = scalar_value(node, 0, "axis");
  const ValueId sums = node.layer(Cumulative{}, {node.input(1), first}, "sums");
  const ValueId zero = node.integers_value({0}, "zero");
  const auto reduced = [&](ReduceKind kind, const char* suffix) {
    return node.layer(Reduce{.kind = kind, .keepdims = false}, {node.input(1), zero}, suffix);
  };
  const ValueId whole = node.sizes_value({node.shape(0)[static_cast<int>(axis)]}, "whole");
  const ValueId holds =
      pointwise(node, "holds",
                {reduced(ReduceKind::kSum, "total"), reduced(ReduceKind::kMin, "smallest"),
                 reshape(node, whole, {}, "whole_scalar")},
                DataType::kBool, [](Expressions in) { return in[0] == in[2] && !(in[1] < 0); });
  node.layer(Require{}, {holds, node.input(1), whole}, "parts_add_up_to_axis");
  const ValueId axes = node.integers_value({axis}, "axes");
  const ValueId steps = node.integers_value({1}, "steps");
  Outputs outputs;
  ValueId from = zero;
  for (int i = 0; i < node.output_count(); ++i) {
    const ValueId place = node.integers_value({i}, fmt::format("place{}", i));
    const ValueId to = node.layer(Gather{}, {sums, place}, fmt::format("end{}", i));
    outputs.push_back(
        node.result(Slice{}, {node.input(0), from, to, axes, steps}, fmt::format("{}", i), i)
            .front());
    from = to;
  }
  return outputs;
}

Outputs split_by_input(Node& node, int64_t axis) {
  node.dtype(1, {DataType::kI64});
  if (node.rank(1) != 1) node.invalid(fmt::format("parts of {} axes", node.rank(1)));
  if (const auto sizes = node.known_integers(1))
    return split(node, axis, given_parts(node, axis, *sizes));
  if (const auto parts = node.known_sizes(1)) return split(node, axis, *parts);
  return split_at_run_time(node, axis);
}

Outputs import_split_attribute(Node& node) {
  node.expect_inputs(1, 2);  // opset 1 has the sizes as a second input, too
  const int64_t axis = split_axis(node);
  if (const auto sizes = node.find_integers("split"))
    return split(node, axis, given_parts(node, axis, *sizes));
  if (node.has_input(1)) return split_by_input(node, axis);
  return split(node, axis, divided_parts(node, axis, node.output_count()));
}

Outputs import_split_input(Node& node) {
  node.expect_inputs(1, 2);
  const int64_t axis = split_axis(node);
  if (node.has_input(1)) return split_by_input(node, axis);
  return split(node, axis, divided_parts(node, axis, node.output_count()));
}

Outputs import_split(Node& node) {
  node.expect_inputs(1, 2);
  const int64_t axis = split_axis(node);
  const auto count = node.find_integer("num_outputs");
  if (count && node.has_input(1)) node.invalid("both \"num_outputs\" and the sizes of the parts");
  if (node.has_input(1)) return split_by_input(node, axis);
  return split(node, axis, equal_parts(node, axis, count.value_or(node.output_count())));
}

Outputs concat(Node& node, int64_t axis) {
  if (node.input_count() == 0) node.invalid("no inputs");
  std::vector<ValueId> inputs;
  for (int i = 0; i < node.input_count(); ++i) {
    node.expect_same_dtype({0, i});
    inputs.push_back(node.input(i));
  }
  const int64_t resolved = node.resolve_axis(axis, node.rank(0));
  if (inputs.size() == 1) return same_value(inputs[0]);
  std::optional<int> batch_axis;
  for (int i = 0; i < node.input_count() && !batch_axis; ++i) batch_axis = node.batch_axis(i);
  if (batch_axis && resolved != *batch_axis)
    for (int i = 0; i < node.input_count(); ++i)
      inputs[static_cast<size_t>(i)] = node.repeated_for_batch(i, *batch_axis);
  return node.result(Concat{.axis = resolved}, inputs);
}
Outputs import_concat_default_axis(Node& node) { return concat(node, node.integer("axis", 1)); }
Outputs import_concat(Node& node) { return concat(node, node.integer("axis")); }

constexpr OpRow kSliceRows[] = {
    {"", "Concat", 1, 3, import_concat_default_axis}, {"", "Concat", 4, kLatest, import_concat},
    {"", "Slice", 1, 9, import_slice_attributes},     {"", "Slice", 10, kLatest, import_slice},
    {"", "Split", 1, 12, import_split_attribute},     {"", "Split", 13, 17, import_split_input},
    {"", "Split", 18, kLatest, import_split},
};

}  // namespace

std::span<const OpRow> slice_rows() { return kSliceRows; }

}  // namespace anneal
