#include "anneal/importer/graph/required_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/graph/op/infer_rules.h"
#include "anneal/importer/graph/size_equation.h"

namespace anneal {
namespace {

// A size that was settled may make a further one known.
constexpr int kSettlementRounds = 8;
// The limit for one model: equations are compared with each other.
constexpr size_t kMaxEquations = 10'000;

struct Equation {
  Size a, b;
  LayerId layer;                  // that demands it
  Size first_a = a, first_b = b;  // before symbols were replaced
};

bool has_limit(const Bounds& bounds) { return bounds.max != Bounds{}.max; }

class Settlement {
 public:
  Settlement(Graph& graph, std::optional<uint32_t> batch)
      : graph_(graph), sizes_(graph.sizes()), batch_(batch) {}

  void run() {
    for (int round = 0; round < kSettlementRounds; ++round) {
      of_inputs_ = graph_.symbols_of_inputs();
      if (std::ranges::find(of_inputs_, true) == of_inputs_.end()) return;
      collect();
      SizeReplacements solved;
      solve(solved);
      Representatives equal = representatives();
      if (solved.empty() && equal == sizes_.representatives()) return;
      sizes_.set_representatives(std::move(equal));
      graph_.refine(std::move(solved));
    }
  }

 private:
  void collect() {
    for (const LayerId id : graph_.order()) {
      SizeDemands demands;
      static_cast<void>(graph_.infer_outputs(id, &demands));
      for (const SizeDemand& demand : demands)
        if (equations_.size() < kMaxEquations && is_new(demand))
          equations_.push_back({demand.a, demand.b, id});
    }
  }

  bool is_new(const SizeDemand& demand) {
    const auto key = [](Size size) {
      return std::pair{size.known(), size.known() ? size.value() : int64_t{size.expression()}};
    };
    return known_.insert({key(demand.a), key(demand.b)}).second;
  }

  // Each solution is of the symbols that are left, so one may need another one first.
  void solve(SizeReplacements& solved) {
    for (bool any = true; any;) {
      any = false;
      for (Equation& one : equations_) {
        one.a = sizes_.substitute(one.a, solved);
        one.b = sizes_.substitute(one.b, solved);
        if (one.a == one.b) continue;
        if (rules::surely_differ(one.a, one.b, sizes_) || has_no_solution(one.a, one.b, sizes_))
          refuse(one);
        const auto solution = solve_equation(one.a, one.b, of_inputs_, sizes_);
        if (!solution) continue;
        replace(one, *solution, solved);
        any = true;
      }
    }
    std::erase_if(equations_, [](const Equation& one) { return one.a == one.b; });
  }

  void replace(const Equation& one, const SizeSolution& solution, SizeReplacements& solved) {
    const uint32_t index = *sizes_.symbol_index(solution.symbol);
    const SizeSymbol& symbol = sizes_.symbols()[index];
    const Bounds bounds = symbol.bounds;
    const Size value = solution.value;
    const Bounds range = sizes_.range(value);
    if (batch_ == index)
      fail(ErrorCode::kUnsupported,
           fmt::format("{} fixes the batch: it needs {} = {}", name_of(one.layer), symbol.name,
                       sizes_.text(value)));
    if (range.max < bounds.min || range.min > bounds.max)
      fail(ErrorCode::kInvalidModel,
           fmt::format("size \"{}\" must be {} for {}, but is {} to {}", symbol.name,
                       sizes_.text(value), name_of(one.layer), bounds.min, bounds.max));
    if (value.known()) {
      sizes_.set_bounds(solution.symbol, {value.value(), value.value(), value.value()});
      fixed_.emplace(index, one.layer);
    } else {
      hold_within(value, bounds);
    }
    solved.emplace(index, value);
  }

