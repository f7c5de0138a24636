#include "anneal/optimizer/analysis/attention_pattern.h"

#include <algorithm>
#include <limits>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr size_t kMostLayers = 12;  // between a product and the softmax
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Pointwise* as_elementwise(const Graph& graph, LayerId id) {
  const auto* pointwise = op_as<Pointwise>(graph, id);
  if (!pointwise || pointwise->program.results().size() != 1 || !graph.layer(id).epilogues.empty())
    return nullptr;
  return pointwise;
}

// A Reshape that keeps the last axis.
bool regroups(const Graph& graph, LayerId id) {
  if (!op_as<Reshape>(graph, id) || !graph.layer(id).epilogues.empty()) return false;
  const Shape &from = shape_of(graph, graph.layer(id).inputs[0]),
              &to = shape_of(graph, graph.layer(id).outputs[0]);
  return from.rank() >= 2 && to.rank() >= 2 && from[from.rank() - 1] == to[to.rank() - 1];
}

bool has_one_element(const Graph& graph, ValueId value) {
  const Shape& shape = shape_of(graph, value);
  return std::all_of(shape.begin(), shape.end(), [](Size size) { return size == Size(1); });
}

// Up from a value to the product that it is made of; `found` gets the layers, the last first.
bool climb(const Graph& graph, ValueId value, LayerId reader, AttentionPattern& found) {
  const LayerId id = producer(graph, value);
  if (id == LayerId::kNone || found.before.size() > kMostLayers) return false;
  const AttentionPattern so_far = found;
  found.read_elsewhere = found.read_elsewhere || sole_user(graph, value) != reader;
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

// Down from the weights to the product that they weigh.
bool descend(const Graph& graph, ValueId value, AttentionPattern& found) {
  if (found.after.size() > kMostLayers) return false;
  const AttentionPattern so_far = found;
  const std::vector<LayerId> users = users_of(graph, value);
  found.read_elsewhere = found.read_elsewhere || graph.is_output(value) || users.size() != 1;
  for (const LayerId user : users) {
    const Layer& layer = graph.layer(user);
    if (const auto* product = std::get_if<MatMul>(&layer.op)) {
      if (product->transpose_a || layer.inputs[0] != value || layer.inputs[1] == value) continue;
      found.weighed = user;
      return true;
    }
    const bool keeps_shape =
        as_elementwise(graph, user) && shape_of(graph, layer.outputs[0]) == shape_of(graph, value);
    if (!keeps_shape && !regroups(graph, user)) continue;
    if (layer.inputs[0] != value && !keeps_shape) continue;
    found.after.push_back(user);
    if (descend(graph, layer.outputs[0], found)) return true;
    found.after.pop_back();
  }
  found = so_far;
  return false;
}

// Whether the program is the constant -inf when its input `input` is.
bool hides(const Program& program, size_t input) {
  const Program with = rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) -> std::optional<Reg> {
        const Instruction& one = program.code()[reg];
        if (one.opcode != Opcode::kInput || one.immediate != input) return std::nullopt;
        return builder.constant(one.type, -kInfinity);
      });
  const Instruction& result = with.code()[with.results()[0].reg];
  if (result.opcode != Opcode::kConstant) return false;
  return result.type == RegisterType::kF32   ? Scalar{result.immediate}.as<float>() == -kInfinity
         : result.type == RegisterType::kF64 ? Scalar{result.immediate}.as<double>() == -kInfinity
                                             : false;
}

double number_at(const TensorView& view, int64_t i) {
  const Scalar scalar =
      load_scalar(view.dtype, view.data + i * static_cast<int64_t>(size_of(view.dtype)));
  return view.dtype == DataType::kF64 ? scalar.as<double>() : double{scalar.as<float>()};
}

