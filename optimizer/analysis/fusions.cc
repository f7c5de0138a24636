#include "anneal/optimizer/analysis/fusions.h"

#include <algorithm>

#include "anneal/optimizer/analysis/query.h"

namespace anneal {

Fusions::Fusions(const Graph& graph) : graph_(graph), order_(graph.order()) {
  ranks_.reserve(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) ranks_.emplace(order_[i], i);
  places_ = ranks_;
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

// A layer of a smaller rank than `except` does not depend on it.
bool Fusions::depends_otherwise(LayerId layer, LayerId except) const {
  const size_t lowest = rank(except);
  return anneal::depends_otherwise(graph_, layer, except,
                                   [&](LayerId by) { return rank(by) >= lowest; });
}

void Fusions::replaced(LayerId first, LayerId second, LayerId joined) {
  gone_.insert({first, second});
  ranks_[joined] = std::max(rank(first), rank(second));
  places_[joined] = std::min(place(first), place(second));
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
