// Resize: "cuda.resize.window" of spatial axes, in which a thread has a few neighbouring channels.
// "cuda.resize.strided" of any axes and types, by scales, sizes and regions that a run decides on.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/window_kernel.h"
#include "anneal/kernels/spatial_resize.h"

namespace anneal::cuda {
namespace {

constexpr std::string_view kEmptyResize =
    "Resize: an empty tensor has no elements to resize; give x at least one element";

std::string number_text(double value) {
  return literal(RegisterType::kF64, std::bit_cast<uint64_t>(value));
}

// "axis_z()", "axis_y()" and "axis_x()" of the shape.
void add_axes(ShapeText& shape, const Resize& op, int rank) {
  for (int i = 0; i < 3; ++i) {
    const char name = "zyx"[i];
    const auto found = std::ranges::find(op.axes, axis_of(i, rank));
    const bool is_resized = found != op.axes.end();
    const auto index = static_cast<size_t>(found - op.axes.begin());
    const double scale = is_resized && !op.scales.empty() ? double{op.scales[index]} : 1;
    shape.add(
        fmt::format("  __device__ window::ResizedAxis axis_{0}() const {{\n"
                    "    return {{f64(in_{0}), f64(out_{0}), {1}, {2}, {3}, 0, 1}};\n  }}\n",
                    name, number_text(scale), is_resized, op.scales.empty()));
  }
}

std::string taps_definition(const Resize& op) {
  return fmt::format(
      "struct Taps {{\n"
      "  enum : bool {{ kNearest = {}, kCubic = {}, kExcludesOutside = {}, kAntialias = {} }};\n"
      "  enum : int {{ kCoordinates = {}, kRounding = {} }};\n"
      "  __device__ static f64 coefficient() {{ return {}; }}\n}};\n",
      op.mode == ResizeMode::kNearest, op.mode == ResizeMode::kCubic, op.exclude_outside,
      op.antialias, static_cast<int>(op.coordinates), static_cast<int>(op.nearest),
      number_text(op.cubic_coefficient));
}

KernelResult make_resize(const Resize& given, const Request& request) {
  const auto spatial = spatial_resize(given, request);
  if (!spatial) return refuse(spatial.reason());
  const Resize& op = *spatial;
  const Operand& x = request.inputs[0];
  const DataType dtype = x.type.dtype;
  if (op.mode != ResizeMode::kNearest && !is_float(dtype))
    return refuse("weighted sums of integers");
  const DataType sum = is_float(dtype) ? accumulator(dtype) : dtype;
  Extents extents(request);
  const ThreadShare share{.channels = readable_channels(x, 8)};
  const std::vector<int64_t> ones(3, 1), zeros(3, 0);
  ShapeText shape(index_type(request));
  add_window(shape, extents, request, {ones, zeros, zeros, ones}, false);
  add_axes(shape, op, x.type.shape.rank());
  add_thread_outputs(shape, extents, request, share, "c");
  return make_window_kernel(
      request, extents, shape,
      {.family = "resize",
       .header = "resize.h",
       .share = share,
       .accumulator = sum,
       .definitions = taps_definition(op),
       .call = fmt::format("resize<Taps, {}, {}>(s, x0, aligned != 0, result)", share.channels,
                           type_text(register_type(sum))),
       .vectors = {{0, 1, share.channels}},
       .if_empty = kEmptyResize});
}

// Element i of a constant.
double constant_number(const Tensor& tensor, size_t i) {
  const DataType dtype = tensor.dtype();
  const Scalar value = load_scalar(dtype, tensor.bytes().data() + i * size_of(dtype));
  switch (register_type(dtype)) {
    case RegisterType::kF32:
      return value.as<float>();
    case RegisterType::kF64:
      return value.as<double>();
    case RegisterType::kI32:
      return value.as<int32_t>();
    default:
      return static_cast<double>(value.as<int64_t>());
  }
}

// The text of one element, as kernels/cpu/reference/resize.cc computes it, in the same order.
class StridedResize {
 public:
  StridedResize(const Resize& op, const Request& request) : op_(op), request_(request) {
    const auto read = [&](int input) {
      if (request.inputs[static_cast<size_t>(input)].constant == nullptr) inputs_.push_back(input);
    };
    if (has_common_scale()) read(kSizes);
    if (crops()) read(kRegion);
    if (has_scales()) read(kScales);
  }

