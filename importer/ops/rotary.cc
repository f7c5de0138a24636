// RotaryEmbedding and MRotaryEmbedding: pairs of numbers turned by an angle that belongs to their
// position.
#include "anneal/importer/ops/rotary.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

class Rotator {
 public:
  Rotator(Node& node, ValueId x, const Rotation& rotation, const std::string& prefix)
      : node_(node),
        rotation_(rotation),
        prefix_(prefix),
        shape_(shape_of(node, x)),
        x_(x),
        half_(node.sizes().floor_div(rotation.width, 2)) {}

  ValueId run() {
    const ValueId cosines = angles(rotation_.cosines, "cos"),
                  sines = angles(rotation_.sines, "sin");
    const Size head = shape_[3];
    const bool whole = rotation_.width == head;
    const ValueId x = whole ? x_ : part(x_, 0, rotation_.width, "rotated");
    const ValueId first = member(x, 0), second = member(x, 1);
    const DataType dtype = node_.graph().value(x_).type().dtype;
    const std::vector<ValueId> inputs = {first, second, cosines, sines};
    const ValueId re = pointwise(node_, prefix_ + "real", inputs, dtype,
                                 [](Expressions in) { return in[0] * in[2] - in[1] * in[3]; });
    const ValueId im = pointwise(node_, prefix_ + "imaginary", inputs, dtype,
                                 [](Expressions in) { return in[0] * in[3] + in[1] * in[2]; });
    ValueId turned =
        node_.layer(Concat{.axis = rotation_.interleaved ? 4 : 3}, {re, im}, prefix_ + "turned");
    if (rotation_.interleaved)
      turned = reshape(node_, turned, with_last({rotation_.width}), prefix_ + "turned_pairs");
    if (!whole)
      turned = node_.layer(Concat{.axis = 3}, {turned, part(x_, rotation_.width, head, "kept")},
                           prefix_ + "whole");
    return turned;
  }

 private:
  std::vector<Size> with_last(std::initializer_list<Size> last) const {
    std::vector<Size> result(shape_.begin(), shape_.end() - 1);
    result.insert(result.end(), last);
    return result;
  }

  // Elements [begin, end) of the last axis of 4.
  ValueId part(ValueId x, Size begin, Size end, const std::string& name) {
    return slice_of(node_, x, 3, begin, end, prefix_ + name);
  }

  // The first or second number of each pair: neighbours, or from either half.
  ValueId member(ValueId x, int64_t index) {
    const std::string name = index == 0 ? "first" : "second";
    if (!rotation_.interleaved)
      return index == 0 ? part(x, 0, half_, name) : part(x, half_, rotation_.width, name);
    const std::string suffix = prefix_ + name;
    const ValueId pairs = reshape(node_, x, with_last({half_, Size(2)}), suffix + "/pairs");
    return slice_of(node_, pairs, 4, index, index + 1, suffix);
  }

  // [batch, positions, 1, half], and an axis of 1 for pairs of neighbours.
  ValueId angles(ValueId table, const std::string& name) {
    const bool by_position = rotation_.positions != ValueId::kNone;
    if (shape_of(node_, table).rank() != (by_position ? 2 : 3))
      node_.invalid(fmt::format("{} of {} axes", name, shape_of(node_, table).rank()));
    if (by_position)
      table = node_.layer(Gather{.axis = 0}, {table, rotation_.positions}, prefix_ + name);
    const Shape shape = shape_of(node_, table);
    if (shape[2].known() && half_.known() && shape[2].value() != half_.value())
      node_.invalid(
          fmt::format("{} of {} angles for {} pairs", name, shape[2].value(), half_.value()));
    std::vector<Size> target = {shape[0], shape[1], Size(1), shape[2]};
    if (rotation_.interleaved) target.emplace_back(1);
    return reshape(node_, table, target, prefix_ + name + "_of_heads");
  }

  Node& node_;
  const Rotation& rotation_;
  const std::string& prefix_;
  const Shape shape_;
  ValueId x_;
  Size half_;
};

// The input numbers of an operator; x is input 0.
struct RotaryInputs {
  int cosines, sines, positions;
  bool needs_heads;        // the attribute num_heads, for x of 3 axes
  bool sectioned = false;  // i64[3, batch, positions] of time, height and width
};

