#include "anneal/importer/graph/best_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/importer/node/attempt.h"

namespace anneal {
namespace {

using Values = std::vector<std::optional<int64_t>>;  // one per symbol
using Symbols = std::vector<uint32_t>;

constexpr int64_t kLargest = 4096;
constexpr int kBestSizeRounds = 3;
constexpr size_t kMaxRestored = 32;
// The limit on checked layers in all: a large model must not be imported for minutes.
constexpr int64_t kMaxChecks = 4'000'000;

bool has_negative(const Fact& fact) {
  return std::ranges::any_of(fact.type.shape,
                             [](Size size) { return size.known() && size.value() < 0; });
}

bool may_have_elements(const Type& type) {
  return type.container == Container::kTensor && known(type.shape) && !is_float(type.dtype) &&
         type.dtype != DataType::kString && type.shape.rank() <= 1;
}

bool reads_indices(const Op& op) {
  return std::holds_alternative<Gather>(op) || std::holds_alternative<GatherElements>(op) ||
         std::holds_alternative<GatherND>(op);
}

// A layer of the graph or of a body, some size of which depends on a symbol that can be chosen.
struct Dependent {
  const Graph* graph;
  LayerId id;
  Symbols symbols;
};

// Whether the layers accept one choice of values.
class Trial {
 public:
  Trial(SizeTable& sizes, const Values& values) : sizes_(sizes), values_(values) {}

  // The symbols that may be to blame; none if the layer is content.
  Symbols complaint(const Dependent& one) {
    const Graph& graph = *one.graph;
    const Layer& layer = graph.layer(one.id);
    Facts facts;
    Symbols blamed;
    for (const ValueId output : layer.outputs) {
      facts.push_back(at(graph.value(output).fact));
      const Shape &open = graph.value(output).type().shape, &now = facts.back().type.shape;
      for (int axis = 0; axis < open.rank(); ++axis)
        if (!open[axis].known() &&
            (now[axis].is_unknown() || (now[axis].known() && now[axis].value() < 1)))
          std::ranges::copy(sizes_.symbols_in(open[axis]), std::back_inserter(blamed));
    }
    const bool is_inferred =
        bodies_of(layer.op).empty() && !std::holds_alternative<SizeTensor>(layer.op);
    if (blamed.empty() && is_inferred && !accepts(graph, layer, facts)) blamed = one.symbols;
    for (size_t k = 0; k < facts.size(); ++k)
      facts_[{one.graph, layer.outputs[k]}] = std::move(facts[k]);
    return blamed;
  }

  // With symbols of no value, or where arithmetic fails, they may be.
  bool are_equal(Size a, Size b) {
    const Size here = at(a), there = at(b);
    return !here.known() || !there.known() || here == there;
  }

 private:
  // A data-dependent size is a symbol of its own; a size that has no value is unknown.
  Size at(Size size) {
    if (size.known() || size.is_unknown()) return size;
    const auto [known, is_new] = known_.try_emplace(size.expression(), Size::unknown());
    if (!is_new) return known->second;
    const auto symbols = sizes_.symbols_in(size);
    const bool open = std::ranges::any_of(symbols, [&](uint32_t one) { return !values_[one]; });
    // Arithmetic fails beyond 64 bits, and where it divides by zero.
    const auto size_here = attempt([&] {
      return open ? own_.symbol(fmt::format("{}", size.expression()))
                  : Size(sizes_.evaluate(size, values_));
    });
    if (size_here) known->second = *size_here;
    return known->second;
  }

  Fact at(const Fact& fact) {
    Fact result = fact;
    Shape& shape = result.type.shape;
    for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] = at(shape[axis]);
    if (result.elements)
      for (Size& size : *result.elements) size = at(size);
    return result;
  }

  const Fact& fact_of(const Graph& graph, ValueId value) {
    const auto [known, is_new] = facts_.try_emplace({&graph, value});
    if (is_new) known->second = at(graph.value(value).fact);
    return known->second;
  }

