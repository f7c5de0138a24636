#include "anneal/engine/tune/search/precision_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/quantizable.h"

namespace anneal {
namespace {

constexpr const char* kSameData = "they read the same tensor";
constexpr const char* kSum = "they meet in a sum";
constexpr const char* kConcat = "they meet in a concat";
constexpr const char* kSmall = "neighbours, put together";

// Sets of products, joined one by one.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count), why_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t of(size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  void join(size_t a, size_t b, const std::string& why) {
    a = of(a), b = of(b);
    if (a == b) return;
    if (a > b) std::swap(a, b);
    parent_[b] = a;
    if (why_[a].empty() || why == kSmall) why_[a] = why;
  }
  const std::string& why(size_t set) const { return why_[set]; }

 private:
  std::vector<size_t> parent_;
  std::vector<std::string> why_;
};

// Sums of elements that are added up one by one.
bool is_sum_of_equals(const Graph& graph, const Layer& layer) {
  if (!std::holds_alternative<Pointwise>(layer.op)) return false;
  const Type& type = graph.value(layer.outputs[0]).type();
  const auto is_equal = [&](ValueId input) {
    return input != ValueId::kNone && !graph.constant(input) &&
           graph.value(input).type().shape == type.shape;
  };
  return std::ranges::count_if(layer.inputs, is_equal) > 1;
}

bool passes_on(const Op& op) {
  return std::holds_alternative<Pointwise>(op) || std::holds_alternative<Pool>(op) ||
         std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op) ||
         std::holds_alternative<Slice>(op) || std::holds_alternative<Pad>(op) ||
         std::holds_alternative<Resize>(op);
}

class Grouping {
 public:
  explicit Grouping(const Graph& graph) : graph_(graph) {
    for (const LayerId id : graph.order())
      if (is_float_product(graph, id) || op_as<Attention>(graph, id)) {
        index_[id] = products_.size();
        products_.push_back(id);
      }
  }

  std::vector<PrecisionGroup> groups(size_t most) {
    Sets sets(products_.size());
    join_readers(sets);
    for (const LayerId id : graph_.order()) {
      const Layer& layer = graph_.layer(id);
      const bool is_concat = std::holds_alternative<Concat>(layer.op);
      if (!is_concat && !is_sum_of_equals(graph_, layer)) continue;
      std::set<size_t> met;
      for (const ValueId input : layer.inputs) find_products(input, met);
      for (const size_t each : met) sets.join(*met.begin(), each, is_concat ? kConcat : kSum);
    }
    join_small(sets, most);
    return listed(sets);
  }

 private:
  void join_readers(Sets& sets) const {
    std::map<ValueId, size_t> first;
    for (size_t i = 0; i < products_.size(); ++i) {
      const Layer& layer = graph_.layer(products_[i]);
      for (int k = 0; k < layer.op_input_count; ++k) {
        const ValueId data = layer.inputs[static_cast<size_t>(k)];
        if (data == ValueId::kNone || graph_.constant(data)) continue;
        const auto [found, is_new] = first.try_emplace(data, i);
        if (!is_new) sets.join(found->second, i, kSameData);
      }
    }
  }

  // Those whose results the value is made of, other sums and concats left out: they have groups of
  // their own.
  void find_products(ValueId value, std::set<size_t>& found) const {
    std::set<ValueId> seen;
    std::vector<ValueId> open = {value};
    while (!open.empty()) {
      const ValueId at = open.back();
      open.pop_back();
      if (at == ValueId::kNone || !seen.insert(at).second) continue;
      const LayerId from = producer(graph_, at);
      if (from == LayerId::kNone) continue;
      if (const auto product = index_.find(from); product != index_.end()) {
        found.insert(product->second);
        continue;
      }
      const Layer& layer = graph_.layer(from);
      if (!passes_on(layer.op) || is_sum_of_equals(graph_, layer)) continue;
      const Shape& shape = graph_.value(layer.outputs[0]).type().shape;
      for (const ValueId input : layer.inputs)
        // A broadcast operand, such as a gate, is no branch.
        if (input != ValueId::kNone && (!std::holds_alternative<Pointwise>(layer.op) ||
                                        graph_.value(input).type().shape == shape))
          open.push_back(input);
    }
  }

  // Multiplications at the sizes to optimize for.
  double work(size_t product) const {
    const Layer& layer = graph_.layer(products_[product]);
    if (std::holds_alternative<Attention>(layer.op))
      return 2 * static_cast<double>(element_count(graph_, layer.inputs[0])) *
             static_cast<double>(element_count(graph_, layer.inputs[1])) /
             last_size(layer.inputs[1]);
    const Shape& weights = graph_.value(layer.inputs[1]).type().shape;
    double each = static_cast<double>(element_count(graph_, layer.inputs[1]));
    const double results = static_cast<double>(element_count(graph_, layer.outputs[0]));
    // For one result: the weights of its channel.
    if (weights.rank() > 0) {
      const bool is_last = std::holds_alternative<MatMul>(layer.op);
      const int axis = is_last ? weights.rank() - 1 : 0;
      if (weights[axis].known())
        each /= std::max<double>(1, static_cast<double>(weights[axis].value()));
    }
    return results * each;
  }

  double last_size(ValueId value) const {
    const Shape& shape = graph_.value(value).type().shape;
    const Size size = shape[shape.rank() - 1];
    return size.known() ? std::max(1.0, static_cast<double>(size.value())) : 1;
  }

  void join_small(Sets& sets, size_t most) const {
    std::map<size_t, double> works;
    for (size_t i = 0; i < products_.size(); ++i) works[sets.of(i)] += work(i);
    while (works.size() > most) {
      // The two neighbours that compute least together.
      auto best = works.begin();
      for (auto each = works.begin(); std::next(each) != works.end(); ++each)
        if (each->second + std::next(each)->second < best->second + std::next(best)->second)
          best = each;
      const auto next = std::next(best);
      best->second += next->second;
      sets.join(best->first, next->first, kSmall);
      works.erase(next);
    }
  }

  std::vector<PrecisionGroup> listed(const Sets& sets) const {
    std::map<size_t, PrecisionGroup> found;
    for (size_t i = 0; i < products_.size(); ++i) {
      PrecisionGroup& group = found[sets.of(i)];
      group.layers.push_back(graph_.layer(products_[i]).name);
      group.why = sets.why(sets.of(i));
      group.can_be_int8 = group.can_be_int8 || quantizable(graph_, products_[i]).has_value();
    }
    std::vector<PrecisionGroup> groups;
    for (auto& [first, group] : found) {
      group.name = group.layers.size() == 1
                       ? group.layers[0]
                       : fmt::format("{} and {} more", group.layers[0], group.layers.size() - 1);
      groups.push_back(std::move(group));
    }
    return groups;
  }

  const Graph& graph_;
  std::vector<LayerId> products_;
  std::map<LayerId, size_t> index_;
};

}  // namespace

std::vector<PrecisionGroup> precision_groups(const Graph& graph, size_t most) {
  check(most > 0, "at least one group");
  return Grouping(graph).groups(most);
}

}  // namespace anneal