// Whether `most` is the largest element of each row of `of`.
bool is_row_maximum(const Graph& graph, ValueId most, ValueId of) {
  const Shape& shape = shape_of(graph, of);
  const int last = shape.rank() - 1;
  if (const auto* reduce = op_as<Reduce>(graph, producer(graph, most))) {
    const Layer& layer = graph.layer(producer(graph, most));
    const Tensor* axes = graph.constant(layer.inputs[1]);
    if (reduce->kind != ReduceKind::kMax || !reduce->keepdims || !reduce->map.empty() ||
        !layer.epilogues.empty() || layer.inputs[0] != of || !axes || axes->count() != 1)
      return false;
    const int64_t axis = axes->view().as<const int64_t>()[0];
    return (axis < 0 ? axis + shape.rank() : axis) == last;
  }
  const Tensor *result = graph.constant(most), *source = graph.constant(of);
  if (!result || !source || !is_float(source->dtype()) || source->dtype() != result->dtype() ||
      shape.rank() == 0)
    return false;
  Dims dims = source->dims();
  const int64_t length = dims[last];
  dims[last] = 1;
  if (dims != result->dims()) return false;
  for (int64_t row = 0; row < result->count(); ++row) {
    double largest = -kInfinity;
    for (int64_t i = 0; i < length; ++i)
      largest = std::max(largest, number_at(source->view(), row * length + i));
    if (largest != number_at(result->view(), row)) return false;
  }
  return true;
}

// x rounded to another type, perhaps with 0 where `hidden` says so of x or of a second input.
enum class Hidden { kNever, kNan, kSecondIsLeast };
Program weight_program(std::span<const DataType> types, size_t weights, DataType to,
                       Hidden hidden) {
  ProgramBuilder builder;
  std::vector<Reg> inputs;
  for (size_t i = 0; i < types.size(); ++i)
    inputs.push_back(builder.input(static_cast<int>(i), types[i]));
  const Reg x = inputs[weights], zero = builder.constant(x.type, 0.0);
  if (hidden == Hidden::kNan)
    return builder.finish(builder.select(builder.apply(Opcode::kIsNan, x), zero, x), to);
  if (hidden == Hidden::kNever) return builder.finish(x, to);
  const Reg other = inputs[1 - weights];
  const Reg none = builder.apply(Opcode::kEqual, other, builder.constant(other.type, -kInfinity));
  return builder.finish(builder.select(none, zero, x), to);
}

}  // namespace

std::optional<AttentionPattern> attention_around(const Graph& graph, LayerId softmax) {
  const auto* op = op_as<Softmax>(graph, softmax);
  const Layer& layer = graph.layer(softmax);
  if (!op || op->log || !op->map.empty() || !layer.epilogues.empty()) return std::nullopt;
  if (op->axis != shape_of(graph, layer.outputs[0]).rank() - 1) return std::nullopt;
  AttentionPattern pattern;
  pattern.softmax = softmax;
  if (!climb(graph, layer.inputs[0], softmax, pattern)) return std::nullopt;
  if (!descend(graph, layer.outputs[0], pattern)) return std::nullopt;
  std::reverse(pattern.before.begin(), pattern.before.end());
  return pattern;
}

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
  for (const ScaleFactor& factor : factors) {
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
  if (score.program.is_identity()) score = {Program(), {ValueId::kNone}};
  return score;
}

std::optional<WeightRule> weight_rule(const Graph& graph, const AttentionPattern& pattern,
                                      const ScoreProgram& score) {
  WeightRule rule;
  ValueId weights = graph.layer(pattern.softmax).outputs[0];
  for (const LayerId id : pattern.after) {
    const Layer& layer = graph.layer(id);
    if (const auto* pointwise = as_elementwise(graph, id)) {
      const Program& program = pointwise->program;
      const auto place = std::find(layer.inputs.begin(), layer.inputs.end(), weights);
      const auto at = static_cast<size_t>(place - layer.inputs.begin());
      const DataType to = program.results()[0].dtype;
      if (!is_float(to) || !std::all_of(program.inputs().begin(), program.inputs().end(),
                                        [](DataType dtype) { return is_float(dtype); }))
        return std::nullopt;
      const auto is = [&](Hidden hidden) {
        return program == weight_program(program.inputs(), at, to, hidden);
      };
      if (layer.inputs.size() == 1 && is(Hidden::kNan)) {
        rule.hidden_is_zero = true;
      } else if (layer.inputs.size() == 2 && is(Hidden::kSecondIsLeast)) {
        const ValueId most = layer.inputs[1 - at];
        bool known = false;
        for (size_t i = 1; i < score.inputs.size() && !known; ++i)
          known = is_row_maximum(graph, most, score.inputs[i]) && hides(score.program, i);
        if (!known) return std::nullopt;
        rule.hidden_is_zero = true;
      } else if (layer.inputs.size() != 1 || !is(Hidden::kNever)) {
        return std::nullopt;
      }
    }
    weights = layer.outputs[0];
  }
  return rule;
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
