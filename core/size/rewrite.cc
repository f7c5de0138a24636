#include "anneal/core/size/rewrite.h"

#include <algorithm>

#include "anneal/core/size/real.h"

namespace anneal {

template <class F>
Size SizeRewriter::with_atoms(Size size, F&& written) {
  if (const Atom* lone = sizes_.lone_atom(size)) return written(Atom(*lone));
  Size sum = 0;
  for (const Term& term : sizes_.polynomial_of(size).terms) {
    Size product = term.coefficient;
    for (const uint32_t id : term.atoms)
      product = sizes_.mul(product, written(Atom(sizes_.atoms_[id])));
    sum = sizes_.add(sum, product);
  }
  return sum;
}

Size SizeRewriter::substitute(Size size, const SizeReplacements& by) {
  if (by.empty() || size.known() || size.is_unknown() ||
      std::ranges::none_of(sizes_.symbols_in(size),
                           [&](uint32_t symbol) { return by.contains(symbol); }))
    return size;
  return with_atoms(size, [&](const Atom& atom) {
    if (atom.kind == AtomKind::kSymbol) {
      const auto found = by.find(atom.symbol);
      return found == by.end() ? sizes_.intern(atom) : substitute(found->second, by);
    }
    if (!has_operands(atom)) return sizes_.intern(atom);
    return rebuilt(atom, substitute(atom.a, by), substitute(atom.b, by));
  });
}

bool SizeRewriter::has_operands(const Atom& atom) {
  return atom.kind != AtomKind::kSymbol &&
         (atom.kind != AtomKind::kReal || RealSizes::op(atom) != RealOp::kConstant);
}

Size SizeRewriter::rebuilt(const Atom& atom, Size a, Size b) {
  switch (atom.kind) {
    case AtomKind::kFloorDiv:
      return sizes_.floor_div(a, b);
    case AtomKind::kMin:
      return sizes_.min(a, b);
    case AtomKind::kMax:
      return sizes_.max(a, b);
    case AtomKind::kBroadcast:
      return sizes_.broadcast(a, b);
    case AtomKind::kReal:
      return RealSizes(sizes_).operation(RealSizes::op(atom), RealSizes::type(atom), a, b);
    default:
      return RealSizes(sizes_).truncate(a);
  }
}

Size SizeRewriter::represented(Size size) {
  constexpr int kMostRounds = 8;  // what stands for a size may have parts of its own
  for (int round = 0; round < kMostRounds && !sizes_.representatives().empty(); ++round) {
    const Size before = size;
    size = sizes_.representative(size);
    if (size.known() || size.is_unknown()) return size;
    size = with_represented_sums(
        with_atoms(size, [&](const Atom& atom) { return represented(atom); }));
    if (size == before) break;
  }
  return size;
}

Size SizeRewriter::represented(const Atom& atom) {
  return sizes_.representative(has_operands(atom)
                                   ? rebuilt(atom, represented(atom.a), represented(atom.b))
                                   : sizes_.intern(atom));
}

// A sum that has every term of a represented size, each the same number of times.
Size SizeRewriter::with_represented_sums(Size size) {
  const auto times_in = [](const Polynomial& part, const Polynomial& whole) {
    int64_t times = 0;
    for (const Term& term : part.terms) {
      if (term.atoms.empty()) continue;
      const auto found = std::ranges::find(whole.terms, term.atoms, &Term::atoms);
      if (found == whole.terms.end() || found->coefficient % term.coefficient != 0 ||
          (times != 0 && found->coefficient / term.coefficient != times))
        return int64_t{0};
      times = found->coefficient / term.coefficient;
    }
    return times;
  };
  for (const auto& [expression, stands] : sizes_.representatives()) {
    if (!sizes_.is_integer(size) || size.known()) break;
    const Size part = Size::expression(expression);
    const int64_t times = times_in(sizes_.polynomial_of(part), sizes_.polynomial_of(size));
    if (times != 0)
      size = sizes_.add(sizes_.sub(size, sizes_.mul(times, part)), sizes_.mul(times, stands));
  }
  return size;
}

Size SizeTable::substitute(Size size, const SizeReplacements& by) {
  return SizeRewriter(*this).substitute(size, by);
}

Size SizeTable::represented(Size size) { return SizeRewriter(*this).represented(size); }

}  // namespace anneal
