// Sizes written in other terms: symbols replaced, and sizes by those that stand for them.
#pragma once
#include "anneal/core/size/size.h"

namespace anneal {

// SizeTable::substitute() and represented(), which have the contract.
class SizeRewriter {
 public:
  explicit SizeRewriter(SizeTable& sizes) : sizes_(sizes) {}
  Size substitute(Size size, const SizeReplacements& by);
  Size represented(Size size);

 private:
  using Atom = SizeTable::Atom;
  using AtomKind = SizeTable::AtomKind;

  // The size with each of its atoms as the function has it.
  template <class F>
  Size with_atoms(Size size, F&& written);
  static bool has_operands(const Atom& atom);
  Size rebuilt(const Atom& atom, Size a, Size b);  // with other operands. REQUIRES: it has some
  Size represented(const Atom& atom);
  Size with_represented_sums(Size size);

  SizeTable& sizes_;
};

}  // namespace anneal
