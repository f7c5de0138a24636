// split_conv_transpose: a transposed convolution whose windows do not overlap is a convolution of
// one position and a shuffle.
//
//   y = ConvTranspose(x[N,C,H,W], w[C,K,2,2]; bias[K,1,1]) strides=[2,2] epilogue=add($0,$1)
//     =>  c = Conv(x, w'[K*2*2,C,1,1]; bias'[K*2*2,1,1]) epilogue=add($0,$1);
//         y = c as [N,K,2,2,H,W], transposed to [N,K,H,2,W,2], as [N,K,2*H,2*W]
//
// Each output is the same sum over C. For constant weights of one group whose kernel is the stride,
// without dilation, pads and output padding. An epilogue whose further inputs are the same at all
// positions becomes the convolution's; another one becomes a layer behind the shuffle. The shuffle
// is a copy more, so only where a target has no kernel of its own for the transposed convolution
// but a fallback, and one for the convolution. There, each refusal is recorded.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// [C,K,kernel...] to [K*kernel,C,1...].
Tensor weights_of_positions(const Tensor& weights) {
  const Dims& dims = weights.dims();
  const int64_t channels = dims[0];
  const int64_t outputs = channels == 0 ? 0 : weights.count() / channels;
  Dims moved = {outputs, channels};
  for (int axis = 2; axis < dims.rank(); ++axis) moved.push_back(1);
  auto fresh = allocate_tensor(weights.dtype(), moved);
  const size_t size = size_of(weights.dtype());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < outputs; ++k)
      std::memcpy(fresh.data.data() + static_cast<size_t>(k * channels + c) * size,
                  weights.bytes().data() + static_cast<size_t>(c * outputs + k) * size, size);
  return fresh.tensor;
}

// [...,K,1...] to [...,K*positions,1...].
Tensor for_each_position(const Tensor& tensor, int channel_axis, int64_t positions) {
  Dims dims = tensor.dims();
  const int64_t channels = dims[channel_axis], outer = tensor.count() / channels;
  dims[channel_axis] *= positions;
  auto fresh = allocate_tensor(tensor.dtype(), dims);
  const size_t size = size_of(tensor.dtype());
  std::byte* to = fresh.data.data();
  for (int64_t i = 0; i < outer * channels; ++i)
    for (int64_t position = 0; position < positions; ++position, to += size)
      std::memcpy(to, tensor.bytes().data() + static_cast<size_t>(i) * size, size);
  return fresh.tensor;
}

// What the epilogue reads as the convolution reads it; empty if some input differs between
// positions, or is a value for each channel that is not constant.
std::optional<std::vector<ValueId>> inputs_by_position(Graph& graph, const Layer& layer,
                                                       int spatial, int64_t positions) {
  std::vector<ValueId> inputs;
  for (size_t i = static_cast<size_t>(layer.op_input_count); i < layer.inputs.size(); ++i) {
    const Value& value = graph.value(layer.inputs[i]);
    const Shape& shape = value.type().shape;
    const int channel_axis = shape.rank() - spatial - 1;
    for (int axis = std::max(channel_axis + 1, 0); axis < shape.rank(); ++axis)
      if (shape[axis] != 1) return std::nullopt;
    if (channel_axis < 0 || shape[channel_axis] == 1) {
      inputs.push_back(layer.inputs[i]);
      continue;
    }
    const Tensor* constant = graph.constant(layer.inputs[i]);
    if (!constant || constant->count() == 0) return std::nullopt;
    const std::string name = value.name + "/positions";
    inputs.push_back(
        graph.add_constant(name, for_each_position(*constant, channel_axis, positions)));
  }
  return inputs;
}

// Why the layer is no convolution of one position; empty if it is one.
std::string_view why_not_one_position(const Graph& graph, const Layer& layer,
                                      const ConvTranspose& op) {
  const Tensor* weights = graph.constant(layer.inputs[1]);
  if (!weights || weights->count() == 0) return "its weights are not constant";
  if (op.groups != 1) return "it has groups";
  if (!all_are(op.dilations, 1)) return "it has dilations";
  if (!all_are(op.pads_begin, 0) || !all_are(op.pads_end, 0)) return "it has pads";
  if (!all_are(op.output_padding, 0)) return "it has output padding";
  const int spatial = weights->dims().rank() - 2;
  for (int i = 0; i < spatial; ++i)
    if (weights->dims()[i + 2] != op.strides[static_cast<size_t>(i)])
      return "its kernel is not as large as its strides";
  if (2 + 2 * spatial > kMaxRank) return "the shuffle would have too many axes";
  if (layer.outputs.size() != 1) return "its epilogue has several results";
  if (std::ranges::any_of(layer.epilogues, &Program::uses_index))
    return "its epilogue computes with positions, which the shuffle moves";
  return "";
}

