#include "anneal/optimizer/analysis/cross_layer_equalization.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/programs/rewrite_program.h"
#include "anneal/optimizer/programs/scale_equivariance.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

using Values = std::unordered_set<ValueId>;

std::vector<InputDegree> degrees_of(const Graph& graph, std::span<const ValueId> inputs,
                                    const Values& multiplied) {
  std::vector<InputDegree> degrees;
  for (const ValueId input : inputs)
    degrees.push_back(input == ValueId::kNone || multiplied.contains(input) ? InputDegree::kOne
                      : graph.constant(input)                               ? InputDegree::kConstant
                                                                            : InputDegree::kZero);
  return degrees;
}

// The result of a layer as a program of its scaled values; kNone represents its accumulators.
struct Elementwise {
  Program program;
  std::vector<ValueId> inputs;
};
Elementwise elementwise(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  if (const auto* op = std::get_if<Pointwise>(&layer.op)) return {op->program, layer.inputs};
  return {store_program(layer, DataType::kF32), epilogue_inputs(layer)};
}

bool is_float_value(const Graph& graph, ValueId value) {
  return graph.value(value).type().dtype == DataType::kF32;
}

// By constant weights of f32, and with one result.
std::optional<ChannelWeights> product_at(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  if (!op_as<Conv>(graph, id) && !op_as<MatMul>(graph, id)) return std::nullopt;
  auto layout = channel_weights(graph, id);
  if (!layout || layer.outputs.size() != 1 || layer.op_input_count != 2 ||
      !is_float_value(graph, layer.inputs[layout->input]) ||
      !is_float_value(graph, layer.outputs[0]))
    return std::nullopt;
  return layout;
}

class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph) {}

  std::optional<ScalableChannels> from(LayerId writer) {
    const auto layout = product_at(graph_, writer);
    if (!layout) return std::nullopt;
    found_.writer = writer;
    found_.axis = layout->result_axis;
    found_.count = layout->written_count;
    const ValueId result = graph_.layer(writer).outputs[0];
    found_.value = result;
    rank_ = graph_.value(result).type().shape.rank();
    if (!is_homogeneous(writer)) return std::nullopt;
    values_.insert(result);
    std::vector<ValueId> open = {result};
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      if (graph_.is_output(value)) return std::nullopt;
      for (const LayerId user : users_of(graph_, value))
        if (!follow(user, open)) return std::nullopt;
    }
    if (found_.readers.empty()) return std::nullopt;
    sort();
    // Now that all values are known, of which a layer may read several.
    if (!std::ranges::all_of(found_.between, [&](LayerId id) { return is_homogeneous(id); }) ||
        !std::ranges::all_of(found_.readers, [&](LayerId id) { return is_reader(id); }))
      return std::nullopt;
    return std::move(found_);
  }

  std::optional<ScalableChannels> reads_of(ValueId value) {
    const Type& type = graph_.value(value).type();
    if (!is_float_value(graph_, value) || graph_.constant(value)) return std::nullopt;
    found_.value = value;
    rank_ = type.shape.rank();
    values_.insert(value);
    for (const LayerId user : users_of(graph_, value)) {
      const auto layout = product_at(graph_, user);
      if (!layout || graph_.layer(user).inputs[layout->data_input] != value) continue;
      if (found_.readers.empty()) {
        found_.axis = layout->data_axis;
        found_.count = layout->read_count;
      }
      if (is_reader(user)) found_.readers.push_back(user);
    }
    if (found_.readers.empty()) return std::nullopt;
    return std::move(found_);
  }

 private:
  bool follow(LayerId user, std::vector<ValueId>& open) {
    if (is_reader(user)) {
      found_.readers.push_back(user);
      return true;
    }
    if (std::ranges::find(found_.between, user) != found_.between.end()) return true;
    if (!passes_on(user)) return false;
    const ValueId result = graph_.layer(user).outputs[0];
    const Shape& shape = graph_.value(result).type().shape;
    if (!is_float_value(graph_, result) || shape.rank() != rank_ || !shape[found_.axis].known() ||
        shape[found_.axis].value() != found_.count)
      return false;
    found_.between.push_back(user);
    values_.insert(result);
    open.push_back(result);
    return true;
  }

  // A product that reads one of the values as its data, and none otherwise.
  bool is_reader(LayerId id) const {
    const auto layout = product_at(graph_, id);
    if (!layout || layout->data_axis != found_.axis || layout->read_count != found_.count)
      return false;
    const Layer& layer = graph_.layer(id);
    for (size_t i = 0; i < layer.inputs.size(); ++i)
      if (values_.contains(layer.inputs[i]) != (i == layout->data_input)) return false;
    return true;
  }

  bool passes_on(LayerId id) const {
    const Layer& layer = graph_.layer(id);
    if (!layer.epilogues.empty() || layer.outputs.size() != 1) return false;
    if (const auto* pool = op_as<Pool>(graph_, id))
      return found_.axis == 1 && !pool->with_indices &&
             (pool->kind == PoolKind::kMax || pool->kind == PoolKind::kAverage);
    if (const auto* reduce = op_as<Reduce>(graph_, id)) return reduces_others(id, *reduce);
    return op_as<Pointwise>(graph_, id) != nullptr;
  }

  // A mean or maximum within each channel.
  bool reduces_others(LayerId id, const Reduce& reduce) const {
    const Tensor* axes = graph_.constant(graph_.layer(id).inputs[1]);
    if (!axes || !reduce.keepdims || !reduce.map.empty() || reduce.kind == ReduceKind::kProd)
      return false;
    return std::ranges::none_of(axes->as<int64_t>(), [&](int64_t axis) {
      return (axis < 0 ? axis + rank_ : axis) == found_.axis;
    });
  }

  bool is_homogeneous(LayerId id) const {
    if (op_as<Pool>(graph_, id) || op_as<Reduce>(graph_, id)) return true;
    const Elementwise all = elementwise(graph_, id);
    const auto made = homogeneous(all.program, degrees_of(graph_, all.inputs, values_));
    if (!made) return false;
    return std::ranges::all_of(made->multiplied, [&](uint16_t reg) {
      const Instruction& one = all.program.code()[reg];
      return one.opcode != Opcode::kInput ||
             per_channel_values(*graph_.constant(all.inputs[one.immediate]), rank_, found_.axis,
                                found_.count);
    });
  }

  void sort() {
    std::vector<LayerId> sorted;
    for (const LayerId id : graph_.order())
      if (std::ranges::find(found_.between, id) != found_.between.end()) sorted.push_back(id);
    found_.between = std::move(sorted);
  }

  const Graph& graph_;
  ScalableChannels found_;
  int rank_ = 0;
  Values values_;
};

