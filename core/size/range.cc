// Interval arithmetic for SizeTable::range(). The greatest and least 64-bit numbers stand for
// infinity; a lower bound is never plus and an upper bound never minus infinity.
#include <algorithm>

#include "anneal/core/error.h"
#include "anneal/core/size/real.h"
#include "anneal/core/size/size.h"

namespace anneal {
namespace {

constexpr int64_t kMinusInfinity = INT64_MIN, kPlusInfinity = INT64_MAX;
constexpr __int128 kHuge = __int128{1} << 126;  // no product of two finite bounds is beyond it

struct Interval {
  int64_t low, high;
};
constexpr Interval kAll{kMinusInfinity, kPlusInfinity};

bool is_infinite(int64_t bound) { return bound == kMinusInfinity || bound == kPlusInfinity; }

int sign(int64_t value) { return (value > 0) - (value < 0); }

// The interval of 64-bit bounds around [low, high].
Interval around(__int128 low, __int128 high) {
  const __int128 least = __int128{kMinusInfinity} + 1, greatest = __int128{kPlusInfinity} - 1;
  return {low < least ? kMinusInfinity : static_cast<int64_t>(std::min(low, greatest)),
          high > greatest ? kPlusInfinity : static_cast<int64_t>(std::max(high, least))};
}

Interval plus(Interval a, Interval b) {
  const __int128 low = __int128{a.low} + b.low, high = __int128{a.high} + b.high;
  return around(is_infinite(a.low) || is_infinite(b.low) ? -kHuge : low,
                is_infinite(a.high) || is_infinite(b.high) ? kHuge : high);
}

// operation(x, y) is monotone in each of x and y, so its extremes are at the corners.
template <class Operation>
Interval over_corners(Interval a, Interval b, Operation operation) {
  const auto corners = {operation(a.low, b.low), operation(a.low, b.high), operation(a.high, b.low),
                        operation(a.high, b.high)};
  return around(std::min(corners), std::max(corners));
}

Interval times(Interval a, Interval b) {
  return over_corners(a, b, [](int64_t x, int64_t y) -> __int128 {
    if (x == 0 || y == 0) return 0;
    if (is_infinite(x) || is_infinite(y)) return sign(x) == sign(y) ? kHuge : -kHuge;
    return __int128{x} * y;
  });
}

// REQUIRES: 0 is not in b
Interval quotient_one_sided(Interval a, Interval b) {
  return over_corners(a, b, [](int64_t x, int64_t y) -> __int128 {
    const bool negative = sign(x) * sign(y) < 0;
    if (x == 0) return 0;
    if (is_infinite(y)) return negative ? -1 : 0;
    if (is_infinite(x)) return negative ? -kHuge : kHuge;
    return __int128{x} / y - (negative && x % y != 0 ? 1 : 0);
  });
}

Interval divided(Interval a, Interval b) {
  const bool below = b.low<0, above = b.high> 0;
  if (!below && !above) return kAll;
  const Interval under =
      below ? quotient_one_sided(a, {b.low, std::min<int64_t>(b.high, -1)}) : kAll;
  const Interval over = above ? quotient_one_sided(a, {std::max<int64_t>(b.low, 1), b.high}) : kAll;
  if (!below) return over;
  if (!above) return under;
  return {std::min(under.low, over.low), std::max(under.high, over.high)};
}

Interval interval_of(Bounds bounds) { return around(bounds.min, bounds.max); }

Bounds bounds_of(Interval interval) { return {interval.low, interval.low, interval.high}; }

}  // namespace

Bounds SizeTable::range(Size size) const {
  if (size.known()) return {size.value(), size.value(), size.value()};
  if (size.is_unknown()) return bounds_of(kAll);
  Bounds bounds = range(expression_of(size).polynomial);
  std::vector<std::optional<int64_t>> values;
  for (const SizeSymbol& symbol : symbols_) values.push_back(symbol.bounds.opt);
  try {
    bounds.opt = value_of(size, values);
  } catch (const Error&) {
    bounds.opt = bounds.min;
  }
  return bounds;
}

Bounds SizeTable::range(const Polynomial& polynomial) const {
  Interval total{0, 0};
  for (const Term& term : polynomial.terms) {
    Interval factor = around(term.coefficient, term.coefficient);
    for (uint32_t id : term.atoms) factor = times(factor, interval_of(range(atoms_[id])));
    total = plus(total, factor);
  }
  return bounds_of(total);
}

Bounds SizeTable::range(const Atom& atom) const {
  if (atom.kind == AtomKind::kSymbol) return symbols_[atom.symbol].bounds;
  const auto operand = [&](Size size) {
    return size.known() ? around(size.value(), size.value())
                        : interval_of(range(expression_of(size).polynomial));
  };
  if (atom.kind == AtomKind::kReal) return bounds_of(kAll);
  if (atom.kind == AtomKind::kTruncate) {
    const auto real = RealSizes::range(*this, atom.a);
    return real ? Bounds{saturated(real->first), saturated(real->first), saturated(real->second)}
                : bounds_of(kAll);
  }
  const Interval a = operand(atom.a), b = operand(atom.b);
  if (atom.kind == AtomKind::kFloorDiv) return bounds_of(divided(a, b));
  if (atom.kind == AtomKind::kMin)
    return bounds_of({std::min(a.low, b.low), std::min(a.high, b.high)});
  if (atom.kind == AtomKind::kBroadcast)  // one of the two
    return bounds_of({std::min(a.low, b.low), std::max(a.high, b.high)});
  return bounds_of({std::max(a.low, b.low), std::max(a.high, b.high)});
}

}  // namespace anneal
