// RotaryEmbedding: pairs of numbers turned by an angle that belongs to their position.
#include "anneal/importer/node/rows.h"

#include <fmt/format.h>

#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

// Which input is what; x is input 0.
struct RotaryInputs {
  int cosines, sines, positions;
};

class RotaryImporter {
 public:
  RotaryImporter(Node& node, RotaryInputs inputs) : node_(node), inputs_(inputs) {}

  Outputs import() {
    node_.expect_inputs(3, 4);
    node_.expect_same_dtype({0, inputs_.cosines, inputs_.sines});
    node_.dtype(0, kFloats);
    read_shape();
    const int64_t dim = node_.integer("rotary_embedding_dim", 0);
    interleaved_ = node_.flag("interleaved", false);
    rotated_ = dim == 0 ? head_ : Size(dim);
    if (dim < 0 || dim % 2 != 0 || (head_.known() && (dim > head_.value() || head_.value() % 2)))
      node_.invalid(fmt::format("attribute \"rotary_embedding_dim\" is {}", dim));
    half_ = node_.sizes().floor_div(rotated_, 2);

    const ValueId cosines = angles(inputs_.cosines, "cos"), sines = angles(inputs_.sines, "sin");
    const ValueId x = rotated_ == head_ ? x_ : part(x_, 0, rotated_, "rotated");
    const ValueId first = member(x, 0), second = member(x, 1);
    const DataType dtype = node_.dtype(0);
    const std::vector<ValueId> inputs = {first, second, cosines, sines};
    const ValueId re = pointwise(node_, "real", inputs, dtype,
                                 [](Expressions in) { return in[0] * in[2] - in[1] * in[3]; });
    const ValueId im = pointwise(node_, "imaginary", inputs, dtype,
                                 [](Expressions in) { return in[0] * in[3] + in[1] * in[2]; });
    ValueId turned = node_.layer(Concat{.axis = interleaved_ ? 4 : 3}, {re, im}, "turned");
    if (interleaved_) turned = reshape(node_, turned, with_last({rotated_}), "turned_pairs");
    if (!(rotated_ == head_))
      turned = node_.layer(Concat{.axis = 3}, {turned, part(x_, rotated_, head_, "kept")}, "whole");
    if (node_.rank(0) == 4) return node_.result(Transpose{{0, 2, 1, 3}}, {turned});
    const Shape& shape = node_.shape(0);
    return node_.result(Reshape{.allow_zero = true},
                        {turned, node_.sizes_value({shape.begin(), shape.end()}, "shape")},
                        "joined");
  }

 private:
  // x_[batch, positions, heads, head_].
  void read_shape() {
    const Shape& shape = node_.shape(0);
    const int64_t heads = node_.integer("num_heads", 0);
    if (shape.rank() == 4) {
      x_ = node_.layer(Transpose{{0, 2, 1, 3}}, {node_.input(0)}, "positions_first");
      head_ = shape[3];
      return;
    }
    if (shape.rank() != 3) node_.invalid("input 0 has not 3 or 4 axes");
    if (heads < 1) node_.invalid(fmt::format("attribute \"num_heads\" is {}", heads));
    if (shape[2].known() && shape[2].value() % heads != 0)
      node_.invalid(fmt::format("{} elements in {} heads", shape[2].value(), heads));
    head_ = node_.sizes().floor_div(shape[2], heads);
    x_ = reshape(node_, node_.input(0), {shape[0], shape[1], Size(heads), head_}, "heads");
  }

  std::vector<Size> with_last(std::initializer_list<Size> last) const {
    const Shape& shape = node_.graph().value(x_).type().shape;
    std::vector<Size> result(shape.begin(), shape.end() - 1);
    result.insert(result.end(), last);
    return result;
  }

  // Elements [begin, end) of the last axis of 4.
  ValueId part(ValueId x, Size begin, Size end, const std::string& suffix) {
    return node_.layer(
        Slice{},
        {x, node_.sizes_value({begin}, suffix + "/start"),
         node_.sizes_value({end}, suffix + "/end"), node_.integers_value({3}, suffix + "/axis"),
         node_.integers_value({1}, suffix + "/step")},
        suffix);
  }

  // The first or second number of each pair: neighbours, or from either half.
  ValueId member(ValueId x, int64_t index) {
    const std::string suffix = index == 0 ? "first" : "second";
    if (!interleaved_)
      return index == 0 ? part(x, 0, half_, suffix) : part(x, half_, rotated_, suffix);
    const ValueId pairs = reshape(node_, x, with_last({half_, Size(2)}), suffix + "/pairs");
    return node_.layer(
        Slice{},
        {pairs, node_.integers_value({index}, suffix + "/start"),
         node_.integers_value({index + 1}, suffix + "/end"),
         node_.integers_value({4}, suffix + "/axis"), node_.integers_value({1}, suffix + "/step")},
        suffix);
  }

  // [batch, positions, 1, half], and an axis of 1 for pairs of neighbours.
  ValueId angles(int input, const std::string& suffix) {
    ValueId table = node_.input(input);
    const int rank = node_.rank(input), positions = inputs_.positions;
    if (rank != (node_.has_input(positions) ? 2 : 3))
      node_.invalid(fmt::format("input {} has {} axes", input, rank));
    if (node_.has_input(positions)) {
      node_.dtype(positions, {DataType::kI64});
      if (node_.rank(positions) != 2)
        node_.invalid(fmt::format("input {} has not 2 axes", positions));
      table = node_.layer(Gather{.axis = 0}, {table, node_.input(positions)}, suffix);
    }
    const Shape& shape = node_.graph().value(table).type().shape;
    if (shape[2].known() && half_.known() && shape[2].value() != half_.value())
      node_.invalid(fmt::format("input {} has {} angles for {} pairs", input, shape[2].value(),
                                half_.value()));
    std::vector<Size> target = {shape[0], shape[1], Size(1), shape[2]};
    if (interleaved_) target.emplace_back(1);
    return reshape(node_, table, target, suffix + "_of_heads");
  }

  Node& node_;
  RotaryInputs inputs_;
  ValueId x_ = ValueId::kNone;
  Size head_ = 0, rotated_ = 0, half_ = 0;
  bool interleaved_ = false;
};

Outputs import_rotary_embedding(Node& node) {
  return RotaryImporter(node, {.cosines = 1, .sines = 2, .positions = 3}).import();
}

Outputs import_fused_rotary_embedding(Node& node) {
  node.expect_inputs(4, 4);
  if (node.rank(1) != 2) node.unsupported("positions that are one offset for all");
  if (node.number("scale", 1) != 1) node.unsupported("scaled positions");
  if (node.flag("is_packed_batching", false)) node.unsupported("packed batches");
  return RotaryImporter(node, {.cosines = 2, .sines = 3, .positions = 1}).import();
}

constexpr OpRow kRotaryRows[] = {
    {"", "RotaryEmbedding", 23, kLatest, import_rotary_embedding},
    {kMicrosoft, "RotaryEmbedding", 1, kLatest, import_fused_rotary_embedding},
};

}  // namespace

std::span<const OpRow> rotary_rows() { return kRotaryRows; }

}  // namespace anneal
