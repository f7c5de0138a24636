#include "anneal/importer/graph/size_equation.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "anneal/importer/node/attempt.h"

namespace anneal {
namespace {

// gap == scale * symbol + rest, solved for the symbol: -rest / scale, if that is a size.
std::optional<Size> root(Size gap, uint32_t index, Size symbol, SizeTable& sizes) {
  // Arithmetic fails beyond 64 bits, and where it divides by zero.
  const auto found = attempt([&]() -> std::optional<Size> {
    const Size rest = sizes.substitute(gap, {{index, 0}});
    const Size scale = sizes.sub(sizes.substitute(gap, {{index, 1}}), rest);
    const Bounds range = sizes.range(scale);
    if (range.min <= 0 && range.max >= 0) return std::nullopt;
    if (sizes.add(sizes.mul(scale, symbol), rest) != gap) return std::nullopt;
    const Size wanted = sizes.sub(0, rest), value = sizes.floor_div(wanted, scale);
    if (sizes.mul(value, scale) != wanted) return std::nullopt;
    if (std::ranges::binary_search(sizes.symbols_in(value), index)) return std::nullopt;
    return value;
  });
  return found ? *found : std::nullopt;
}

}  // namespace

std::optional<SizeSolution> solve_equation(Size a, Size b, const std::vector<bool>& unknowns,
                                           SizeTable& sizes) {
  const auto gap = attempt([&] { return sizes.sub(a, b); });
  if (!gap || (*gap).known() || (*gap).is_unknown()) return std::nullopt;
  std::optional<SizeSolution> best;
  // A number is best, then a value that cannot be less than the symbol can, then a symbol without a
  // limit of its own, then the symbol that was added last.
  std::tuple<bool, bool, bool, uint32_t> best_rank;
  for (const uint32_t index : sizes.symbols_in(*gap)) {
    if (index >= unknowns.size() || !unknowns[index]) continue;
    const SizeSymbol& it = sizes.symbols()[index];
    const Bounds bounds = it.bounds;
    const Size symbol = sizes.symbol(it.name);
    const auto value = root(*gap, index, symbol, sizes);
    if (!value || !is_made_of(sizes, *value, unknowns)) continue;
    const std::tuple rank{value->known(), sizes.range(*value).min >= bounds.min,
                          bounds.max == Bounds{}.max, index};
    if (best && rank < best_rank) continue;
    best = {symbol, *value};
    best_rank = rank;
  }
  return best;
}

bool has_no_solution(Size a, Size b, SizeTable& sizes) {
  if (!sizes.is_integer(a) || !sizes.is_integer(b)) return false;
  // The gap is 0 where this is 1.
  const auto more = attempt([&] { return sizes.add(sizes.sub(a, b), 1); });
  return more && !sizes.may_be_one(*more);
}

}  // namespace anneal
