// The layers between the softmax and the second product of an attention: what they do to weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/program/program_rules.h"
#include "anneal/optimizer/analysis/attention_pattern.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/programs/probe.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr size_t kMostWeightLayers = 24;  // between the softmax and the product
constexpr int kMostTestSteps = 6;         // from a test of rows to the mask that it tests
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

bool is_infinite_constant(const Instruction& one) {
  if (one.opcode != Opcode::kConstant || !is_float(one.type)) return false;
  return one.type == RegisterType::kF32 ? std::isinf(Scalar{one.immediate}.as<float>())
                                        : std::isinf(Scalar{one.immediate}.as<double>());
}

double number_of(const Instruction& constant) {
  return constant.type == RegisterType::kF64 ? Scalar{constant.immediate}.as<double>()
                                             : double{Scalar{constant.immediate}.as<float>()};
}

double number_at(const TensorView& view, int64_t i) {
  const Scalar scalar =
      load_scalar(view.dtype, view.data + i * static_cast<int64_t>(size_of(view.dtype)));
  return view.dtype == DataType::kF64 ? scalar.as<double>() : double{scalar.as<float>()};
}

// The only number that the program gives; nullopt if that depends on its inputs.
std::optional<double> constant_result(const Program& program) {
  const Instruction& result = program.code()[program.results()[0].reg];
  if (result.opcode != Opcode::kConstant || !is_float(result.type)) return std::nullopt;
  return number_of(result);
}

// The layers after `value` through which all of its readers lead to one value, which is the last
// layer's; the order is one in which they can run. Empty if there are none.
std::vector<LayerId> meeting_layers(const Graph& graph, ValueId value) {
  std::vector<LayerId> inside, order;
  const auto is_inside = [&](LayerId id) { return std::ranges::find(inside, id) != inside.end(); };
  const auto readers_outside = [&](ValueId of) {
    std::vector<LayerId> users = users_of(graph, of);
    std::erase_if(users, is_inside);
    return users;
  };
  const auto may_be_inside = [&](LayerId id) {
    return as_elementwise(graph, id) &&
           shape_of(graph, graph.layer(id).outputs[0]) == shape_of(graph, value);
  };
  std::vector<ValueId> open = {value};
  while (open.size() > 1 || open[0] == value) {
    const auto next = std::ranges::find_if(open, [&](ValueId of) {
      return !graph.is_output(of) && std::ranges::all_of(readers_outside(of), may_be_inside);
    });
    if (next == open.end()) return {};
    for (const LayerId reader : readers_outside(*next)) {
      inside.push_back(reader);
      open.push_back(graph.layer(reader).outputs[0]);
    }
    std::erase_if(open,
                  [&](ValueId of) { return !graph.is_output(of) && readers_outside(of).empty(); });
    if (open.empty() || inside.size() > kMostWeightLayers) return {};
  }
  while (order.size() < inside.size()) {
    const auto runs = std::ranges::find_if(inside, [&](LayerId id) {
      return std::ranges::find(order, id) == order.end() &&
             std::ranges::all_of(graph.layer(id).inputs, [&](ValueId input) {
               const LayerId from = producer(graph, input);
               return !is_inside(from) || std::ranges::find(order, from) != order.end();
             });
    });
    order.push_back(*runs);
  }
  if (graph.layer(order.back()).outputs[0] != open[0]) return {};
  return order;
}

// The elementwise layer that makes the value from one other of its shape; nullptr if none does.
const Pointwise* made_of_one(const Graph& graph, ValueId value) {
  const LayerId id = producer(graph, value);
  const auto* pointwise = as_elementwise(graph, id);
  if (!pointwise || graph.layer(id).inputs.size() != 1 || pointwise->program.uses_index())
    return nullptr;
  return pointwise;
}

double apply(const Pointwise& layer, double x) { return run_at(layer.program, {&x, 1})[0]; }

