// The size table in engine files: symbols (name, min, opt, max), atoms, expressions, equal sizes
// (the u32 id of an expression, the size that stands for it), each with a u32 count before it. Ids
// are positions. An atom is a kind byte, then a u32 symbol or two sizes (of a real, its u32 op and
// type and two sizes); a size is a boolean "known" and an i64 value or a u32 expression; an
// expression is terms of an i64 coefficient and u32 atoms.
#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/core/error.h"
#include "anneal/core/size/real.h"
#include "anneal/core/size/size.h"

namespace anneal {

void save(ByteWriter& to, Size size) {
  to.number(static_cast<uint8_t>(size.known()));
  if (size.known()) {
    to.number(size.value());
  } else {
    to.number(size.expression());
  }
}

Size load_size(ByteReader& from) {
  if (from.boolean()) return from.number<int64_t>();
  const Size size = Size::expression(from.number<uint32_t>());
  if (size.known() || size.is_unknown()) from.refuse("a size that is no expression");
  return size;
}

void SizeTable::save(ByteWriter& to) const {
  to.number(static_cast<uint32_t>(symbols_.size()));
  for (const SizeSymbol& symbol : symbols_) {
    to.text(symbol.name);
    to.number(symbol.bounds.min);
    to.number(symbol.bounds.opt);
    to.number(symbol.bounds.max);
  }
  to.number(static_cast<uint32_t>(atoms_.size()));
  for (const Atom& atom : atoms_) {
    to.number(static_cast<uint8_t>(atom.kind));
    const bool is_symbol = atom.kind == AtomKind::kSymbol;
    if (is_symbol || atom.kind == AtomKind::kReal) to.number(atom.symbol);
    if (is_symbol) continue;
    anneal::save(to, atom.a);
    anneal::save(to, atom.b);
  }
  to.number(static_cast<uint32_t>(expressions_.size()));
  for (const Expression& expression : expressions_) {
    to.number(static_cast<uint32_t>(expression.polynomial.terms.size()));
    for (const Term& term : expression.polynomial.terms) {
      to.number(term.coefficient);
      to.number(static_cast<uint32_t>(term.atoms.size()));
      for (uint32_t atom : term.atoms) to.number(atom);
    }
  }
  to.number(static_cast<uint32_t>(representatives_.size()));
  for (const auto& [expression, size] : representatives_) {
    to.number(expression);
    anneal::save(to, size);
  }
}

SizeTable SizeTable::load(ByteReader& from) {
  SizeTable table;
  const size_t symbols = from.count(4 + 3 * sizeof(int64_t));
  for (uint32_t index = 0; index < symbols; ++index) {
    SizeSymbol symbol{.name = from.text()};
    symbol.bounds.min = from.number<int64_t>();
    symbol.bounds.opt = from.number<int64_t>();
    symbol.bounds.max = from.number<int64_t>();
    if (symbol.bounds.min > symbol.bounds.opt || symbol.bounds.opt > symbol.bounds.max)
      from.refuse("bounds of a size that are not min <= opt <= max");
    if (!table.symbol_ids_.emplace(symbol.name, index).second)
      from.refuse("two symbols of one name");
    table.symbols_.push_back(std::move(symbol));
  }
  table.load_expressions(from);
  try {
    table.validate(from);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIncompatiblePlan) throw;
    from.refuse(error.what());
  }
  return table;
}