// Multiplied exactly: no number is lost to infinity or to the subnormal.
std::optional<Tensor> exact_product(const std::vector<double>& values,
                                    const std::vector<double>& factors, int rank, int axis) {
  Dims dims{static_cast<int64_t>(values.size())};
  while (dims.rank() < rank - axis) dims.push_back(1);
  std::vector<float> products;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto product = static_cast<float>(values[i] * factors[i]);
    if (double{product} != values[i] * factors[i] || !(product == 0 || std::isnormal(product)))
      return std::nullopt;
    products.push_back(product);
  }
  return Tensor::of<float>(DataType::kF32, dims, products);
}

bool all_normal(const Tensor& tensor) {
  return std::ranges::all_of(tensor.as<float>(),
                             [](float value) { return value == 0 || std::isnormal(value); });
}

// The new layers, made before any old layer changes.
class ChannelScaling {
 public:
  ChannelScaling(Graph& graph, const ScalableChannels& channels, std::span<const int> exponents)
      : graph_(graph), channels_(channels) {
    for (const int exponent : exponents) {
      factors_.push_back(std::ldexp(1.0, exponent));
      inverses_.push_back(std::ldexp(1.0, -exponent));
    }
  }

  bool apply() {
    values_.insert(channels_.value);
    for (const LayerId id : channels_.between) values_.insert(graph_.layer(id).outputs[0]);
    const bool has_writer = channels_.writer != LayerId::kNone;
    const auto written =
        has_writer ? weights(channels_.writer, factors_, FactorOf::kWrittenChannel) : std::nullopt;
    if (has_writer && (!written || !add_programs())) return false;
    std::vector<Tensor> read;
    for (const LayerId reader : channels_.readers) {
      auto scaled = weights(reader, inverses_, FactorOf::kReadChannel);
      if (!scaled) return false;
      read.push_back(std::move(*scaled));
    }
    if (has_writer) {
      size_t next = 0;
      rewrite(channels_.writer, programs_[next++], &*written);
      for (const LayerId id : channels_.between) rewrite(id, programs_[next++], nullptr);
    }
    const ValueId instead = has_writer ? ValueId::kNone : multiplied();
    for (size_t i = 0; i < read.size(); ++i) reread(channels_.readers[i], read[i], instead);
    return true;
  }

 private:
  struct ScaledProgram {
    Program program;  // empty: the layer stays what it is
    std::vector<Tensor> constants;
  };

  std::optional<Tensor> weights(LayerId id, const std::vector<double>& factors,
                                FactorOf channel) const {
    const ChannelWeights layout = *channel_weights(graph_, id);
    const auto scaled = scaled_weights(*graph_.constant(graph_.layer(id).inputs[layout.input]),
                                       layout, factors, channel);
    return scaled && all_normal(*scaled) ? std::optional(*scaled) : std::nullopt;
  }

  bool add_programs() {
    std::vector<LayerId> layers = {channels_.writer};
    layers.insert(layers.end(), channels_.between.begin(), channels_.between.end());
    return std::ranges::all_of(layers, [&](LayerId id) { return add_program(id); });
  }

