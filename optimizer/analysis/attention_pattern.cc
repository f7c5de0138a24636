#include "anneal/optimizer/analysis/attention_pattern.h"

#include <algorithm>
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr size_t kMostLayers = 12;  // between a product and the softmax

bool has_one_element(const Graph& graph, ValueId value) {
  const Shape& shape = shape_of(graph, value);
  return std::all_of(shape.begin(), shape.end(), [](Size size) { return size == Size(1); });
}

// Whether the layer is read by nothing but, perhaps by way of others, layers after the softmax.
bool leads_to_weights(const Graph& graph, LayerId id, const AttentionPattern& pattern) {
  for (size_t step = 0; step < kMostLayers && id != LayerId::kNone; ++step) {
    if (std::ranges::find(pattern.after, id) != pattern.after.end()) return true;
    if (graph.layer(id).outputs.size() != 1) return false;
    id = sole_user(graph, graph.layer(id).outputs[0]);
  }
  return false;
}

// Tests of a row's scores, which decide about its weights, are part of the pattern.
bool is_read_elsewhere(const Graph& graph, ValueId value, LayerId reader,
                       const AttentionPattern& pattern) {
  return graph.is_output(value) || std::ranges::any_of(users_of(graph, value), [&](LayerId user) {
           return user != reader && !leads_to_weights(graph, user, pattern);
         });
}

// Up from a value to the product that it is made of; `found` gets the layers, the last first.
bool climb(const Graph& graph, ValueId value, LayerId reader, AttentionPattern& found) {
  const LayerId id = producer(graph, value);
  if (id == LayerId::kNone || found.before.size() > kMostLayers) return false;
  const AttentionPattern so_far = found;
  found.read_elsewhere = found.read_elsewhere || is_read_elsewhere(graph, value, reader, found);
  if (op_as<MatMul>(graph, id)) {
    found.scores = id;
    return graph.layer(id).outputs.size() == 1;
  }
  found.before.push_back(id);
  if (regroups(graph, id) && climb(graph, graph.layer(id).inputs[0], id, found)) return true;
  if (as_elementwise(graph, id)) {
    for (const ValueId input : graph.layer(id).inputs)
      if (shape_of(graph, input) == shape_of(graph, value) && climb(graph, input, id, found))
        return true;
  }
  found = so_far;
  return false;
}

}  // namespace

const Pointwise* as_elementwise(const Graph& graph, LayerId id) {
  const auto* pointwise = op_as<Pointwise>(graph, id);
  if (!pointwise || pointwise->program.results().size() != 1 || !graph.layer(id).epilogues.empty())
    return nullptr;
  return pointwise;
}

bool regroups(const Graph& graph, LayerId id) {
  if (!op_as<Reshape>(graph, id) || !graph.layer(id).epilogues.empty()) return false;
  const Shape &from = shape_of(graph, graph.layer(id).inputs[0]),
              &to = shape_of(graph, graph.layer(id).outputs[0]);
  return from.rank() >= 2 && to.rank() >= 2 && from[from.rank() - 1] == to[to.rank() - 1];
}

std::optional<AttentionPattern> attention_around(const Graph& graph, LayerId softmax) {
  const auto* op = op_as<Softmax>(graph, softmax);
  const Layer& layer = graph.layer(softmax);
  if (!op || op->log || !op->map.empty() || !layer.epilogues.empty()) return std::nullopt;
  if (op->axis != shape_of(graph, layer.outputs[0]).rank() - 1) return std::nullopt;
  AttentionPattern pattern;
  pattern.softmax = softmax;
  if (!find_weighed_product(graph, layer.outputs[0], pattern)) return std::nullopt;
  if (!climb(graph, layer.inputs[0], softmax, pattern)) return std::nullopt;
  std::reverse(pattern.before.begin(), pattern.before.end());
  return pattern;
}

namespace {

// Numbers become one factor, where that is an ordinary number.
std::vector<ScaleFactor> joined_factors(const std::vector<ScaleFactor>& factors) {
  ScaleFactor all;
  std::vector<ScaleFactor> joined;
  for (const ScaleFactor& factor : factors)
    if (factor.value == ValueId::kNone)
      all.number *= factor.divides ? 1 / factor.number : factor.number;
    else
      joined.push_back(factor);
  if (!std::isnormal(static_cast<float>(all.number))) return factors;
  if (joined.size() < factors.size()) joined.push_back(all);
  return joined;
}

// The score in the type that sums are in, rounded only where a Cast of the model says so.
Program unrounded(const Program& score, DataType sums) {
  ProgramBuilder builder;
  std::vector<Reg> inputs;
  for (const DataType dtype : score.inputs())
    inputs.push_back(builder.input(static_cast<int>(inputs.size()), dtype));
  const Program wide = builder.finish(builder.inline_program(score, inputs)[0], sums);
  const std::vector<bool> decided = decided_registers(wide, {});
  return without_half_rounding(
      wide, [&](size_t reg) { return is_storage_rounding(wide.code()[reg]) && !decided[reg]; });
}

}  // namespace

