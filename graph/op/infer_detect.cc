// Shape rules of the last ops of detectors: sampling of regions, and selection by value.
// DecisionTrees select by value, too.
#include <fmt/format.h>

#include <limits>

#include "anneal/graph/op/infer_rules.h"

namespace anneal {

using rules::refuse;

Facts infer(const GridSample&, const InferInputs& inputs) {
  const SizeTable& sizes = inputs.sizes();
  rules::require_float(inputs, 0);
  rules::require_float(inputs, 1);
  const Shape &x = inputs.shape(0), &grid = inputs.shape(1);
  if (x.rank() < 3 || grid.rank() != x.rank())
    refuse(fmt::format("a grid of shape {} for {}", sizes.text(grid), sizes.text(x)));
  const int spatial = x.rank() - 2;
  if (rules::surely_differ(grid[grid.rank() - 1], spatial, sizes))
    refuse(fmt::format("coordinates of {} for {} spatial axes", sizes.text(grid[grid.rank() - 1]),
                       spatial));
  Shape shape{rules::agree(x[0], grid[0], inputs, "batch sizes"), x[1]};
  for (int axis = 1; axis <= spatial; ++axis) shape.push_back(grid[axis]);
  return {rules::make_fact(inputs.dtype(0), shape)};
}

Facts infer(const RoiAlign& op, const InferInputs& inputs) {
  const SizeTable& sizes = inputs.sizes();
  rules::require_float(inputs, 0);
  rules::require_dtype(inputs, 1, inputs.dtype(0));
  rules::require_dtype(inputs, 2, DataType::kI64);
  const Shape &x = inputs.shape(0), &regions = inputs.shape(1), &images = inputs.shape(2);
  if (x.rank() != 4) refuse(fmt::format("an input of rank {}, not 4", x.rank()));
  if (regions.rank() != 2 || rules::surely_differ(regions[1], 4, sizes) || images.rank() != 1)
    refuse(fmt::format("regions {} in images {}", sizes.text(regions), sizes.text(images)));
  if (op.kind == PoolKind::kLp) refuse("a pooling of kind lp");
  if (op.height < 1 || op.width < 1) refuse(fmt::format("bins {}x{}", op.height, op.width));
  constexpr int64_t kMostSamples = 4096;
  if (op.sampling_ratio < 0 || op.sampling_ratio > kMostSamples)
    refuse(fmt::format("a sampling ratio of {}", op.sampling_ratio));
  if (!(op.spatial_scale > 0)) refuse(fmt::format("a spatial scale of {}", op.spatial_scale));
  const Size count = rules::agree(regions[0], images[0], inputs, "numbers of regions");
  return {rules::make_fact(inputs.dtype(0), {count, x[1], op.height, op.width})};
}

Facts infer(const NonZero&, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (x.dtype == DataType::kString) refuse("zeros among strings");
  return {rules::make_fact(DataType::kI64, {x.shape.rank(), Size::unknown()})};
}

Facts infer(const Unique& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (x.dtype == DataType::kString) refuse("strings");
  Shape shape{Size::unknown()};
  Size all = 1;
  if (op.flatten) {
    all = product(x.shape, inputs.sizes());
  } else {
    const int axis = rules::require_axis(op.axis, x.shape.rank());
    all = x.shape[axis];
    shape = x.shape;
    shape[axis] = Size::unknown();
  }
  const Fact count = rules::make_fact(DataType::kI64, {Size::unknown()});
  return {rules::make_fact(x.dtype, shape), count, rules::make_fact(DataType::kI64, {all}), count};
}

Facts infer(const NonMaxSuppression&, const InferInputs& inputs) {
  const SizeTable& sizes = inputs.sizes();
  rules::require_dtype(inputs, 0, DataType::kF32);
  rules::require_dtype(inputs, 1, DataType::kF32);
  const Shape &boxes = inputs.shape(0), &scores = inputs.shape(1);
  if (boxes.rank() != 3 || scores.rank() != 3 || rules::surely_differ(boxes[2], 4, sizes))
    refuse(fmt::format("boxes {} with scores {}", sizes.text(boxes), sizes.text(scores)));
  rules::agree(boxes[0], scores[0], inputs, "batch sizes");
  rules::agree(boxes[1], scores[2], inputs, "numbers of boxes");
  for (int i = 2; i < inputs.count(); ++i) {
    if (!inputs.has(i)) continue;
    rules::require_dtype(inputs, i, i == 2 ? DataType::kI64 : DataType::kF32);
    rules::require_scalar(inputs, i, i == 2 ? "most boxes" : "threshold");
  }
  return {rules::make_fact(DataType::kI64, {Size::unknown(), 3})};
}

Facts infer(const ReverseSequence& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  const int batch = rules::require_axis(op.batch_axis, x.shape.rank());
  if (batch == rules::require_axis(op.time_axis, x.shape.rank())) refuse("two axes that are one");
  rules::require_dtype(inputs, 1, DataType::kI64);
  const Shape& lengths = inputs.shape(1);
  if (lengths.rank() != 1) refuse(fmt::format("lengths of rank {}", lengths.rank()));
  rules::agree(x.shape[batch], lengths[0], inputs, "batch sizes");
  return {rules::make_fact(x.dtype, x.shape)};
}

Facts infer(const DecisionTrees& op, const InferInputs& inputs) {
  const SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  if (x.dtype != DataType::kF32 && x.dtype != DataType::kF64)
    refuse(fmt::format("features of {}", to_string(x.dtype)));
  rules::require_dtype(inputs, 2, x.dtype);
  for (const int i : {1, 3, 4}) rules::require_dtype(inputs, i, DataType::kI32);
  const Shape &thresholds = inputs.shape(2), &children = inputs.shape(3), &roots = inputs.shape(4);
  if (x.shape.rank() != 2 || inputs.shape(1).rank() != 1 || thresholds.rank() != 1 ||
      children.rank() != 2 || rules::surely_differ(children[1], 2, sizes) || roots.rank() != 1)
    refuse(fmt::format("rows {}, thresholds {}, children {}, roots {}", sizes.text(x.shape),
                       sizes.text(thresholds), sizes.text(children), sizes.text(roots)));
  rules::agree(thresholds[0], inputs.shape(1)[0], inputs, "numbers of nodes");
  rules::agree(thresholds[0], children[0], inputs, "numbers of nodes");
  const Size nodes = thresholds[0];
  if (nodes.known() && nodes.value() < 1) refuse("trees without nodes");
  if (op.depth > 0 && x.shape[1].known() && x.shape[1].value() < 1) refuse("rows without features");
  const int64_t most = nodes.known() ? nodes.value() : std::numeric_limits<int32_t>::max();
  if (op.leaves < 0 || op.depth < 0 || op.leaves > most || op.depth > most)
    refuse(fmt::format("{} leaves and a depth of {} for {} nodes", op.leaves, op.depth,
                       sizes.text(thresholds)));
  return {rules::make_fact(DataType::kI32, {x.shape[0], roots[0]})};
}

}  // namespace anneal
