#include "anneal/importer/ops/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/importer/onnx/tensor_data.h"

namespace anneal {
namespace {

// Sums and products of a few of these fit in 64 bits.
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

std::vector<int64_t> window_attribute(Node& node, const char* name, size_t count, int64_t otherwise,
                                      int64_t smallest) {
  auto values = node.find_integers(name).value_or(std::vector<int64_t>(count, otherwise));
  if (values.size() != count)
    node.invalid(
        fmt::format("attribute \"{}\": {} values, {} expected", name, values.size(), count));
  for (const int64_t value : values)
    if (value < smallest || value > kLargest)
      node.invalid(fmt::format("attribute \"{}\": {}", name, value));
  return values;
}

void read_kernel(Node& node, ValueId weights, size_t axes, Window& window) {
  const auto given = node.find_integers("kernel_shape");
  if (given) window.kernel = window_attribute(node, "kernel_shape", axes, 1, 1);
  if (weights == ValueId::kNone) {
    if (!given) node.invalid("attribute \"kernel_shape\" is missing");
    return;
  }
  const Shape& shape = node.graph().value(weights).type().shape;
  if (shape.rank() != static_cast<int>(axes) + 2)
    node.invalid(fmt::format("weights of {} axes, {} expected", shape.rank(), axes + 2));
  for (size_t i = 0; i < axes; ++i) {
    const Size size = shape[static_cast<int>(i) + 2];
    if (!size.known()) node.unsupported("weights of a size known only at run time");
    if (given && window.kernel[i] != size.value())
      node.invalid("attribute \"kernel_shape\" contradicts the weights");
    if (!given) window.kernel.push_back(size.value());
  }
}

// One result for each `stride` elements.
void pad_to_same_size(Node& node, Window& window, AutoPad auto_pad, int first_axis) {
  SizeTable& sizes = node.sizes();
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t stride = window.strides[i];
    Size total = reach - 1;  // for a stride of 1, whatever the size
    if (stride != 1) {
      const Size size = node.shape(0)[static_cast<int>(i) + first_axis];
      const Size steps = sizes.sub(sizes.ceil_div(size, stride), 1);
      total = sizes.max(sizes.sub(sizes.add(sizes.mul(steps, stride), reach), size), 0);
    }
    if (total.known()) {
      set_pads(window, i, total.value(), auto_pad);
      continue;
    }
    window.open_begin.resize(window.kernel.size(), Size(0));
    window.open_end.resize(window.kernel.size(), Size(0));
    const Size half = sizes.floor_div(total, 2), rest = sizes.sub(total, half);
    window.open_begin[i] = auto_pad == AutoPad::kSameUpper ? half : rest;
    window.open_end[i] = auto_pad == AutoPad::kSameUpper ? rest : half;
  }
}

}  // namespace

int spatial_axes(Node& node) {
  const int axes = node.rank(0) - 2;
  if (axes < 1) node.invalid(fmt::format("{} axes, at least 3 expected", axes + 2));
  return axes;
}

AutoPad read_auto_pad(Node& node) {
  return static_cast<AutoPad>(
      node.choice("auto_pad", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"}));
}

void read_pads(Node& node, Window& window) {
  const size_t axes = window.kernel.size();
  const auto pads = window_attribute(node, "pads", 2 * axes, 0, -kLargest);
  window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(axes));
  window.pads_end.assign(pads.begin() + static_cast<ptrdiff_t>(axes), pads.end());
}

void set_pads(Window& window, size_t axis, int64_t total, AutoPad auto_pad) {
  const int64_t half = total / 2;
  window.pads_begin[axis] = auto_pad == AutoPad::kSameUpper ? half : total - half;
  window.pads_end[axis] = total - window.pads_begin[axis];
}

Window read_unpadded_window(Node& node, ValueId weights) {
  const auto axes = static_cast<size_t>(spatial_axes(node));
  Window window;
  read_kernel(node, weights, axes, window);
  window.strides = window_attribute(node, "strides", axes, 1, 1);
  window.dilations = window_attribute(node, "dilations", axes, 1, 1);
  window.pads_begin.assign(axes, 0);
  window.pads_end.assign(axes, 0);
  return window;
}

Window read_window(Node& node, ValueId weights, int first_axis) {
  Window window = read_unpadded_window(node, weights);
  const AutoPad auto_pad = read_auto_pad(node);
  if (auto_pad == AutoPad::kNotSet) {
    read_pads(node, window);
    return window;
  }
  // Exporters write zeros beside auto_pad.
  node.ignore("pads");
  if (auto_pad != AutoPad::kValid) pad_to_same_size(node, window, auto_pad, first_axis);
  return window;
}

ValueId padded_input(Node& node, const Window& window, ValueId input, ValueId fill) {
  if (window.open_begin.empty()) return input;
  std::vector<Size> pads(2, Size(0));
  pads.insert(pads.end(), window.open_begin.begin(), window.open_begin.end());
  pads.insert(pads.end(), 2, Size(0));
  pads.insert(pads.end(), window.open_end.begin(), window.open_end.end());
  return node.layer(Pad{}, {input, node.sizes_value(pads, "pads"), fill}, "padded");
}

ValueId channels_first(Node& node, ValueId x, std::string_view suffix) {
  std::vector<int64_t> order;
  const int rank = node.graph().value(x).type().shape.rank();
  for (int axis = 0; axis < rank; ++axis) order.push_back(axis < 2 ? axis * (rank - 1) : axis - 1);
  return node.layer(Transpose{order}, {x}, suffix);
}

Outputs channels_last_result(Node& node, ValueId x) {
  std::vector<int64_t> order = {0};
  const int rank = node.graph().value(x).type().shape.rank();
  for (int axis = 2; axis <= rank; ++axis) order.push_back(axis < rank ? axis : 1);
  return node.result(Transpose{order}, {x}, "channels_last");
}

ConvOfInput read_conv(Node& node, ValueId x, ValueId weights, ValueId zero_point, int first_axis) {
  const Window window = read_window(node, weights, first_axis);
  Conv op{.strides = window.strides,
          .pads_begin = window.pads_begin,
          .pads_end = window.pads_end,
          .dilations = window.dilations,
          .groups = node.integer("group", 1)};
  if (op.groups < 1) node.invalid(fmt::format("attribute \"group\" is {}", op.groups));
  if (window.open_begin.empty()) return {op, x};
  if (zero_point == ValueId::kNone)
    zero_point = node.constant_value(tensor_of(node.dtype(0), {}, {0}), "padding");
  return {op, padded_input(node, window, x, zero_point)};
}

}  // namespace anneal
