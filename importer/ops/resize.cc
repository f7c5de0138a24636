// Resize and its predecessor Upsample. Axes that keep their size are not resized.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// The values for axes, in ascending order of the axes.
template <class T>
std::vector<T> by_axis(const std::vector<T>& values, const std::vector<int64_t>& axes) {
  std::vector<std::pair<int64_t, T>> pairs;
  for (size_t i = 0; i < axes.size(); ++i) pairs.emplace_back(axes[i], values[i]);
  std::ranges::sort(pairs, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<T> sorted;
  for (const auto& pair : pairs) sorted.push_back(pair.second);
  return sorted;
}

// The positions of the values in ascending order of their axes.
std::vector<int64_t> ascending(const std::vector<int64_t>& axes) {
  std::vector<int64_t> places(axes.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::sort(places, [&](int64_t a, int64_t b) {
    return axes[static_cast<size_t>(a)] < axes[static_cast<size_t>(b)];
  });
  return places;
}

// The elements of a list at these places.
ValueId taken(Node& node, ValueId list, const std::vector<int64_t>& places,
              std::string_view suffix) {
  const std::string name(suffix);
  return node.layer(Gather{}, {list, node.integers_value(places, name + "/places")}, suffix);
}

// Whether an axis of scale 1 keeps its elements, as it does in ONNX Runtime. ONNX's formula of
// tf_half_pixel_for_nn would move them by half an element.
bool keeps_unscaled(const Resize& op) {
  return op.coordinates != ResizeCoordinates::kTfCropAndResize;
}

// The last elements correspond, as in PyTorch, also where the scaled size is no whole number. In
// ONNX's reference implementation and test data its fraction counts: an element beyond the last one
// of the result corresponds to the last one of x. ONNX's text can be read either way. nullopt: an
// output size is unknown.
std::optional<Outputs> resize_between_corners(Node& node, Resize op) {
  const ValueId by_scales =
      node.layer(op, {node.input(0)}, "by_scales");  // unused but for its shape
  const Shape shape = node.graph().value(by_scales).type().shape;
  std::vector<Size> sizes;
  for (const int64_t axis : op.axes) sizes.push_back(shape[static_cast<int>(axis)]);
  if (std::ranges::any_of(sizes, [](Size size) { return size.is_unknown(); })) return std::nullopt;
  op.scales.clear();
  return node.result(op, {node.input(0), node.sizes_value(sizes, "sizes")});
}

// roi: kNone but for kTfCropAndResize. op.axes: those that scales are for.
Outputs resize_by_scales(Node& node, Resize op, std::vector<double> scales, ValueId roi) {
  if (scales.size() != op.axes.size())
    node.invalid(fmt::format("{} scales for {} axes", scales.size(), op.axes.size()));
  scales = by_axis(scales, op.axes);
  std::ranges::sort(op.axes);
  std::vector<int64_t> axes;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!(scales[i] > 0) || !std::isfinite(scales[i])) node.invalid("a scale that is not positive");
    if (keeps_unscaled(op) && scales[i] == 1) continue;
    axes.push_back(op.axes[i]);
    op.scales.push_back(static_cast<float>(scales[i]));
  }
  op.axes = axes;
  if (axes.empty()) return same_value(node.input(0));
  if (op.coordinates == ResizeCoordinates::kAlignCorners && node.is_of_pytorch())
    if (const auto aligned = resize_between_corners(node, op)) return *aligned;
  if (roi == ValueId::kNone) return node.result(op, {node.input(0)});
  return node.result(op, {node.input(0), ValueId::kNone, roi});
}

// Scales that only a run tells. Those known to be 1 are left out.
Outputs resize_by_run_time_scales(Node& node, Resize op, int input, ValueId roi) {
  node.dtype(input, {DataType::kF32});
  const auto contents = node.contents(input);
  if (contents && contents->size() != op.axes.size())
    node.invalid(fmt::format("{} scales for {} axes", contents->size(), op.axes.size()));
  std::vector<int64_t> places = ascending(op.axes), axes, kept;
  for (const int64_t place : places) {
    const auto at = static_cast<size_t>(place);
    if (contents && keeps_unscaled(op) && (*contents)[at] == Size(1)) continue;
    axes.push_back(op.axes[at]);
    kept.push_back(place);
  }
  std::ranges::sort(places);
  const bool all = kept == places;
  op.axes = axes;
  const ValueId scales = all ? node.input(input) : taken(node, node.input(input), kept, "scales");
  return node.result(op, {node.input(0), ValueId::kNone, roi, scales});
}

