// split_conv_transpose: a transposed convolution whose windows do not overlap is a convolution of
// one position and a shuffle.
//
//   y = ConvTranspose(x[N,C,H,W], w[C,K,2,2]) strides=[2,2]
//     =>  c = Conv(x, w'[K*2*2,C,1,1]);  y = c as [N,K,2,2,H,W], transposed to [N,K,H,2,W,2], as
//                                            [N,K,2*H,2*W]
//
// Each output is the same sum over C. For constant weights of one group whose kernel is the stride,
// without dilation, pads and output padding. The shuffle is a copy more, so only where a target has
// no kernel of its own for the transposed convolution, but one for the convolution.
#include <algorithm>
#include <cstring>

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

bool split(Graph& graph, LayerId id, PassRun& run) {
  const auto* op = op_as<ConvTranspose>(graph, id);
  if (!op) return false;
  const Layer& layer = graph.layer(id);
  const Tensor* weights = graph.constant(layer.inputs[1]);
  if (!weights || !layer.epilogues.empty() || op->groups != 1 || weights->count() == 0 ||
      !all_are(op->dilations, 1) || !all_are(op->pads_begin, 0) || !all_are(op->pads_end, 0) ||
      !all_are(op->output_padding, 0))
    return false;
  const Shape x = graph.value(layer.inputs[0]).type().shape;
  const int spatial = x.rank() - 2;
  for (int i = 0; i < spatial; ++i)
    if (weights->dims()[i + 2] != op->strides[static_cast<size_t>(i)]) return false;
  if (2 + 2 * spatial > kMaxRank) return false;

  const std::string name = layer.name;
  if (run.ask_targets(graph, {.name = name, .op = layer.op, .inputs = layer.inputs}).empty()) {
    run.refused(name, "every target has a kernel for the transposed convolution");
    return false;
  }
  const std::vector<int64_t> ones(static_cast<size_t>(spatial), 1);
  const std::vector<int64_t> zeros(static_cast<size_t>(spatial), 0);
  const Conv conv{.strides = ones, .pads_begin = zeros, .pads_end = zeros, .dilations = ones};
  const ValueId moved = graph.add_constant(graph.value(layer.inputs[1]).name + "/positions",
                                           weights_of_positions(*weights));
  const std::vector<ValueId> inputs = {layer.inputs[0], moved};
  if (const std::string why_not =
          run.ask_targets(graph, {.name = name, .op = conv, .inputs = inputs});
      !why_not.empty()) {
    run.refused(name, "no better as a convolution: " + why_not);
    return false;
  }

  Shape parts{x[0], Size(weights->dims()[1])};
  std::vector<int64_t> permutation = {0, 1};
  for (int i = 0; i < spatial; ++i) {
    parts.push_back(weights->dims()[i + 2]);
    permutation.push_back(2 + spatial + i);
    permutation.push_back(2 + i);
  }
  for (int i = 0; i < spatial; ++i) parts.push_back(x[i + 2]);
  const Shape shape = graph.value(layer.outputs[0]).type().shape;
  Rewrite rewrite(graph, id);
  ValueId value = rewrite.reshape(rewrite.add("conv", conv, inputs), parts);
  if (value == ValueId::kNone) return false;
  value = rewrite.reshape(rewrite.transpose(value, permutation), shape);
  if (!rewrite.finish(value)) return false;
  run.did(name, "is a convolution of one position and a shuffle", {-1, 0});
  return true;
}

}  // namespace

bool split_conv_transpose(Graph& graph, PassRun& run) { return sweep(graph, run, split); }

}  // namespace anneal
