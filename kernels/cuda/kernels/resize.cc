// Resize of spatial axes: "cuda.resize.window". A thread has a few neighbouring channels.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/text/window_text.h"
#include "anneal/kernels/spatial_resize.h"

namespace anneal::cuda {
namespace {

constexpr int kResizeThreads = 256;

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
                    "    return {{f64(in_{0}), f64(out_{0}), {1}, {2}, {3}}};\n  }}\n",
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
  const int rank = x.type.shape.rank();
  const DataType accumulator = is_float(dtype) ? anneal::accumulator(dtype) : dtype;
  const std::string type = type_text(register_type(accumulator));
  Extents extents(request);
  FusedProductParts parts;
  const auto most = std::min<int64_t>(16 / static_cast<int64_t>(size_of(dtype)), 8);
  const ThreadShare share{.channels =
                              static_cast<int>(vector_elements(x, 1, x.type.shape[1], most))};
  parts.vectors.push_back({0, 1, share.channels});
  const StoreLanes lanes = store_lanes(share);
  auto store = StoreText::make(request, accumulator, extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  const std::vector<int64_t> ones(3, 1), zeros(3, 0);
  ShapeText shape(index_type(request));
  add_window(shape, extents, request, {ones, zeros, zeros, ones}, false);
  add_axes(shape, op, rank);
  add_thread_outputs(shape, extents, request, share, "c");
  FunctionText text{
      .family = "resize", .headers = {"program.h", "lanes.h", "window.h", "resize.h"}, .text = {}};
  text.text = fmt::format(
      "{store}{taps}{shape}{result}"
      "KERNEL($name, {threads})(In<{element}> x{parameters}{extents}) {{\n"
      "  const Shape s = {made};\n  const Result result{{{construction}}};\n"
      "  window::resize<Taps, {channels}, {type}>(s, x, aligned != 0, result);\n}}\n",
      fmt::arg("store", parts.store->definition()), fmt::arg("taps", taps_definition(op)),
      fmt::arg("shape", shape.definition()), fmt::arg("result", result_definition(rank, type)),
      fmt::arg("threads", kResizeThreads), fmt::arg("element", type_text(dtype)),
      fmt::arg("parameters", parts.store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("made", shape.construction()), fmt::arg("construction", parts.store->construction()),
      fmt::arg("channels", share.channels), fmt::arg("type", type));
  add_functions(parts, request, text);
  parts.inputs = {0};
  parts.sources = extents.sources();
  parts.geometry = [share](std::span<const TensorView> inputs,
                           std::span<const TensorView> outputs) {
    if (count(inputs[0].dims) == 0 && count(outputs[0].dims) != 0)
      fail(ErrorCode::kInvalidArgument, "Resize: an empty tensor has no elements to resize");
    return blocks_of((thread_count(outputs[0].dims, share) + kResizeThreads - 1) / kResizeThreads,
                     kResizeThreads);
  };
  return make_fused_product(std::move(parts), request);
}

constexpr KernelEntry kResizeEntries[] = {
    entry<Resize, make_resize>("cuda.resize.window", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> resize_entries() { return kResizeEntries; }

}  // namespace anneal::cuda
