// split_conv_transpose: a transposed convolution whose windows do not overlap is a convolution of
// one position and a shuffle.
//
//   y = ConvTranspose(x[N,C,H,W], w[C,K,2,2]; bias[K,1,1]) strides=[2,2] epilogue=add($0,$1)
//     =>  c = Conv(x, w'[2*2*K,C,1,1]; bias'[2*2*K,1,1]) epilogue=add($0,$1);
//         y = c as [N,2,2,K,H,W], transposed to [N,K,H,2,W,2], as [N,K,2*H,2*W]
//
// Each output is the same sum over C. For constant weights of one group whose kernel is the stride,
// without dilation, pads and output padding. The shuffle is a copy more, so only where a target has
// no kernel of its own for the transposed convolution but a fallback, and one for the convolution.
// There, each refusal is recorded. conv_transpose_to_phases takes windows that overlap.
#include <fmt/format.h>

#include "anneal/optimizer/analysis/conv_phases.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// Why the layer is no convolution of one position; empty if it is one.
std::string_view why_not_one_position(const Graph& graph, const Layer& layer,
                                      const ConvTranspose& op) {
  if (!all_are(op.pads_begin, 0) || !all_are(op.pads_end, 0)) return "it has pads";
  if (!all_are(op.output_padding, 0)) return "it has output padding";
  if (const Tensor* weights = graph.constant(layer.inputs[1]); weights != nullptr)
    for (int axis = 2; axis < weights->dims().rank(); ++axis)
      if (weights->dims()[axis] != op.strides[static_cast<size_t>(axis) - 2])
        return "its kernel is not as large as its strides";
  return why_no_phases(graph, layer);
}

bool split(Graph& graph, LayerId id, PassRun& run) {
  const auto* op = op_as<ConvTranspose>(graph, id);
  if (!op) return false;
  const std::string name = graph.layer(id).name;
  if (run.ask_targets(graph, copy_of(graph, id)).empty()) {
    run.refused(name, "every target has a kernel for the transposed convolution");
    return false;
  }
  std::string why_not(why_not_one_position(graph, graph.layer(id), *op));
  if (why_not.empty()) why_not = replace_by_phases(graph, id, run);
  if (why_not.empty())
    run.did(name, "is a convolution of one position and a shuffle", {-1, 0});
  else
    run.refused(name, fmt::format("stays a transposed convolution: {}", why_not));
  return why_not.empty();
}

}  // namespace

bool split_conv_transpose(Graph& graph, PassRun& run) { return sweep(graph, run, split); }

}  // namespace anneal