  // Makes the facts better known.
  bool accepts(const Graph& graph, const Layer& layer, Facts& facts) {
    std::vector<TensorView> views(layer.inputs.size());
    std::vector<InferInput> inputs(layer.inputs.size());
    Fact indices;
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      if (layer.inputs[i] == ValueId::kNone) continue;
      inputs[i].fact = &fact_of(graph, layer.inputs[i]);
      if (has_negative(*inputs[i].fact)) return true;  // another layer is to blame
      const Tensor* constant = graph.constant(layer.inputs[i]);
      if (constant == nullptr && i == 1 && reads_indices(layer.op)) {
        // Larger sizes make larger indices: no growth mends them.
        indices = *inputs[i].fact;
        indices.elements.reset();
        inputs[i].fact = &indices;
      }
      if (constant == nullptr) continue;
      views[i] = kernel_view(*constant);
      inputs[i].value = &views[i];
    }
    const auto inferred = attempt([&] {
      return infer_layer(layer.op, layer.epilogues, layer.op_input_count,
                         InferInputs(inputs, own_));
    });
    return inferred && refine(*inferred, facts);
  }

  // False where the inferred facts contradict the known ones, or a size is less than 1.
  static bool refine(const Facts& inferred, Facts& facts) {
    for (size_t k = 0; k < facts.size(); ++k) {
      Shape& shape = facts[k].type.shape;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Size size = inferred[k].type.shape[axis];
        if (!size.known()) continue;
        if (shape[axis].known() ? size != shape[axis] : size.value() < 1) return false;
        shape[axis] = size;
      }
      if (inferred[k].elements) facts[k].elements = inferred[k].elements;
    }
    return true;
  }

  SizeTable& sizes_;
  const Values& values_;
  SizeTable own_;
  std::unordered_map<uint32_t, Size> known_;  // by expression
  std::map<std::pair<const Graph*, ValueId>, Fact> facts_;
};

class Search {
 public:
  explicit Search(const Graph& graph) : sizes_(graph.sizes()) {
    const std::vector<bool> of_inputs = graph.symbols_of_inputs();
    for (size_t i = 0; i < of_inputs.size(); ++i) {
      const Bounds& bounds = sizes_.symbols()[i].bounds;
      first_.emplace_back();
      chosen_.push_back(of_inputs[i] && bounds.max == Bounds{}.max);
      if (of_inputs[i]) first_.back() = bounds.opt;
    }
    if (std::ranges::find(chosen_, true) == chosen_.end()) return;
    find_dependents(graph);
    for (const Graph& body : graph.bodies()) find_dependents(body);
  }

  Values run() {
    for (int round = 0; round < kBestSizeRounds; ++round) {
      Values values = first_;
      std::vector<size_t> failed;
      while (grow(values, failed)) {
      }
      if (checks_ > kMaxChecks) break;
      if (failed.empty()) return restored(std::move(values));
      hopeless_.insert(failed.begin(), failed.end());
    }
    return first_;
  }

 private:
  void find_dependents(const Graph& graph) {
    std::map<ValueId, std::set<uint32_t>> contents;  // symbols that a small tensor is computed from
    for (const LayerId id : graph.order()) {
      const Layer& layer = graph.layer(id);
      std::set<uint32_t> symbols;
      const auto look = [&](ValueId value) {
        if (value == ValueId::kNone) return;
        const Fact& fact = graph.value(value).fact;
        for (const Size size : fact.type.shape) add_chosen(size, symbols);
        if (const auto found = contents.find(value); found != contents.end())
          symbols.insert(found->second.begin(), found->second.end());
        if (!fact.elements) return;
        for (const Size size : *fact.elements) add_chosen(size, symbols);
      };
      std::ranges::for_each(layer.inputs, look);
      std::ranges::for_each(layer.outputs, look);
      if (symbols.empty()) continue;
      for (const ValueId output : layer.outputs)
        if (may_have_elements(graph.value(output).type())) contents[output] = symbols;
      dependents_.push_back({&graph, id, {symbols.begin(), symbols.end()}});
    }
  }