  bool add_program(LayerId id) {
    ScaledProgram& added = programs_.emplace_back();
    if (op_as<Pool>(graph_, id) || op_as<Reduce>(graph_, id)) return true;
    const Elementwise all = elementwise(graph_, id);
    auto made = homogeneous(all.program, degrees_of(graph_, all.inputs, values_));
    if (!made) return false;
    added.program = std::move(made->program);
    const int rank = graph_.value(graph_.layer(id).outputs[0]).type().shape.rank();
    for (const uint16_t reg : made->multiplied) {
      const Instruction& one = all.program.code()[reg];
      std::optional<std::vector<double>> values(
          std::in_place, factors_.size(),
          one.opcode == Opcode::kConstant ? double{Scalar{one.immediate}.as<float>()} : 0);
      if (one.opcode == Opcode::kInput)
        values = per_channel_values(*graph_.constant(all.inputs[one.immediate]), rank,
                                    channels_.axis, channels_.count);
      const auto products =
          values ? exact_product(*values, factors_, rank, channels_.axis) : std::nullopt;
      if (!products) return false;
      added.constants.push_back(*products);
    }
    return true;
  }

  // With results that are multiplied, called so. weights: in place of the layer's.
  void rewrite(LayerId id, const ScaledProgram& multiplied, const Tensor* weights) {
    NewLayer added = copy_of(graph_, id);
    const std::string result = graph_.value(graph_.layer(id).outputs[0]).name;
    added.output_names = {result + "/equalized"};
    if (weights) added.inputs[channel_weights(graph_, id)->input] = equalized(id, *weights);
    if (!multiplied.program.empty()) {
      for (const Tensor& constant : multiplied.constants)
        added.inputs.push_back(graph_.add_constant(result + "/bound", constant));
      set_program(added, multiplied.program);
    }
    const ValueId old = graph_.layer(id).outputs[0];
    const LayerId made = graph_.add(std::move(added));
    graph_.replace_uses(old, graph_.layer(made).outputs[0]);
    graph_.swap_names(id, made);
  }

  static void set_program(NewLayer& layer, const Program& program) {
    const bool is_pointwise = std::holds_alternative<Pointwise>(layer.op);
    const auto own = static_cast<ptrdiff_t>(is_pointwise ? 0 : layer.op_input_count);
    std::vector<ValueId> inputs(layer.inputs.begin() + own, layer.inputs.end());
    if (!is_pointwise) inputs.insert(inputs.begin(), ValueId::kNone);
    Program shorter = drop_unused_inputs(program, inputs, is_pointwise ? 0 : 1);
    layer.inputs.resize(static_cast<size_t>(own));
    layer.inputs.insert(layer.inputs.end(), inputs.begin() + (is_pointwise ? 0 : 1), inputs.end());
    if (is_pointwise) {
      layer.op_input_count = static_cast<int>(layer.inputs.size());
      layer.op = Pointwise{std::move(shorter)};
    } else if (!layer.epilogues.empty()) {
      layer.epilogues = {std::move(shorter)};
    }
  }

  // The value times the factors, by a layer of its own.
  ValueId multiplied() {
    const Value& value = graph_.value(channels_.value);
    const std::string name = value.name + "/equalized";
    Dims dims{static_cast<int64_t>(factors_.size())};
    while (dims.rank() < value.type().shape.rank() - channels_.axis) dims.push_back(1);
    const std::vector<float> factors(factors_.begin(), factors_.end());
    const ValueId constant =
        graph_.add_constant(name + "/factors", Tensor::of<float>(DataType::kF32, dims, factors));
    ProgramBuilder builder;
    const Reg product = builder.apply(Opcode::kMul, builder.input(0, DataType::kF32),
                                      builder.input(1, DataType::kF32));
    NewLayer added{.name = name,
                   .op = Pointwise{builder.finish(product, DataType::kF32)},
                   .inputs = {channels_.value, constant},
                   .output_names = {name}};
    if (const LayerId maker = producer(graph_, channels_.value); maker != LayerId::kNone)
      added.origins = graph_.layer(maker).origins;
    return graph_.layer(graph_.add(std::move(added))).outputs[0];
  }

  // data: that it reads instead; kNone: as before.
  void reread(LayerId id, const Tensor& weights, ValueId data) {
    NewLayer added = copy_of(graph_, id);
    const ChannelWeights layout = *channel_weights(graph_, id);
    if (data != ValueId::kNone) added.inputs[layout.data_input] = data;
    added.inputs[layout.input] = equalized(id, weights);
    graph_.replace_layer(id, graph_.add(std::move(added)));
  }

  ValueId equalized(LayerId id, const Tensor& weights) {
    const ValueId old = graph_.layer(id).inputs[channel_weights(graph_, id)->input];
    return graph_.add_constant(graph_.value(old).name + "/equalized", weights);
  }

  Graph& graph_;
  const ScalableChannels& channels_;
  std::vector<double> factors_, inverses_;
  Values values_;
  std::vector<ScaledProgram> programs_;  // of the writer, then of those between
};

}  // namespace

std::optional<ScalableChannels> scalable_channels(const Graph& graph, LayerId writer) {
  return Search(graph).from(writer);
}

std::optional<ScalableChannels> scalable_reads(const Graph& graph, ValueId value) {
  return Search(graph).reads_of(value);
}

bool scale_channels(Graph& graph, const ScalableChannels& channels,
                    std::span<const int> exponents) {
  return ChannelScaling(graph, channels, exponents).apply();
}

}  // namespace anneal
