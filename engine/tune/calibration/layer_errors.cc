#include "anneal/engine/tune/calibration/layer_errors.h"
#include "anneal/engine/run/make_engine.h"

#include <algorithm>
#include <unordered_map>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/calibration/channel_reduction.h"
#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/analysis/layer_bias.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/precision/quantized_weights.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// The measure of the difference between a result and the result in 8 bits.
Program difference(bool squared) {
  ProgramBuilder builder;
  const Reg exact = builder.input(0, DataType::kF32), rounded = builder.input(1, DataType::kF32);
  const Reg error = builder.apply(Opcode::kSub, rounded, exact);
  return builder.finish(squared ? builder.apply(Opcode::kMul, error, error) : error,
                        DataType::kF32);
}

// The names of the engine's outputs for one layer.
struct Outputs {
  std::string layer, data, result_square, data_square;
  bool takes_bias = false;
  struct Errors {
    std::string mean, square;
  };
  Errors largest, fitted;
};

// Adds to a graph what measures its layers.
class Measuring {
 public:
  Measuring(Graph& graph, const CalibrationTable& table, bool symmetric)
      : graph_(graph), table_(table), symmetric_(symmetric) {}

  std::vector<Outputs> add() {
    std::vector<Outputs> outputs;
    for (const LayerId id : graph_.order())
      if (auto added = add(id)) outputs.push_back(std::move(*added));
    return outputs;
  }

 private:
  std::optional<Outputs> add(LayerId id) {
    const auto layer = quantizable(graph_, id);
    if (!layer) return std::nullopt;
    const Tensor weights = *graph_.constant(layer->weights);
    const auto range = table_.tensors.find(graph_.value(layer->data).name);
    if (range == table_.tensors.end() || graph_.layer(id).outputs.size() != 1 ||
        !why_not_quantized(weights, layer->channel_axis).empty())
      return std::nullopt;
    const std::string name = graph_.layer(id).name;
    const ValueId result = graph_.layer(id).outputs[0];
    const ValueId data = in_8_bits(layer->data, scaling_for(range->second, symmetric_));
    const auto errors = [&](const char* stem, bool fitted) {
      const QuantizedWeights integers = quantize_channels(weights, layer->channel_axis, fitted);
      const ValueId rounded = twin(id, name + stem, data, integers, layer->channel_axis);
      return Outputs::Errors{
          mean(id, name + stem + "/mean", difference(false), {result, rounded}),
          mean(id, name + stem + "/square", difference(true), {result, rounded})};
    };
    return Outputs{
        name,
        graph_.value(layer->data).name,
        mean(id, name + "/measured", square_program(), {result}),
        add_channel_reduction(graph_, name + "/data", ReduceKind::kMean, square_program(),
                              {layer->data}, channel_weights(graph_, id)->data_axis),
        only_adds(graph_, id),
        errors("/largest", false),
        errors("/fitted", true)};
  }

  ValueId in_8_bits(ValueId value, const Scaling& scaling) {
    const auto [made, is_new] = in_8_bits_.try_emplace(value, ValueId::kNone);
    if (!is_new) return made->second;
    const std::string name = graph_.value(value).name + "/measured";
    std::vector<ValueId> inputs = {value, add_scales(graph_, name, scaling),
                                   add_zeros(graph_, name, scaling)};
    if (inputs.back() == ValueId::kNone) inputs.pop_back();
    const auto apply = [&](Op op) {
      inputs[0] = graph_.layer(graph_.add({.name = name, .op = std::move(op), .inputs = inputs}))
                      .outputs[0];
    };
    apply(Quantize{.dtype = scaling.integer});
    apply(Dequantize{});
    return made->second = inputs[0];
  }

  // The results of a layer like `id` that reads integers.
  ValueId twin(LayerId id, const std::string& name, ValueId data, const QuantizedWeights& weights,
               int64_t axis) {
    const ValueId integers = graph_.add_constant(name + "/weights", weights.integers);
    const LayerId back =
        graph_.add({.name = name + "/dequantized",
                    .op = Dequantize{.axis = axis},
                    .inputs = {integers, add_scales(graph_, name, weights.scaling)}});
    NewLayer added = copy_of(graph_, id);
    added.name = name;
    added.output_names.clear();
    added.inputs[0] = data;
    added.inputs[1] = graph_.layer(back).outputs[0];
    return graph_.layer(graph_.add(std::move(added))).outputs[0];
  }

  std::string mean(LayerId id, const std::string& name, Program program,
                   std::vector<ValueId> inputs) {
    return add_channel_reduction(graph_, name, ReduceKind::kMean, std::move(program),
                                 std::move(inputs), channel_weights(graph_, id)->result_axis);
  }

  Graph& graph_;
  const CalibrationTable& table_;
  bool symmetric_;
  std::unordered_map<ValueId, ValueId> in_8_bits_;
};

void add(std::vector<double>& sums, const TensorView& view) {
  const Tensor dense = dense_copy(view);
  const auto values = dense.as<float>();
  sums.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sums[i] += double{values[i]};
}

void divide(std::vector<double>& sums, int64_t count) {
  for (double& sum : sums) sum /= static_cast<double>(std::max<int64_t>(count, 1));
}

// Sums over batches while they run, means afterwards.
class Sums {
 public:
  explicit Sums(std::vector<Outputs> outputs) : outputs_(std::move(outputs)) {}

  void add(const ExecutionContext& context) {
    const auto half = static_cast<size_t>(batches_++ % 2);
    const auto add_errors = [&](ChannelErrors& errors, const Outputs::Errors& names) {
      anneal::add(errors.means[half], context.output(names.mean));
      anneal::add(errors.squares, context.output(names.square));
    };
    for (const Outputs& each : outputs_) {
      LayerErrors& errors = errors_[each.layer];
      errors.takes_bias = each.takes_bias;
      errors.has_two_batches = batches_ > 1;
      add_errors(errors.largest, each.largest);
      add_errors(errors.fitted, each.fitted);
      errors.data = each.data;
      anneal::add(errors.result_squares, context.output(each.result_square));
      anneal::add(errors.data_squares, context.output(each.data_square));
    }
  }

  std::map<std::string, LayerErrors> means() && {
    for (auto& [name, errors] : errors_) {
      for (ChannelErrors* each : {&errors.largest, &errors.fitted}) {
        divide(each->means[0], (batches_ + 1) / 2);
        divide(each->means[1], batches_ / 2);
        divide(each->squares, batches_);
      }
      divide(errors.result_squares, batches_);
      divide(errors.data_squares, batches_);
      for (const double channel : errors.result_squares)
        errors.result_square += channel / static_cast<double>(errors.result_squares.size());
    }
    return std::move(errors_);
  }

 private:
  std::vector<Outputs> outputs_;
  int64_t batches_ = 0;
  std::map<std::string, LayerErrors> errors_;
};

}  // namespace

std::map<std::string, LayerErrors> measure_layer_errors(
    const Graph& graph, const CalibrationTable& table, bool symmetric, const PassOptions& passes,
    const std::shared_ptr<const Dataset>& samples, const SampleRunOptions& options) {
  Graph measuring = graph.clone();
  std::vector<Outputs> outputs = Measuring(measuring, table, symmetric).add();
  if (outputs.empty()) return {};
  GraphBuildOptions build_options;
  build_options.passes = passes;
  build_options.passes.precision = {};
  Sums sums(std::move(outputs));
  run_samples(make_engine(build(std::move(measuring), build_options),
                          {.device = "cpu", .threads = options.threads}),
              samples, options, [&](const SampleRun& run) { sums.add(run.context); });
  return std::move(sums).means();
}

}  // namespace anneal
