// The shape rule of Resize.
#include <fmt/format.h>

#include <cmath>

#include "anneal/core/size/real.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::refuse;

// floor(size * scale). A scale that is a fraction with small terms (2, 0.5, 1.25) is taken exactly,
// which works for expressions too; others as ONNX does, in f32.
Size scaled(Size size, float scale, SizeTable& sizes) {
  constexpr int64_t kSmall = 1 << 12;
  for (int64_t divisor = 1; divisor <= kSmall; divisor *= 2) {
    const double dividend = static_cast<double>(scale) * static_cast<double>(divisor);
    if (dividend > kSmall) break;
    if (dividend == std::floor(dividend))
      return sizes.floor_div(sizes.mul(size, static_cast<int64_t>(dividend)), divisor);
  }
  if (!size.known()) return Size::unknown();
  const float product = std::floor(static_cast<float>(size.value()) * scale);
  if (!(product < 0x1p62f)) refuse(fmt::format("a size of {}", product));
  return static_cast<int64_t>(product);
}

// The same where only the run knows the scale: as ONNX does, in f32.
Size scaled(Size size, Size scale, SizeTable& sizes) {
  if (scale.is_unknown()) return scale;
  RealSizes reals(sizes);
  const Size product = reals.operation(
      RealOp::kMul, RealType::kF32, reals.operation(RealOp::kConvert, RealType::kF32, size), scale);
  return reals.truncate(reals.operation(RealOp::kFloor, RealType::kF32, product));
}

// size * numerator / denominator, to the nearest integer, halves up.
int64_t rounded_fraction(int64_t size, int64_t numerator, int64_t denominator) {
  const auto twice = static_cast<__int128>(size) * numerator * 2 + denominator;
  const __int128 result = twice / (static_cast<__int128>(denominator) * 2);
  if (result > INT64_MAX) refuse("a size of more than 2^63");
  return static_cast<int64_t>(result);
}

// The sizes that one common scale gives: the smallest or the largest of wanted / x.
std::vector<Size> keep_aspect(ResizePolicy policy, const std::vector<Size>& x,
                              const std::vector<Size>& wanted) {
  if (wanted.size() == 1) return wanted;
  size_t best = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!x[i].known() || !wanted[i].known()) return std::vector<Size>(x.size(), Size::unknown());
    if (x[i].value() < 1) refuse("an aspect ratio of no elements");
    if (wanted[i].value() < 0 || wanted[i].value() > INT32_MAX || x[i].value() > INT32_MAX)
      refuse(fmt::format("a size of {}", wanted[i].value()));
    const int64_t here = wanted[i].value() * x[best].value();
    const int64_t there = wanted[best].value() * x[i].value();
    if (policy == ResizePolicy::kNotLarger ? here < there : here > there) best = i;
  }
  std::vector<Size> sizes;
  sizes.reserve(x.size());
  for (const Size& size : x)
    sizes.emplace_back(rounded_fraction(size.value(), wanted[best].value(), x[best].value()));
  return sizes;
}

// The contents of the input `scales`; empty if it is absent or not known yet.
std::vector<float> scales_of(const InferInputs& inputs, size_t count) {
  if (!inputs.has(3)) return {};
  rules::require_dtype(inputs, 3, DataType::kF32);
  const Shape& shape = inputs.shape(3);
  if (shape.rank() != 1 ||
      rules::surely_differ(shape[0], static_cast<int64_t>(count), inputs.sizes()))
    refuse(fmt::format("scales of shape {} for {} axes", inputs.sizes().text(shape), count));
  const TensorView* view = inputs.value(3);
  if (!view || !view->data) return {};
  std::vector<float> scales;
  for (int64_t i = 0; i < view->dims[0]; ++i)
    scales.push_back(view->as<float>()[i * view->strides[0]]);
  return scales;
}

}  // namespace

Facts infer(const Resize& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  if (!rules::is_numeric(x.dtype)) refuse(fmt::format("resizing of {}", to_string(x.dtype)));
  const size_t count = op.axes.size();
  for (size_t i = 0; i < count; ++i) {
    rules::require_axis(op.axes[i], x.shape.rank());
    if (i > 0 && op.axes[i] <= op.axes[i - 1]) refuse("axes are not ascending");
  }
  if (inputs.has(2)) {
    rules::require_float(inputs, 2);
    const Shape& roi = inputs.shape(2);
    if (roi.rank() != 1 || rules::surely_differ(roi[0], static_cast<int64_t>(2 * count), sizes))
      refuse(fmt::format("a region of shape {} for {} axes", sizes.text(roi), count));
  } else if (op.coordinates == ResizeCoordinates::kTfCropAndResize) {
    refuse("cropping without a region");
  }

  std::vector<Size> from, to;
  for (int64_t axis : op.axes) from.push_back(x.shape[static_cast<int>(axis)]);
  const std::vector<float> scales = op.scales.empty() ? scales_of(inputs, count) : op.scales;
  if (!scales.empty() || inputs.has(3)) {
    if (inputs.has(1) || (inputs.has(3) && !op.scales.empty())) refuse("scales and sizes");
    if (scales.empty()) {
      const auto contents = inputs.elements(3);
      for (size_t i = 0; i < count; ++i)
        to.push_back(contents ? scaled(from[i], contents->at(i), sizes) : Size::unknown());
    } else if (scales.size() != count) {
      refuse(fmt::format("{} scales for {} axes", scales.size(), count));
    }
    for (size_t i = 0; i < scales.size(); ++i) {
      if (!(scales[i] > 0) || std::isinf(scales[i]))
        refuse(fmt::format("a scale of {}", scales[i]));
      to.push_back(scaled(from[i], scales[i], sizes));
    }
  } else {
    to = rules::list(inputs, 1, "sizes");
    if (to.size() != count) refuse(fmt::format("{} sizes for {} axes", to.size(), count));
    if (op.policy != ResizePolicy::kStretch) to = keep_aspect(op.policy, from, to);
  }
  Shape shape = x.shape;
  for (size_t i = 0; i < count; ++i) {
    if (from[i] == Size(0) && to[i].known() && to[i].value() > 0)
      refuse("enlarging a tensor without elements");
    shape[static_cast<int>(op.axes[i])] = to[i];
  }
  return {rules::make_fact(x.dtype, shape)};
}

}  // namespace anneal
