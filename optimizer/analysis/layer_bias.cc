#include "anneal/optimizer/analysis/layer_bias.h"

#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/programs/affine.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

// The constants that the program adds to each accumulator; nullopt if it does more than that.
std::optional<std::vector<double>> addends(const Graph& graph, const Stores& stores, int rank,
                                           const ChannelWeights& layout) {
  std::vector<const Tensor*> constants;
  for (const ValueId input : stores.inputs)
    constants.push_back(input == ValueId::kNone ? nullptr : graph.constant(input));
  const auto affine = affine_part(stores.program, 0, constants, graph.sizes());
  if (!affine || stores.program.results().size() != 1 ||
      affine->reg != stores.program.results()[0].reg || uniform_value(affine->factor) != 1)
    return std::nullopt;
  return per_channel_values(affine->shift, rank, layout.result_axis, layout.written_count);
}

// The program of $0 + $extra.
Program with_addend(const Program& program, int extra) {
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) -> std::optional<Reg> {
        const Instruction& one = program.code()[reg];
        if (one.opcode != Opcode::kInput || one.immediate != 0) return std::nullopt;
        return builder.apply(Opcode::kAdd, builder.input(0, DataType::kF32),
                             builder.input(extra, DataType::kF32));
      });
}

Program sum_of_two() {
  ProgramBuilder builder;
  const Reg accumulator = builder.input(0, DataType::kF32);
  return builder.finish(builder.apply(Opcode::kAdd, accumulator, builder.input(1, DataType::kF32)),
                        DataType::kF32);
}

}  // namespace

int64_t result_channels(const Graph& graph, LayerId id) {
  const auto layout = channel_weights(graph, id);
  return layout ? layout->written_count : 0;
}

bool only_adds(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const auto layout = channel_weights(graph, id);
  if (!layout || layer.outputs.size() != 1) return false;
  const Stores stores{store_program(layer, DataType::kF32), epilogue_inputs(layer)};
  const int rank = graph.value(layer.outputs[0]).type().shape.rank();
  return addends(graph, stores, rank, *layout).has_value();
}

Stores stores_with_bias(Graph& graph, LayerId id, std::span<const float> bias) {
  const Layer& layer = graph.layer(id);
  const ChannelWeights layout = *channel_weights(graph, id);
  Stores stores{store_program(layer, DataType::kF32), epilogue_inputs(layer)};
  const int rank = graph.value(layer.outputs[0]).type().shape.rank();
  std::vector<float> sums(bias.begin(), bias.end());
  const auto added = addends(graph, stores, rank, layout);
  for (size_t i = 0; added && i < sums.size(); ++i)
    sums[i] = static_cast<float>((*added)[i] + double{sums[i]});
  Dims dims{layout.written_count};
  while (dims.rank() < rank - layout.result_axis) dims.push_back(1);
  const ValueId constant =
      graph.add_constant(layer.name + "/bias", Tensor::of<float>(DataType::kF32, dims, sums));
  if (added) return {sum_of_two(), {ValueId::kNone, constant}};
  const auto extra = static_cast<int>(stores.inputs.size());
  stores.inputs.push_back(constant);
  return {with_addend(stores.program, extra), std::move(stores.inputs)};
}

}  // namespace anneal