// How many heads x[batch, positions, elements] has, where the attribute does not say it: the angles
// of a whole head are half of its width.
int64_t heads_of_angles(Node& node, int cosines) {
  const Size angles = node.shape(cosines)[node.rank(cosines) - 1], elements = node.shape(0)[2];
  if (!angles.known() || !elements.known() || angles.value() < 1) return 0;
  return elements.value() / 2 / angles.value();
}

// x as [batch, positions, heads, width].
ValueId positions_first(Node& node, int cosines, bool needs_heads) {
  const Shape shape = node.shape(0);
  int64_t heads = node.integer("num_heads", 0);  // 4 axes say it themselves
  if (shape.rank() == 4)
    return node.layer(Transpose{{0, 2, 1, 3}}, {node.input(0)}, "positions_first");
  if (shape.rank() != 3) node.invalid("input 0 has not 3 or 4 axes");
  if (heads == 0 && !needs_heads && node.integer("rotary_embedding_dim", 0) == 0)
    heads = heads_of_angles(node, cosines);
  if (heads < 1) node.invalid(fmt::format("attribute \"num_heads\" is {}", heads));
  if (shape[2].known() && shape[2].value() % heads != 0)
    node.invalid(fmt::format("{} elements in {} heads", shape[2].value(), heads));
  const Size width = node.sizes().floor_div(shape[2], heads);
  return reshape(node, node.input(0), {shape[0], shape[1], Size(heads), width}, "heads");
}

// i64[batch, positions]: one offset for all becomes a position for each.
ValueId positions_of(Node& node, int input, const Shape& x) {
  if (!node.has_input(input)) return ValueId::kNone;
  node.dtype(input, {DataType::kI64});
  if (node.rank(input) == 2) return node.input(input);
  const Shape& shape = node.shape(input);
  if (shape.rank() > 1 || (shape.rank() == 1 && shape[0].known() && shape[0].value() != 1))
    node.invalid(fmt::format("input {} has not 2 axes, and is not one offset", input));
  const ValueId offset = reshape(node, node.input(input), {1, 1}, "offset");
  const ValueId offsets = expanded(node, offset, {x[0], x[1]}, "offsets");
  return pointwise(node, "positions", {offsets}, DataType::kI64,
                   [](Expressions in) { return in[0] + in[0].index(1); });
}

// The angles of MRotaryEmbedding: each pair has those of one of the three rows of positions.
void use_sections(Node& node, RotaryInputs inputs, Rotation& rotation) {
  const auto sections = node.find_integers("mrope_section").value_or(std::vector<int64_t>{});
  const int64_t layout = node.integer("mrope_layout", 0);
  if (layout != 0 && layout != 1)
    node.invalid(fmt::format("attribute \"mrope_layout\" is {}", layout));
  if (!rotation.width.known()) node.unsupported("a width of heads known only at run time");
  const int64_t pairs = rotation.width.value() / 2;
  int64_t sum = 0;
  for (const int64_t section : sections)
    sum += section < 0 ? pairs + 1 : std::min(section, pairs + 1);
  if (sections.size() != 3 || sum != pairs)
    node.invalid(
        fmt::format("attribute \"mrope_section\": three sections of {} pairs are needed", pairs));
  node.dtype(inputs.positions, {DataType::kI64});
  const Shape& positions = node.shape(inputs.positions);
  if (positions.rank() != 3 || (positions[0].known() && positions[0].value() != 3))
    node.invalid(fmt::format("input {} has not 3 axes, the first of 3 rows", inputs.positions));
  const std::vector<double> size(sections.begin(), sections.end());
  const auto mixed = [&](ValueId table, const std::string& name) {
    std::vector<ValueId> rows;
    for (int64_t i = 0; i < 3; ++i) {
      const std::string suffix = fmt::format("{}{}", name, i);
      const ValueId index = scalar_value(node, i, suffix + "/index");
      const ValueId row =
          node.layer(Gather{}, {node.input(inputs.positions), index}, suffix + "/positions");
      rows.push_back(node.layer(Gather{}, {table, row}, suffix));
    }
    return pointwise(node, name + "_mixed", rows, node.dtype(0), [&](Expressions in) {
      const Expression pair = in[0].index(2);
      if (layout == 0)
        return select(pair < size[0], in[0], select(pair < size[0] + size[1], in[1], in[2]));
      const Expression turn = pair.apply(Opcode::kMod, pair.number(3));
      const auto has_turn = [&](int row) {
        return turn == row && pair < 3 * size[static_cast<size_t>(row)];
      };
      return select(has_turn(1), in[1], select(has_turn(2), in[2], in[0]));
    });
  };
  rotation.cosines = mixed(rotation.cosines, "cos");
  rotation.sines = mixed(rotation.sines, "sin");
}

