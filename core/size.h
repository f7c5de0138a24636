// SizeTable: the interned size expressions of one graph or plan.
//
// Normal form: a sum of products of atoms with integer coefficients; an atom is a symbol or
// floor_div, min, max of two sizes. Equal normal forms have equal ids. Arithmetic that overflows
// 64 bits, and division by zero, fail with kInvalidModel. An operand that is Size::unknown() makes
// the result unknown(); text() shows it as "?". Not thread-safe while it is being added to.
#pragma once
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/shape.h"

namespace anneal {

class ByteReader;
class ByteWriter;

// Inclusive. What a symbol may become, and the value to optimize for.
struct Bounds {
  int64_t min = 0;
  int64_t opt = 1;
  int64_t max = std::numeric_limits<int32_t>::max();
  bool operator==(const Bounds&) const = default;
};

struct SizeSymbol {
  std::string name;
  Bounds bounds;
};

class SizeTable {
 public:
  Size symbol(std::string_view name);  // the one of that name, added if there is none
  Size fresh(std::string_view stem);   // a new symbol: "stem", or "stem.2", "stem.3" if taken
  const std::vector<SizeSymbol>& symbols() const { return symbols_; }
  void set_bounds(Size symbol, Bounds bounds);            // REQUIRES: is_symbol
  std::optional<uint32_t> symbol_index(Size size) const;  // nullopt: not a lone symbol
  std::vector<uint32_t> symbols_in(Size size) const;      // ascending, each once

  Size add(Size a, Size b);
  Size sub(Size a, Size b);
  Size mul(Size a, Size b);
  Size floor_div(Size a, Size b);  // rounds towards minus infinity
  Size ceil_div(Size a, Size b);
  Size min(Size a, Size b);
  Size max(Size a, Size b);
  Size product(const Shape& shape);
  Shape row_major_strides(const Shape& shape);
  Shape channels_last_strides(const Shape& shape);

  // Provable bounds by interval arithmetic over the symbols' bounds; wide, never wrong.
  Bounds range(Size size) const;

  // values: one per symbol, by index. Fails with kInvalidArgument naming a symbol that has none.
  int64_t evaluate(Size size, std::span<const std::optional<int64_t>> values) const;
  Dims evaluate(const Shape& shape, std::span<const std::optional<int64_t>> values) const;

  // "N", "2*H + 1", "(H + 1)//2", "min(A, 4)". parse() adds symbols it does not know.
  std::string text(Size size) const;
  std::string text(const Shape& shape) const;  // "[N,3,224,224]"
  Size parse(std::string_view text);           // fails with kInvalidArgument

  // Ids of expressions are below this.
  uint32_t expression_count() const { return static_cast<uint32_t>(sums_.size()); }

  void save(ByteWriter& to) const;
  static SizeTable load(ByteReader& from);  // fails with kIncompatiblePlan

 private:
  enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMin, kMax };
  struct Atom {
    AtomKind kind = AtomKind::kSymbol;
    uint32_t symbol = 0;  // kSymbol only
    Size a, b;            // the others only
    bool operator==(const Atom&) const = default;
  };
  struct Term {
    std::vector<uint32_t> atoms;  // ascending, repeated for powers
    int64_t coefficient = 0;      // never 0
    bool operator==(const Term&) const = default;
  };
  struct Sum {
    int64_t constant = 0;
    std::vector<Term> terms;  // ascending by atoms
    bool operator==(const Sum&) const = default;
  };

  Sum sum_of(Size size) const;
  Size intern(Sum sum);
  Size intern(Atom atom);

  std::vector<SizeSymbol> symbols_;
  std::vector<Atom> atoms_;
  std::deque<Sum> sums_;  // by expression id
  std::map<std::string, uint32_t> symbol_ids_;
  std::map<std::vector<int64_t>, uint32_t> atom_ids_, sum_ids_;  // by flattened key
};

}  // namespace anneal