// The float that all elements of the value are, if it is an Expand of one, as zeros_like() is,
// which was perhaps cast.
std::optional<double> expanded_number(const Graph& graph, ValueId value) {
  const Pointwise* const cast = made_of_one(graph, value);
  const LayerId id = producer(graph, cast ? graph.layer(producer(graph, value)).inputs[0] : value);
  if (!op_as<Expand>(graph, id) || !graph.layer(id).epilogues.empty()) return std::nullopt;
  const Tensor* const number = graph.constant(graph.layer(id).inputs[0]);
  if (!number || number->count() != 1 || !is_float(number->dtype())) return std::nullopt;
  const double element = number_at(kernel_view(*number), 0);
  return cast ? apply(*cast, element) : element;
}

// A program of weights, its first input, and of further values.
struct WeightProgram {
  Program program;
  std::vector<ValueId> inputs;
};

// All layers after the softmax as one program. nullopt: further values meet weights that were
// regrouped.
std::optional<WeightProgram> weight_program_of(const Graph& graph,
                                               const AttentionPattern& pattern) {
  ValueId at = graph.layer(pattern.softmax).outputs[0];
  ProgramBuilder builder;
  std::vector<ValueId> inputs = {at};
  std::map<ValueId, Reg> known{{at, builder.input(0, graph.value(at).type().dtype)}};
  bool regrouped = false;
  for (const LayerId id : pattern.after) {
    const Layer& layer = graph.layer(id);
    at = layer.outputs[0];
    const auto* pointwise = as_elementwise(graph, id);
    if (!pointwise) {
      regrouped = true;
      known[at] = known.at(layer.inputs[0]);
      continue;
    }
    std::vector<Reg> operands;
    for (const ValueId input : layer.inputs) {
      if (const auto found = known.find(input); found != known.end()) {
        operands.push_back(found->second);
        continue;
      }
      const DataType dtype = graph.value(input).type().dtype;
      if (const auto number = is_float(dtype) ? expanded_number(graph, input) : std::nullopt) {
        operands.push_back(builder.constant(register_type(dtype), *number));
        continue;
      }
      if (regrouped) return std::nullopt;
      const Reg reg = builder.input(static_cast<int>(inputs.size()), dtype);
      inputs.push_back(input);
      operands.push_back(known[input] = reg);
    }
    known[at] = builder.inline_program(pointwise->program, operands)[0];
  }
  const DataType dtype = graph.value(at).type().dtype;
  if (!is_float(dtype)) return std::nullopt;
  return WeightProgram{builder.finish(known.at(at), dtype), std::move(inputs)};
}

// Decides tests of weights that are numbers from 0 to 1.
class NumberTests {
 public:
  explicit NumberTests(std::span<const Instruction> code)
      : code_(code), is_weight_(code.size()), decided_(code.size()) {
    for (size_t reg = 0; reg < code.size(); ++reg) visit(reg);
  }
  std::optional<bool> operator[](size_t reg) const { return decided_[reg]; }

 private:
  void visit(size_t reg) {
    const Instruction& one = code_[reg];
    const auto [a, b, c] = one.operands;
    switch (one.opcode) {
      case Opcode::kInput:
        is_weight_[reg] = one.immediate == 0;
        break;
      case Opcode::kConstant:
        is_weight_[reg] = is_float(one.type) && number_of(one) >= 0 && number_of(one) <= 1;
        break;
      case Opcode::kCast:
      case Opcode::kRound:
        is_weight_[reg] = is_float(one.type) && is_weight_[a];
        break;
      case Opcode::kSelect:
        is_weight_[reg] = decided_[a] ? is_weight_[*decided_[a] ? b : c]
                                      : bool{is_weight_[b]} && bool{is_weight_[c]};
        break;
      case Opcode::kIsNan:
      case Opcode::kIsInf:
        if (is_weight_[a]) decided_[reg] = false;
        break;
      case Opcode::kLess:
        if ((is_weight_[a] && is_beyond(b, -1)) || (is_weight_[b] && is_beyond(a, 1)))
          decided_[reg] = false;
        break;
      case Opcode::kEqual:
        if ((is_weight_[a] && is_infinite_constant(code_[b])) ||
            (is_weight_[b] && is_infinite_constant(code_[a])))
          decided_[reg] = false;
        break;
      case Opcode::kAnd:
        if (decided_[a] == false || decided_[b] == false) decided_[reg] = false;
        break;
      default:
        break;
    }
  }
  // A constant that is at most 0 (side -1), or at least 1.
  bool is_beyond(size_t reg, int side) const {
    if (code_[reg].opcode != Opcode::kConstant || !is_float(code_[reg].type)) return false;
    const double number = number_of(code_[reg]);
    return side < 0 ? number <= 0 : number >= 1;
  }

