// Graph::order(): the layers, each behind the layers that it needs.
#include <algorithm>
#include <queue>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/graph/graph.h"
#include "anneal/graph/size_dependencies.h"

namespace anneal {
namespace {

size_t layer_index(LayerId id) { return static_cast<size_t>(id); }

// By layer, each once: producers of its inputs, and layers that find a size for it.
using Needs = std::vector<std::vector<LayerId>>;

Needs needs_of(const Graph& graph, const std::vector<LayerId>& layers, size_t end) {
  const SizeDependencies size_dependencies(graph);
  Needs needs(end);
  for (const LayerId id : layers) {
    std::vector<LayerId>& all = needs[layer_index(id)];
    for (const ValueId input : graph.layer(id).inputs)
      if (input != ValueId::kNone && graph.value(input).producer != LayerId::kNone)
        all.push_back(graph.value(input).producer);
    const auto& finders = size_dependencies.of(id);
    all.insert(all.end(), finders.begin(), finders.end());
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }
  return needs;
}

// By layer: where it stands among those that are ready.
std::vector<LayerId> ranks_of(const Graph& graph, const std::vector<LayerId>& layers,
                              const Needs& needs) {
  std::vector<LayerId> ranks(needs.size());
  for (const LayerId id : layers) ranks[layer_index(id)] = id;
  std::vector<bool> visited(needs.size());
  for (const LayerId require : layers) {
    if (!std::holds_alternative<Require>(graph.layer(require).op)) continue;
    std::vector<LayerId> needed = {require};
    while (!needed.empty()) {
      const LayerId id = needed.back();
      needed.pop_back();
      for (const LayerId producer : needs[layer_index(id)]) {
        if (visited[layer_index(producer)]) continue;
        visited[layer_index(producer)] = true;
        ranks[layer_index(producer)] = std::min(ranks[layer_index(producer)], require);
        needed.push_back(producer);
      }
    }
  }
  return ranks;
}

}  // namespace

std::vector<LayerId> Graph::order() const {
  const std::vector<LayerId> all = layers();
  const size_t end = all.empty() ? 0 : layer_index(all.back()) + 1;
  const Needs needs = needs_of(*this, all, end);
  const std::vector<LayerId> ranks = ranks_of(*this, all, needs);
  std::vector<size_t> waiting(end);
  std::vector<std::vector<LayerId>> users(end);
  using Ready = std::pair<LayerId, LayerId>;  // rank, layer
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (const LayerId id : all) {
    waiting[layer_index(id)] = needs[layer_index(id)].size();
    for (const LayerId needed : needs[layer_index(id)]) users[layer_index(needed)].push_back(id);
    if (needs[layer_index(id)].empty()) ready.emplace(ranks[layer_index(id)], id);
  }
  std::vector<LayerId> order;
  while (!ready.empty()) {
    const LayerId next = ready.top().second;
    ready.pop();
    order.push_back(next);
    for (const LayerId user : users[layer_index(next)])
      if (--waiting[layer_index(user)] == 0) ready.emplace(ranks[layer_index(user)], user);
  }
  if (order.size() != all.size()) fail(ErrorCode::kInvalidModel, "the layers form a cycle");
  return order;
}

}  // namespace anneal
