#include "anneal/optimizer/precision/half_roles.h"

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/custom_operator.h"

namespace anneal {
namespace {

// Whether it is an operator from outside with kernels for f16 or bf16.
bool takes_half(const Op& op) {
  const auto* custom = std::get_if<Custom>(&op);
  if (!custom || !custom->definition) return false;
  const CustomOperator::Description& description = custom->definition->description();
  return description.takes_f16 || description.takes_bf16;
}

}  // namespace

HalfRole role_of(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const auto is_float_input = [&](size_t i) {
    const DataType dtype = graph.value(layer.inputs[i]).type().dtype;
    return dtype == DataType::kF32 || is_half(dtype);
  };
  if (takes_half(layer.op)) return HalfRole::kProduct;
  const HalfRole role = *traits_of(layer.op).half;
  if (const auto* pool = std::get_if<Pool>(&layer.op)) {
    if (pool->with_indices) return HalfRole::kFixed;
    if (pool->kind == PoolKind::kMax && layer.epilogues.empty()) return HalfRole::kMoves;
  }
  if (role == HalfRole::kProduct && !is_float_input(0)) return HalfRole::kReads;
  if (role == HalfRole::kProduct && !is_float_input(1)) return HalfRole::kFixed;
  if (role == HalfRole::kMoves && !layer.epilogues.empty()) return HalfRole::kReads;
  return role;
}

DataInputs data_inputs(const Layer& layer) {
  DataInputs result;
  if (takes_half(layer.op)) {
    for (size_t i = 0; i < layer.inputs.size(); ++i)
      if (layer.inputs[i] != ValueId::kNone) result.data.push_back(i);
    return result;
  }
  const OpTraits& traits = traits_of(layer.op);
  const Program* program = program_of(layer.op);
  const bool has_program = program && !program->empty();
  // The op's result is input 0 of a program that does not read the op's operands.
  int number = traits.program->contains(0) ? 0 : 1;
  for (size_t i = 0; i < static_cast<size_t>(layer.op_input_count); ++i)
    if (has_program && traits.program->contains(i))
      result.of_program.emplace_back(i, number++);
    else if (traits.data->contains(i) && layer.inputs[i] != ValueId::kNone)
      result.data.push_back(i);
  return result;
}

}  // namespace anneal