Outputs import_rotation(Node& node, RotaryInputs inputs) {
  node.expect_inputs(3, 4);
  node.expect_same_dtype({0, inputs.cosines, inputs.sines});
  node.dtype(0, kFloats);
  const ValueId x = positions_first(node, inputs.cosines, inputs.needs_heads);
  const Shape shape = shape_of(node, x);
  const Size head = shape[3];
  const int64_t dim = node.integer("rotary_embedding_dim", 0);
  if (dim < 0 || dim % 2 != 0 || (head.known() && (dim > head.value() || head.value() % 2)))
    node.invalid(fmt::format("attribute \"rotary_embedding_dim\" is {}", dim));
  Rotation rotation{.cosines = node.input(inputs.cosines),
                    .sines = node.input(inputs.sines),
                    .width = dim == 0 ? head : Size(dim),
                    .interleaved = node.flag("interleaved", false)};
  if (inputs.sectioned) {
    use_sections(node, inputs, rotation);
  } else {
    rotation.positions = positions_of(node, inputs.positions, shape);
  }
  const ValueId turned = rotated(node, x, rotation);
  if (node.rank(0) == 4) return node.result(Transpose{{0, 2, 1, 3}}, {turned});
  const Shape& joined = node.shape(0);
  return reshape_result(node, turned, {joined.begin(), joined.end()}, "joined");
}

Outputs import_rotary_embedding(Node& node) {
  return import_rotation(node, {.cosines = 1, .sines = 2, .positions = 3, .needs_heads = true});
}

Outputs microsoft_rotation(Node& node, bool sectioned) {
  node.expect_inputs(4, 4);
  if (node.number("scale", 1) != 1) node.unsupported("scaled positions");
  if (node.flag("is_packed_batching", false)) node.unsupported("packed batches");
  return import_rotation(
      node,
      {.cosines = 2, .sines = 3, .positions = 1, .needs_heads = sectioned, .sectioned = sectioned});
}
Outputs import_fused_rotary_embedding(Node& node) { return microsoft_rotation(node, false); }
Outputs import_sectioned_rotary_embedding(Node& node) { return microsoft_rotation(node, true); }

// q and k[B,heads,S,width] by the angles[B,S,width], given with their halves already exchanged.
Outputs import_gemma_rotary_embedding(Node& node) {
  node.expect_inputs(5, 5);
  node.dtype(0, kFloats);
  node.expect_same_dtype({1, 2, 3, 4});
  const DataType dtype = node.dtype(1, kFloats);
  const Shape& shape = node.shape(0);
  if (shape.rank() != 3) node.invalid(fmt::format("angles of {} axes", shape.rank()));
  const ValueId angles =
      reshape(node, node.input(0), {shape[0], Size(1), shape[1], shape[2]}, "angles");
  Outputs outputs;
  for (const int input : {1, 3})
    outputs.push_back(pointwise_result(
        node, {node.input(input), node.input(input + 1), angles}, dtype,
        [&](Expressions in) {
          const auto factor = [&](Opcode opcode) {
            return in[2].apply(opcode).cast_to(dtype).cast(in[0].reg.type);
          };
          return in[0] * factor(Opcode::kCos) + in[1] * factor(Opcode::kSin);
        },
        input == 1 ? "" : "keys", input / 2)[0]);
  return outputs;
}

constexpr OpRow kRotaryRows[] = {
    {"", "RotaryEmbedding", 23, kLatest, import_rotary_embedding},
    {kMicrosoft, "GemmaRotaryEmbedding", 1, kLatest, import_gemma_rotary_embedding},
    {kMicrosoft, "MRotaryEmbedding", 1, kLatest, import_sectioned_rotary_embedding},
    {kMicrosoft, "RotaryEmbedding", 1, kLatest, import_fused_rotary_embedding},
};

}  // namespace

ValueId rotated(Node& node, ValueId x, const Rotation& rotation, const std::string& prefix) {
  return Rotator(node, x, rotation, prefix).run();
}

std::span<const OpRow> rotary_rows() { return kRotaryRows; }

}  // namespace anneal