  KernelResult make() const {
    // On an H200 some elements were 0 (bench/results/2026-11-27-h200), while NVRTC's PTX gives the
    // right numbers on the virtual card.
    if (op_.antialias && has_scales() && request_.inputs[kScales].constant == nullptr)
      return refuse("antialiasing by scales that a run decides, which is wrong on a GPU");
    PerElement more{.headers = {"lanes.h", "window.h", "resize.h"},
                    .definitions = taps_definition(op_),
                    .if_empty = kEmptyResize};
    for (size_t i = 1; i < inputs_.size(); ++i) more.host_inputs.push_back(i);
    more.before = [this](const Request&, Extents& extents) { return axes_text(extents); };
    OperandViews seen(request_, inputs_);
    const bool copies = op_.mode == ResizeMode::kNearest && inputs_.size() == 1 && !crops() &&
                        !has_epilogue(request_);
    if (copies) seen.as_bits();
    const DataType dtype = seen.request().inputs[0].type.dtype;
    const auto body = [&](const Request& request, Extents& extents) {
      return element_text(request, extents);
    };
    return make_per_element(seen, accumulator(dtype), "resize_strided", body, std::move(more));
  }

 private:
  enum : int { kSizes = 1, kRegion = 2, kScales = 3 };  // inputs of the op

  bool crops() const { return op_.coordinates == ResizeCoordinates::kTfCropAndResize; }
  bool has_scales() const {
    return request_.op_input_count > kScales && request_.inputs[kScales].present;
  }
  // One scale for all axes, which the sizes that are wanted decide.
  bool has_common_scale() const {
    return op_.policy != ResizePolicy::kStretch && op_.scales.empty() && !has_scales();
  }
  // Element i of an input of the op as an f64: a literal, or read.
  std::string read_text(Extents& extents, int input, size_t i) const {
    const Operand& operand = request_.inputs[static_cast<size_t>(input)];
    if (operand.constant != nullptr) return number_text(constant_number(*operand.constant, i));
    const auto of = static_cast<int>(std::ranges::find(inputs_, input) - inputs_.begin());
    return fmt::format("f64({})",
                       loaded(operand.type.dtype,
                              fmt::format("x{}[{} * {}]", of, i, extents.input_stride(of, 0))));
  }
  std::string scale_text(Extents& extents, size_t i) const {
    if (!op_.scales.empty()) return number_text(op_.scales[i]);
    if (has_scales()) return read_text(extents, kScales, i);
    return has_common_scale() ? "common" : number_text(1);
  }
  std::string common_scale_text(Extents& extents) const {
    std::string text;
    for (size_t i = 0; i < op_.axes.size(); ++i) {
      const std::string own = fmt::format("{} / f64({})", read_text(extents, kSizes, i),
                                          extents.input_dim(0, static_cast<int>(op_.axes[i])));
      const char* const better = op_.policy == ResizePolicy::kNotSmaller ? "max" : "min";
      text = text.empty() ? own : fmt::format("op::{}({}, {})", better, text, own);
    }
    return text.empty() ? text : fmt::format("const f64 common = {};\n", text);
  }
  // "axis2" for each axis that is resized.
  std::string axes_text(Extents& extents) const {
    std::string text = has_common_scale() ? common_scale_text(extents) : "";
    const bool is_exact = op_.scales.empty() && !has_scales() && !has_common_scale();
    for (size_t i = 0; i < op_.axes.size(); ++i) {
      const auto axis = static_cast<int>(op_.axes[i]);
      text += fmt::format(
          "const window::ResizedAxis axis{} = {{f64({}), f64({}), {}, true, {}, {}, {}}};\n", axis,
          extents.input_dim(0, axis), extents.output_dim(0, axis), scale_text(extents, i), is_exact,
          crops() ? read_text(extents, kRegion, i) : "0",
          crops() ? read_text(extents, kRegion, i + op_.axes.size()) : "1");
    }
    return text;
  }
  bool resizes(int axis) const { return std::ranges::count(op_.axes, axis) != 0; }

