#include "anneal/importer/graph/required_sizes.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "anneal/importer/node/attempt.h"

namespace anneal {
namespace {

// A size that was fixed may make a further one known.
constexpr int kRequiredSizeRounds = 8;

struct Requirement {
  Size a, b;  // are equal in every run
};

Size from_end(const Shape& shape, bool transpose, int axis) {
  return shape[shape.rank() - (transpose ? 3 - axis : axis)];
}

std::vector<Requirement> requirements(const Graph& graph, const Layer& layer) {
  SizeTable& sizes = graph.sizes();
  const auto shape = [&](int input) -> const Shape& {
    return graph.value(layer.inputs[static_cast<size_t>(input)]).type().shape;
  };
  if (const auto* conv = std::get_if<Conv>(&layer.op))
    return {{shape(0)[1], sizes.mul(shape(1)[1], conv->groups)}};
  if (std::holds_alternative<ConvTranspose>(layer.op)) return {{shape(0)[1], shape(1)[0]}};
  if (const auto* product = std::get_if<MatMul>(&layer.op))
    return {
        {from_end(shape(0), product->transpose_a, 1), from_end(shape(1), product->transpose_b, 2)}};
  if (std::holds_alternative<Recurrent>(layer.op)) return {{shape(0)[2], shape(1)[2]}};
  return {};
}

struct Solution {
  Size symbol;
  int64_t value;
};

// Of size == wanted, where size is scale * symbol + offset.
std::optional<Solution> solve(Size size, int64_t wanted, SizeTable& sizes) {
  const auto symbols = sizes.symbols_in(size);
  if (symbols.size() != 1) return std::nullopt;
  const Size symbol = sizes.symbol(sizes.symbols()[symbols[0]].name);
  const auto at = [&](int64_t value) {
    std::vector<std::optional<int64_t>> values(sizes.symbols().size());
    values[symbols[0]] = value;
    return sizes.evaluate(size, values);
  };
  // Arithmetic fails beyond 64 bits, and where it divides by zero.
  const auto solution = attempt([&]() -> std::optional<Solution> {
    int64_t scale = 0, rest = 0;
    const int64_t offset = at(0);
    if (__builtin_sub_overflow(at(1), offset, &scale) || scale == 0 ||
        __builtin_sub_overflow(wanted, offset, &rest) || rest % scale != 0 ||
        sizes.add(sizes.mul(symbol, scale), offset) != size)
      return std::nullopt;
    return Solution{symbol, rest / scale};
  });
  return solution ? *solution : std::nullopt;
}

using Fixed = std::map<uint32_t, std::string>;  // by symbol: the layer that required it

bool fix(const Solution& solution, const Layer& layer, SizeTable& sizes, Fixed& fixed) {
  const uint32_t index = *sizes.symbol_index(solution.symbol);
  const SizeSymbol& symbol = sizes.symbols()[index];
  const Bounds bounds = symbol.bounds;
  const int64_t value = solution.value;
  if (bounds.min == value && bounds.max == value) return false;
  if (value < bounds.min || value > bounds.max) {
    const auto other = fixed.find(index);
    fail(Code::kInvalidModel,
         fmt::format("size \"{}\" must be {} for \"{}\" ({}), but is {}{}", symbol.name, value,
                     layer.name, to_string(layer.op), bounds.min,
                     other == fixed.end() ? fmt::format(" to {}", bounds.max)
                                          : fmt::format(" for \"{}\"", other->second)));
  }
  sizes.set_bounds(solution.symbol, {value, value, value});
  fixed.emplace(index, layer.name);
  return true;
}

}  // namespace

void fix_required_sizes(Graph& graph) {
  SizeTable& sizes = graph.sizes();
  Fixed fixed;
  for (int round = 0; round < kRequiredSizeRounds; ++round) {
    const std::vector<bool> of_inputs = graph.symbols_of_inputs();
    bool any = false;
    for (const LayerId id : graph.order()) {
      const Layer& layer = graph.layer(id);
      for (Requirement one : requirements(graph, layer)) {
        if (one.a.known()) std::swap(one.a, one.b);
        if (!one.b.known() || one.a.known() || one.a.is_unknown() ||
            !sizes.is_made_of(one.a, of_inputs))
          continue;
        if (const auto solution = solve(one.a, one.b.value(), sizes))
          any |= fix(*solution, layer, sizes, fixed);
      }
    }
    if (!any) return;
    graph.refine();
  }
}

}  // namespace anneal
