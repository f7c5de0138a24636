#include "anneal/optimizer/analysis/conv_phases.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// Numbers for each spatial axis.
struct Windows {
  Windows(const Dims& weights, const ConvTranspose& op) {
    for (int axis = 2; axis < weights.rank(); ++axis) {
      const auto i = static_cast<size_t>(axis) - 2;
      kernel.push_back(weights[axis]);
      strides.push_back(op.strides[i]);
      taps.push_back(1 + (weights[axis] - 1) / op.strides[i]);
      // Of the last window's phases, the positions that are no output.
      behind.push_back(op.strides[i] * taps.back() - weights[axis] + op.pads_end[i] -
                       op.output_padding[i]);
    }
  }
  int64_t phases() const { return product(strides); }
  static int64_t product(const std::vector<int64_t>& numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), int64_t{1}, std::multiplies{});
  }
  std::vector<int64_t> kernel, strides, taps, behind;
};

// Counts through all indices below `sizes`, the last one fastest.
bool next_index(std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  for (size_t axis = sizes.size(); axis-- > 0;) {
    if (++index[axis] < sizes[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

// [C,K,kernel...] to [phases*K,C,taps...]; the taps run against the windows of the transposed
// convolution. The channels of a phase stay together, so that tensors with channels last keep them
// as neighbours.
Tensor weights_of_phases(const Tensor& weights, const Windows& windows) {
  const int64_t channels = weights.dims()[0], outputs = weights.dims()[1];
  Dims moved = {outputs * windows.phases(), channels};
  for (const int64_t taps : windows.taps) moved.push_back(taps);
  auto fresh = allocate_tensor(weights.dtype(), moved);
  const size_t size = size_of(weights.dtype());
  std::byte* to = fresh.data.data();
  std::vector<int64_t> phase(windows.strides.size());
  do {
    for (int64_t k = 0; k < outputs; ++k)
      for (int64_t c = 0; c < channels; ++c) {
        std::vector<int64_t> tap(windows.taps.size());
        do {
          int64_t from = c * outputs + k;
          bool is_inside = true;
          for (size_t i = 0; i < tap.size(); ++i) {
            const int64_t at = windows.strides[i] * (windows.taps[i] - 1 - tap[i]) + phase[i];
            is_inside &= at < windows.kernel[i];
            from = from * windows.kernel[i] + at;
          }
          if (is_inside)
            std::memcpy(to, weights.bytes().data() + static_cast<size_t>(from) * size, size);
          else
            std::memset(to, 0, size);
          to += size;
        } while (next_index(tap, windows.taps));
      }
  } while (next_index(phase, windows.strides));
  return fresh.tensor;
}

// [...,K,1...] to [...,phases*K,1...].
Tensor for_each_phase(const Tensor& tensor, int channel_axis, int64_t phases) {
  Dims dims = tensor.dims();
  const int64_t channels = dims[channel_axis], outer = tensor.count() / channels;
  dims[channel_axis] *= phases;
  auto fresh = allocate_tensor(tensor.dtype(), dims);
  const size_t size = size_of(tensor.dtype());
  std::byte* to = fresh.data.data();
  const size_t bytes = static_cast<size_t>(channels) * size;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t phase = 0; phase < phases; ++phase, to += bytes)
      std::memcpy(to, tensor.bytes().data() + static_cast<size_t>(i) * bytes, bytes);
  return fresh.tensor;
}

// What the epilogue reads as the convolution reads it; empty if some input differs between
// positions, or is a value for each channel that is not constant.
std::optional<std::vector<ValueId>> inputs_by_phase(Graph& graph, const Layer& layer, int spatial,
                                                    int64_t phases) {
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
    const std::string name = value.name + "/phases";
    inputs.push_back(graph.add_constant(name, for_each_phase(*constant, channel_axis, phases)));
  }
  return inputs;
}

// The convolution with the epilogue, and the further inputs of the epilogue for a layer behind the
// shuffle.
struct Split {
  NewLayer conv;
  std::vector<ValueId> behind;
};

Split split_layer(Graph& graph, const Layer& layer, const Windows& windows) {
  const Tensor& weights = *graph.constant(layer.inputs[1]);
  const std::vector<int64_t> ones(windows.taps.size(), 1);
  std::vector<int64_t> pads;
  for (const int64_t taps : windows.taps) pads.push_back(taps - 1);
  const ValueId moved = graph.add_constant(graph.value(layer.inputs[1]).name + "/phases",
                                           weights_of_phases(weights, windows));
  Split made{
      .conv = {.name = layer.name + "/conv",
               .op = Conv{.strides = ones, .pads_begin = pads, .pads_end = pads, .dilations = ones},
               .inputs = {layer.inputs[0], moved},
               .op_input_count = 2,
               .origins = layer.origins},
      .behind = {}};
  if (layer.epilogues.empty()) return made;
  const int spatial = static_cast<int>(windows.taps.size());
  if (auto inputs = inputs_by_phase(graph, layer, spatial, windows.phases())) {
    made.conv.epilogues = layer.epilogues;
    made.conv.inputs.insert(made.conv.inputs.end(), inputs->begin(), inputs->end());
  } else {
    made.behind.assign(layer.inputs.begin() + layer.op_input_count, layer.inputs.end());
  }
  return made;
}

// [N,phases*K,H',W'] to [N,K,H'*s,W'*s].
ValueId shuffle(Graph& graph, Rewrite& rewrite, ValueId conv, Size channels,
                const Windows& windows) {
  const Shape from = rewrite.shape(conv);
  const int spatial = static_cast<int>(windows.taps.size());
  Shape parts{from[0]}, joined{from[0], channels};
  std::vector<int64_t> permutation = {0, 1 + spatial};
  for (int i = 0; i < spatial; ++i) {
    const Size stride(windows.strides[static_cast<size_t>(i)]);
    parts.push_back(stride);
    permutation.push_back(2 + spatial + i);
    permutation.push_back(1 + i);
    joined.push_back(graph.sizes().mul(from[i + 2], stride));
  }
  parts.push_back(channels);
  for (int i = 0; i < spatial; ++i) parts.push_back(from[i + 2]);
  const ValueId value = rewrite.reshape(conv, parts);
  return value == ValueId::kNone ? value
                                 : rewrite.reshape(rewrite.transpose(value, permutation), joined);
}

// Without pads: `before` positions at the beginning of each spatial axis, `behind` at its end.
ValueId crop(Rewrite& rewrite, ValueId value, const std::vector<int64_t>& before,
             const std::vector<int64_t>& behind) {
  std::vector<int64_t> starts, ends, axes;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == 0 && behind[i] == 0) continue;
    starts.push_back(before[i]);
    ends.push_back(behind[i] == 0 ? std::numeric_limits<int64_t>::max() : -behind[i]);
    axes.push_back(static_cast<int64_t>(i) + 2);
  }
  if (axes.empty()) return value;
  return rewrite.slice(value, starts, ends, axes, std::vector<int64_t>(axes.size(), 1));
}

}  // namespace

