// SizeTable: the interned size expressions of one graph or plan.
//
// Normal form: a sum of products of atoms with integer coefficients; an atom is a symbol or
// floor_div, min, max, broadcast of two sizes. Equal normal forms have equal ids. Arithmetic that
// overflows 64 bits, and division by zero, fail with kInvalidModel, expressions that grow beyond
// reason with kUnsupported. An operand that is Size::unknown() makes the result unknown(); text()
// shows it as
// "?".
//
// A real is the contents of an element of a float tensor where that need not be a whole number:
// f32 or f64 arithmetic on sizes, evaluated as IEEE 754 says. It is one atom, and sums, products
// and the like of it are unknown(): only RealSizes (core/size/real.h) computes with it. Simplifying
// relies on the symbols' bounds, and on divisors not being 0. Not thread-safe while it is being
// added to.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/shape.h"
#include "anneal/core/size/polynomial.h"

namespace anneal {

class ByteReader;
class ByteWriter;

// Inclusive. The range of a symbol, and the value to optimize for.
struct Bounds {
  int64_t min = 0;
  int64_t opt = 1;
  int64_t max = std::numeric_limits<int32_t>::max();
  bool operator==(const Bounds&) const = default;
};

struct SizeSymbol {
  std::string name = {};
  Bounds bounds = {};
};

// Sizes in place of symbols, by index.
using SizeReplacements = std::map<uint32_t, Size>;

// By the id of an expression: the size that stands for it.
using Representatives = std::map<uint32_t, Size>;

// A size in a file: a boolean `known`, then the i64 value, or the u32 id of an expression. The
// reader cannot know the table: whoever loads compares the id with expression_count().
void save(ByteWriter& to, Size size);
Size load_size(ByteReader& from);

class SizeTable {
 public:
  Size symbol(std::string_view name);  // the one of that name, added if there is none
  Size fresh(std::string_view stem);   // a new symbol: "stem", or "stem.2", "stem.3" if taken
  const std::vector<SizeSymbol>& symbols() const { return symbols_; }
  // REQUIRES: symbol is one. Fails with kInvalidArgument unless min <= opt <= max, or if the bounds
  // become wider when expressions already rely on them.
  void set_bounds(Size symbol, Bounds bounds);
  std::optional<uint32_t> symbol_index(Size size) const;  // nullopt: not a lone symbol
  std::vector<uint32_t> symbols_in(Size size) const;      // ascending, each once

  // The cost of an expression written out as a tree. It is limited, so that no algorithm on sizes
  // runs out of stack or time.
  struct Cost {
    uint32_t nodes = 0, depth = 0;
  };
  Cost cost_of(Size size) const;  // of an unknown size: none

  bool is_integer(Size size) const;  // neither unknown() nor a real
  Size add(Size a, Size b);
  Size sub(Size a, Size b);
  Size mul(Size a, Size b);
  Size floor_div(Size a, Size b);  // rounds towards minus infinity
  Size ceil_div(Size a, Size b);
  Size min(Size a, Size b);
  Size max(Size a, Size b);
  // The size that two sizes of one axis broadcast to, by numpy's rules: the other size where one is
  // 1, else the size that both are. Fails with kInvalidModel if no values satisfy the rules; a
  // value of it fails with kInvalidArgument if its operands do not. If one size is unknown, the
  // result is known where the other cannot be 1. The result depends neither on the order of
  // operands nor on the order of several broadcasts. Where neither size can be 1, it is
  // canonical(a, b).
  Size broadcast(Size a, Size b);
  // The size with every symbol of `by` replaced, in replacements too. REQUIRES: no symbol is
  // replaced, however indirectly, by a size that has it.
  Size substitute(Size size, const SizeReplacements& by);

  // Sizes that differ in form, and are equal in every run that the model allows. The run refuses
  // others. REQUIRES: none of the sizes that stand for others is itself stood for.
  void set_representatives(Representatives of) { representatives_ = std::move(of); }
  const Representatives& representatives() const { return representatives_; }
  Size representative(Size size) const;  // the size itself, where none stands for it
  Size represented(Size size);           // the same, of each part of the size as well

