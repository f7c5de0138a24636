// Fusions: what a pass that joins layers asks of the graph, answered without walking all of it.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "anneal/optimizer/pass.h"

namespace anneal {

// The fusions of one round over the layers. It must be informed of each change of the graph.
// Replaced layers stay in the graph until the round ends, but count as erased here.
class Fusions {
 public:
  explicit Fusions(const Graph& graph);

  const std::vector<LayerId>& order() const { return order_; }
  bool is_gone(LayerId layer) const { return gone_.contains(layer); }
  // Never less than that of a layer that it needs.
  size_t rank(LayerId layer) const { return ranks_.at(layer); }
  // The position in the order of the layer, or of the first layer that it joins.
  size_t place(LayerId layer) const { return places_.at(layer); }
  // The outputs of a layer that have a reader other than `reader`, or that the graph returns.
  std::vector<ValueId> outputs_kept(LayerId layer, LayerId reader) const;
  // As in optimizer/analysis/query.h.
  LayerId sole_user(ValueId value) const;
  bool depends_otherwise(LayerId layer, LayerId except) const;
  // `joined` took the place of two layers.
  void replaced(LayerId first, LayerId second, LayerId joined);

 private:
  const Graph& graph_;
  std::vector<LayerId> order_;
  std::unordered_map<LayerId, size_t> ranks_, places_;
  std::unordered_set<LayerId> gone_;
};

// sweep() for rules that join layers.
bool sweep_fusions(Graph& graph, PassRun& run, bool (*rule)(Graph&, LayerId, PassRun&, Fusions&));

}  // namespace anneal