Outputs resize_by_input(Node& node, const Resize& op, int input, ValueId roi) {
  const bool known = node.constant(input) != nullptr || node.known_integers(input).has_value();
  if (!known) return resize_by_run_time_scales(node, op, input, roi);
  return resize_by_scales(node, op, node.numbers_of_input(input, "scales"), roi);
}

Outputs resize_to_sizes(Node& node, Resize op, int input, ValueId roi) {
  node.dtype(input, {DataType::kI64});
  std::vector<ValueId> inputs = {node.input(0), node.input(input)};
  auto sizes = node.contents(input);
  if (sizes && sizes->size() != op.axes.size())
    node.invalid(fmt::format("{} sizes for {} axes", sizes->size(), op.axes.size()));
  if (!std::ranges::is_sorted(op.axes)) {
    sizes = node.known_sizes(input);
    if (sizes) {
      sizes = by_axis(*sizes, op.axes);
      inputs[1] = node.sizes_value(*sizes, "ordered_sizes");
    } else {
      inputs[1] = taken(node, inputs[1], ascending(op.axes), "ordered_sizes");
    }
    std::ranges::sort(op.axes);
  }
  const auto is_batch = [&](size_t i) {
    return op.axes[i] == 0 && node.has_batch(0) && (*sizes)[i] == Size(node.batch()->in_model);
  };
  if (sizes && keeps_unscaled(op) && op.policy == ResizePolicy::kStretch) {
    std::vector<int64_t> axes;
    std::vector<Size> changed;
    for (size_t i = 0; i < sizes->size(); ++i) {
      const Size old = node.shape(0)[static_cast<int>(op.axes[i])];
      if (((*sizes)[i] == old && !old.is_unknown()) || is_batch(i)) continue;
      axes.push_back(op.axes[i]);
      changed.push_back((*sizes)[i]);
    }
    const bool exact = std::ranges::none_of(changed, [](Size size) { return size.is_unknown(); });
    if (axes.empty()) return same_value(node.input(0));
    if (exact && axes.size() < op.axes.size()) {
      op.axes = axes;
      inputs[1] = node.sizes_value(changed, "sizes");
    }
  }
  if (roi != ValueId::kNone) inputs.push_back(roi);
  return node.result(op, inputs);
}

