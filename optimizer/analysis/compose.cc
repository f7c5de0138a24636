#include "anneal/optimizer/analysis/compose.h"

#include <algorithm>
#include <unordered_map>

#include "anneal/optimizer/analysis/query.h"

namespace anneal {
namespace {

constexpr size_t kMaxValues = 64;
constexpr size_t kMaxInstructions = 256;

// The layer whose program gives the value; null if it is no plain Pointwise.
const Layer* elementwise_layer(const Graph& graph, ValueId value) {
  const LayerId id = producer(graph, value);
  const auto* pointwise = op_as<Pointwise>(graph, id);
  if (!pointwise || !graph.layer(id).epilogues.empty() || pointwise->program.uses_index())
    return nullptr;
  return &graph.layer(id);
}

class Composer {
 public:
  Composer(const Graph& graph, std::span<const ValueId> stops) : graph_(graph), stops_(stops) {}

  std::optional<Composition> run(ValueId value) {
    if (!reaches(value)) return std::nullopt;
    const Reg result = reg(value);
    if (instructions_ > kMaxInstructions) return std::nullopt;
    return Composition{builder_.finish(result, graph_.value(value).type().dtype),
                       std::move(leaves_)};
  }

 private:
  bool is_stop(ValueId value) const {
    return std::find(stops_.begin(), stops_.end(), value) != stops_.end();
  }

  bool reaches(ValueId value) {
    if (is_stop(value)) return true;
    const auto known = reaches_.find(value);
    if (known != reaches_.end()) return known->second;
    const Layer* layer = elementwise_layer(graph_, value);
    if (!layer || reaches_.size() >= kMaxValues) return reaches_[value] = false;
    bool any = false;
    for (const ValueId input : layer->inputs) any |= reaches(input);
    return reaches_[value] = any;
  }

  Reg reg(ValueId value) {
    if (const auto made = regs_.find(value); made != regs_.end()) return made->second;
    const DataType dtype = graph_.value(value).type().dtype;
    const Tensor* constant = graph_.constant(value);
    Reg result;
    if (constant && constant->count() == 1) {
      const Scalar number = load_scalar(dtype, constant->bytes().data());
      const RegisterType type = register_type(dtype);
      result = type == RegisterType::kF32   ? builder_.constant(number.as<float>())
               : type == RegisterType::kF64 ? builder_.constant(number.as<double>())
                                            : leaf(value, dtype);
    } else if (is_stop(value) || !reaches(value)) {
      result = leaf(value, dtype);
    } else {
      const Layer& layer = *elementwise_layer(graph_, value);
      const Program& program = std::get<Pointwise>(layer.op).program;
      instructions_ += program.code().size();
      if (instructions_ > kMaxInstructions) return regs_[value] = leaf(value, dtype);
      std::vector<Reg> inputs;
      for (const ValueId input : layer.inputs) inputs.push_back(reg(input));
      const auto at = std::find(layer.outputs.begin(), layer.outputs.end(), value);
      result =
          builder_.inline_program(program, inputs)[static_cast<size_t>(at - layer.outputs.begin())];
    }
    return regs_[value] = result;
  }

  Reg leaf(ValueId value, DataType dtype) {
    leaves_.push_back(value);
    return builder_.input(static_cast<int>(leaves_.size()) - 1, dtype);
  }

  const Graph& graph_;
  std::span<const ValueId> stops_;
  ProgramBuilder builder_;
  std::vector<ValueId> leaves_;
  std::unordered_map<ValueId, bool> reaches_;
  std::unordered_map<ValueId, Reg> regs_;
  size_t instructions_ = 0;
};

}  // namespace

std::optional<Composition> compose(const Graph& graph, ValueId value,
                                   std::span<const ValueId> stops) {
  return Composer(graph, stops).run(value);
}

std::vector<ValueId> elementwise_ancestors(const Graph& graph, ValueId value) {
  std::vector<ValueId> found = {value};
  for (size_t at = 0; at < found.size(); ++at) {
    const Layer* layer = elementwise_layer(graph, found[at]);
    if (!layer) continue;
    for (const ValueId input : layer->inputs)
      if (found.size() < kMaxValues && !graph.constant(input) &&
          std::find(found.begin(), found.end(), input) == found.end())
        found.push_back(input);
  }
  return found;
}

}  // namespace anneal
