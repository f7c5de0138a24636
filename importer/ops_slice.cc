// Parts of tensors and tensors of parts: slices, splits, concatenations, padding, repetition.
#include <algorithm>
#include <numeric>

#include "anneal/importer/expression.h"
#include "anneal/importer/rows.h"
#include "anneal/importer/tensor_data.h"

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
  const Shape& starts = node.shape(1);
  if (starts.rank() != 1 || !starts[0].known())
    node.unsupported("a number of axes known only at run time");
  const auto count = static_cast<size_t>(starts[0].value());
  if (count > kMaxRank) node.invalid(std::to_string(count) + " axes are sliced");
  ValueId axes, steps;
  if (!node.has_input(3)) {
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    axes = node.integers_value(all, "axes");
  } else {
    std::vector<int64_t> given = node.integers_of_input(3, "axes");
    for (int64_t& axis : given) axis = node.resolve_axis(axis, node.rank(0));
    axes = node.integers_value(given, "axes");
  }
  if (!node.has_input(4)) {
    steps = node.integers_value(std::vector<int64_t>(count, 1), "steps");
  } else {
    steps = as_i64(node, node.input(4), "steps");
  }
  return node.result(Slice{}, {node.input(0), as_i64(node, node.input(1), "starts"),
                               as_i64(node, node.input(2), "ends"), axes, steps});
}

// One Slice for each output.
Outputs split(Node& node, int64_t axis, const std::vector<Size>& parts) {
  if (static_cast<int>(parts.size()) < node.output_count())
    node.invalid(std::to_string(parts.size()) + " parts for " +
                 std::to_string(node.output_count()) + " outputs");
  const ValueId axes = node.integers_value({axis}, "axes");
  const ValueId steps = node.integers_value({1}, "steps");
  Outputs outputs;
  Size start = 0;
  for (int i = 0; i < node.output_count(); ++i) {
    const Size end = node.sizes().add(start, parts[static_cast<size_t>(i)]);
    const std::string number = std::to_string(i);
    const ValueId from = node.sizes_value({start}, "start" + number);
    const ValueId to = node.sizes_value({end}, "end" + number);
    outputs.push_back(
        node.result(Slice{}, {node.input(0), from, to, axes, steps}, number, i).front());
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
    node.invalid("parts of " + std::to_string(sum) + " elements in all, of " +
                 std::to_string(whole.value()));
  return {sizes.begin(), sizes.end()};
}

// Parts of ceil(size / count), the last one smaller.
std::vector<Size> equal_parts(Node& node, int64_t axis, int64_t count) {
  if (count < 1 || count != node.output_count())
    node.invalid(std::to_string(count) + " parts for " + std::to_string(node.output_count()) +
                 " outputs");
  const Size whole = node.shape(0)[static_cast<int>(axis)];
  SizeTable& sizes = node.sizes();
  const Size part = sizes.ceil_div(whole, count);
  std::vector<Size> parts(static_cast<size_t>(count), part);
  parts.back() = sizes.sub(whole, sizes.mul(part, count - 1));
  if (parts.back().known() && parts.back().value() < 0)
    node.invalid(std::to_string(whole.value()) + " elements in " + std::to_string(count) +
                 " parts");
  return parts;
}

std::vector<Size> divided_parts(Node& node, int64_t axis, int64_t count) {
  const Size whole = node.shape(0)[static_cast<int>(axis)];
  if (whole.known() && count > 0 && whole.value() % count != 0)
    node.invalid(std::to_string(whole.value()) + " elements in " + std::to_string(count) +
                 " equal parts");
  return equal_parts(node, axis, count);
}

int64_t split_axis(Node& node) { return node.resolve_axis(node.integer("axis", 0), node.rank(0)); }

Outputs import_split_attribute(Node& node) {
  node.expect_inputs(1, 2);  // opset 1 has the sizes as a second input, too
  const int64_t axis = split_axis(node);
  if (const auto sizes = node.find_integers("split"))
    return split(node, axis, given_parts(node, axis, *sizes));
  if (node.has_input(1))
    return split(node, axis, given_parts(node, axis, node.integers_of_input(1, "parts")));
  return split(node, axis, divided_parts(node, axis, node.output_count()));
}

std::vector<Size> parts_of_input(Node& node) {
  node.dtype(1, {DataType::kI64});
  if (auto parts = node.contents(1)) return *parts;
  node.unsupported("parts known only at run time");
}

Outputs import_split_input(Node& node) {
  node.expect_inputs(1, 2);
  const int64_t axis = split_axis(node);
  if (const auto sizes = node.known_integers(1))
    return split(node, axis, given_parts(node, axis, *sizes));
  if (node.has_input(1)) return split(node, axis, parts_of_input(node));
  return split(node, axis, divided_parts(node, axis, node.output_count()));
}

Outputs import_split(Node& node) {
  node.expect_inputs(1, 2);
  const int64_t axis = split_axis(node);
  const auto count = node.find_integer("num_outputs");
  if (count && node.has_input(1)) node.invalid("both \"num_outputs\" and the sizes of the parts");
  if (const auto sizes = node.known_integers(1))
    return split(node, axis, given_parts(node, axis, *sizes));
  if (node.has_input(1)) return split(node, axis, parts_of_input(node));
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
  return node.result(Concat{.axis = resolved}, inputs);
}
Outputs import_concat_default_axis(Node& node) { return concat(node, node.integer("axis", 1)); }
Outputs import_concat(Node& node) { return concat(node, node.integer("axis")); }

PadMode pad_mode(Node& node) {
  constexpr PadMode kModes[] = {PadMode::kConstant, PadMode::kReflect, PadMode::kEdge,
                                PadMode::kWrap};
  return kModes[node.choice("mode", {"constant", "reflect", "edge", "wrap"})];
}

Outputs pad_attributes(Node& node, const char* name) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFloats);
  const auto pads = node.find_integers(name);
  if (!pads || static_cast<int>(pads->size()) != 2 * node.rank(0))
    node.invalid("a pad for the begin and the end of each axis is needed");
  const Tensor value = tensor_of(dtype, {}, {node.number("value", 0)});
  return node.result(
      Pad{.mode = pad_mode(node)},
      {node.input(0), node.integers_value(*pads, "pads"), node.constant_value(value, "value")});
}
Outputs import_paddings_attribute(Node& node) { return pad_attributes(node, "paddings"); }
Outputs import_pads_attribute(Node& node) { return pad_attributes(node, "pads"); }

