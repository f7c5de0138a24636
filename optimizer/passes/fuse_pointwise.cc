// fuse_pointwise: elementwise layers of one shape become one.
//
//   a = Pointwise(x) program=f; y = Pointwise(a, b) program=g
//     =>   y = Pointwise(x, b) program=g(f($0),$1); if others read a: a, y = ...
//     program=f($0),g(...)
//   a = Pointwise(x) program=f; b = Pointwise(x) program=g   =>   a, b = Pointwise(x) program=f,g
//
// A layer joins one that reads it; what others read of it stays as a result, unless the reader's
// other inputs need that first. Layers that read the same values and do not need each other share
// the reading. A producer that broadcasts to a larger shape is computed again for each element
// there: only a few cheap instructions, and only where the elements are few or hardly more. A layer
// that makes its values smaller stays with the convolution or the like that makes them, where it
// will be an epilogue, if its reader goes with another one: what lies between is the smaller value.
// Every rounding step of both programs stays, so results do not change.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/fusions.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"

namespace anneal {
namespace {

// The limit on instructions for computing a broadcast producer again.
constexpr int64_t kMaxInstructions = 4;
constexpr int64_t kMaxElements = 1 << 14;
constexpr int64_t kMaxRatio = 4;
// The limit on layers with a common input that are tried as partners.
constexpr int kMaxSiblings = 64;

const Program* pointwise_program_of(const Graph& graph, LayerId id) {
  const auto* pointwise = op_as<Pointwise>(graph, id);
  return pointwise && graph.layer(id).epilogues.empty() ? &pointwise->program : nullptr;
}

const Shape& output_shape(const Graph& graph, LayerId id) {
  return graph.value(graph.layer(id).outputs[0]).type().shape;
}

bool is_cheap(const Instruction& one) {
  switch (one.opcode) {
    case Opcode::kCast:
    case Opcode::kNeg:
    case Opcode::kAbs:
    case Opcode::kNot:
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kMin:
    case Opcode::kMax:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kEqual:
    case Opcode::kLess:
    case Opcode::kLessEqual:
    case Opcode::kSelect:
      return true;
    default:
      return operand_count(one.opcode) == 0;
  }
}

// Why the producer should not be computed for every element of its reader's larger shape.
std::string why_not_again(const Graph& graph, LayerId producer, LayerId reader) {
  const Program& program = *pointwise_program_of(graph, producer);
  const auto code = program.code();
  const auto work = std::count_if(code.begin(), code.end(), [](const Instruction& one) {
    return operand_count(one.opcode) > 0;
  });
  if (program.uses_index()) return "it counts along axes of its own";
  if (work > kMaxInstructions || !std::all_of(code.begin(), code.end(), is_cheap))
    return "it is not cheap enough to be computed again for each element";
  const int64_t from = element_count(graph, graph.layer(producer).outputs[0]);
  const int64_t to = element_count(graph, graph.layer(reader).outputs[0]);
  if (to > kMaxElements && to > kMaxRatio * from)
    return fmt::format("{} elements would be computed for {}", to, from);
  return {};
}

bool is_shape_arithmetic(const Graph& graph, LayerId id) {
  const auto& outputs = graph.layer(id).outputs;
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](ValueId output) { return graph.value(output).fact.elements.has_value(); });
}

bool join(Graph& graph, Fusions& fusions, LayerId first, LayerId second,
          std::span<const ValueId> kept, PassRun& run, Saving saved) {
  const Layer &a = graph.layer(first), &b = graph.layer(second);
  auto joined = join_programs({*pointwise_program_of(graph, first), a.inputs, a.outputs},
                              {*pointwise_program_of(graph, second), b.inputs, b.outputs}, kept);
  if (!joined) {
    run.refused(b.name, fmt::format("with \"{}\" its program would be too long", a.name));
    return false;
  }
  NewLayer added{.name = b.name,
                 .op = Pointwise{std::move(joined->program)},
                 .inputs = std::move(joined->inputs),
                 .origins = a.origins};
  added.origins.insert(added.origins.end(), b.origins.begin(), b.origins.end());
  if (const std::string why_not = why_not_joined(graph, run, second, added); !why_not.empty()) {
    run.refused(b.name, fmt::format("not joined with \"{}\": {}", a.name, why_not));
    return false;
  }
  const std::string subject = b.name, joined_name = a.name;
  const LayerId fused = graph.add(std::move(added));
  take_over(graph, joined->outputs, fused);
  graph.swap_names(second, fused);
  fusions.replaced(first, second, fused);
  run.did(subject, fmt::format("joined \"{}\"", joined_name), saved);
  return true;
}

