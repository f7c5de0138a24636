// inline_scalars: an input whose elements are all one number becomes a literal of the program, and
// the program simpler.
//
//   y = Pointwise(x, f32{1}) program=mul($0,$1)      =>   y = Pointwise(x) program=$0
//   c = Conv(x, w; f32[]{6}) epilogue=min($0,$1)     =>   c = Conv(x, w) epilogue=min($0,6f32)
//
// An input that the program does not read goes too, and of one that stands there twice the second.
// Not if a Pointwise layer's output would have another shape without the input, nor weights whose
// place others may take. Exact: literals are
// the numbers that would be loaded, and ProgramBuilder simplifies only what holds for every value.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

// The number that all elements are; nullopt if they differ, or there is none.
std::optional<Scalar> only_number(const Tensor& tensor) {
  if (tensor.dtype() == DataType::kString || tensor.count() == 0) return std::nullopt;
  const auto bytes = tensor.bytes();
  const auto second = bytes.begin() + static_cast<ptrdiff_t>(size_of(tensor.dtype()));
  if (!std::equal(second, bytes.end(), bytes.begin())) return std::nullopt;
  return load_scalar(tensor.dtype(), bytes.data());
}

Reg literal(ProgramBuilder& builder, DataType dtype, Scalar value) {
  const RegisterType type = register_type(dtype);
  switch (type) {
    case RegisterType::kF32:
      return builder.constant(value.as<float>());
    case RegisterType::kF64:
      return builder.constant(value.as<double>());
    case RegisterType::kI32:
      return builder.constant(type, int64_t{value.as<int32_t>()});
    case RegisterType::kU32:
      return builder.constant(type, int64_t{value.as<uint32_t>()});
    default:
      return builder.constant(type, value.as<int64_t>());
  }
}

bool reads(const Program& program, size_t input) {
  return std::ranges::any_of(program.code(), [&](const Instruction& instruction) {
    return instruction.opcode == Opcode::kInput && instruction.immediate == input;
  });
}

using Values = std::vector<ValueId>;

// Whether the output has its shape with these inputs alone.
bool decide_shape(const Graph& graph, const Values& inputs, const Shape& shape) {
  if (inputs.empty()) return false;
  Shape all;
  for (const ValueId input : inputs)
    all = broadcast(all, graph.value(input).type().shape, graph.sizes());
  return all == shape;
}

struct Slim {
  Program program;
  Values inputs;
};

// shape: of the output where the inputs decide it, else null. kNone stands for an accumulator.
std::optional<Slim> slim(const Graph& graph, const Program& program,
                         std::span<const ValueId> inputs, const Shape* shape,
                         const PassOptions& options) {
  const auto may_change = [&](const Tensor& tensor) {
    return options.weights_may_change && is_float(tensor.dtype()) && tensor.count() > 1;
  };
  ProgramBuilder builder;
  std::vector<Reg> given;
  Values kept;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DataType dtype = program.inputs()[i];
    const Tensor* constant = graph.constant(inputs[i]);
    const bool read = reads(program, i);
    std::optional<Scalar> number;
    if (inputs[i] != ValueId::kNone)
      number = !read                                ? Scalar()
               : constant && !may_change(*constant) ? only_number(*constant)
                                                    : number;
    if (number && shape) {
      Values others = kept;
      others.insert(others.end(), inputs.begin() + static_cast<ptrdiff_t>(i) + 1, inputs.end());
      if (!decide_shape(graph, others, *shape)) number.reset();
    }
    if (number) {
      given.push_back(literal(builder, dtype, *number));
      continue;
    }
    const auto at = std::ranges::find(kept, inputs[i]) - kept.begin();
    if (at == std::ssize(kept)) kept.push_back(inputs[i]);
    given.push_back(builder.input(static_cast<int>(at), dtype));
  }
  if (kept.size() == inputs.size()) return std::nullopt;
  const std::vector<Reg> results = builder.inline_program(program, given);
  std::vector<std::pair<Reg, DataType>> stores;
  for (size_t i = 0; i < results.size(); ++i)
    stores.emplace_back(results[i], program.results()[i].dtype);
  return Slim{builder.finish(stores), std::move(kept)};
}

bool slim_pointwise(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  const Shape shape = graph.value(layer.outputs[0]).type().shape;
  auto slimmer =
      slim(graph, std::get<Pointwise>(layer.op).program, layer.inputs, &shape, run.options);
  if (!slimmer) return false;
  const size_t gone = layer.inputs.size() - slimmer->inputs.size();
  const LayerId slimmed = graph.add({.name = layer.name,
                                     .op = Pointwise{std::move(slimmer->program)},
                                     .inputs = std::move(slimmer->inputs),
                                     .origins = layer.origins});
  graph.replace_layer(id, slimmed);
  run.did(graph.layer(slimmed).name, fmt::format("reads {} inputs less", gone));
  return true;
}

bool slim_epilogues(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  auto next = layer.inputs.begin() + layer.op_input_count;
  Values inputs(layer.inputs.begin(), next);
  std::vector<Program> epilogues = layer.epilogues;
  for (Program& epilogue : epilogues) {
    if (epilogue.empty()) continue;
    Values further = {ValueId::kNone};
    const auto count = std::ssize(epilogue.inputs()) - 1;
    further.insert(further.end(), next, next + count);
    next += count;
    if (auto slimmer = slim(graph, epilogue, further, nullptr, run.options)) {
      epilogue = std::move(slimmer->program);
      further = std::move(slimmer->inputs);
    }
    inputs.insert(inputs.end(), further.begin() + 1, further.end());
  }
  const size_t gone = layer.inputs.size() - inputs.size();
  if (gone == 0) return false;
  const LayerId slimmed = graph.add({.name = layer.name,
                                     .op = layer.op,
                                     .inputs = std::move(inputs),
                                     .epilogues = std::move(epilogues),
                                     .op_input_count = layer.op_input_count,
                                     .origins = layer.origins});
  graph.replace_layer(id, slimmed);
  run.did(graph.layer(slimmed).name, fmt::format("its epilogue reads {} inputs less", gone));
  return true;
}

bool inline_into(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  if (!layer.epilogues.empty()) return slim_epilogues(graph, id, run);
  return op_as<Pointwise>(graph, id) && slim_pointwise(graph, id, run);
}

}  // namespace

bool inline_scalars(Graph& graph, PassRun& run) { return sweep(graph, run, inline_into); }

}  // namespace anneal
