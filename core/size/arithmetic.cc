// The arithmetic of SizeTable: each verb returns its result in normal form.
#include <algorithm>
#include <numeric>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/size/size.h"

namespace anneal {
namespace {

constexpr size_t kMaxProducts = 20000;
constexpr size_t kMaxOperands = 64;  // of one min, max or broadcast

bool both_known(Size a, Size b) { return a.known() && b.known(); }

uint64_t magnitude(int64_t value) {
  return value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

// In [0, b). REQUIRES: b > 0
int64_t modulo(__int128 a, int64_t b) {
  const auto rest = static_cast<int64_t>(a % b);
  return rest < 0 ? rest + b : rest;
}

[[noreturn]] void fail_too_large() {
  fail(ErrorCode::kUnsupported, "an expression for a size becomes too large");
}

template <class T>
T fitting(std::optional<T> result) {
  if (!result) fail(ErrorCode::kInvalidModel, "arithmetic on sizes overflows 64 bits");
  return *std::move(result);
}

// Numbers need no polynomials: most sizes are numbers, and all are when shapes are bound.
Size sum(int64_t a, int64_t b) {
  int64_t result = 0;
  return fitting(__builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result));
}
Size difference(int64_t a, int64_t b) {
  int64_t result = 0;
  return fitting(__builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result));
}
Size product_of(int64_t a, int64_t b) {
  int64_t result = 0;
  return fitting(__builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result));
}

Polynomial negated(const Polynomial& polynomial) { return fitting(add_scaled({}, polynomial, -1)); }

}  // namespace

Size SizeTable::add(Size a, Size b) {
  if (both_known(a, b)) return sum(a.value(), b.value());
  if (!is_integer(a) || !is_integer(b)) return Size::unknown();
  return intern(add_scaled(polynomial_of(a), polynomial_of(b), 1));
}

Size SizeTable::sub(Size a, Size b) {
  if (both_known(a, b)) return difference(a.value(), b.value());
  if (!is_integer(a) || !is_integer(b)) return Size::unknown();
  if (a == b) return 0;
  return intern(add_scaled(polynomial_of(a), polynomial_of(b), -1));
}

Size SizeTable::mul(Size a, Size b) {
  if (both_known(a, b)) return product_of(a.value(), b.value());
  if (!is_integer(a) || !is_integer(b)) return Size::unknown();
  const Polynomial left = polynomial_of(a), right = polynomial_of(b);
  if (left.terms.size() * right.terms.size() > kMaxProducts) fail_too_large();
  return intern(multiply(left, right));
}

Size SizeTable::floor_div(Size a, Size b) {
  if (b == Size(0)) fail(ErrorCode::kInvalidModel, "a size is divided by zero");
  if (both_known(a, b)) return fitting(floor_quotient(a.value(), b.value()));
  if (!is_integer(a) || !is_integer(b)) return Size::unknown();
  Polynomial dividend = polynomial_of(a), divisor = polynomial_of(b);
  if (divisor.terms.back().coefficient < 0) {
    dividend = negated(dividend);
    divisor = negated(divisor);
  }
  if (auto quotient = divide_exactly(dividend, divisor)) return intern(std::move(quotient));
  if (divisor.is_constant()) return divide_by_number(dividend, divisor.constant_term());
  return divide_by_polynomial(dividend, divisor);
}