// Whether the layer stores fewer bytes than it reads from one that is not elementwise, which alone
// it reads at full size, and the reader reads such values of others, too.
bool narrows_for_another(const Graph& graph, const Fusions& fusions, LayerId id, LayerId reader,
                         ValueId between) {
  const Shape& shape = graph.value(between).type().shape;
  const auto is_large = [&](ValueId value) {
    return value != between && !graph.constant(value) && graph.value(value).type().shape == shape;
  };
  const auto& inputs = graph.layer(id).inputs;
  const auto wide = std::find_if(inputs.begin(), inputs.end(), is_large);
  if (wide == inputs.end() || std::find_if(wide + 1, inputs.end(), is_large) != inputs.end())
    return false;
  const LayerId made_by = producer(graph, *wide);
  if (made_by == LayerId::kNone || pointwise_program_of(graph, made_by) ||
      fusions.sole_user(*wide) != id ||
      size_of(graph.value(between).type().dtype) >= size_of(graph.value(*wide).type().dtype))
    return false;
  const auto& others = graph.layer(reader).inputs;
  return std::any_of(others.begin(), others.end(), is_large);
}

bool join_with_reader(Graph& graph, Fusions& fusions, LayerId id, LayerId reader, ValueId between,
                      PassRun& run) {
  const Layer& layer = graph.layer(id);
  const std::vector<ValueId> kept = fusions.outputs_kept(id, reader);
  if (!kept.empty() && (is_shape_arithmetic(graph, id) || is_shape_arithmetic(graph, reader) ||
                        fusions.depends_otherwise(reader, id)))
    return false;
  if (narrows_for_another(graph, fusions, id, reader, between)) {
    run.refused(layer.name,
                fmt::format("\"{}\" reads its smaller results", graph.layer(reader).name));
    return false;
  }
  Saving saved = saving_of(graph, between);
  if (!kept.empty()) saved.bytes /= 2;
  if (output_shape(graph, id) != output_shape(graph, reader)) {
    if (!kept.empty()) return false;
    if (const std::string why_not = why_not_again(graph, id, reader); !why_not.empty()) {
      run.refused(layer.name, why_not);
      return false;
    }
  }
  return join(graph, fusions, id, reader, kept, run, saved);
}

bool join_with_readers(Graph& graph, LayerId id, PassRun& run, Fusions& fusions) {
  for (const ValueId output : graph.layer(id).outputs)
    for (const LayerId reader : users_of(graph, output))
      if (!fusions.is_gone(reader) && pointwise_program_of(graph, reader) &&
          join_with_reader(graph, fusions, id, reader, output, run))
        return true;
  return false;
}

bool reads_all_of(const Graph& graph, LayerId id, LayerId other) {
  const auto& own = graph.layer(id).inputs;
  const auto& others = graph.layer(other).inputs;
  return std::all_of(others.begin(), others.end(), [&](ValueId input) {
    return graph.constant(input) || std::find(own.begin(), own.end(), input) != own.end();
  });
}

bool reads_from(const Graph& graph, LayerId layer, LayerId from) {
  const auto& inputs = graph.layer(layer).inputs;
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
    return input != ValueId::kNone && producer(graph, input) == from;
  });
}

bool join_with_sibling(Graph& graph, LayerId id, PassRun& run, Fusions& fusions) {
  if (is_shape_arithmetic(graph, id)) return false;
  const Shape shape = output_shape(graph, id);
  for (const ValueId input : graph.layer(id).inputs) {
    if (graph.constant(input) || graph.value(input).type().shape != shape) continue;
    int asked = 0;
    for (const LayerId other : graph.value(input).users) {
      if (other == id || fusions.is_gone(other)) continue;
      if (++asked > kMaxSiblings) break;
      if (!pointwise_program_of(graph, other) || output_shape(graph, other) != shape ||
          is_shape_arithmetic(graph, other) || reads_from(graph, id, other) ||
          reads_from(graph, other, id) ||
          (!reads_all_of(graph, id, other) && !reads_all_of(graph, other, id)) ||
          fusions.depends_otherwise(id, other) || fusions.depends_otherwise(other, id))
        continue;
      Saving saved = saving_of(graph, input);
      saved.bytes /= 2;
      if (join(graph, fusions, id, other, graph.layer(id).outputs, run, saved)) return true;
    }
  }
  return false;
}

bool fuse_pointwise_at(Graph& graph, LayerId id, PassRun& run, Fusions& fusions) {
  return pointwise_program_of(graph, id) &&
         (join_with_readers(graph, id, run, fusions) || join_with_sibling(graph, id, run, fusions));
}

}  // namespace

bool fuse_pointwise(Graph& graph, PassRun& run) {
  return sweep_fusions(graph, run, fuse_pointwise_at);
}

}  // namespace anneal
