// conv_transpose_to_phases: a transposed convolution whose windows overlap is a convolution of its
// phases, a shuffle and a slice.
//
//   y = ConvTranspose(x[N,C,H,W], w[C,K,4,4]) strides=[2,2] pads_begin=[1,1] pads_end=[1,1]
//     =>  c = Conv(x, w'[2*2*K,C,2,2]) pads_begin=[1,1] pads_end=[1,1];
//         s = c as [N,2,2,K,H+1,W+1], transposed to [N,K,H+1,2,W+1,2], as [N,K,2*H+2,2*W+2];
//         y = Slice(s) from 1 to -1 on both axes
//
// optimizer/analysis/conv_phases.h explains phases. Where the kernel is no multiple of the strides,
// some taps are 0: the sums are the same for finite numbers. For tensor cores: the layer is one of
// 16 bits, or may become one, and a target has no kernel of its own for it but a fallback, and one
// for the convolution. There, each refusal is recorded. Runs after split_conv_transpose, which
// needs no slice, and after insert_quantize, since calibration measures the transposed convolution.
#include <fmt/format.h>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/conv_phases.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

constexpr int64_t kLeastChannels = 8;       // fewer leave most of a tensor core's tile empty
constexpr double kMostMultiplications = 2;  // more than the transposed convolution: a 3x3 kernel
                                            // with strides of 2 has 16/9

// Whether the layer computes in 16 bits, or assign_precision may make it do so.
bool may_use_tensor_cores(const Graph& graph, const Layer& layer, const PassOptions& options) {
  const DataType type = graph.value(layer.inputs[0]).type().dtype;
  if (type != DataType::kF32) return is_half(type);
  const PrecisionOptions& precision = options.precision;
  if (const auto asked = LayerPrecisions(precision.layers).of(layer))
    return *asked == Precision::kF16 || *asked == Precision::kBF16;
  return precision.allows_half() || precision.best;
}

std::string why_not_phases(const Graph& graph, const Layer& layer, const PassOptions& options) {
  if (!may_use_tensor_cores(graph, layer, options)) return "it does not compute in 16 bits";
  if (const auto why = why_no_phases(graph, layer); !why.empty()) return std::string(why);
  if (const int64_t channels = graph.constant(layer.inputs[1])->dims()[0];
      channels < kLeastChannels)
    return fmt::format("its input has {} channels", channels);
  const double times = multiplications_of_phases(graph, layer);
  if (times > kMostMultiplications)
    return fmt::format("it needs {:.1f} times the multiplications", times);
  return {};
}

bool to_phases(Graph& graph, LayerId id, PassRun& run) {
  if (!op_as<ConvTranspose>(graph, id)) return false;
  if (run.ask_targets(graph, copy_of(graph, id)).empty()) return false;
  const std::string name = graph.layer(id).name;
  std::string why_not = why_not_phases(graph, graph.layer(id), run.options);
  if (why_not.empty()) why_not = replace_by_phases(graph, id, run);
  if (why_not.empty())
    run.did(name, "is a convolution of its phases, a shuffle and a slice", {-2, 0});
  else
    run.refused(name, fmt::format("stays a transposed convolution: {}", why_not));
  return why_not.empty();
}

}  // namespace

bool conv_transpose_to_phases(Graph& graph, PassRun& run) { return sweep(graph, run, to_phases); }

}  // namespace anneal