  // The bounds of a size become those of the symbol that it is computed from, where it is one.
  void hold_within(Size value, const Bounds& bounds) {
    const auto symbols = sizes_.symbols_in(value);
    if (symbols.size() != 1) return;
    const Bounds old = sizes_.symbols()[symbols[0]].bounds;
    const Size symbol = sizes_.symbol(sizes_.symbols()[symbols[0]].name);
    const auto rest = sizes_.substitute(value, {{symbols[0], 0}});
    const auto scale = sizes_.sub(sizes_.substitute(value, {{symbols[0], 1}}), rest);
    if (!scale.known() || scale.value() <= 0 || !rest.known() ||
        sizes_.add(sizes_.mul(scale, symbol), rest) != value)
      return;
    const auto least = [&](int64_t bound) {
      return sizes_.ceil_div(bound - rest.value(), scale).value();
    };
    const auto most = [&](int64_t bound) {
      return sizes_.floor_div(bound - rest.value(), scale).value();
    };
    Bounds held = old;
    held.min = std::max(old.min, least(bounds.min));
    if (has_limit(bounds)) held.max = std::min(old.max, most(bounds.max));
    held.opt = has_limit(bounds) && !has_limit(old) ? most(bounds.opt)
                                                    : std::max(old.opt, least(bounds.opt));
    if (held.min > held.max) return;  // no run is within both, and each says so
    held.opt = std::clamp(held.opt, held.min, held.max);
    sizes_.set_bounds(symbol, held);
  }

  // Of equal sizes none is smaller than the other may be: h - 3 in place of a size is not negative,
  // which readers of h - 3 rely on.
  void hold_at_least(Size size, int64_t least) {
    Bounds bounds;
    bounds.min = least;
    try {
      hold_within(size, bounds);
    } catch (const Error&) {
      // It is a quotient by the symbol, which has no value where that is 0, and is not linear.
    }
  }

  // For each of the remaining sizes, the size that every run knows.
  Representatives representatives() {
    Representatives equal;
    const auto find = [&](Size size) {
      for (auto at = equal.end();
           !size.known() && (at = equal.find(size.expression())) != equal.end();)
        size = at->second;
      return size;
    };
    for (const Equation& one : equations_) {
      if (!is_made_of(sizes_, one.a, of_inputs_) || !is_made_of(sizes_, one.b, of_inputs_))
        continue;
      const Size a = find(one.a), b = find(one.b), stands = canonical(a, b, sizes_);
      if (a == b) continue;
      const Size other = stands == a ? b : a;
      if (other.known()) refuse({a, b, one.layer, one.first_a, one.first_b});
      equal.emplace(other.expression(), stands);
      hold_at_least(stands, sizes_.range(other).min);
      hold_at_least(other, sizes_.range(stands).min);
    }
    for (auto& [expression, size] : equal) size = find(size);
    return equal;
  }

  [[noreturn]] void refuse(const Equation& one) {
    std::string because;
    for (const Size size : {one.first_a, one.first_b})
      for (const uint32_t index : sizes_.symbols_in(size))
        if (const auto found = fixed_.find(index); found != fixed_.end())
          because += fmt::format("{}\"{}\" is {} for {}", because.empty() ? ": " : ", ",
                                 sizes_.symbols()[index].name, sizes_.symbols()[index].bounds.min,
                                 name_of(found->second));
    fail(ErrorCode::kInvalidModel,
         fmt::format("sizes {} and {} must be equal for {}, but are {} and {}{}",
                     sizes_.text(one.first_a), sizes_.text(one.first_b), name_of(one.layer),
                     sizes_.text(one.a), sizes_.text(one.b), because));
  }

  std::string name_of(LayerId id) const {
    const Layer& layer = graph_.layer(id);
    return fmt::format("\"{}\" ({})", layer.name, to_string(layer.op));
  }

  using Key = std::pair<bool, int64_t>;

  Graph& graph_;
  SizeTable& sizes_;
  std::optional<uint32_t> batch_;
  std::vector<bool> of_inputs_;
  std::vector<Equation> equations_;  // that are not solved
  std::set<std::pair<Key, Key>> known_;
  std::map<uint32_t, LayerId> fixed_;  // by symbol: the layer that left it one number
};

}  // namespace

void settle_sizes(Graph& graph, std::optional<Size> batch) {
  Settlement(graph, batch ? graph.sizes().symbol_index(*batch) : std::nullopt).run();
}

}  // namespace anneal