Result<ScoreProgram> score_program(const Graph& graph, const AttentionPattern& pattern,
                                   const std::vector<ScaleFactor>& factors) {
  const Layer& product = graph.layer(pattern.scores);
  ValueId at = product.outputs[0];
  const DataType dtype = graph.value(at).type().dtype;
  const Program stored = store_program(product, dtype);
  ScoreProgram score;
  ProgramBuilder builder;
  score.inputs.push_back(ValueId::kNone);
  Reg scaled = builder.input(0, stored.inputs()[0]);
  for (const ScaleFactor& factor : joined_factors(factors)) {
    Reg by;
    if (factor.value == ValueId::kNone) {
      by = builder.constant(scaled.type, factor.number);
    } else {
      by = builder.cast(builder.input(static_cast<int>(score.inputs.size()),
                                      graph.value(factor.value).type().dtype),
                        scaled.type);
      score.inputs.push_back(factor.value);
    }
    scaled = builder.apply(factor.divides ? Opcode::kDiv : Opcode::kMul, scaled, by);
  }
  std::vector<Reg> of_store{scaled};
  const auto further = epilogue_inputs(product);
  for (size_t i = 1; i < further.size(); ++i) {
    of_store.push_back(builder.input(static_cast<int>(score.inputs.size()), stored.inputs()[i]));
    score.inputs.push_back(further[i]);
  }
  score.program =
      builder.finish(builder.inline_program(stored, of_store)[0], stored.results()[0].dtype);

  for (const LayerId id : pattern.before) {
    const Layer& layer = graph.layer(id);
    if (const auto* pointwise = as_elementwise(graph, id)) {
      const ValueId from[] = {at};
      auto joined = join_programs({score.program, score.inputs, from},
                                  {pointwise->program, layer.inputs, layer.outputs}, {});
      if (!joined) return refuse("the program of its scores would be too long");
      score = {std::move(joined->program), std::move(joined->inputs)};
    } else {
      const bool plain = std::all_of(score.inputs.begin() + 1, score.inputs.end(),
                                     [&](ValueId value) { return has_one_element(graph, value); });
      if (!plain || score.program.uses_index())
        return refuse("its scores are reshaped after their elements have met others");
    }
    at = layer.outputs[0];
  }
  if (!is_float(score.program.results()[0].dtype) ||
      accumulator(score.program.results()[0].dtype) != score.program.inputs()[0])
    return refuse("its scores change their type");
  score.program = unrounded(score.program, score.program.inputs()[0]);
  if (score.program.is_identity()) score = {Program(), {ValueId::kNone}};
  return score;
}

std::optional<ValueId> unscaled(const Graph& graph, ValueId value, ScaleFactor& factor) {
  const LayerId id = producer(graph, value);
  const auto* pointwise = as_elementwise(graph, id);
  if (!pointwise) return std::nullopt;
  const Program& program = pointwise->program;
  const Layer& layer = graph.layer(id);
  const DataType dtype = program.results()[0].dtype;
  const auto code = program.code();
  const Instruction* last = &code[program.results()[0].reg];
  if (is_storage_rounding(*last)) last = &code[last->operands[0]];
  if (last->opcode != Opcode::kMul && last->opcode != Opcode::kDiv) return std::nullopt;
  for (const size_t side : {0, 1}) {
    const Instruction &scaled = code[last->operands[side]], &by = code[last->operands[1 - side]];
    if (last->opcode == Opcode::kDiv && side == 1) continue;
    if (scaled.opcode != Opcode::kInput || program.inputs()[scaled.immediate] != dtype) continue;
    const ValueId source = layer.inputs[scaled.immediate];
    if (shape_of(graph, source) != shape_of(graph, value)) continue;
    factor = {.divides = last->opcode == Opcode::kDiv};
    if (by.opcode == Opcode::kConstant) {
      factor.number = by.type == RegisterType::kF64 ? Scalar{by.immediate}.as<double>()
                                                    : double{Scalar{by.immediate}.as<float>()};
      return source;
    }
    if (by.opcode != Opcode::kInput || !has_one_element(graph, layer.inputs[by.immediate]))
      continue;
    factor.value = layer.inputs[by.immediate];
    if (factor.value != source && shape_of(graph, factor.value).rank() <= 4) return source;
  }
  return std::nullopt;
}

}  // namespace anneal
