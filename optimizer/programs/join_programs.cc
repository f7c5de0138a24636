#include "anneal/optimizer/programs/join_programs.h"

#include <algorithm>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr size_t kMaxInputs = 32;
constexpr size_t kMaxResults = 8;
constexpr size_t kMaxInstructions = 512;

class InputList {
 public:
  // The register of a value, added to the inputs if it is not there.
  Reg use(ProgramBuilder& builder, ValueId value, DataType dtype) {
    const auto at = std::find(values.begin(), values.end(), value) - values.begin();
    if (at == static_cast<ptrdiff_t>(values.size())) values.push_back(value);
    return builder.input(static_cast<int>(at), dtype);
  }
  std::vector<ValueId> values;
};

size_t place_in(std::span<const ValueId> values, ValueId value) {
  return static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

}  // namespace

std::optional<JoinedProgram> join_programs(const Stage& producer, const Stage& consumer,
                                           std::span<const ValueId> kept) {
  if (producer.program.code().size() + consumer.program.code().size() > kMaxInstructions ||
      producer.inputs.size() + consumer.inputs.size() > kMaxInputs ||
      kept.size() + consumer.outputs.size() > kMaxResults)
    return std::nullopt;
  ProgramBuilder builder;
  InputList inputs;
  std::vector<Reg> of_producer, of_consumer;
  for (size_t i = 0; i < producer.inputs.size(); ++i)
    of_producer.push_back(inputs.use(builder, producer.inputs[i], producer.program.inputs()[i]));
  const std::vector<Reg> made = builder.inline_program(producer.program, of_producer);
  for (size_t i = 0; i < consumer.inputs.size(); ++i) {
    const size_t at = place_in(producer.outputs, consumer.inputs[i]);
    of_consumer.push_back(
        at < made.size() ? made[at]
                         : inputs.use(builder, consumer.inputs[i], consumer.program.inputs()[i]));
  }
  const std::vector<Reg> results = builder.inline_program(consumer.program, of_consumer);
  std::vector<std::pair<Reg, DataType>> stores;
  std::vector<ValueId> outputs(kept.begin(), kept.end());
  for (const ValueId value : kept) {
    const size_t at = place_in(producer.outputs, value);
    stores.emplace_back(made[at], producer.program.results()[at].dtype);
  }
  for (size_t i = 0; i < results.size(); ++i)
    stores.emplace_back(results[i], consumer.program.results()[i].dtype);
  outputs.insert(outputs.end(), consumer.outputs.begin(), consumer.outputs.end());
  return JoinedProgram{builder.finish(stores), std::move(inputs.values), std::move(outputs)};
}

Program store_program(const Layer& layer, DataType dtype) {
  if (!layer.epilogues.empty() && !layer.epilogues[0].empty()) return layer.epilogues[0];
  ProgramBuilder builder;
  const Reg accumulated = builder.input(0, accumulator(dtype));
  return builder.finish(accumulated, dtype);
}

std::vector<ValueId> epilogue_inputs(const Layer& layer) {
  std::vector<ValueId> inputs = {ValueId::kNone};
  inputs.insert(inputs.end(), layer.inputs.begin() + layer.op_input_count, layer.inputs.end());
  return inputs;
}

std::string why_not_joined(const Graph& graph, const PassRun& run, LayerId id,
                           const NewLayer& joined) {
  std::string why_not = run.ask_targets(graph, joined);
  if (why_not.empty()) return why_not;
  const Layer& layer = graph.layer(id);
  const NewLayer now{.name = layer.name,
                     .op = layer.op,
                     .inputs = layer.inputs,
                     .epilogues = layer.epilogues,
                     .op_input_count = layer.op_input_count};
  return run.ask_targets(graph, now).empty() ? why_not : std::string();
}

void take_over(Graph& graph, std::span<const ValueId> values, LayerId by) {
  check(values.size() == graph.layer(by).outputs.size(), "an output for each value");
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId now = graph.layer(by).outputs[i];
    graph.replace_uses(values[i], now);
    graph.swap_names(values[i], now);
  }
}

}  // namespace anneal