  bool may_be_one(Size size) const;  // true unless 1 can be excluded

  // Provable bounds by interval arithmetic over the symbols' bounds; wide, never wrong. opt is the
  // value at the symbols' opts; min where there is none.
  Bounds range(Size size) const;

  // values: one per symbol, by index. Fails with kInvalidArgument where the values contradict the
  // expression or overflow, or naming a symbol that has none.
  int64_t evaluate(Size size, std::span<const std::optional<int64_t>> values) const;
  Dims evaluate(const Shape& shape, std::span<const std::optional<int64_t>> values) const;

  // "N", "2*H + 1", "(H + 1)//2", "min(A, 4)". parse() adds symbols it does not know.
  std::string text(Size size) const;
  std::string text(const Shape& shape) const;  // "[N,3,224,224]"
  Size parse(std::string_view text);           // fails with kInvalidArgument

  // Ids of expressions are below this.
  uint32_t expression_count() const { return static_cast<uint32_t>(expressions_.size()); }

  void save(ByteWriter& to) const;
  static SizeTable load(ByteReader& from);  // fails with kIncompatiblePlan

 private:
  friend class RealSizes;
  friend class SizeRewriter;
  enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMin, kMax, kBroadcast, kReal, kTruncate };
  struct Atom {
    AtomKind kind = AtomKind::kSymbol;
    uint32_t symbol = 0;  // kSymbol only; kReal: the op and the type, as RealSizes has them
    Size a, b;            // the others only; kTruncate has a; a constant's a are its bits
    Cost cost;
  };
  struct Expression {
    Polynomial polynomial;
    Cost cost;
  };
  using Key = std::vector<int64_t>;

  static Key key_of(const Atom& atom);
  Polynomial polynomial_of(Size size) const;
  const Expression& expression_of(Size size) const;
  const Atom* lone_atom(Size size) const;  // null: size is not one atom alone
  const Atom* lone_atom(const Polynomial& polynomial) const;
  Cost cost_of(const Polynomial& polynomial) const;  // fails if it is beyond the limits
  Cost cost_of(const Atom& atom) const;

  Size intern(std::optional<Polynomial> polynomial);  // fails if there is none: an overflow
  Size intern(Atom atom);
  Size divide_by_number(const Polynomial& a, int64_t b);
  Size divide_by_polynomial(const Polynomial& a, const Polynomial& b);
  Size combine(AtomKind kind, Size a, Size b);  // kMin, kMax
  Size chain(AtomKind kind, std::vector<Size> operands);
  void gather_operands(AtomKind kind, Size size, std::vector<Size>& operands) const;
  bool is_at_most(Size a, Size b) const;  // provably
  bool is_cut(Size part, Size whole) const;

  using Values = std::span<const std::optional<int64_t>>;
  int64_t value_of(Size size, Values values) const;
  int64_t value_of(const Atom& atom, Values values) const;
  Bounds range(const Polynomial& polynomial) const;
  Bounds range(const Atom& atom) const;
  void find_symbols(Size size, std::vector<uint32_t>& found) const;
  std::string text(const Atom& atom) const;

  void load_expressions(ByteReader& from);
  void validate(ByteReader& from);
  bool is_normal(uint32_t atom_id);

  std::vector<SizeSymbol> symbols_;
  std::deque<Atom> atoms_;
  std::deque<Expression> expressions_;
  std::map<std::string, uint32_t, std::less<>> symbol_ids_;
  std::map<Key, uint32_t> atom_ids_, expression_ids_;
  Representatives representatives_;
};

// Whether every symbol in the size is one of `symbols`, which has an entry for each.
bool is_made_of(const SizeTable& sizes, Size size, const std::vector<bool>& symbols);
// One representative of two sizes that are equal in every run: the number, else the shorter
// expression, in whatever order they are given.
Size canonical(Size a, Size b, const SizeTable& sizes);

Size product(const Shape& shape, SizeTable& sizes);
Shape row_major_strides(const Shape& shape, SizeTable& sizes);
Shape channels_last_strides(const Shape& shape, SizeTable& sizes);

}  // namespace anneal