void SizeTable::load_expressions(ByteReader& from) {
  const size_t atoms = from.count(1 + sizeof(uint32_t));
  for (size_t id = 0; id < atoms; ++id) {
    Atom atom;
    const auto kind = from.number<uint8_t>();
    if (kind > static_cast<uint8_t>(AtomKind::kTruncate)) from.refuse("an unknown kind of size");
    atom.kind = static_cast<AtomKind>(kind);
    if (atom.kind == AtomKind::kSymbol) {
      atom.symbol = from.number<uint32_t>();
      if (atom.symbol >= symbols_.size()) from.refuse("a symbol that is not there");
    } else {
      if (atom.kind == AtomKind::kReal) atom.symbol = from.number<uint32_t>();
      if (!RealSizes::is_code(atom.symbol)) from.refuse("an unknown operation on sizes");
      atom.a = load_size(from);
      atom.b = load_size(from);
    }
    atoms_.push_back(atom);
  }
  const size_t expressions = from.count(2 * sizeof(uint32_t) + sizeof(int64_t));
  for (size_t id = 0; id < expressions; ++id) {
    Polynomial polynomial;
    const size_t terms = from.count(sizeof(int64_t) + sizeof(uint32_t));
    for (size_t i = 0; i < terms; ++i) {
      Term term;
      term.coefficient = from.number<int64_t>();
      const size_t factors = from.count(sizeof(uint32_t));
      for (size_t factor = 0; factor < factors; ++factor) {
        term.atoms.push_back(from.number<uint32_t>());
        if (term.atoms.back() >= atoms) from.refuse("an atom that is not there");
      }
      const bool in_order = polynomial.terms.empty() || before(polynomial.terms.back(), term);
      if (term.coefficient == 0 || !in_order || !std::ranges::is_sorted(term.atoms))
        from.refuse("a sum that is not in normal form");
      polynomial.terms.push_back(std::move(term));
    }
    if (polynomial.is_constant()) from.refuse("an expression without a symbol");
    expressions_.push_back({std::move(polynomial), {}});
  }
  const size_t equal = from.count(2 * sizeof(uint32_t) + 1);
  for (size_t i = 0; i < equal; ++i) {
    const auto id = from.number<uint32_t>();
    const Size size = load_size(from);
    const bool is_there = size.known() || size.expression() < expressions;
    if (id >= expressions || !is_there || !representatives_.emplace(id, size).second)
      from.refuse("equal sizes that are not there");
  }
}

// Atoms and expressions refer to each other by any id so far. Here each atom is found to use only
// expressions of earlier atoms, so that there is no cycle, and to be in normal form.
void SizeTable::validate(ByteReader& from) {
  const size_t atoms = atoms_.size(), expressions = expressions_.size();
  const auto greatest_atom = [&](const Expression& expression) {
    uint32_t greatest = 0;
    for (const Term& term : expression.polynomial.terms)
      if (!term.atoms.empty()) greatest = std::max(greatest, term.atoms.back());
    return greatest;
  };
  for (uint32_t id = 0; id < atoms; ++id) {
    Atom& atom = atoms_[id];
    for (Size size : {atom.a, atom.b}) {
      if (size.known()) continue;
      if (size.expression() >= expressions) from.refuse("an expression that is not there");
      Expression& operand = expressions_[size.expression()];
      if (greatest_atom(operand) >= id) from.refuse("a size that is computed from itself");
      operand.cost = cost_of(operand.polynomial);
    }
    atom.cost = cost_of(atom);
    if (!atom_ids_.emplace(key_of(atom), id).second) from.refuse("two equal atoms");
  }
  for (uint32_t id = 0; id < expressions; ++id) {
    Expression& expression = expressions_[id];
    expression.cost = cost_of(expression.polynomial);
    if (!expression_ids_.emplace(as_key(expression.polynomial), id).second)
      from.refuse("two equal expressions");
  }
  for (uint32_t id = 0; id < atoms; ++id)
    if (!is_normal(id) || atoms_.size() != atoms || expressions_.size() != expressions)
      from.refuse("an expression that is not in normal form");
}

// min, max, broadcast and reals are not done again, because bounds may be narrower now than when
// they were made.
bool SizeTable::is_normal(uint32_t atom_id) {
  const Atom atom = atoms_[atom_id];
  if (atom.kind == AtomKind::kSymbol) return true;
  const Size size = intern(Polynomial::atom(atom_id));
  if (atom.kind == AtomKind::kFloorDiv) return floor_div(atom.a, atom.b) == size;
  if (atom.kind == AtomKind::kTruncate)
    return RealSizes::is_real(*this, atom.a) && atom.b == Size(0);
  if (atom.kind == AtomKind::kReal) {
    const int operands = operand_count(RealSizes::op(atom));
    return (operands > 0 || atom.a.known()) && (operands > 1 || atom.b == Size(0));
  }
  std::vector<Size> operands;
  gather_operands(atom.kind, size, operands);
  const Atom* first = lone_atom(atom.a);
  if (atom.a.known() || (first != nullptr && first->kind == atom.kind)) return false;
  return operands[1].known() || atom.a.expression() < operands[1].expression();
}

}  // namespace anneal
