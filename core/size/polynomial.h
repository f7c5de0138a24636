// Polynomials with integer coefficients over numbered atoms: the arithmetic below SizeTable.
// nullopt means that a coefficient exceeds 64 bits.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace anneal {

struct Term {
  std::vector<uint32_t> atoms;  // ascending, repeated for powers; none: the constant
  int64_t coefficient = 0;      // never 0
  bool operator==(const Term&) const = default;
};

struct Polynomial {
  std::vector<Term> terms;  // ascending by degree, then by atoms; each product once

  static Polynomial constant(int64_t value);
  static Polynomial atom(uint32_t id) { return {{{{id}, 1}}}; }
  bool is_constant() const { return terms.empty() || (terms.size() == 1 && degree() == 0); }
  int64_t constant_term() const;
  size_t degree() const { return terms.empty() ? 0 : terms.back().atoms.size(); }
  bool operator==(const Polynomial&) const = default;
};

// Equal for equal polynomials only.
std::vector<int64_t> as_key(const Polynomial& polynomial);
bool before(const Term& a, const Term& b);  // the order of terms
// Sorts, adds up equal products, drops zeros.
std::optional<Polynomial> collect(std::vector<Term> terms);
// a + scale * b
std::optional<Polynomial> add_scaled(const Polynomial& a, const Polynomial& b, int64_t scale);
std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b);
// The q with a == q * b, if there is one whose coefficients are integers. REQUIRES: b is not 0
std::optional<Polynomial> divide_exactly(const Polynomial& a, const Polynomial& b);

std::optional<int64_t> floor_quotient(int64_t a, int64_t b);  // REQUIRES: b is not 0

// Products of atoms as multisets.
bool contains(const std::vector<uint32_t>& product, const std::vector<uint32_t>& factor);
std::vector<uint32_t> without(const std::vector<uint32_t>& product,
                              const std::vector<uint32_t>& factor);  // REQUIRES: contains
// The greatest product of atoms, and the greatest number, that divide every term of both.
Term common_factor(const Polynomial& a, const Polynomial& b);
// REQUIRES: factor divides every term
Polynomial divide_terms(const Polynomial& a, const Term& factor);

}  // namespace anneal