  std::span<const Instruction> code_;
  std::vector<bool> is_weight_;
  std::vector<std::optional<bool>> decided_;
};

Program of_numbers(const Program& program) {
  const NumberTests tests(program.code());
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) -> std::optional<Reg> {
        if (!tests[reg]) return std::nullopt;
        return builder.constant(RegisterType::kBool, int64_t{*tests[reg]});
      });
}

// The program where its input has this value.
Program with_input(const Program& program, size_t input, double value) {
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) -> std::optional<Reg> {
        const Instruction& one = program.code()[reg];
        if (one.opcode != Opcode::kInput || one.immediate != input) return std::nullopt;
        if (one.type == RegisterType::kBool)
          return builder.constant(one.type, static_cast<int64_t>(value));
        return builder.constant(one.type, value);
      });
}

// The program where its float input is -inf, or is not.
Program where_least(const Program& program, size_t input, bool is_least) {
  const auto code = program.code();
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) -> std::optional<Reg> {
        if (code[reg].opcode != Opcode::kEqual) return std::nullopt;
        for (const size_t side : {0, 1}) {
          const Instruction &tested = code[code[reg].operands[side]],
                            &by = code[code[reg].operands[1 - side]];
          if (tested.opcode == Opcode::kInput && tested.immediate == input &&
              is_infinite_constant(by) && number_of(by) < 0)
            return builder.constant(RegisterType::kBool, int64_t{is_least});
        }
        return std::nullopt;
      });
}

// Whether the result is input 0, perhaps rounded to shorter floats.
bool is_rounding(const Program& program) {
  const auto code = program.code();
  const Instruction* at = &code[program.results()[0].reg];
  while ((at->opcode == Opcode::kRound || at->opcode == Opcode::kCast) && is_float(at->type))
    at = &code[at->operands[0]];
  return at->opcode == Opcode::kInput && at->immediate == 0;
}

// Whether the score is -inf where its input `input` is `value`. Products are finite, or -inf.
bool hides(const Program& score, size_t input, double value) {
  const Program with = with_input(score, input, value);
  const auto code = with.code();
  const Instruction* at = &code[with.results()[0].reg];
  const auto is_least = [](const Instruction& one) {
    return is_infinite_constant(one) && number_of(one) < 0;
  };
  while (at->opcode == Opcode::kRound) at = &code[at->operands[0]];
  if (at->opcode == Opcode::kAdd)
    return is_least(code[at->operands[0]]) || is_least(code[at->operands[1]]);
  return is_least(*at);
}

// Whether the layer reduces the last axis of its input and keeps it.
bool reduces_rows(const Graph& graph, LayerId id) {
  const auto* reduce = op_as<Reduce>(graph, id);
  if (!reduce || !reduce->keepdims || !reduce->map.empty()) return false;
  const Layer& layer = graph.layer(id);
  const Tensor* axes = graph.constant(layer.inputs[1]);
  if (!layer.epilogues.empty() || !axes || axes->count() != 1) return false;
  const int rank = shape_of(graph, layer.inputs[0]).rank();
  const int64_t axis = axes->as<int64_t>()[0];
  return (axis < 0 ? axis + rank : axis) == rank - 1;
}