std::vector<ValueId> pad_inputs(Node& node, ValueId pads) {
  std::vector<ValueId> inputs = {node.input(0), pads};
  if (!node.has_input(2)) return inputs;
  node.expect_same_dtype({0, 2});
  inputs.push_back(reshape(node, node.input(2), {}, "value"));
  return inputs;
}

Outputs import_pad(Node& node) {
  node.expect_inputs(2, 3);
  node.dtype(1, {DataType::kI64});
  return node.result(Pad{.mode = pad_mode(node)}, pad_inputs(node, node.input(1)));
}

Outputs import_pad_axes(Node& node) {
  node.expect_inputs(2, 4);
  node.dtype(1, {DataType::kI64});
  ValueId pads = node.input(1);
  if (node.has_input(3)) {
    const auto axes = node.integers_of_input(3, "axes");
    const auto given = node.contents(1);
    if (!given) node.unsupported("pads of some axes known only at run time");
    if (given->size() != 2 * axes.size()) node.invalid("two pads for each axis are needed");
    const auto rank = static_cast<size_t>(node.rank(0));
    std::vector<Size> all(2 * rank, Size(0));
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<size_t>(node.resolve_axis(axes[i], node.rank(0)));
      all[axis] = (*given)[i];
      all[rank + axis] = (*given)[axes.size() + i];
    }
    pads = node.sizes_value(all, "pads");
  }
  return node.result(Pad{.mode = pad_mode(node)}, pad_inputs(node, pads));
}

Outputs import_tile_axis(Node& node) {
  node.expect_inputs(3, 3);
  const auto tiles = node.numbers_of_input(1, "tiles");
  const auto axes = node.numbers_of_input(2, "axis");
  if (tiles.size() != 1 || axes.size() != 1) node.invalid("one axis and one count are needed");
  std::vector<int64_t> repeats(static_cast<size_t>(node.rank(0)), 1);
  const int64_t axis = node.resolve_axis(static_cast<int64_t>(axes[0]), node.rank(0));
  repeats[static_cast<size_t>(axis)] = static_cast<int64_t>(tiles[0]);
  return node.result(Tile{}, {node.input(0), node.integers_value(repeats, "repeats")});
}

Outputs import_tile(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, {DataType::kI64});
  return node.result(Tile{}, {node.input(0), node.input(1)});
}

constexpr OpRow kRows[] = {
    {"", "Concat", 1, 3, import_concat_default_axis},
    {"", "Concat", 4, kLatest, import_concat},
    {"", "Pad", 1, 1, import_paddings_attribute},
    {"", "Pad", 2, 10, import_pads_attribute},
    {"", "Pad", 11, 17, import_pad},
    {"", "Pad", 18, kLatest, import_pad_axes},
    {"", "Slice", 1, 9, import_slice_attributes},
    {"", "Slice", 10, kLatest, import_slice},
    {"", "Split", 1, 12, import_split_attribute},
    {"", "Split", 13, 17, import_split_input},
    {"", "Split", 18, kLatest, import_split},
    {"", "Tile", 1, 5, import_tile_axis},
    {"", "Tile", 6, kLatest, import_tile},
};

}  // namespace

std::span<const OpRow> slice_rows() { return kRows; }

}  // namespace anneal
