// The same elements under another shape or in another order, and shapes as tensors.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

Outputs import_reshape_attribute(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("consumed_inputs");
  const auto shape = node.find_integers("shape");
  if (!shape) node.invalid("attribute \"shape\" is missing");
  const std::vector<Size> sizes = node.with_batch(0, {shape->begin(), shape->end()});
  return node.result(Reshape{}, {node.input(0), node.sizes_value(sizes, "shape")});
}

Outputs import_reshape(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, {DataType::kI64});
  const Reshape op{.allow_zero = node.flag("allowzero", false)};
  return node.result(op, {node.input(0), node.sizes_input(0, 1)});
}

Outputs import_flatten(Node& node) {
  node.expect_inputs(1, 1);
  const Shape& shape = node.shape(0);
  int64_t axis = node.integer("axis", 1);
  if (axis != shape.rank()) axis = node.resolve_axis(axis, shape.rank());
  const auto split = static_cast<size_t>(axis);
  const Size outer = product(Shape(shape.span().first(split)), node.sizes());
  const Size inner = product(Shape(shape.span().subspan(split)), node.sizes());
  return reshape_result(node, node.input(0), {outer, inner});
}

Outputs import_transpose(Node& node) {
  node.expect_inputs(1, 1);
  const int rank = node.rank(0);
  std::vector<int64_t> reversed(static_cast<size_t>(rank));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const auto permutation = node.find_integers("perm").value_or(reversed);
  if (static_cast<int>(permutation.size()) != rank ||
      !std::ranges::is_permutation(permutation, reversed))
    node.invalid(fmt::format("attribute \"perm\" is no permutation of {} axes", rank));
  return node.result(Transpose{.permutation = permutation}, {node.input(0)});
}

Outputs shape_of_range(Node& node, int64_t start, int64_t end) {
  const int64_t rank = node.rank(0);
  const auto resolve = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const int64_t first = resolve(start);
  return node.result(ShapeOf{.start = first, .end = std::max(first, resolve(end))},
                     {node.input(0)});
}
Outputs import_shape(Node& node) {
  node.expect_inputs(1, 1);
  return shape_of_range(node, 0, node.rank(0));
}
Outputs import_shape_range(Node& node) {
  node.expect_inputs(1, 1);
  const int64_t start = node.integer("start", 0);
  return shape_of_range(node, start, node.integer("end", node.rank(0)));
}

Outputs import_size(Node& node) {
  node.expect_inputs(1, 1);
  return node.result(SizeTensor{.elements = {product(node.shape(0), node.sizes())}, .scalar = true},
                     {});
}

Outputs import_identity(Node& node) {
  node.expect_inputs(1, 1);
  return same_value(node.input(0));
}

// A tensor in place of an optional is one that has an element.
Outputs import_optional_has_element(Node& node) {
  node.expect_inputs(0, 1);
  if (node.has_input(0)) static_cast<void>(node.dtype(0));  // other than a tensor is not supported
  const uint8_t has_element = node.has_input(0) ? 1 : 0;
  return {node.result_constant(Tensor::of<uint8_t>(DataType::kBool, {}, {{has_element}}))};
}

// Inference: x itself, and a mask that keeps everything.
Outputs dropout(Node& node, DataType mask) {
  Outputs outputs = same_value(node.input(0));
  if (node.has_output(1))
    outputs.push_back(pointwise_result(
        node, {node.input(0)}, mask,
        [&](Expressions in) {
          return Expression{in[0].builder,
                            in[0].builder->constant(register_type(mask), int64_t{1})};
        },
        "mask", 1)[0]);
  return outputs;
}
Outputs import_dropout_with_test_mode(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("consumed_inputs");
  node.ignore("ratio");
  if (!node.flag("is_test", false)) node.unsupported("training mode: dropout is random");
  return dropout(node, node.dtype(0));
}
Outputs import_dropout_with_float_mask(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("ratio");
  return dropout(node, node.dtype(0));
}
Outputs import_dropout_ratio(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("ratio");
  return dropout(node, DataType::kBool);
}
// A run that trains, and drops something, fails: what it gives would be random.
void require_no_dropping(Node& node) {
  node.dtype(2, kBooleans);
  std::vector<ValueId> inputs = {node.input(2)};
  if (node.has_input(1)) inputs.push_back(node.input(1));
  const ValueId holds = pointwise(node, "holds", inputs, DataType::kBool, [](Expressions in) {
    return in.size() == 2 ? !(in[0] && !(in[1] == 0)) : !in[0];
  });
  node.layer(Require{}, {holds}, "drops_nothing");
}