// The convolution with the epilogue, and the rest of the epilogue for a layer behind the
// shuffle.
struct Split {
  NewLayer conv;
  std::vector<ValueId> behind;
};

Split split_layer(Graph& graph, const Layer& layer, int spatial) {
  const Tensor& weights = *graph.constant(layer.inputs[1]);
  const int64_t positions = weights.count() / weights.dims()[0] / weights.dims()[1];
  const std::vector<int64_t> ones(static_cast<size_t>(spatial), 1);
  const std::vector<int64_t> zeros(static_cast<size_t>(spatial), 0);
  const ValueId moved = graph.add_constant(graph.value(layer.inputs[1]).name + "/positions",
                                           weights_of_positions(weights));
  Split made{
      .conv = {.name = layer.name + "/conv",
               .op =
                   Conv{.strides = ones, .pads_begin = zeros, .pads_end = zeros, .dilations = ones},
               .inputs = {layer.inputs[0], moved},
               .op_input_count = 2,
               .origins = layer.origins},
      .behind = {}};
  if (layer.epilogues.empty()) return made;
  if (auto inputs = inputs_by_position(graph, layer, spatial, positions)) {
    made.conv.epilogues = layer.epilogues;
    made.conv.inputs.insert(made.conv.inputs.end(), inputs->begin(), inputs->end());
  } else {
    made.behind.assign(layer.inputs.begin() + layer.op_input_count, layer.inputs.end());
  }
  return made;
}

bool split(Graph& graph, LayerId id, PassRun& run) {
  const auto* op = op_as<ConvTranspose>(graph, id);
  if (!op) return false;
  const Layer layer = graph.layer(id);
  const std::string& name = layer.name;
  if (run.ask_targets(graph, copy_of(graph, id)).empty()) {
    run.refused(name, "every target has a kernel for the transposed convolution");
    return false;
  }
  const auto refuse = [&](std::string_view why) {
    run.refused(name, fmt::format("stays a transposed convolution: {}", why));
    return false;
  };
  if (const auto why_not = why_not_one_position(graph, layer, *op); !why_not.empty())
    return refuse(why_not);
  const Shape x = graph.value(layer.inputs[0]).type().shape;
  const int spatial = x.rank() - 2;
  const Dims kernel = graph.constant(layer.inputs[1])->dims();
  Split made = split_layer(graph, layer, spatial);
  if (!made.behind.empty() && accumulator(graph.value(layer.inputs[0]).type().dtype) !=
                                  graph.value(layer.inputs[0]).type().dtype)
    return refuse("its epilogue reads the sums before they are rounded to 16 bits");
  if (const std::string why_not = run.ask_targets(graph, made.conv); !why_not.empty())
    return refuse(why_not);

  Shape parts{x[0], Size(kernel[1])};
  std::vector<int64_t> permutation = {0, 1};
  for (int i = 0; i < spatial; ++i) {
    parts.push_back(kernel[i + 2]);
    permutation.push_back(2 + spatial + i);
    permutation.push_back(2 + i);
  }
  for (int i = 0; i < spatial; ++i) parts.push_back(x[i + 2]);
  const Shape shape = graph.value(layer.outputs[0]).type().shape;
  Rewrite rewrite(graph, id);
  const LayerId conv = graph.add(std::move(made.conv));
  ValueId value = rewrite.reshape(graph.layer(conv).outputs[0], parts);
  if (value != ValueId::kNone)
    value = rewrite.reshape(rewrite.transpose(value, permutation), shape);
  if (value == ValueId::kNone) return refuse("its sizes are not decided by the graph's inputs");
  if (!made.behind.empty()) {
    made.behind.insert(made.behind.begin(), value);
    value = rewrite.add("epilogue", Pointwise{layer.epilogues[0]}, std::move(made.behind));
  }
  if (!rewrite.finish(value)) return refuse("the shuffle's result is not known to have its sizes");
  run.did(name, "is a convolution of one position and a shuffle", {-1, 0});
  return true;
}

}  // namespace

bool split_conv_transpose(Graph& graph, PassRun& run) { return sweep(graph, run, split); }

}  // namespace anneal
