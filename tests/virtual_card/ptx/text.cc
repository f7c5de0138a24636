#include "anneal/tests/virtual_card/ptx/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

namespace anneal::ptx {
namespace {

struct Token {
  enum Kind : uint8_t { kName, kNumber, kSign, kText, kEnd };
  Kind kind = kEnd;
  std::string_view text;
  uint32_t line = 0;
};

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}
bool continues_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    skip_space();
    const size_t begin = at_;
    if (at_ == text_.size()) return {Token::kEnd, {}, line_};
    const char c = text_[at_];
    if (begins_name(c)) {
      do ++at_;
      while (at_ < text_.size() && (continues_name(text_[at_]) || is_scope()));
      return {Token::kName, text_.substr(begin, at_ - begin), line_};
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      return {Token::kNumber, text_.substr(begin, at_ - begin), line_};
    }
    if (c == '"') {
      at_ = text_.find('"', at_ + 1);
      if (at_ == std::string_view::npos) throw Refused(fmt::format("line {}: no end of \"", line_));
      ++at_;
      return {Token::kText, text_.substr(begin, at_ - begin), line_};
    }
    ++at_;
    return {Token::kSign, text_.substr(begin, 1), line_};
  }

  // The rest of a directive that ends with its line.
  std::string_view rest_of_line() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view rest = text_.substr(at_, end - at_);
    at_ = end;
    return rest;
  }

 private:
  // "shared::cta"
  bool is_scope() {
    if (!text_.substr(at_).starts_with("::")) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
      } else if (text_.substr(at_).starts_with("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      } else if (text_.substr(at_).starts_with("/*")) {
        for (; at_ < text_.size() && !text_.substr(at_).starts_with("*/"); ++at_)
          if (text_[at_] == '\n') ++line_;
        ++at_;
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) == 0) {
        return;
      }
    }
    at_ = text_.size();
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

