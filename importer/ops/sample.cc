// Sampling of images between their elements.
#include <fmt/format.h>

#include <utility>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

Outputs grid_sample(Node& node, ResizeMode mode) {
  node.expect_inputs(2, 2);
  if (!kFloats.contains(node.dtype(0, kNumbersAndBooleans)))
    node.unsupported(fmt::format("sampling of {}", to_string(node.dtype(0))));
  node.dtype(1, kFloats);
  constexpr GridPadding kPaddings[] = {GridPadding::kZeros, GridPadding::kBorder,
                                       GridPadding::kReflection};
  const GridPadding padding =
      kPaddings[node.choice("padding_mode", {"zeros", "border", "reflection"})];
  const GridSample op{
      .mode = mode, .padding = padding, .align_corners = node.flag("align_corners", false)};
  return node.result(op, {node.input(0), node.input(1)});
}

constexpr ResizeMode kModes[] = {ResizeMode::kLinear, ResizeMode::kNearest, ResizeMode::kCubic};
Outputs import_grid_sample_2d(Node& node) {
  return grid_sample(node, kModes[node.choice("mode", {"bilinear", "nearest", "bicubic"})]);
}
Outputs import_grid_sample(Node& node) {
  return grid_sample(node, kModes[node.choice("mode", {"linear", "nearest", "cubic"})]);
}

Outputs roi_align(Node& node, bool half_pixel) {
  node.expect_inputs(3, 3);
  node.dtype(0, kFloats);
  node.expect_same_dtype({0, 1});
  node.dtype(2, {DataType::kI64});
  const RoiAlign op{
      .kind = node.choice("mode", {"avg", "max"}) == 0 ? PoolKind::kAverage : PoolKind::kMax,
      .height = node.integer("output_height", 1),
      .width = node.integer("output_width", 1),
      .sampling_ratio = node.integer("sampling_ratio", 0),
      .spatial_scale = node.number("spatial_scale", 1),
      .half_pixel = half_pixel};
  return node.result(op, {node.input(0), node.input(1), node.input(2)});
}
Outputs import_roi_align_at_edges(Node& node) { return roi_align(node, false); }
Outputs import_roi_align(Node& node) {
  return roi_align(node, node.choice("coordinate_transformation_mode",
                                     {"half_pixel", "output_half_pixel"}) == 0);
}

constexpr OpRow kSampleRows[] = {
    {"", "GridSample", 16, 19, import_grid_sample_2d},
    {"", "GridSample", 20, kLatest, import_grid_sample},
    {"", "RoiAlign", 10, 15, import_roi_align_at_edges},
    {"", "RoiAlign", 16, kLatest, import_roi_align},
};

}  // namespace

std::span<const OpRow> sample_rows() { return kSampleRows; }

}  // namespace anneal
