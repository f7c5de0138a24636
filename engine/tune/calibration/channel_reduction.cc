#include "anneal/engine/tune/calibration/channel_reduction.h"

#include <fmt/format.h>

#include <algorithm>

namespace anneal {
namespace {

// `name`, or NAME.2 and so on: outputs may have names that no value has.
std::string free_output_name(const Graph& graph, const std::string& name) {
  const auto is_taken = [&](const std::string& wanted) {
    return std::ranges::find(graph.outputs(), wanted, &Graph::Output::name) !=
           graph.outputs().end();
  };
  std::string found = name;
  for (int suffix = 2; is_taken(found); ++suffix) found = fmt::format("{}.{}", name, suffix);
  return found;
}

}  // namespace

std::string add_channel_reduction(Graph& graph, const std::string& name, ReduceKind kind,
                                  Program program, std::vector<ValueId> inputs, int channel_axis) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis < graph.value(inputs[0]).type().shape.rank(); ++axis)
    if (axis != channel_axis) axes.push_back(axis);
  const Dims dims{static_cast<int64_t>(axes.size())};
  const ValueId over =
      graph.add_constant(name + "/axes", Tensor::of<int64_t>(DataType::kI64, dims, axes));
  inputs.insert(inputs.begin() + 1, over);
  const LayerId added = graph.add(
      {.name = name, .op = Reduce{kind, false, std::move(program)}, .inputs = std::move(inputs)});
  const ValueId value = graph.layer(added).outputs[0];
  std::string output = free_output_name(graph, graph.value(value).name);
  graph.mark_output(value, output);
  return output;
}

Program square_program() {
  ProgramBuilder builder;
  const Reg x = builder.input(0, DataType::kF32);
  return builder.finish(builder.apply(Opcode::kMul, x, x), DataType::kF32);
}

}  // namespace anneal