  void add_chosen(Size size, std::set<uint32_t>& symbols) {
    if (size.known() || size.is_unknown()) return;
    const auto [known, is_new] = symbols_in_.try_emplace(size.expression());
    if (is_new)
      std::ranges::copy_if(sizes_.symbols_in(size), std::back_inserter(known->second),
                           [&](uint32_t symbol) { return chosen_[symbol]; });
    symbols.insert(known->second.begin(), known->second.end());
  }

  // Doubles the symbols that layers refuse. False if there is nothing to double; failed: the
  // layers.
  bool grow(Values& values, std::vector<size_t>& failed) {
    failed.clear();
    std::set<uint32_t> blamed;
    Trial trial(sizes_, values);
    for (size_t i = 0; i < dependents_.size() && ++checks_ <= kMaxChecks; ++i) {
      const Symbols symbols = trial.complaint(dependents_[i]);
      if (symbols.empty() || hopeless_.contains(i)) continue;
      failed.push_back(i);
      blamed.insert(symbols.begin(), symbols.end());
    }
    for (const auto& [expression, stands] : sizes_.representatives()) {
      if (trial.are_equal(Size::expression(expression), stands)) continue;
      std::set<uint32_t> symbols;
      add_chosen(Size::expression(expression), symbols);
      add_chosen(stands, symbols);
      blamed.insert(symbols.begin(), symbols.end());
    }
    bool any = false;
    for (const uint32_t symbol : blamed) {
      if (!chosen_[symbol] || *values[symbol] > kLargest / 2) continue;
      values[symbol] = *values[symbol] * 2;
      any = true;
    }
    return any && checks_ <= kMaxChecks;
  }

  bool suits(Values values) {
    std::vector<size_t> failed;
    grow(values, failed);
    return failed.empty() && checks_ <= kMaxChecks;
  }

  // Symbols that grew with others, and need not have: those of one value together, as sizes that
  // must be equal are, and then each alone.
  Values restored(Values values) {
    std::map<std::pair<int64_t, int64_t>, Symbols> alike;  // by first value and this one
    for (uint32_t i = 0; i < values.size(); ++i)
      if (values[i] != first_[i]) alike[{*first_[i], *values[i]}].push_back(i);
    std::vector<Symbols> groups;
    for (const auto& [value, symbols] : alike) groups.push_back(symbols);
    for (const auto& [value, symbols] : alike)
      for (const uint32_t symbol : symbols)
        if (symbols.size() > 1) groups.push_back({symbol});
    if (groups.size() > kMaxRestored) groups.resize(kMaxRestored);
    for (const Symbols& group : groups) {
      Values fewer = values;
      for (const uint32_t symbol : group) fewer[symbol] = first_[symbol];
      if (fewer != values && suits(fewer)) values = std::move(fewer);
    }
    return values;
  }

  SizeTable& sizes_;
  Values first_;
  std::vector<bool> chosen_;
  std::vector<Dependent> dependents_;
  std::unordered_map<uint32_t, Symbols> symbols_in_;  // by expression; only those to be chosen
  std::set<size_t> hopeless_;
  int64_t checks_ = 0;
};

}  // namespace

void choose_best_sizes(const Graph& graph) {
  SizeTable& sizes = graph.sizes();
  const Values values = Search(graph).run();
  for (size_t i = 0; i < values.size(); ++i) {
    const SizeSymbol& symbol = sizes.symbols()[i];
    if (values[i] && *values[i] != symbol.bounds.opt)
      sizes.set_bounds(
          sizes.symbol(symbol.name),
          {symbol.bounds.min, std::max(symbol.bounds.min, *values[i]), symbol.bounds.max});
  }
}

}  // namespace anneal
