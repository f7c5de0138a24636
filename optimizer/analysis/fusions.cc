#include "anneal/optimizer/analysis/fusions.h"

#include <algorithm>

#include "anneal/optimizer/analysis/query.h"

namespace anneal {

Fusions::Fusions(const Graph& graph) : graph_(graph), order_(graph.order()) {
  ranks_.reserve(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) ranks_.emplace(order_[i], i);
}

std::vector<ValueId> Fusions::outputs_kept(LayerId layer, LayerId reader) const {
  std::vector<ValueId> kept;
  for (const ValueId output : graph_.layer(layer).outputs)
    if (graph_.is_output(output) ||
        std::ranges::any_of(graph_.value(output).users,
                            [&](LayerId user) { return user != reader && !is_gone(user); }))
      kept.push_back(output);
  return kept;
}

LayerId Fusions::sole_user(ValueId value) const {
  if (graph_.is_output(value)) return LayerId::kNone;
  LayerId sole = LayerId::kNone;
  for (const LayerId user : graph_.value(value).users) {
    if (is_gone(user)) continue;
    if (sole != LayerId::kNone && user != sole) return LayerId::kNone;
    sole = user;
  }
  return sole;
}

// What has a smaller rank than `except` does not need it.
bool Fusions::depends_otherwise(LayerId layer, LayerId except) const {
  const size_t lowest = rank(except);
  std::unordered_set<LayerId> seen;
  std::vector<LayerId> open;
  const auto add_producers = [&](LayerId of, bool is_first) {
    for (const ValueId input : graph_.layer(of).inputs) {
      const LayerId by = input == ValueId::kNone ? LayerId::kNone : producer(graph_, input);
      if (by == LayerId::kNone || (is_first && by == except) || rank(by) < lowest) continue;
      if (seen.insert(by).second) open.push_back(by);
    }
  };
  add_producers(layer, true);
  while (!open.empty()) {
    const LayerId next = open.back();
    open.pop_back();
    if (next == except) return true;
    add_producers(next, false);
  }
  return false;
}

void Fusions::replaced(LayerId first, LayerId second, LayerId joined) {
  gone_.insert({first, second});
  ranks_[joined] = std::max(rank(first), rank(second));
  std::vector<LayerId> raised = {joined};
  while (!raised.empty()) {
    const LayerId next = raised.back();
    raised.pop_back();
    for (const ValueId output : graph_.layer(next).outputs)
      for (const LayerId user : graph_.value(output).users) {
        size_t& of_user = ranks_.at(user);
        if (of_user >= ranks_.at(next)) continue;
        of_user = ranks_.at(next);
        raised.push_back(user);
      }
  }
}

bool sweep_fusions(Graph& graph, PassRun& run, bool (*rule)(Graph&, LayerId, PassRun&, Fusions&)) {
  bool any = false;
  for (bool changed = true; changed; any |= changed) {
    changed = false;
    Fusions fusions(graph);
    for (const LayerId id : fusions.order()) {
      if (!run.may_rewrite()) break;
      if (!fusions.is_gone(id) && rule(graph, id, run, fusions)) changed = true;
    }
    if (changed) graph.erase_unused();
  }
  return any;
}

}  // namespace anneal