// Normal form of floor(a / b), with g the greatest common divisor of b and a's coefficients:
//   floor((g*x + c) / (g*b)) = floor((x + floor(c/g)) / b)
//   floor(x / b) = -floor((b - 1 - x) / b), used when the leading coefficient is nearer to 0 then
//   floor((q*b + r) / b) = q + floor(r / b), with coefficients in (-b/2, b/2], constant in [0, b)
//   floor((floor(x / d) + c) / b) = floor((x + c*d) / (b*d))
// REQUIRES: a is not constant, b > 1
Size SizeTable::divide_by_number(const Polynomial& a, int64_t b) {
  auto common = b;
  for (const Term& term : a.terms)
    if (!term.atoms.empty())
      common = static_cast<int64_t>(std::gcd(magnitude(common), magnitude(term.coefficient)));
  b /= common;
  const int64_t constant = *floor_quotient(a.constant_term(), common);

  std::vector<Term> terms;
  bool flip = false;
  for (const Term& term : a.terms) {
    if (term.atoms.empty()) continue;
    terms.push_back({term.atoms, term.coefficient / common});
    const int64_t coefficient = terms.back().coefficient, rest = modulo(coefficient, b);
    if (rest != 0) flip = rest > b - rest || (rest == b - rest && coefficient < 0);
  }

  std::vector<Term> quotient, rest;
  const auto split = [&](const std::vector<uint32_t>& atoms, __int128 value, int64_t remainder) {
    const auto whole = static_cast<int64_t>((value - remainder) / b);
    if (whole != 0) quotient.push_back({atoms, whole});
    if (remainder != 0) rest.push_back({atoms, remainder});
  };
  for (const Term& term : terms) {
    const __int128 value = flip ? -__int128{term.coefficient} : __int128{term.coefficient};
    const int64_t remainder = modulo(value, b);
    split(term.atoms, value, remainder > b - remainder ? remainder - b : remainder);
  }
  const __int128 last = flip ? __int128{b} - 1 - constant : __int128{constant};
  split({}, last, modulo(last, b));

  const Polynomial remainder = *collect(std::move(rest));
  Size inner;
  if (b > 1) {
    const int64_t shift = remainder.constant_term();
    const Atom* nested = lone_atom(*add_scaled(remainder, Polynomial::constant(shift), -1));
    int64_t product = 0;
    std::optional<Polynomial> joined;
    if (nested != nullptr && nested->kind == AtomKind::kFloorDiv && nested->b.known() &&
        !__builtin_mul_overflow(nested->b.value(), b, &product))
      joined = add_scaled(polynomial_of(nested->a), Polynomial::constant(nested->b.value()), shift);
    inner = joined ? floor_div(intern(std::move(joined)), product)
                   : intern(Atom{AtomKind::kFloorDiv, 0, intern(remainder), b, {}});
  }
  const Polynomial sum =
      fitting(add_scaled(polynomial_of(inner), *collect(std::move(quotient)), 1));
  return intern(flip ? negated(sum) : sum);
}

// Normal form of floor(a / b): terms that a product b divides are taken out, then what divides both
// is cancelled. The sign of b is not known, so nothing is rounded.
Size SizeTable::divide_by_polynomial(const Polynomial& a, const Polynomial& b) {
  std::vector<Term> quotient, rest;
  if (b.terms.size() == 1) {
    const Term& product = b.terms[0];
    for (const Term& term : a.terms) {
      if (!contains(term.atoms, product.atoms)) {
        rest.push_back(term);
        continue;
      }
      int64_t remainder = modulo(term.coefficient, product.coefficient);
      if (remainder > product.coefficient - remainder) remainder -= product.coefficient;
      const __int128 whole = (__int128{term.coefficient} - remainder) / product.coefficient;
      if (whole != 0)
        quotient.push_back({without(term.atoms, product.atoms), static_cast<int64_t>(whole)});
      if (remainder != 0) rest.push_back({term.atoms, remainder});
    }
  } else {
    rest = a.terms;
  }
  const Polynomial remainder{std::move(rest)};
  const Term common = common_factor(remainder, b);
  const Polynomial dividend = divide_terms(remainder, common), divisor = divide_terms(b, common);
  const Size inner =
      dividend == a && divisor == b
          ? intern(Atom{AtomKind::kFloorDiv, 0, intern(dividend), intern(divisor), {}})
          : floor_div(intern(dividend), intern(divisor));
  return intern(add_scaled(polynomial_of(inner), fitting(collect(std::move(quotient))), 1));
}

Size SizeTable::ceil_div(Size a, Size b) { return sub(0, floor_div(sub(0, a), b)); }

Size SizeTable::min(Size a, Size b) { return combine(AtomKind::kMin, a, b); }

Size SizeTable::max(Size a, Size b) { return combine(AtomKind::kMax, a, b); }

// Nested min of min is one list of operands, none of which is provably beyond another.
Size SizeTable::combine(AtomKind kind, Size a, Size b) {
  if (!is_integer(a) || !is_integer(b)) return Size::unknown();
  if (both_known(a, b))
    return kind == AtomKind::kMin ? std::min(a.value(), b.value()) : std::max(a.value(), b.value());
  std::vector<Size> candidates, operands;
  gather_operands(kind, a, candidates);
  gather_operands(kind, b, candidates);
  if (candidates.size() > kMaxOperands) fail_too_large();
  for (Size candidate : candidates) {
    const auto replaces = [&](Size x, Size y) {
      return kind == AtomKind::kMin ? is_at_most(x, y) : is_at_most(y, x);
    };
    const auto wins = [&](Size operand) { return replaces(operand, candidate); };
    if (std::ranges::any_of(operands, wins)) continue;
    std::erase_if(operands, [&](Size operand) { return replaces(candidate, operand); });
    operands.push_back(candidate);
  }
  return chain(kind, std::move(operands));
}