// Whether `most` is the largest element of each row of `of`.
bool is_row_maximum(const Graph& graph, ValueId most, ValueId of) {
  const Shape& shape = shape_of(graph, of);
  if (const auto* reduce = op_as<Reduce>(graph, producer(graph, most)))
    return reduce->kind == ReduceKind::kMax && reduces_rows(graph, producer(graph, most)) &&
           graph.layer(producer(graph, most)).inputs[0] == of;
  const Tensor *result = graph.constant(most), *source = graph.constant(of);
  if (!result || !source || !is_float(source->dtype()) || source->dtype() != result->dtype() ||
      shape.rank() == 0)
    return false;
  Dims dims = source->dims();
  const int last = shape.rank() - 1;
  const int64_t length = dims[last];
  dims[last] = 1;
  if (dims != result->dims()) return false;
  for (int64_t row = 0; row < result->count(); ++row) {
    double largest = -kUnbounded;
    for (int64_t i = 0; i < length; ++i)
      largest = std::max(largest, number_at(kernel_view(*source), row * length + i));
    if (largest != number_at(kernel_view(*result), row)) return false;
  }
  return true;
}

// Whether all scores of a row are -inf where all elements `of` the row are `value`.
bool hides_rows(const Graph& graph, const AttentionPattern& pattern, const ScoreProgram& score,
                ValueId of, double value) {
  if (of == graph.layer(pattern.softmax).inputs[0] && value == -kUnbounded) return true;
  for (size_t i = 1; i < score.inputs.size(); ++i) {
    std::vector<const Pointwise*> from_mask;
    for (ValueId at = score.inputs[i]; from_mask.size() < kMostTestSteps;) {
      if (at == of) {
        double bias = value;
        for (auto layer = from_mask.rbegin(); layer != from_mask.rend(); ++layer)
          bias = apply(**layer, bias);
        if (hides(score.program, i, bias)) return true;
      }
      const Pointwise* const layer = made_of_one(graph, at);
      if (!layer) break;
      from_mask.push_back(layer);
      at = graph.layer(producer(graph, at)).inputs[0];
    }
  }
  return false;
}

// The value that an element of `of` has where a test succeeds; of a test of rows, all elements of
// the row.
struct RowTest {
  ValueId of = ValueId::kNone;
  double value = 0;
};

// The facts that a test states about each value on the way to the mask that it tests: they hold
// where `test`, a bool for each element or row, is `when`, and nowhere else.
std::vector<RowTest> row_tests(const Graph& graph, ValueId test, bool when) {
  std::vector<RowTest> found;
  std::vector<const Pointwise*> after;
  const auto says = [&](double number) {
    for (auto layer = after.rbegin(); layer != after.rend(); ++layer)
      number = apply(**layer, number);
    return (number != 0) == when;
  };
  ValueId row = test;
  for (;;) {
    if (graph.value(row).type().dtype == DataType::kBool && says(0) != says(1))
      found.push_back({row, says(1) ? 1.0 : 0.0});
    const Pointwise* const layer = made_of_one(graph, row);
    if (!layer) break;
    if (after.size() == kMostTestSteps) return found;
    after.push_back(layer);
    row = graph.layer(producer(graph, row)).inputs[0];
  }
  const LayerId id = producer(graph, row);
  if (!reduces_rows(graph, id)) return found;
  const ReduceKind kind = op_as<Reduce>(graph, id)->kind;
  // Elements are 0 or 1. Of 1, the smallest is 1 only if all are; of 0, the largest and the sum 0.
  if (kind != ReduceKind::kMin && kind != ReduceKind::kMax && kind != ReduceKind::kSum)
    return found;
  const double wanted = kind == ReduceKind::kMin ? 1 : 0;
  if (!says(wanted) || says(1 - wanted)) return found;
  if (kind == ReduceKind::kSum && (says(2) || says(3) || says(1e6))) return found;

  ValueId at = graph.layer(id).inputs[0];
  std::vector<const Pointwise*> before;
  const auto tested = [&](double element) {
    for (auto layer = before.rbegin(); layer != before.rend(); ++layer)
      element = apply(**layer, element);
    return element;
  };
  while (before.size() < kMostTestSteps) {
    const DataType dtype = graph.value(at).type().dtype;
    if (dtype == DataType::kBool) {
      const double zero = tested(0), one = tested(1);
      if (zero + one == 1 && zero * one == 0) found.push_back({at, zero == wanted ? 0.0 : 1.0});
    } else if (is_float(dtype) && !before.empty() && tested(-kUnbounded) == wanted) {
      // An equality with -inf, which no other value passes.
      const Program no = where_least(before.back()->program, 0, false);
      const Instruction& result = no.code()[no.results()[0].reg];
      if (result.type == RegisterType::kBool && result.opcode == Opcode::kConstant) {
        before.pop_back();
        if (tested(result.immediate != 0 ? 1 : 0) == 1 - wanted) found.push_back({at, -kUnbounded});
      }
      return found;
    }
    const Pointwise* const layer = made_of_one(graph, at);
    if (!layer) return found;
    before.push_back(layer);
    at = graph.layer(producer(graph, at)).inputs[0];
  }
  return found;
}