Outputs import_dropout(Node& node) {
  node.expect_inputs(1, 3);
  node.ignore("seed");
  if (node.has_input(2)) {
    const Tensor* training = node.constant(2);
    const bool keeps_all =
        node.constant(1) && numbers_of(*node.constant(1)) == std::vector<double>{0};
    if (!training && !keeps_all) require_no_dropping(node);
    if (training && !keeps_all && integers_of(*training) != std::vector<int64_t>{0})
      node.unsupported("training mode: dropout is random");
  }
  return dropout(node, DataType::kBool);
}

struct SpaceBlocks {
  Size n, c, h, w;  // of the input
  int64_t block = 0;
};
SpaceBlocks blocks_of(Node& node) {
  node.expect_inputs(1, 1);
  const Shape& shape = node.shape(0);
  if (shape.rank() != 4) node.invalid(fmt::format("{} axes, 4 expected", shape.rank()));
  const int64_t block = node.integer("blocksize");
  if (block < 1 || block > 1 << 15) node.invalid(fmt::format("a block size of {}", block));
  return {shape[0], shape[1], shape[2], shape[3], block};
}

// Reshape to six axes, transpose, reshape to four.
Outputs rearrange(Node& node, const std::vector<Size>& six, std::vector<int64_t> permutation,
                  const std::vector<Size>& four) {
  const ValueId blocks = reshape(node, node.input(0), six, "blocks");
  const ValueId moved =
      node.layer(Transpose{.permutation = std::move(permutation)}, {blocks}, "moved");
  return reshape_result(node, moved, four);
}

Outputs import_depth_to_space(Node& node) {
  const SpaceBlocks in = blocks_of(node);
  const bool column_row = node.choice("mode", {"DCR", "CRD"}) == 1;
  SizeTable& sizes = node.sizes();
  const Size b = in.block, c = sizes.floor_div(in.c, sizes.mul(b, b));
  const std::vector<Size> four = {in.n, c, sizes.mul(in.h, b), sizes.mul(in.w, b)};
  if (column_row) return rearrange(node, {in.n, c, b, b, in.h, in.w}, {0, 1, 4, 2, 5, 3}, four);
  return rearrange(node, {in.n, b, b, c, in.h, in.w}, {0, 3, 4, 1, 5, 2}, four);
}

Outputs import_space_to_depth(Node& node) {
  const SpaceBlocks in = blocks_of(node);
  const bool column_row = node.choice("mode", {"DCR", "CRD"}) == 1;  // from opset 28
  SizeTable& sizes = node.sizes();
  const Size b = in.block, h = sizes.floor_div(in.h, b), w = sizes.floor_div(in.w, b);
  const std::vector<int64_t> permutation =
      column_row ? std::vector<int64_t>{0, 1, 3, 5, 2, 4} : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  return rearrange(node, {in.n, in.c, h, b, w, b}, permutation,
                   {in.n, sizes.mul(in.c, sizes.mul(b, b)), h, w});
}

Outputs import_expand(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, {DataType::kI64});
  const bool has_axis_0 = node.rank(1) == 1 && node.shape(1)[0] == Size(node.rank(0));
  const ValueId sizes = has_axis_0 ? node.sizes_input(0, 1) : node.input(1);
  return node.result(Expand{}, {node.input(0), sizes});
}

constexpr OpRow kShapeRows[] = {
    {"", "DepthToSpace", 1, kLatest, import_depth_to_space},
    {"", "Dropout", 1, 6, import_dropout_with_test_mode},
    {"", "Dropout", 7, 9, import_dropout_with_float_mask},
    {"", "Dropout", 10, 11, import_dropout_ratio},
    {"", "Dropout", 12, kLatest, import_dropout},
    {"", "Expand", 8, kLatest, import_expand},
    {"", "Flatten", 1, kLatest, import_flatten},
    {"", "Identity", 1, kLatest, import_identity},
    {"", "OptionalGetElement", 15, kLatest, import_identity},
    {"", "OptionalHasElement", 15, kLatest, import_optional_has_element},
    {"", "Reshape", 1, 4, import_reshape_attribute},
    {"", "Reshape", 5, kLatest, import_reshape},
    {"", "Shape", 1, 14, import_shape},
    {"", "Shape", 15, kLatest, import_shape_range},
    {"", "Size", 1, kLatest, import_size},
    {"", "SpaceToDepth", 1, kLatest, import_space_to_depth},
    {"", "Transpose", 1, kLatest, import_transpose},
};

}  // namespace

std::span<const OpRow> shape_rows() { return kShapeRows; }

}  // namespace anneal
