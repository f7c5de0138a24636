#include "anneal/optimizer/analysis/query.h"

#include <algorithm>
#include <unordered_set>

namespace anneal {

LayerId sole_user(const Graph& graph, ValueId value) {
  const auto& users = graph.value(value).users;
  if (users.empty() || graph.is_output(value)) return LayerId::kNone;
  const bool one =
      std::all_of(users.begin(), users.end(), [&](LayerId user) { return user == users[0]; });
  return one ? users[0] : LayerId::kNone;
}

std::vector<LayerId> users_of(const Graph& graph, ValueId value) {
  std::vector<LayerId> users = graph.value(value).users;
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  return users;
}

bool depends_otherwise(const Graph& graph, LayerId layer, LayerId except,
                       FunctionRef<bool(LayerId)> may_need) {
  std::unordered_set<LayerId> seen;
  std::vector<LayerId> open;
  const auto add_producers = [&](LayerId of, bool is_first) {
    for (const ValueId input : graph.layer(of).inputs) {
      if (input == ValueId::kNone) continue;
      const LayerId by = producer(graph, input);
      if (by == LayerId::kNone || (is_first && by == except) || !may_need(by)) continue;
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

int64_t element_count(const Graph& graph, ValueId value) {
  int64_t count = 1;
  for (const Size size : graph.value(value).type().shape) count *= graph.sizes().range(size).opt;
  return count;
}

}  // namespace anneal
