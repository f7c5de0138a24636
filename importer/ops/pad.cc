// Padding and repetition.
#include <algorithm>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

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

ValueId pads_of_all_axes(Node& node, const std::vector<int64_t>& axes,
                         const std::vector<Size>& given) {
  if (given.size() != 2 * axes.size()) node.invalid("two pads for each axis are needed");
  const auto rank = static_cast<size_t>(node.rank(0));
  std::vector<Size> all(2 * rank, Size(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(node.resolve_axis(axes[i], node.rank(0)));
    all[axis] = given[i];
    all[rank + axis] = given[axes.size() + i];
  }
  return node.sizes_value(all, "pads");
}

// For axes, or a number of axes, that are known only at run time: writes each pad to its axis.
ValueId scattered_pads(Node& node) {
  const int64_t rank = node.rank(0);
  const ValueId axes = as_i64(node, node.input(3), "axes");
  const ValueId one_row = node.integers_value({1, -1}, "one_row");
  const ValueId two_rows = node.integers_value({2, -1}, "two_rows");
  const ValueId row = node.layer(Reshape{}, {axes, one_row}, "row");
  const ValueId places = node.layer(Concat{}, {row, row}, "places");
  const ValueId given = node.layer(Reshape{}, {node.input(1), two_rows}, "given");
  const std::vector<int64_t> zeros(static_cast<size_t>(2 * rank));
  const ValueId none = reshape(node, node.integers_value(zeros, "none"), {2, rank}, "none_of_axes");
  const ValueId pads = node.layer(ScatterElements{.axis = 1}, {none, places, given}, "pads");
  return reshape(node, pads, {2 * rank}, "all_pads");
}

Outputs import_pad_axes(Node& node) {
  node.expect_inputs(2, 4);
  node.dtype(1, {DataType::kI64});
  ValueId pads = node.input(1);
  if (node.has_input(3)) {
    node.dtype(3, kIndices);
    const auto axes = node.known_integers(3);
    const auto given = node.known_sizes(1);
    pads = axes && given ? pads_of_all_axes(node, *axes, *given) : scattered_pads(node);
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

constexpr OpRow kPadRows[] = {
    {"", "Pad", 1, 1, import_paddings_attribute},
    {"", "Pad", 2, 10, import_pads_attribute},
    {"", "Pad", 11, 17, import_pad},
    {"", "Pad", 18, kLatest, import_pad_axes},
    {kMicrosoft, "Pad", 1, kLatest, import_pad},
    {"", "Tile", 1, 5, import_tile_axis},
    {"", "Tile", 6, kLatest, import_tile},
};

}  // namespace

std::span<const OpRow> pad_rows() { return kPadRows; }

}  // namespace anneal
