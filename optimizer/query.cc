#include "anneal/optimizer/query.h"

#include <algorithm>

namespace anneal {

LayerId sole_user(const Graph& graph, ValueId value) {
  const auto& users = graph.value(value).users;
  if (users.empty() || graph.is_output(value)) return LayerId::kNone;
  const bool one =
      std::all_of(users.begin(), users.end(), [&](LayerId user) { return user == users[0]; });
  return one ? users[0] : LayerId::kNone;
}

}  // namespace anneal
