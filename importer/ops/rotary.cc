// RotaryEmbedding: pairs of numbers turned by an angle that belongs to their position.
#include "anneal/importer/ops/rotary.h"

#include <fmt/format.h>

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
    const std::string suffix = prefix_ + name;
    return node_.layer(
        Slice{},
        {x, node_.sizes_value({begin}, suffix + "/start"),
         node_.sizes_value({end}, suffix + "/end"), node_.integers_value({3}, suffix + "/axis"),
         node_.integers_value({1}, suffix + "/step")},
        suffix);
  }

  // The first or second number of each pair: neighbours, or from either half.
  ValueId member(ValueId x, int64_t index) {
    const std::string name = index == 0 ? "first" : "second";
    if (!rotation_.interleaved)
      return index == 0 ? part(x, 0, half_, name) : part(x, half_, rotation_.width, name);
    const std::string suffix = prefix_ + name;
    const ValueId pairs = reshape(node_, x, with_last({half_, Size(2)}), suffix + "/pairs");
    return node_.layer(
        Slice{},
        {pairs, node_.integers_value({index}, suffix + "/start"),
         node_.integers_value({index + 1}, suffix + "/end"),
         node_.integers_value({4}, suffix + "/axis"), node_.integers_value({1}, suffix + "/step")},
        suffix);
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
  bool needs_heads;  // the attribute num_heads, for x of 3 axes
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
  const ValueId target = node.sizes_value({x[0], x[1]}, "positions_shape");
  const ValueId offsets = node.layer(Expand{}, {offset, target}, "offsets");
  return pointwise(node, "positions", {offsets}, DataType::kI64,
                   [](Expressions in) { return in[0] + in[0].index(1); });
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
  const Rotation rotation{.cosines = node.input(inputs.cosines),
                          .sines = node.input(inputs.sines),
                          .positions = positions_of(node, inputs.positions, shape),
                          .width = dim == 0 ? head : Size(dim),
                          .interleaved = node.flag("interleaved", false)};
  const ValueId turned = rotated(node, x, rotation);
  if (node.rank(0) == 4) return node.result(Transpose{{0, 2, 1, 3}}, {turned});
  const Shape& joined = node.shape(0);
  return node.result(Reshape{.allow_zero = true},
                     {turned, node.sizes_value({joined.begin(), joined.end()}, "shape")}, "joined");
}

Outputs import_rotary_embedding(Node& node) {
  return import_rotation(node, {.cosines = 1, .sines = 2, .positions = 3, .needs_heads = true});
}

Outputs import_fused_rotary_embedding(Node& node) {
  node.expect_inputs(4, 4);
  if (node.number("scale", 1) != 1) node.unsupported("scaled positions");
  if (node.flag("is_packed_batching", false)) node.unsupported("packed batches");
  return import_rotation(node, {.cosines = 2, .sines = 3, .positions = 1, .needs_heads = false});
}

constexpr OpRow kRotaryRows[] = {
    {"", "RotaryEmbedding", 23, kLatest, import_rotary_embedding},
    {kMicrosoft, "RotaryEmbedding", 1, kLatest, import_fused_rotary_embedding},
};

}  // namespace

ValueId rotated(Node& node, ValueId x, const Rotation& rotation, const std::string& prefix) {
  return Rotator(node, x, rotation, prefix).run();
}

std::span<const OpRow> rotary_rows() { return kRotaryRows; }

}  // namespace anneal
