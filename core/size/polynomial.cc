#include "anneal/core/size/polynomial.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace anneal {
namespace {

using Product = std::vector<uint32_t>;

Product joined(const Product& a, const Product& b) {
  Product result;
  result.reserve(a.size() + b.size());
  std::ranges::merge(a, b, std::back_inserter(result));
  return result;
}

// The gcd of two numbers, of which at least one is not 0. The result must be below 2^63.
int64_t gcd(uint64_t a, int64_t b) {
  const uint64_t magnitude = b < 0 ? -static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  return static_cast<int64_t>(std::gcd(a, magnitude));
}

}  // namespace

Polynomial Polynomial::constant(int64_t value) {
  if (value == 0) return {};
  return {{{{}, value}}};
}

int64_t Polynomial::constant_term() const {
  return !terms.empty() && terms.front().atoms.empty() ? terms.front().coefficient : 0;
}

std::vector<int64_t> as_key(const Polynomial& polynomial) {
  std::vector<int64_t> key;
  for (const Term& term : polynomial.terms) {
    key.push_back(term.coefficient);
    key.push_back(static_cast<int64_t>(term.atoms.size()));
    key.insert(key.end(), term.atoms.begin(), term.atoms.end());
  }
  return key;
}

bool before(const Term& a, const Term& b) {
  if (a.atoms.size() != b.atoms.size()) return a.atoms.size() < b.atoms.size();
  return a.atoms < b.atoms;
}

std::optional<Polynomial> collect(std::vector<Term> terms) {
  std::ranges::sort(terms, before);
  Polynomial result;
  for (size_t at = 0; at < terms.size();) {
    __int128 sum = 0;
    const size_t first = at;
    for (; at < terms.size() && terms[at].atoms == terms[first].atoms; ++at)
      sum += terms[at].coefficient;
    if (sum == 0) continue;
    if (sum != static_cast<int64_t>(sum)) return std::nullopt;
    result.terms.push_back({std::move(terms[first].atoms), static_cast<int64_t>(sum)});
  }
  return result;
}

std::optional<Polynomial> add_scaled(const Polynomial& a, const Polynomial& b, int64_t scale) {
  std::vector<Term> terms = a.terms;
  for (Term term : b.terms) {
    if (__builtin_mul_overflow(term.coefficient, scale, &term.coefficient)) return std::nullopt;
    if (scale != 0) terms.push_back(std::move(term));
  }
  return collect(std::move(terms));
}

std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b) {
  std::vector<Term> terms;
  terms.reserve(a.terms.size() * b.terms.size());
  for (const Term& left : a.terms)
    for (const Term& right : b.terms) {
      int64_t coefficient;
      if (__builtin_mul_overflow(left.coefficient, right.coefficient, &coefficient))
        return std::nullopt;
      terms.push_back({joined(left.atoms, right.atoms), coefficient});
    }
  return collect(std::move(terms));
}

std::optional<Polynomial> divide_exactly(const Polynomial& a, const Polynomial& b) {
  // Each step cancels the leading term. A quotient has no more terms than this in any real model.
  constexpr int kMaxSteps = 256;
  const Term& divisor = b.terms.back();
  Polynomial rest = a;
  std::vector<Term> quotient;
  for (int step = 0; !rest.terms.empty(); ++step) {
    const Term& leading = rest.terms.back();
    if (step == kMaxSteps || !contains(leading.atoms, divisor.atoms)) return std::nullopt;
    if (divisor.coefficient == -1 && leading.coefficient == INT64_MIN) return std::nullopt;
    if (leading.coefficient % divisor.coefficient != 0) return std::nullopt;
    const Term part{without(leading.atoms, divisor.atoms),
                    leading.coefficient / divisor.coefficient};
    const auto product = multiply({{part}}, b);
    if (!product) return std::nullopt;
    auto next = add_scaled(rest, *product, -1);
    if (!next) return std::nullopt;
    rest = *std::move(next);
    quotient.push_back(part);
  }
  return collect(std::move(quotient));
}

std::optional<int64_t> floor_quotient(int64_t a, int64_t b) {
  if (b == -1 && a == INT64_MIN) return std::nullopt;
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

bool contains(const Product& product, const Product& factor) {
  return std::ranges::includes(product, factor);
}

Product without(const Product& product, const Product& factor) {
  Product result;
  std::ranges::set_difference(product, factor, std::back_inserter(result));
  return result;
}

Term common_factor(const Polynomial& a, const Polynomial& b) {
  Term common;
  bool first = true;
  for (const Polynomial* polynomial : {&b, &a})
    for (const Term& term : polynomial->terms) {
      Product shared = term.atoms;
      if (!first) {
        shared.clear();
        std::ranges::set_intersection(common.atoms, term.atoms, std::back_inserter(shared));
      }
      common = {std::move(shared),
                gcd(static_cast<uint64_t>(common.coefficient), term.coefficient)};
      first = false;
    }
  return common;
}

Polynomial divide_terms(const Polynomial& a, const Term& factor) {
  Polynomial result = a;
  for (Term& term : result.terms) {
    term.atoms = without(term.atoms, factor.atoms);
    term.coefficient /= factor.coefficient;
  }
  // Dividing all products by the same product keeps their order.
  return result;
}

}  // namespace anneal