  std::string element_text(const Request& request, Extents& extents) const {
    const Operand& x = request.inputs[0];
    const DataType dtype = x.type.dtype;
    const std::string type = type_text(register_type(accumulator(dtype)));
    // Integers are limited to the range of their type.
    const auto rounded = [&](const std::string& value) {
      return is_float(dtype)
                 ? fmt::format("{}({})", type, value)
                 : loaded(dtype, fmt::format("op::cast<{}>({})", type_text(dtype), value));
    };
    const std::string element = loaded(
        dtype, fmt::format("x0[{}]",
                           offset_text(request, extents, {false, 0}, x.type.shape, [&](int axis) {
                             return fmt::format("{}{}", resizes(axis) ? 'p' : 'i', axis);
                           })));
    std::string text =
        fmt::format("{} value = {};\n", type, rounded(number_text(op_.extrapolation_value)));
    if (crops()) {
      std::string inside = "true";
      for (const int64_t axis : op_.axes)
        inside += fmt::format(" && !window::is_outside<Taps>(axis{0}, i{0})", axis);
      text += fmt::format("if ({}) ", inside);
    }
    text += "{\n";
    if (op_.mode == ResizeMode::kNearest) {
      for (const int64_t axis : op_.axes)
        text +=
            fmt::format("const i64 p{0} = window::nearest_position<Taps>(axis{0}, i{0});\n", axis);
      text += fmt::format("value = {};\n", element);
    } else {
      text += fmt::format("{}value = {};\n", sum_text(element), rounded("sum"));
    }
    return text + "}\n" + store_call("value", x.type.shape.rank());
  }
  // "sum" of the elements with their weights: a loop for each axis.
  std::string sum_text(const std::string& element) const {
    std::string before, after;
    std::string sum = "sum";
    for (const int64_t axis : op_.axes)
      before += fmt::format("const window::AxisTaps<Taps> taps{0}(axis{0}, i{0});\n", axis);
    before += "f64 sum = 0;\n";
    for (const int64_t axis : op_.axes) {
      before += fmt::format(
          "for (i64 k{0} = 0; k{0} < taps{0}.count; ++k{0}) {{\n"
          "const f64 weight{0} = taps{0}.weight(k{0});\nif (weight{0} == 0) continue;\n"
          "const i64 p{0} = taps{0}.position(k{0});\nf64 sum{0} = 0;\n",
          axis);
      after = fmt::format("{1} += weight{0} * sum{0};\n}}\n", axis, sum) + after;
      sum = fmt::format("sum{}", axis);
    }
    return fmt::format("{}{} = f64({});\n{}", before, sum, element, after);
  }

  const Resize& op_;
  const Request& request_;
  std::vector<int> inputs_ = {0};  // of the op: those that the function reads
};

KernelResult make_strided_resize(const Resize& op, const Request& request) {
  return StridedResize(op, request).make();
}

constexpr KernelEntry kResizeEntries[] = {
    entry<Resize, make_resize>("cuda.resize.window", Layout::kChannelsLast),
    entry<Resize, make_strided_resize>("cuda.resize.strided"),
};

}  // namespace

std::span<const KernelEntry> resize_entries() { return kResizeEntries; }

}  // namespace anneal::cuda