// Whether the program gives 0 in rows that a test of `row`, its input 1, finds hidden, and passes
// on the weights of the others.
bool gives_zero_in_hidden_rows(const Graph& graph, const AttentionPattern& pattern,
                               const ScoreProgram& score, const Program& program, ValueId row) {
  if (program.inputs()[1] == DataType::kBool) {
    for (const bool when : {false, true})
      if (constant_result(with_input(program, 1, when ? 1 : 0)) == 0 &&
          is_rounding(with_input(program, 1, when ? 0 : 1)))
        return std::ranges::any_of(row_tests(graph, row, when), [&](const RowTest& test) {
          return hides_rows(graph, pattern, score, test.of, test.value);
        });
    return false;
  }
  if (!is_float(program.inputs()[1]) || constant_result(where_least(program, 1, true)) != 0 ||
      !is_rounding(where_least(program, 1, false)))
    return false;
  for (size_t i = 1; i < score.inputs.size(); ++i)
    if (is_row_maximum(graph, row, score.inputs[i]) && hides(score.program, i, -kUnbounded))
      return true;
  return is_row_maximum(graph, row, graph.layer(pattern.softmax).inputs[0]);
}

}  // namespace

bool find_weighed_product(const Graph& graph, ValueId value, AttentionPattern& found) {
  if (found.after.size() > kMostWeightLayers) return false;
  const AttentionPattern so_far = found;
  const std::vector<LayerId> users = users_of(graph, value);
  if (users.size() > 1 && !graph.is_output(value)) {
    const std::vector<LayerId> between = meeting_layers(graph, value);
    found.after.insert(found.after.end(), between.begin(), between.end());
    if (!between.empty() &&
        find_weighed_product(graph, graph.layer(between.back()).outputs[0], found))
      return true;
    found = so_far;
  }
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
    if (find_weighed_product(graph, layer.outputs[0], found)) return true;
    found.after.pop_back();
  }
  found = so_far;
  return false;
}

std::optional<WeightRule> weight_rule(const Graph& graph, const AttentionPattern& pattern,
                                      const ScoreProgram& score) {
  const auto weights = weight_program_of(graph, pattern);
  if (!weights || weights->program.uses_index()) return std::nullopt;
  const Program numbers = of_numbers(weights->program);
  if (weights->inputs.size() == 2) {
    if (!gives_zero_in_hidden_rows(graph, pattern, score, numbers, weights->inputs[1]))
      return std::nullopt;
    return WeightRule{.hidden_is_zero = true};
  }
  if (weights->inputs.size() != 1 || !is_rounding(numbers)) return std::nullopt;
  // All weights of a row are NaN where it is hidden.
  const auto hidden =
      constant_result(with_input(weights->program, 0, std::numeric_limits<double>::quiet_NaN()));
  if (!hidden || (!std::isnan(*hidden) && *hidden != 0)) return std::nullopt;
  return WeightRule{.hidden_is_zero = *hidden == 0};
}

}  // namespace anneal
