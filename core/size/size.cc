#include "anneal/core/size/size.h"

#include <algorithm>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/size/real.h"

namespace anneal {
namespace {

constexpr uint32_t kMaxNodes = 20000;
constexpr uint32_t kMaxDepth = 128;

}  // namespace

// ---- symbols

Size SizeTable::symbol(std::string_view name) {
  auto found = symbol_ids_.find(name);
  if (found == symbol_ids_.end()) {
    found = symbol_ids_.emplace(name, static_cast<uint32_t>(symbols_.size())).first;
    symbols_.push_back({.name = std::string(name)});
  }
  return intern(Atom{AtomKind::kSymbol, found->second, {}, {}, {}});
}

Size SizeTable::fresh(std::string_view stem) {
  std::string name(stem);
  for (int64_t n = 2; symbol_ids_.contains(name); ++n)
    name = std::string(stem) + "." + std::to_string(n);
  return symbol(name);
}

void SizeTable::set_bounds(Size symbol, Bounds bounds) {
  const auto index = symbol_index(symbol);
  check(index.has_value(), "bounds are set on a symbol");
  SizeSymbol& it = symbols_[*index];
  if (bounds.min > bounds.opt || bounds.opt > bounds.max)
    fail(ErrorCode::kInvalidArgument,
         "bounds of size \"" + it.name + "\" are not min <= opt <= max");
  const bool wider = bounds.min < it.bounds.min || bounds.max > it.bounds.max;
  const uint32_t atom = expression_of(symbol).polynomial.terms[0].atoms[0];
  const auto in_atom = [&](const Atom& it) { return it.a == symbol || it.b == symbol; };
  const auto in_expression = [&](const Expression& it) {
    return &it != &expression_of(symbol) &&
           std::ranges::any_of(it.polynomial.terms, [&](const Term& term) {
             return std::ranges::binary_search(term.atoms, atom);
           });
  };
  if (wider &&
      (std::ranges::any_of(atoms_, in_atom) || std::ranges::any_of(expressions_, in_expression)))
    fail(ErrorCode::kInvalidArgument,
         "bounds of size \"" + it.name + "\" become wider after its use");
  it.bounds = bounds;
}

std::optional<uint32_t> SizeTable::symbol_index(Size size) const {
  const Atom* atom = lone_atom(size);
  if (atom == nullptr || atom->kind != AtomKind::kSymbol) return std::nullopt;
  return atom->symbol;
}

std::vector<uint32_t> SizeTable::symbols_in(Size size) const {
  std::vector<uint32_t> found;
  find_symbols(size, found);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool is_made_of(const SizeTable& sizes, Size size, const std::vector<bool>& symbols) {
  const auto found = sizes.symbols_in(size);
  return std::ranges::all_of(found, [&](uint32_t symbol) { return symbols[symbol]; });
}

void SizeTable::find_symbols(Size size, std::vector<uint32_t>& found) const {
  if (size.known() || size.is_unknown()) return;
  for (const Term& term : expression_of(size).polynomial.terms)
    for (uint32_t id : term.atoms) {
      const Atom& atom = atoms_[id];
      if (atom.kind == AtomKind::kSymbol) found.push_back(atom.symbol);
      find_symbols(atom.a, found);
      find_symbols(atom.b, found);
    }
}

bool SizeTable::is_integer(Size size) const {
  return !size.is_unknown() && !RealSizes::is_real(*this, size);
}

Size SizeTable::representative(Size size) const {
  if (representatives_.empty() || size.known() || size.is_unknown()) return size;
  const auto found = representatives_.find(size.expression());
  return found == representatives_.end() ? size : found->second;
}

Size canonical(Size a, Size b, const SizeTable& sizes) {
  if (a == b || a.known() || b.is_unknown()) return a;
  if (b.known() || a.is_unknown()) return b;
  const std::string of_a = sizes.text(a), of_b = sizes.text(b);
  const bool a_first = of_a.size() != of_b.size() ? of_a.size() < of_b.size() : of_a < of_b;
  return a_first ? a : b;
}

// ---- interning

SizeTable::Key SizeTable::key_of(const Atom& atom) {
  Key key{static_cast<int64_t>(atom.kind), atom.symbol};
  for (Size size : {atom.a, atom.b}) {
    key.push_back(size.known());
    key.push_back(size.known() ? size.value() : size.expression());
  }
  return key;
}

const SizeTable::Expression& SizeTable::expression_of(Size size) const {
  check(size.expression() < expressions_.size(), "a size is used with the table it comes from");
  return expressions_[size.expression()];
}

Polynomial SizeTable::polynomial_of(Size size) const {
  return size.known() ? Polynomial::constant(size.value()) : expression_of(size).polynomial;
}

const SizeTable::Atom* SizeTable::lone_atom(Size size) const {
  return size.known() || size.is_unknown() ? nullptr : lone_atom(expression_of(size).polynomial);
}

const SizeTable::Atom* SizeTable::lone_atom(const Polynomial& polynomial) const {
  const std::vector<Term>& terms = polynomial.terms;
  const bool alone = terms.size() == 1 && terms[0].coefficient == 1 && terms[0].atoms.size() == 1;
  return alone ? &atoms_[terms[0].atoms[0]] : nullptr;
}

SizeTable::Cost SizeTable::cost_of(Size size) const {
  if (size.is_unknown()) return {};
  return size.known() ? Cost{1, 0} : expression_of(size).cost;
}

SizeTable::Cost SizeTable::cost_of(const Polynomial& polynomial) const {
  uint64_t nodes = 0;
  uint32_t depth = 0;
  for (const Term& term : polynomial.terms) {
    ++nodes;
    for (uint32_t id : term.atoms) {
      nodes += atoms_[id].cost.nodes;
      depth = std::max(depth, atoms_[id].cost.depth);
    }
  }
  if (nodes > kMaxNodes || depth > kMaxDepth)
    fail(ErrorCode::kUnsupported, "an expression for a size becomes too large");
  return {static_cast<uint32_t>(nodes), depth};
}

SizeTable::Cost SizeTable::cost_of(const Atom& atom) const {
  if (atom.kind == AtomKind::kSymbol) return {1, 0};
  const Cost a = cost_of(atom.a), b = cost_of(atom.b);
  return {1 + a.nodes + b.nodes, 1 + std::max(a.depth, b.depth)};
}

Size SizeTable::intern(std::optional<Polynomial> polynomial) {
  if (!polynomial) fail(ErrorCode::kInvalidModel, "arithmetic on sizes overflows 64 bits");
  if (polynomial->is_constant()) return polynomial->constant_term();
  const auto id = static_cast<uint32_t>(expressions_.size());
  Key key = as_key(*polynomial);
  if (const auto found = expression_ids_.find(key); found != expression_ids_.end())
    return Size::expression(found->second);
  const Cost cost = cost_of(*polynomial);
  expressions_.push_back({*std::move(polynomial), cost});
  expression_ids_.emplace(std::move(key), id);
  return Size::expression(id);
}

Size SizeTable::intern(Atom atom) {
  const auto [found, added] =
      atom_ids_.try_emplace(key_of(atom), static_cast<uint32_t>(atoms_.size()));
  const uint32_t id = found->second;
  if (added) {
    atom.cost = cost_of(atom);
    atoms_.push_back(atom);
  }
  return intern(Polynomial::atom(id));
}

// ---- values

int64_t SizeTable::evaluate(Size size, Values values) const {
  if (size.known()) return size.value();
  if (size.is_unknown()) fail(ErrorCode::kInvalidArgument, "an unknown size has no value");
  return with_context([&] { return "size " + text(size); }, [&] { return value_of(size, values); });
}

Dims SizeTable::evaluate(const Shape& shape, Values values) const {
  Dims dims;
  for (Size size : shape) dims.push_back(evaluate(size, values));
  return dims;
}

int64_t SizeTable::value_of(Size size, Values values) const {
  if (size.known()) return size.value();
  const auto fits = [](__int128 value) { return value == static_cast<int64_t>(value); };
  __int128 sum = 0;
  for (const Term& term : expression_of(size).polynomial.terms) {
    __int128 product = term.coefficient;
    bool overflow = false;
    for (uint32_t id : term.atoms) {
      const int64_t factor = value_of(atoms_[id], values);
      if (factor == 0) product = 0;
      // A later factor of 0 still makes the product fit.
      overflow = product != 0 && (overflow || !fits(product * factor));
      if (!overflow) product *= factor;
    }
    if (overflow) fail(ErrorCode::kInvalidArgument, "does not fit 64 bits");
    sum += product;
  }
  if (!fits(sum)) fail(ErrorCode::kInvalidArgument, "does not fit 64 bits");
  return static_cast<int64_t>(sum);
}

int64_t SizeTable::value_of(const Atom& atom, Values values) const {
  if (atom.kind == AtomKind::kReal) fail(ErrorCode::kInvalidArgument, "is not a whole number");
  if (atom.kind == AtomKind::kTruncate) return saturated(RealSizes::value(*this, atom.a, values));
  if (atom.kind == AtomKind::kSymbol) {
    if (atom.symbol < values.size() && values[atom.symbol]) return *values[atom.symbol];
    fail(ErrorCode::kInvalidArgument, text(atom) + " has no value");
  }
  const int64_t a = value_of(atom.a, values), b = value_of(atom.b, values);
  if (atom.kind == AtomKind::kMin) return std::min(a, b);
  if (atom.kind == AtomKind::kMax) return std::max(a, b);
  if (atom.kind == AtomKind::kBroadcast) {
    if (a == b || b == 1) return a;
    if (a == 1) return b;
    fail(ErrorCode::kInvalidArgument,
         std::to_string(a) + " and " + std::to_string(b) + " do not broadcast");
  }
  if (b == 0) fail(ErrorCode::kInvalidArgument, "is divided by zero");
  const auto quotient = floor_quotient(a, b);
  if (!quotient) fail(ErrorCode::kInvalidArgument, "does not fit 64 bits");
  return *quotient;
}

}  // namespace anneal
