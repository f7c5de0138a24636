#include "anneal/optimizer/precision/bf16_range.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>
#include <vector>

#include "anneal/optimizer/precision/half_roles.h"
#include "anneal/optimizer/programs/overflow_analysis.h"

namespace anneal {
namespace {

constexpr float kMostBf16 = 0x1.FEp127F;

Growth growth_of_constant(const Tensor& constant) {
  Growth of;
  if (constant.dtype() != DataType::kF32) return of;
  for (const float value : constant.as<float>()) {
    of.up |= std::isfinite(value) && value > kMostBf16;
    of.down |= std::isfinite(value) && value < -kMostBf16;
  }
  return of;
}

class BeyondBf16 {
 public:
  explicit BeyondBf16(const Graph& graph) : graph_(graph) {}

  std::unordered_set<ValueId> run() {
    for (const LayerId id : graph_.order()) visit(id);
    std::unordered_set<ValueId> found;
    for (const auto& [value, growth] : made_)
      if (growth.any()) found.insert(value);
    return found;
  }

 private:
  Growth growth(ValueId id) {
    if (id == ValueId::kNone) return {};
    const auto [made, is_new] = made_.try_emplace(id);
    const Tensor* constant = is_new ? graph_.constant(id) : nullptr;
    if (constant != nullptr) made->second = growth_of_constant(*constant);
    return made->second;
  }

  // Of the op's result, before epilogues.
  Growth of_op(const Layer& layer, HalfRole role) {
    const auto* reduce = std::get_if<Reduce>(&layer.op);
    const bool selects = reduce != nullptr && reduce->map.empty() &&
                         (reduce->kind == ReduceKind::kMax || reduce->kind == ReduceKind::kMin);
    if (role != HalfRole::kMoves && !selects) return {};
    Growth all;
    for (const size_t i : data_inputs(layer).data) {
      const Growth of = growth(layer.inputs[i]);
      all = {all.up || of.up, all.down || of.down};
    }
    return all;
  }

  void visit(LayerId id) {
    const Layer& layer = graph_.layer(id);
    std::vector<Growth> results;
    const auto apply = [&](const Program& program, std::vector<Growth> given, size_t& next) {
      while (given.size() < program.inputs().size()) given.push_back(growth(layer.inputs[next++]));
      const auto all = growth_of(program, given, kMostBf16);
      results.insert(results.end(), all.begin(), all.end());
    };
    size_t next = 0;
    if (const auto* pointwise = std::get_if<Pointwise>(&layer.op)) {
      apply(pointwise->program, {}, next);
    } else {
      const Growth of = of_op(layer, role_of(graph_, id));
      next = static_cast<size_t>(layer.op_input_count);
      for (const Program& epilogue : layer.epilogues) {
        if (epilogue.empty())
          results.push_back(of);
        else
          apply(epilogue, {of}, next);
      }
      results.resize(layer.outputs.size(), of);
    }
    for (size_t k = 0; k < layer.outputs.size(); ++k)
      if (graph_.value(layer.outputs[k]).type().dtype == DataType::kF32)
        made_[layer.outputs[k]] = results[k];
  }

  const Graph& graph_;
  std::unordered_map<ValueId, Growth> made_;
};

}  // namespace

std::unordered_set<ValueId> values_beyond_bf16(const Graph& graph) {
  return BeyondBf16(graph).run();
}

std::string why_beyond_bf16(const std::string& name) {
  return fmt::format("\"{}\" may hold numbers beyond {:g}, where bf16 ends", name, kMostBf16);
}

}  // namespace anneal
