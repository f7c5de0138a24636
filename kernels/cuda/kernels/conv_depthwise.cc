// Conv of one input channel to a group: "cuda.conv.depthwise". A thread computes a few columns of a
// few channels, with their weights in registers.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/cost/depthwise_config.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/kernels/input_layouts.h"
#include "anneal/kernels/cuda/text/conv_text.h"

namespace anneal::cuda {
namespace {

constexpr int kDepthwiseThreads = 128;

// Sizes of the kernel and of the output, at the values to optimize for; a kernel that is not known
// has no elements.
DepthwiseSizes sizes_of(const Conv& op, const Request& request, int64_t multiplier) {
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  DepthwiseSizes sizes;
  sizes.taps = 1;
  for (int axis = 2; axis < w.type.shape.rank(); ++axis) {
    const Size size = w.type.shape[axis];
    sizes.taps *= size.known() ? size.value() : 0;
  }
  sizes.stride = op.strides.back();
  sizes.outputs = 1;
  const Shape& y = request.outputs[0].type.shape;
  for (const Size size : y) sizes.outputs *= request.sizes.range(size).opt;
  sizes.columns = request.sizes.range(y[y.rank() - 1]).opt;
  const auto most = std::min<int64_t>(16 / static_cast<int64_t>(size_of(x.type.dtype)), 4);
  if (multiplier == 1) sizes.most_channels = vector_elements(x, 1, x.type.shape[1], most);
  sizes.accumulator_bytes = size_of(conv_accumulator(request));
  return sizes;
}

KernelResult make_depthwise(const Conv& op, const Request& request) {
  if (std::string reason = why_no_conv_text(request); !reason.empty())
    return refuse(std::move(reason));
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  if (op.groups == 1 || !(w.type.shape[1] == Size(1)))
    return refuse("not one input channel to a group");
  // Threads beside each other would read or write a row of pixels apart.
  if (!request.ignore_speed_heuristics &&
      is_channels_first_in_memory(x) != is_channels_first_in_memory(request.outputs[0]))
    return refuse("channels that are neighbours in the input or in the output alone");
  const Size outputs = w.type.shape[0];
  if (!outputs.known()) return refuse("output channels that are not known");
  const int64_t multiplier = outputs.value() / op.groups;
  const DataType sum = conv_accumulator(request);
  const std::string type = type_text(register_type(sum));
  Extents extents(request);
  FusedProductParts parts;
  const auto config =
      depthwise_for(sizes_of(op, request, multiplier), spec_of(request.device), request.tactic);
  if (!config) return refuse("a tactic that is none of this kernel's");
  const ThreadShare share{config->channels, config->columns};
  const StoreLanes lanes = store_lanes(share);
  auto store = StoreText::make(request, sum, extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  parts.tactic = tactic_of(*config);

  ShapeText shape(index_type(request));
  add_conv(shape, extents, op, request);
  add_thread_outputs(shape, extents, request, share, fmt::format("c / {}", multiplier));
  const ZeroText x_zero(request, extents, 2, "x_zero", type);
  const ZeroText w_zero(request, extents, 3, "w_zero", type);
  const bool whole = vector_elements(w, 0, outputs, share.channels) == share.channels;
  const int w_lanes = whole ? share.channels : 1;
  const std::string call =
      config->holds_weights ? fmt::format(
                                  "depthwise<{}, {}, {}, {}>(s, x, w, {}, {}, (aligned & 1) != 0,"
                                  " (aligned & 2) != 0, result)",
                                  share.channels, share.columns, w_lanes, type, x_zero.value(),
                                  weight_zeros(w_zero, extents, "0"))
                            : fmt::format("large_depthwise<{}>(s, x, w, {}, {}, result)", type,
                                          x_zero.value(), weight_zeros(w_zero, extents, "0"));
  FunctionText text{.family = "conv_depthwise",
                    .headers = {"program.h", "lanes.h", "window.h", "conv_depthwise.h"},
                    .text = {}};
  text.text = parts.store->definition() + shape.definition() +
              weight_zeros_definition(w_zero, extents, type) +
              result_definition(x.type.shape.rank(), type);
  text.text += fmt::format(
      "KERNEL($name, {})(In<{}> x, In<{}> w{}{}{}{}) {{\n"
      "  const Shape s = {};\n  const Result result{{{}}};\n  window::{};\n}}\n",
      kDepthwiseThreads, type_text(x.type.dtype), type_text(w.type.dtype), x_zero.parameter(),
      w_zero.parameter(), parts.store->parameters(), extents.parameters(), shape.construction(),
      parts.store->construction(), call);
  parts.inputs = {0, 1};
  if (x_zero.is_present()) parts.inputs.push_back(2);
  if (w_zero.is_present()) parts.inputs.push_back(3);
  parts.vectors = {{.operand = 0, .axis = 1, .elements = share.channels},
                   {.operand = 1, .axis = 0, .elements = w_lanes}};
  add_functions(parts, request, text);
  parts.sources = extents.sources();
  parts.geometry = [share](std::span<const TensorView>, std::span<const TensorView> outputs) {
    return blocks_of(
        (thread_count(outputs[0].dims, share) + kDepthwiseThreads - 1) / kDepthwiseThreads,
        kDepthwiseThreads);
  };
  return make_fused_product(std::move(parts), request);
}

std::vector<Tactic> depthwise_tactics_of(const Conv& op, const Request& request) {
  const int64_t multiplier = request.inputs[1].type.shape[0].value() / op.groups;
  return depthwise_tactics(sizes_of(op, request, multiplier), spec_of(request.device));
}

// Weights of neighbouring channels are neighbours where those of the input are.
std::optional<Shape> input_strides(const Request& request, size_t input) {
  if (input != 1 || !is_channels_first_in_memory(request.inputs[0])) return std::nullopt;
  std::vector<int> order = {1};
  for (int axis = 2; axis < request.inputs[1].type.shape.rank(); ++axis) order.push_back(axis);
  order.push_back(0);
  return dense_strides(request.inputs[1], order);
}

// Channels that are neighbours share all but the weights, and are read together.
constexpr KernelEntry kConvDepthwiseEntries[] = {
    tactics_entry<Conv, make_depthwise, depthwise_tactics_of>("cuda.conv.depthwise",
                                                              Layout::kChannelsLast),
};
constexpr InputLayout kConvDepthwiseLayouts[] = {{"cuda.conv.depthwise", input_strides}};

}  // namespace

std::span<const KernelEntry> conv_depthwise_entries() { return kConvDepthwiseEntries; }
std::span<const InputLayout> conv_depthwise_input_layouts() { return kConvDepthwiseLayouts; }

}  // namespace anneal::cuda