std::string_view why_no_phases(const Graph& graph, const Layer& layer) {
  const auto& op = std::get<ConvTranspose>(layer.op);
  const Tensor* weights = graph.constant(layer.inputs[1]);
  if (!weights || weights->count() == 0) return "its weights are not constant";
  if (op.groups != 1) return "it has groups";
  if (!all_are(op.dilations, 1)) return "it has dilations";
  const int spatial = weights->dims().rank() - 2;
  for (int i = 0; i < spatial; ++i)
    if (op.strides[static_cast<size_t>(i)] / 2 > weights->dims()[i + 2])
      return "its strides are more than twice its kernel";
  constexpr int64_t kMostPads = int64_t{1} << 32;
  for (const auto& numbers : {op.pads_begin, op.pads_end, op.output_padding})
    for (const int64_t number : numbers)
      if (number < 0 || number > kMostPads) return "its pads are negative or too large";
  if (std::ranges::any_of(Windows(weights->dims(), op).behind,
                          [](int64_t positions) { return positions < 0; }))
    return "its outputs reach beyond its last window";
  if (2 + 2 * spatial > kMaxRank) return "the shuffle would have too many axes";
  if (layer.outputs.size() != 1) return "its epilogue has several results";
  if (std::ranges::any_of(layer.epilogues, &Program::uses_index))
    return "its epilogue computes with positions, which the shuffle moves";
  return "";
}

double multiplications_of_phases(const Graph& graph, const Layer& layer) {
  const Windows windows(graph.constant(layer.inputs[1])->dims(), std::get<ConvTranspose>(layer.op));
  return static_cast<double>(windows.phases() * Windows::product(windows.taps)) /
         static_cast<double>(Windows::product(windows.kernel));
}

std::string replace_by_phases(Graph& graph, LayerId id, const PassRun& run) {
  const Layer layer = graph.layer(id);
  const auto& op = std::get<ConvTranspose>(layer.op);
  const Dims weights = graph.constant(layer.inputs[1])->dims();
  const Windows windows(weights, op);
  const DataType type = graph.value(layer.inputs[0]).type().dtype;
  const double bytes = static_cast<double>(graph.constant(layer.inputs[1])->bytes().size()) *
                       multiplications_of_phases(graph, layer);
  if (run.options.max_memory != 0 && bytes > static_cast<double>(run.options.max_memory))
    return "its weights as phases are larger than the memory limit";
  Split made = split_layer(graph, layer, windows);
  if (!made.behind.empty() && accumulator(type) != type)
    return "its epilogue reads the sums before they are rounded to 16 bits";
  if (std::string why_not = run.ask_targets(graph, made.conv); !why_not.empty()) return why_not;
  Rewrite rewrite(graph, id);
  const LayerId conv = graph.add(std::move(made.conv));
  ValueId value = shuffle(graph, rewrite, graph.layer(conv).outputs[0], weights[1], windows);
  if (value == ValueId::kNone) return "its sizes are not decided by the graph's inputs";
  value = crop(rewrite, value, op.pads_begin, windows.behind);
  if (!made.behind.empty()) {
    made.behind.insert(made.behind.begin(), value);
    value = rewrite.add("epilogue", Pointwise{layer.epilogues[0]}, std::move(made.behind));
  }
  if (!rewrite.finish(value)) return "the shuffle's result is not known to have its sizes";
  return {};
}

}  // namespace anneal
