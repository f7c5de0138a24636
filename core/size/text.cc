// The text form of sizes.
//   sum     = ["-"] product {("+" | "-") product}
//   product = factor {("*" | "//") factor}        from left to right
//   factor  = number | name | "(" sum ")" | VERB "(" sum {"," sum} ")" | "?"
//   VERB    = "min" | "max" | "broadcast" | "trunc" | TYPE "." ("add" | "floor" | ...)
//   real constant = TYPE ".constant(" number as C writes it ")"        TYPE = "f32" | "f64"
// A name that is not [A-Za-z_][A-Za-z0-9_.]*, or is a verb, is in quotes, with \" \\ \n inside.
#include <algorithm>
#include <bit>
#include <charconv>

#include "anneal/core/fail.h"
#include "anneal/core/size/real.h"
#include "anneal/core/size/size.h"

namespace anneal {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool continues_name(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

bool is_verb(std::string_view name) {
  return name == "min" || name == "max" || name == "broadcast" || name == "trunc" ||
         real_verb(name);
}

std::string name_text(const std::string& name) {
  const bool plain = !name.empty() && is_letter(name[0]) &&
                     std::ranges::all_of(name, continues_name) && !is_verb(name);
  if (plain) return name;
  std::string text = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

// The sort key of a factor or a product: symbols in their order, then the rest by its text.
struct Word {
  uint32_t order;
  std::string text;
  auto operator<=>(const Word&) const = default;
};

struct Words {
  std::vector<Word> factors;
  int64_t coefficient;
};

bool is_printed_before(const Words& a, const Words& b) {
  if (a.factors.size() != b.factors.size()) return a.factors.size() > b.factors.size();
  return a.factors < b.factors;
}

class Parser {
 public:
  Parser(SizeTable& table, std::string_view text) : table_(table), text_(text) {}

  Size all() {
    const Size size = sum();
    if (!rest().empty()) refuse("an operator");
    return size;
  }

 private:
  static constexpr int kMaxDepth = 256;

  std::string_view rest() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return text_.substr(at_);
  }

  bool accept(std::string_view token) {
    if (!rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  [[noreturn]] void refuse(const std::string& expected) {
    fail(ErrorCode::kInvalidArgument, expected + " is expected at position " + std::to_string(at_));
  }

  void expect(std::string_view token) {
    if (!accept(token)) refuse("\"" + std::string(token) + "\"");
  }

  Size sum() {
    if (++depth_ > kMaxDepth) fail(ErrorCode::kInvalidArgument, "parentheses are too deep");
    Size total = accept("-") ? negative_product() : product();
    for (;;) {
      if (accept("+")) {
        total = table_.add(total, product());
      } else if (accept("-")) {
        total = table_.add(total, negative_product());
      } else {
        break;
      }
    }
    --depth_;
    return total;
  }

  Size product() { return product(factor()); }

  Size product(Size first) {
    for (;;) {
      if (accept("*")) {
        first = table_.mul(first, factor());
      } else if (accept("//")) {
        first = table_.floor_div(first, factor());
      } else {
        return first;
      }
    }
  }

  // The least number has no positive twin, so a number that stands alone takes its sign here.
  Size negative_product() {
    const size_t start = at_;
    if (!rest().empty() && is_digit(rest()[0])) {
      const Size negative = number(true);
      if (!rest().starts_with("*") && !rest().starts_with("//")) return negative;
      if (negative == Size(INT64_MIN) && rest().starts_with("*")) return product(negative);
      at_ = start;
    }
    return table_.sub(0, product());
  }

  Size factor() {
    if (rest().empty()) refuse("a size");
    const char c = rest()[0];
    if (is_digit(c)) return number(false);
    if (c == '"') return table_.symbol(quoted());
    if (accept("?")) return Size::unknown();
    if (rest()[0] == '(') return in_parentheses();
    if (!is_letter(c)) refuse("a size");
    const size_t start = at_;
    while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    if (name == "min") return operands(&SizeTable::min);
    if (name == "max") return operands(&SizeTable::max);
    if (name == "broadcast") return operands(&SizeTable::broadcast);
    if (name == "trunc") return RealSizes(table_).truncate(in_parentheses());
    if (const auto verb = real_verb(name)) return real(verb->first, verb->second);
    return table_.symbol(name);
  }

  Size in_parentheses() {
    expect("(");
    const Size inside = sum();
    expect(")");
    return inside;
  }

  Size real(RealOp op, RealType type) {
    if (operand_count(op) == 1) return RealSizes(table_).operation(op, type, in_parentheses());
    expect("(");
    if (op == RealOp::kConstant) {
      double value = 0;
      const std::string_view digits = rest();
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc()) refuse("a number");
      at_ += static_cast<size_t>(end - digits.data());
      expect(")");
      return RealSizes(table_).constant(real_result(op, type, value, 0), type);
    }
    const Size a = sum();
    expect(",");
    const Size b = sum();
    expect(")");
    return RealSizes(table_).operation(op, type, a, b);
  }

  Size operands(Size (SizeTable::*combine)(Size, Size)) {
    expect("(");
    Size result = sum();
    while (accept(",")) result = (table_.*combine)(result, sum());
    expect(")");
    return result;
  }

  Size number(bool negative) {
    const std::string_view digits = rest();
    uint64_t magnitude = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
    if (error != std::errc() || magnitude > (uint64_t{1} << 63) - (negative ? 0 : 1))
      refuse("a number of 64 bits");
    at_ += static_cast<size_t>(end - digits.data());
    return static_cast<int64_t>(negative ? -magnitude : magnitude);
  }

  std::string quoted() {
    expect("\"");
    std::string name;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        name += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      name += text_[at_] == 'n' ? '\n' : text_[at_];
    }
    expect("\"");
    return name;
  }

  SizeTable& table_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string SizeTable::text(Size size) const {
  if (size.known()) return std::to_string(size.value());
  if (size.is_unknown()) return "?";
  std::vector<Words> terms;
  for (const Term& term : expression_of(size).polynomial.terms) {
    Words words{{}, term.coefficient};
    for (uint32_t id : term.atoms) {
      const Atom& atom = atoms_[id];
      const bool is_symbol = atom.kind == AtomKind::kSymbol;
      Word word{is_symbol ? atom.symbol : ~0u, text(atom)};
      const bool alone =
          term.atoms.size() == 1 && (term.coefficient == 1 || term.coefficient == -1);
      if (atom.kind == AtomKind::kFloorDiv && !alone) word.text = "(" + word.text + ")";
      words.factors.push_back(std::move(word));
    }
    std::ranges::sort(words.factors);
    terms.push_back(std::move(words));
  }
  std::ranges::sort(terms, is_printed_before);

  std::string result;
  for (const Words& term : terms) {
    const bool negative = term.coefficient < 0;
    if (!result.empty()) {
      result += negative ? " - " : " + ";
    } else if (negative) {
      result += "-";
    }
    const uint64_t magnitude = negative ? -static_cast<uint64_t>(term.coefficient)
                                        : static_cast<uint64_t>(term.coefficient);
    std::string between;
    if (magnitude != 1 || term.factors.empty()) {
      result += std::to_string(magnitude);
      between = "*";
    }
    for (const Word& factor : term.factors) {
      result += between + factor.text;
      between = "*";
    }
  }
  return result;
}

std::string SizeTable::text(const Atom& atom) const {
  if (atom.kind == AtomKind::kSymbol) return name_text(symbols_[atom.symbol].name);
  if (atom.kind == AtomKind::kFloorDiv) {
    const auto operand = [&](Size size) {
      const Atom* lone = lone_atom(size);
      const bool closed =
          lone != nullptr ? lone->kind != AtomKind::kFloorDiv : size.known() && size.value() >= 0;
      return closed ? text(size) : "(" + text(size) + ")";
    };
    return operand(atom.a) + "//" + operand(atom.b);
  }
  if (atom.kind == AtomKind::kTruncate) return "trunc(" + text(atom.a) + ")";
  if (atom.kind == AtomKind::kReal) {
    const RealOp op = RealSizes::op(atom);
    std::string verb(to_string(RealSizes::type(atom)));
    verb.append(".").append(to_string(op)).append("(");
    if (op == RealOp::kConstant) {
      char digits[32];
      const auto value = std::bit_cast<double>(atom.a.value());
      const auto end = RealSizes::type(atom) == RealType::kF32
                           ? std::to_chars(digits, std::end(digits), static_cast<float>(value)).ptr
                           : std::to_chars(digits, std::end(digits), value).ptr;
      return verb.append(digits, end) + ")";
    }
    verb += text(atom.a);
    if (operand_count(op) == 2) verb += ", " + text(atom.b);
    return verb + ")";
  }
  std::vector<Size> operands{atom.a};
  gather_operands(atom.kind, atom.b, operands);
  std::vector<Word> words;
  for (Size operand : operands) {
    const auto symbol = symbol_index(operand);
    words.push_back({operand.known() ? ~0u : symbol.value_or(~0u - 1), text(operand)});
  }
  std::ranges::sort(words);
  std::string result = atom.kind == AtomKind::kMin   ? "min("
                       : atom.kind == AtomKind::kMax ? "max("
                                                     : "broadcast(";
  for (const Word& word : words) {
    if (&word != &words.front()) result += ", ";
    result += word.text;
  }
  return result + ")";
}

std::string SizeTable::text(const Shape& shape) const {
  std::string result = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) result += ',';
    result += text(shape[axis]);
  }
  return result + "]";
}

Size SizeTable::parse(std::string_view text) {
  try {
    return Parser(*this, text).all();
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, "size \"" + std::string(text) + "\": " + error.what());
  }
}

}  // namespace anneal
