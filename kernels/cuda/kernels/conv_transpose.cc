// ConvTranspose on CUDA cores: "cuda.conv_transpose.direct". It is a fallback, so that the passes
// split_conv_transpose and conv_transpose_to_phases make convolutions of what they can.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/kernels/input_layouts.h"
#include "anneal/kernels/cuda/text/conv_text.h"

namespace anneal::cuda {
namespace {

constexpr int kConvTransposeThreads = 256;

// The numbers of device/conv_transpose.h. w_c and w_k: of input and of output channels.
ShapeText transposed_shape(const ConvTranspose& op, const Request& request, Extents& extents,
                           ThreadShare share, int64_t columns) {
  ShapeText shape(index_type(request));
  const Operand& w = request.inputs[1];
  add_window(shape, extents, request, {op.strides, op.pads_begin, op.pads_end, op.dilations}, true);
  add_kernel(shape, extents, request);
  shape.number("w_c", extents.input_stride(1, 0));
  shape.number("w_k", extents.input_stride(1, 1));
  const int64_t channels = w.type.shape[0].value() / op.groups;
  shape.number("channels", channels);
  shape.number("columns", columns);
  add_thread_outputs(shape, extents, request, share, fmt::format("c / {} * {}", columns, channels));
  return shape;
}

KernelResult make_conv_transpose(const ConvTranspose& op, const Request& request) {
  if (std::string reason = why_no_conv_text(request); !reason.empty())
    return refuse(std::move(reason));
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  if (!w.type.shape[0].known() || !w.type.shape[1].known())
    return refuse("channels that are not known");
  const int64_t columns = w.type.shape[1].value();
  if (columns == 0 || w.type.shape[0] == Size(0)) return refuse("no channels");
  const DataType sum = conv_accumulator(request);
  const std::string type = type_text(register_type(sum));
  Extents extents(request);
  FusedProductParts parts;
  // 16 bytes at most, and no more sums than registers hold with ease.
  const auto most = std::min<int64_t>(16 / static_cast<int64_t>(size_of(w.type.dtype)), 4);
  const int64_t inputs = vector_elements(x, 1, w.type.shape[0].value() / op.groups, most);
  const ThreadShare share{.channels = static_cast<int>(std::gcd(columns, most))};
  const int64_t weights = vector_elements(w, 1, columns, share.channels);
  const StoreLanes lanes = store_lanes(share);
  auto store = StoreText::make(request, sum, extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  const ShapeText shape = transposed_shape(op, request, extents, share, columns);
  FunctionText text{.family = "conv_transpose",
                    .headers = {"program.h", "lanes.h", "window.h", "conv_transpose.h"},
                    .text = {}};
  text.text = fmt::format(
      "{store}{shape}{result}"
      "KERNEL($name, {threads})(In<{x}> x, In<{w}> w{parameters}{extents}) {{\n"
      "  const Shape s = {made};\n  const Result result{{{construction}}};\n"
      "  window::conv_transpose<{inputs}, {channels}, {weights}, {type}>(\n"
      "      s, x, w, (aligned & 1) != 0, (aligned & 2) != 0, result);\n}}\n",
      fmt::arg("store", parts.store->definition()), fmt::arg("shape", shape.definition()),
      fmt::arg("result", result_definition(x.type.shape.rank(), type)),
      fmt::arg("threads", kConvTransposeThreads), fmt::arg("x", type_text(x.type.dtype)),
      fmt::arg("w", type_text(w.type.dtype)), fmt::arg("parameters", parts.store->parameters()),
      fmt::arg("extents", extents.parameters()), fmt::arg("made", shape.construction()),
      fmt::arg("construction", parts.store->construction()), fmt::arg("inputs", inputs),
      fmt::arg("channels", share.channels), fmt::arg("weights", weights), fmt::arg("type", type));
  parts.inputs = {0, 1};
  parts.vectors = {{.operand = 0, .axis = 1, .elements = inputs},
                   {.operand = 1, .axis = 1, .elements = weights}};
  add_functions(parts, request, text);
  parts.sources = extents.sources();
  parts.geometry = [share](std::span<const TensorView>, std::span<const TensorView> outputs) {
    return blocks_of(
        (thread_count(outputs[0].dims, share) + kConvTransposeThreads - 1) / kConvTransposeThreads,
        kConvTransposeThreads);
  };
  return make_fused_product(std::move(parts), request);
}

// Weights of neighbouring output channels are neighbours; those of an element of the kernel lie
// together.
std::optional<Shape> weight_strides_of(const Request& request, size_t input) {
  if (input != 1) return std::nullopt;
  std::vector<int> order;
  for (int axis = 2; axis < request.inputs[1].type.shape.rank(); ++axis) order.push_back(axis);
  order.insert(order.end(), {0, 1});
  return dense_strides(request.inputs[1], order);
}

// Threads beside each other read one pixel, and write channels that are neighbours.
constexpr KernelEntry direct_entry() {
  KernelEntry direct = entry<ConvTranspose, make_conv_transpose>("cuda.conv_transpose.direct",
                                                                 Layout::kChannelsLast);
  direct.is_fallback = true;
  return direct;
}
constexpr KernelEntry kConvTransposeEntries[] = {direct_entry()};
constexpr InputLayout kConvTransposeLayouts[] = {{"cuda.conv_transpose.direct", weight_strides_of}};

}  // namespace

std::span<const KernelEntry> conv_transpose_entries() { return kConvTransposeEntries; }
std::span<const InputLayout> conv_transpose_input_layouts() { return kConvTransposeLayouts; }

}  // namespace anneal::cuda
