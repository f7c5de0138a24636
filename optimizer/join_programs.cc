#include "anneal/optimizer/join_programs.h"

#include <algorithm>

namespace anneal {
namespace {

constexpr size_t kMaxInputs = 32;
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

}  // namespace

std::optional<JoinedProgram> join_programs(const Program& producer,
                                           std::span<const ValueId> producer_inputs,
                                           const Program& consumer,
                                           std::span<const ValueId> consumer_inputs,
                                           ValueId between) {
  if (producer.code().size() + consumer.code().size() > kMaxInstructions ||
      producer_inputs.size() + consumer_inputs.size() > kMaxInputs)
    return std::nullopt;
  ProgramBuilder builder;
  InputList inputs;
  std::vector<Reg> of_producer, of_consumer;
  for (size_t i = 0; i < producer_inputs.size(); ++i)
    of_producer.push_back(inputs.use(builder, producer_inputs[i], producer.inputs()[i]));
  const Reg result = builder.inline_program(producer, of_producer)[0];
  for (size_t i = 0; i < consumer_inputs.size(); ++i)
    of_consumer.push_back(consumer_inputs[i] == between
                              ? result
                              : inputs.use(builder, consumer_inputs[i], consumer.inputs()[i]));
  const std::vector<Reg> results = builder.inline_program(consumer, of_consumer);
  std::vector<std::pair<Reg, DataType>> stores;
  for (size_t i = 0; i < results.size(); ++i)
    stores.emplace_back(results[i], consumer.results()[i].dtype);
  return JoinedProgram{builder.finish(stores), std::move(inputs.values)};
}

}  // namespace anneal