std::vector<std::string> at_dots(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find('.'), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

size_t bytes_of_type(std::string_view type) {
  static const std::map<std::string_view, size_t> kBytes = {
      {".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2},  {".u16", 2}, {".s16", 2},
      {".f16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4},  {".f32", 4}, {".b64", 8},
      {".u64", 8}, {".s64", 8}, {".f64", 8}, {".b128", 16}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

RegisterKind kind_of_type(std::string_view type) {
  if (type == ".pred") return RegisterKind::kPredicate;
  switch (bytes_of_type(type)) {
    case 8:
      return RegisterKind::kB64;
    case 4:
      return RegisterKind::kB32;
    default:
      return RegisterKind::kB16;
  }
}

struct Register {
  RegisterKind kind;
  uint32_t index;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {
    find_callees();
    lexer_ = Lexer(text);
    advance();
  }

  TextModule module() {
    while (token_.kind != Token::kEnd) {
      if (is(".version") || is(".address_size") || is(".file")) {
        skip_line();
      } else if (is(".target")) {
        const std::string_view rest = skip_line();
        const size_t at = rest.find("sm_");
        if (at == std::string_view::npos) refuse("no sm_ in .target");
        std::from_chars(rest.data() + at + 3, rest.data() + rest.size(), module_.architecture);
      } else if (is(".section")) {
        skip_section();
      } else if (is(".entry")) {
        function();
      } else if (is(".func")) {
        while (!is("{") && !is(";")) advance();
        is("{") ? skip_section() : advance();
      } else if (is(".shared")) {
        advance();
        module_.shared.push_back(variable());
        module_.shared.back().is_extern = is_extern_;
        is_extern_ = false;
      } else if (is(".global") || is(".const")) {
        advance();
        module_.global.push_back(variable());
      } else if (is(".extern") || is(".visible") || is(".weak")) {
        is_extern_ = is(".extern");
        advance();
      } else {
        refuse("unexpected \"" + std::string(token_.text) + "\"");
      }
    }
    return std::move(module_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Refused(fmt::format("PTX line {}: {}", token_.line, why));
  }
  void advance() { token_ = lexer_.next(); }
  bool is(std::string_view text) const {
    return token_.kind != Token::kText && token_.text == text;
  }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    advance();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) refuse(fmt::format("\"{}\" in place of \"{}\"", token_.text, text));
  }
  std::string name() {
    if (token_.kind != Token::kName) refuse("a name is missing");
    std::string text(token_.text);
    advance();
    return text;
  }
  std::string_view skip_line() {
    const std::string_view rest = lexer_.rest_of_line();
    advance();
    return rest;
  }
  void skip_section() {
    while (!is("{")) advance();
    int depth = 0;
    do {
      depth += is("{") ? 1 : is("}") ? -1 : 0;
      advance();
    } while (depth > 0);
  }

  uint64_t integer() {
    const bool is_negative = accept("-");
    if (token_.kind != Token::kNumber) refuse("a number is missing");
    std::string_view digits = token_.text;
    uint64_t value = 0;
    int base = 10;
    if (digits.starts_with("0x") || digits.starts_with("0X")) {
      base = 16;
      digits.remove_prefix(2);
    }
    if (digits.ends_with('U')) digits.remove_suffix(1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size()) refuse("not a number");
    advance();
    return is_negative ? ~value + 1 : value;
  }

  // ".align 16 .b8 name[1024]" behind the state space; of a parameter without the semicolon.
  Variable variable(bool is_parameter = false) {
    Variable made;
    if (accept(".align")) made.alignment = integer();
    const size_t element = bytes_of_type(token_.text);
    if (element == 0) refuse("an unknown type");
    advance();
    made.name = name();
    made.alignment = std::max(made.alignment, element);
    made.bytes = element;
    if (accept("[")) {
      made.bytes = is("]") ? 0 : element * integer();
      expect("]");
    }
    if (accept("=")) initial_values(element, made);
    if (!is_parameter) expect(";");
    return made;
  }

  // "{1, 2, 0f3F800000}" or "8"
  void initial_values(size_t element, Variable& variable) {
    variable.values.resize(variable.bytes);
    const bool is_list = accept("{");
    size_t at = 0;
    do {
      const TextOperand value = number();
      if (at + element > variable.bytes) refuse("more values than the variable has");
      std::memcpy(variable.values.data() + at, &value.bits, element);
      at += element;
    } while (is_list && accept(","));
    if (is_list) expect("}");
  }

  void function() {
    advance();
    function_ = &module_.functions.emplace_back();
    function_->name = name();
    scopes_.assign(1, {});
    line_ = 0;
    if (accept("(")) {
      size_t at = 0;
      while (!is(")")) {
        expect(".param");
        Variable made = variable(true);
        at = (at + made.alignment - 1) / made.alignment * made.alignment;
        made.offset = at;
        at += made.bytes;
        function_->parameters.push_back(std::move(made));
        if (!accept(",")) break;
      }
      expect(")");
    }
    while (!is("{")) {
      if (accept(".maxntid") || accept(".reqntid")) {
        function_->max_threads = 1;
        do function_->max_threads *= static_cast<uint32_t>(integer());
        while (accept(","));
      } else if (accept(".minnctapersm") || accept(".maxnreg")) {
        integer();
      } else {
        refuse("an unknown directive of a function");
      }
    }
    block();
  }

  void block() {
    expect("{");
    scopes_.emplace_back();
    while (!is("}")) statement();
    scopes_.pop_back();
    advance();
  }

  void statement() {
    if (is("{")) return block();
    if (is(".loc")) return location();
    if (is(".pragma")) {
      skip_line();
      return;
    }
    if (accept(".reg")) return registers();
    if (accept(".shared")) {
      function_->shared.push_back(variable());
      return;
    }
    // Parameters of a call lie in local memory, too.
    if (accept(".local") || accept(".param")) {
      Variable made = variable();
      made.name = renamed(made.name);
      function_->local.push_back(std::move(made));
      return;
    }
    Statement made;
    made.text_line = token_.line;
    made.line = line_;
    if (accept("@")) {
      made.has_guard = true;
      made.is_guard_negated = accept("!");
      const std::optional<Register> guard = find(name());
      if (!guard || guard->kind != RegisterKind::kPredicate) refuse("the guard is no predicate");
      made.guard = guard->index;
    }
    const std::string word = name();
    if (!made.has_guard && accept(":")) {
      function_->labels.push_back({label_name(word), function_->statements.size()});
      return;
    }
    if (word == "call" || word == "call.uni") {
      if (made.has_guard) refuse("a call with a guard is not implemented");
      return call();
    }
    if (word == "ret" && !calls_.empty()) return leave(std::move(made));
    made.words = at_dots(word);
    while (!is(";")) {
      made.operands.push_back(operand());
      if (!accept(",")) break;
    }
    expect(";");
    function_->statements.push_back(std::move(made));
  }

  // The functions that a call names and that follow it in the text.
  void find_callees() {
    advance();
    while (token_.kind != Token::kEnd) {
      if (!accept(".func")) {
        advance();
        continue;
      }
      Callee callee;
      callee.results = list_of_variables();
      const std::string called = name();
      callee.parameters = list_of_variables();
      while (!is("{") && !is(";") && token_.kind != Token::kEnd) advance();
      callee.body = lexer_;
      callee.begin = token_;
      if (is("{")) callees_[called] = std::move(callee);
    }
  }
  // "(.param .b64 name, ...)": the names.
  std::vector<std::string> list_of_variables() {
    std::vector<std::string> names;
    if (!accept("(")) return names;
    while (!is(")")) {
      expect(".param");
      names.push_back(variable(true).name);
      if (!accept(",")) break;
    }
    expect(")");
    return names;
  }
  std::vector<std::string> list_of_names() {
    std::vector<std::string> names;
    expect("(");
    while (!is(")")) {
      names.push_back(variable_name(name()));
      if (!accept(",")) break;
    }
    expect(")");
    return names;
  }

  // "call.uni (results), name, (parameters);": the body takes the place of the call, with
  // registers, labels and local memory of its own. So lanes that part in it meet as they do
  // elsewhere.
  void call() {
    std::vector<std::string> results, parameters;
    if (is("(")) {
      results = list_of_names();
      expect(",");
    }
    const std::string called = name();
    if (accept(",")) parameters = list_of_names();
    if (!is(";")) refuse("a call of another form is not implemented");
    const auto found = callees_.find(called);
    if (found == callees_.end()) refuse(fmt::format("there is no function \"{}\"", called));
    const Callee& callee = found->second;
    if (results.size() != callee.results.size() || parameters.size() != callee.parameters.size())
      refuse("a call with another number of parameters");
    if (calls_.size() == kMostCalls) refuse("calls are nested too deeply");
    const auto caller = std::tuple(lexer_, token_, std::move(scopes_), line_);
    calls_.push_back(++calls_made_);
    lexer_ = callee.body;
    token_ = callee.begin;
    scopes_.assign(1, {});
    for (size_t i = 0; i < results.size(); ++i)
      scopes_.back().variables[callee.results[i]] = results[i];
    for (size_t i = 0; i < parameters.size(); ++i)
      scopes_.back().variables[callee.parameters[i]] = parameters[i];
    block();
    function_->labels.push_back({label_name("$end_of_call"), function_->statements.size()});
    calls_.pop_back();
    std::tie(lexer_, token_, scopes_, line_) = caller;
    expect(";");
  }

  // A return from a call goes on behind it.
  void leave(Statement made) {
    expect(";");
    made.words = {"bra"};
    TextOperand& target = made.operands.emplace_back();
    target.kind = TextOperand::kLabel;
    target.name = label_name("$end_of_call");
    function_->statements.push_back(std::move(made));
  }

  std::string label_name(const std::string& name) const {
    return calls_.empty() ? name : fmt::format("{} of call {}", name, calls_.back());
  }
  // A variable that every call, and every scope, has for itself.
  std::string renamed(const std::string& name) {
    std::string made = fmt::format("{}#{}", name, function_->local.size());
    scopes_.back().variables[name] = made;
    return made;
  }
  std::string variable_name(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->variables.find(name); found != scope->variables.end())
        return found->second;
    return name;
  }

  // ".loc file line column, function_name ..., inlined_at file line column"
  void location() {
    std::string_view rest = lexer_.rest_of_line();
    advance();
    const auto number = [&] {
      while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.front())) != 0)
        rest.remove_prefix(1);
      uint32_t value = 0;
      const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
      rest.remove_prefix(static_cast<size_t>(parsed.ptr - rest.data()));
      return value;
    };
    number();
    line_ = number();
  }

  // ".reg .b32 %r<6>, p;"
  void registers() {
    const RegisterKind kind = kind_of_type(token_.text);
    advance();
    do {
      const std::string prefix = name();
      if (accept("<")) {
        const auto declared = static_cast<uint32_t>(integer());
        for (uint32_t i = 0; i < declared; ++i) declare(fmt::format("{}{}", prefix, i), kind);
        expect(">");
      } else {
        declare(prefix, kind);
      }
    } while (accept(","));
    expect(";");
  }

  void declare(const std::string& name, RegisterKind kind) {
    const auto of = static_cast<size_t>(kind);
    scopes_.back().registers[name] = {kind, function_->registers[of]++};
    function_->names[of].push_back(name);
  }

  std::optional<Register> find(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->registers.find(name); found != scope->registers.end())
        return found->second;
    return std::nullopt;
  }

  TextOperand operand() {
    TextOperand made;
    if (accept("{")) {
      made.kind = TextOperand::kVector;
      do made.parts.push_back(operand());
      while (accept(","));
      expect("}");
      return made;
    }
    if (accept("[")) {
      made.kind = TextOperand::kAddress;
      made.parts.push_back(operand());
      if (accept("+")) made.bits = integer();
      expect("]");
      return made;
    }
    if (accept("!")) {
      made = operand();
      made.is_negated = !made.is_negated;
      return made;
    }
    if (token_.kind == Token::kNumber || is("-")) return number();
    const std::string text = name();
    if (const std::optional<Register> found = find(text)) {
      made.kind = TextOperand::kRegister;
      made.register_kind = found->kind;
      made.index = found->index;
      if (!accept("|")) return made;
      TextOperand pair;
      pair.kind = TextOperand::kPair;
      pair.parts = {made, operand()};
      return pair;
    }
    made.kind = text.starts_with('%')   ? TextOperand::kSpecial
                : text.starts_with('$') ? TextOperand::kLabel
                                        : TextOperand::kVariable;
    made.name = made.kind == TextOperand::kLabel      ? label_name(text)
                : made.kind == TextOperand::kVariable ? variable_name(text)
                                                      : text;
    return made;
  }

  // "12", "-1", "0f3F800000", "0d3FF0000000000000"
  TextOperand number() {
    TextOperand made;
    const std::string_view text = token_.text;
    const bool is_f32 = text.starts_with("0f") || text.starts_with("0F");
    if (is_f32 || text.starts_with("0d") || text.starts_with("0D")) {
      made.kind = is_f32 ? TextOperand::kF32 : TextOperand::kF64;
      std::from_chars(text.data() + 2, text.data() + text.size(), made.bits, 16);
      advance();
      return made;
    }
    made.bits = integer();
    return made;
  }

  Lexer lexer_;
  Token token_;
  TextModule module_;
  TextFunction* function_ = nullptr;
  struct Scope {
    std::map<std::string, Register> registers;
    std::map<std::string, std::string> variables;  // the names that they have in the function
  };
  std::vector<Scope> scopes_;
  struct Callee {
    std::vector<std::string> results, parameters;
    Lexer body = Lexer({});  // behind its "{"
    Token begin;             // that "{"
  };
  std::map<std::string, Callee> callees_;
  static constexpr size_t kMostCalls = 16;
  std::vector<int> calls_;  // that the text is inside of, by number
  int calls_made_ = 0;
  uint32_t line_ = 0;
  bool is_extern_ = false;
};

}  // namespace

std::string Statement::opcode() const { return fmt::format("{}", fmt::join(words, ".")); }

TextModule parse(std::string_view text) { return Parser(text).module(); }

}  // namespace anneal::ptx