// Operands are all that may be 1, each once: where one surely is not, it is the result. One that is
// another one cut to a number is left out.
Size SizeTable::broadcast(Size a, Size b) {
  if (a == b || b == Size(1)) return a;
  if (a == Size(1)) return b;
  if (both_known(a, b))
    fail(ErrorCode::kInvalidModel, "sizes " + text(a) + " and " + text(b) + " do not broadcast");
  if (a.is_unknown() || b.is_unknown()) {
    const Size other = a.is_unknown() ? b : a;
    return may_be_one(other) ? Size::unknown() : other;
  }
  const bool a_decides = a.known() || !may_be_one(a), b_decides = b.known() || !may_be_one(b);
  if (a_decides && b_decides) return canonical(a, b, *this);
  if (a_decides) return a;
  if (b_decides) return b;
  std::vector<Size> all, operands;
  gather_operands(AtomKind::kBroadcast, a, all);
  gather_operands(AtomKind::kBroadcast, b, all);
  if (all.size() > kMaxOperands) fail_too_large();
  for (const Size one : all)
    if (std::ranges::none_of(all, [&](Size whole) { return is_cut(one, whole); }))
      operands.push_back(one);
  return chain(AtomKind::kBroadcast, std::move(operands));
}

// Ascending by id with a number last, each once; stored as min(first, min(second, ...)).
Size SizeTable::chain(AtomKind kind, std::vector<Size> operands) {
  std::ranges::sort(operands, [](Size x, Size y) {
    return x.known() != y.known() ? y.known() : !x.known() && x.expression() < y.expression();
  });
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  Size result = operands.back();
  for (size_t i = operands.size() - 1; i-- > 0;)
    result = intern(Atom{kind, 0, operands[i], result, {}});
  return result;
}

void SizeTable::gather_operands(AtomKind kind, Size size, std::vector<Size>& operands) const {
  const Atom* atom = lone_atom(size);
  for (; atom != nullptr && atom->kind == kind; atom = lone_atom(size)) {
    operands.push_back(atom->a);
    size = atom->b;
  }
  operands.push_back(size);
}

// min(whole, 512) is 1 only where `whole` is: they broadcast only where they are equal.
bool SizeTable::is_cut(Size part, Size whole) const {
  std::vector<Size> operands;
  gather_operands(AtomKind::kMin, part, operands);
  return operands.size() == 2 && operands[0] == whole && operands[1].known() &&
         operands[1].value() > 1;
}

// Within its bounds, and by a common divisor of all terms but the constant.
bool SizeTable::may_be_one(Size size) const {
  const Bounds bounds = range(size);
  if (bounds.min > 1 || bounds.max < 1) return false;
  if (size.known() || size.is_unknown()) return true;
  const Polynomial& polynomial = expression_of(size).polynomial;
  uint64_t common = 0;
  for (const Term& term : polynomial.terms)
    if (!term.atoms.empty()) common = std::gcd(common, magnitude(term.coefficient));
  return (__int128{1} - polynomial.constant_term()) % static_cast<__int128>(common) == 0;
}

bool SizeTable::is_at_most(Size a, Size b) const {
  if (a == b) return true;
  if (a.known() && b.known()) return a.value() <= b.value();
  const auto difference = add_scaled(polynomial_of(a), polynomial_of(b), -1);
  return difference && range(*difference).max <= 0;
}

Size product(const Shape& shape, SizeTable& sizes) {
  Size result = 1;
  for (Size size : shape) result = sizes.mul(result, size);
  return result;
}

Shape row_major_strides(const Shape& shape, SizeTable& sizes) {
  Shape strides = shape;
  Size stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    if (axis > 0) stride = sizes.mul(stride, shape[axis]);
  }
  return strides;
}

Shape channels_last_strides(const Shape& shape, SizeTable& sizes) {
  if (shape.rank() < 3) return row_major_strides(shape, sizes);
  Shape strides = shape;
  strides[1] = 1;
  Size stride = shape[1];
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (axis == 1) continue;
    strides[axis] = stride;
    if (axis > 0) stride = sizes.mul(stride, shape[axis]);
  }
  return strides;
}

}  // namespace anneal