std::vector<int64_t> every_axis(Node& node) {
  std::vector<int64_t> axes(static_cast<size_t>(node.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// Up to opset 10: output x reads input x / scale.
Resize upsample(Node& node) {
  node.dtype(0, kNumbers);
  const bool linear = node.choice("mode", {"nearest", "linear", "bilinear"}) != 0;
  return {.mode = linear ? ResizeMode::kLinear : ResizeMode::kNearest,
          .coordinates = ResizeCoordinates::kAsymmetric,
          .nearest = ResizeNearest::kFloor,
          .axes = every_axis(node)};
}

Outputs import_upsample_height_and_width(Node& node) {
  node.expect_inputs(1, 1);
  if (node.rank(0) != 4) node.invalid("4 axes are expected");
  const float height = node.number("height_scale", 1), width = node.number("width_scale", 1);
  return resize_by_scales(node, upsample(node), {1, 1, height, width}, ValueId::kNone);
}
Outputs import_upsample_attribute(Node& node) {
  node.expect_inputs(1, 1);
  const auto scales = node.find_numbers("scales");
  if (!scales) node.invalid("attribute \"scales\" is missing");
  return resize_by_scales(node, upsample(node), {scales->begin(), scales->end()}, ValueId::kNone);
}
Outputs import_upsample(Node& node) {
  node.expect_inputs(2, 2);
  return resize_by_input(node, upsample(node), 1, ValueId::kNone);
}

struct NamedCoordinates {
  std::string_view name;
  ResizeCoordinates coordinates;
  int since;  // the opset
};
// "tf_half_pixel_for_nn" ends with opset 12, but tf2onnx writes it into later ones, and ONNX
// Runtime runs them.
constexpr NamedCoordinates kCoordinates[] = {
    {"half_pixel", ResizeCoordinates::kHalfPixel, 11},
    {"pytorch_half_pixel", ResizeCoordinates::kPytorchHalfPixel, 11},
    {"align_corners", ResizeCoordinates::kAlignCorners, 11},
    {"asymmetric", ResizeCoordinates::kAsymmetric, 11},
    {"tf_half_pixel_for_nn", ResizeCoordinates::kTfHalfPixelForNn, 11},
    {"tf_crop_and_resize", ResizeCoordinates::kTfCropAndResize, 11},
    {"half_pixel_symmetric", ResizeCoordinates::kHalfPixelSymmetric, 19},
};

ResizeCoordinates read_coordinates(Node& node) {
  const std::string name = node.text("coordinate_transformation_mode", "half_pixel");
  for (const NamedCoordinates& row : kCoordinates) {
    if (row.name != name) continue;
    if (node.opset() >= row.since) return row.coordinates;
    node.invalid(fmt::format(
        "attribute \"coordinate_transformation_mode\" is \"{}\", which opset {} does not have",
        name, node.opset()));
  }
  node.invalid(fmt::format(
      "attribute \"coordinate_transformation_mode\" is \"{}\", which is no mode of ONNX", name));
}

Resize read_resize(Node& node) {
  node.dtype(0, kNumbers);
  constexpr ResizeMode kModes[] = {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic};
  constexpr ResizeNearest kNearest[] = {ResizeNearest::kRoundPreferFloor,
                                        ResizeNearest::kRoundPreferCeil, ResizeNearest::kFloor,
                                        ResizeNearest::kCeil};
  Resize op;
  op.mode = kModes[node.choice("mode", {"nearest", "linear", "cubic"})];
  op.coordinates = read_coordinates(node);
  op.nearest = kNearest[node.choice("nearest_mode",
                                    {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})];
  op.cubic_coefficient = node.number("cubic_coeff_a", -0.75F);
  op.exclude_outside = node.flag("exclude_outside", false);
  op.extrapolation_value = node.number("extrapolation_value", 0);
  op.axes = every_axis(node);
  return op;
}

// inputs: x, roi, scales, sizes; those not used are absent or empty.
Outputs resize(Node& node, const Resize& op) {
  node.expect_inputs(1, 4);
  const auto given = [&](int input) {
    return node.has_input(input) && !(node.rank(input) == 1 && node.shape(input)[0] == Size(0));
  };
  ValueId roi = ValueId::kNone;
  if (op.coordinates == ResizeCoordinates::kTfCropAndResize) {
    if (!given(1)) node.invalid("tf_crop_and_resize without a region");
    node.dtype(1, kFloats);
    roi = node.input(1);
    if (!std::ranges::is_sorted(op.axes)) {
      std::vector<int64_t> places = ascending(op.axes);
      const size_t count = places.size();
      for (size_t i = 0; i < count; ++i) places.push_back(places[i] + static_cast<int64_t>(count));
      roi = taken(node, roi, places, "region");
    }
  }
  if (given(2) == given(3)) node.invalid("either scales or sizes are needed");
  if (given(3)) return resize_to_sizes(node, op, 3, roi);
  return resize_by_input(node, op, 2, roi);
}

Outputs import_resize(Node& node) { return resize(node, read_resize(node)); }

Outputs import_resize_axes(Node& node) {
  Resize op = read_resize(node);
  op.antialias = node.flag("antialias", false);
  constexpr ResizePolicy kPolicies[] = {ResizePolicy::kStretch, ResizePolicy::kNotLarger,
                                        ResizePolicy::kNotSmaller};
  op.policy =
      kPolicies[node.choice("keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"})];
  if (auto axes = node.find_integers("axes")) {
    for (int64_t& axis : *axes) axis = node.resolve_axis(axis, node.rank(0));
    node.resolve_axes(*axes, node.rank(0));  // each once
    op.axes = *axes;
  }
  return resize(node, op);
}

constexpr OpRow kResizeRows[] = {
    {"", "Resize", 10, 10, import_upsample},
    {"", "Resize", 11, 17, import_resize},
    {"", "Resize", 18, kLatest, import_resize_axes},
    {"", "Upsample", 1, 6, import_upsample_height_and_width},
    {"", "Upsample", 7, 8, import_upsample_attribute},
    {"", "Upsample", 9, kLatest, import_upsample},
};

}  // namespace

std::span<const OpRow> resize_rows() { return kResizeRows; }

}  // namespace anneal
