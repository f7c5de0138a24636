// The text form of a program: "(f32)->(f32) %0=exp($0); div(%0,add(%0,1f32))".
#include <fmt/format.h>

#include <charconv>
#include <map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/program/number_text.h"
#include "anneal/graph/program/program.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {
namespace {

std::string literal(RegisterType type, Scalar value) {
  std::string text;
  switch (type) {
    case RegisterType::kF32:
      text = number_text(value.as<float>());
      break;
    case RegisterType::kF64:
      text = number_text(value.as<double>());
      break;
    case RegisterType::kI32:
      text = number_text(value.as<int32_t>());
      break;
    case RegisterType::kI64:
      text = number_text(value.as<int64_t>());
      break;
    default:  // unsigned and bool fill the low bits, and nothing is above them
      text = number_text(value.bits);
  }
  return text.append(to_string(type));
}

std::string function_name(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kCast:
      return std::string(to_string(instruction.type));
    case Opcode::kRound:
    case Opcode::kSaturate: {
      const bool by_cast =
          instruction.opcode == Opcode::kRound && (instruction.immediate & kByCast) != 0;
      return fmt::format("{}_{}", to_string(by_cast ? Opcode::kCast : instruction.opcode),
                         to_string(static_cast<DataType>(instruction.immediate)));
    }
    default:
      return std::string(to_string(instruction.opcode));
  }
}

class Printer {
 public:
  explicit Printer(const Program& program) : code_(program.code()), uses_(code_.size()) {
    for (const Instruction& instruction : code_)
      for (int i = 0; i < operand_count(instruction.opcode); ++i) ++uses_[instruction.operands[i]];
    for (const Program::Result& result : program.results()) ++uses_[result.reg];
  }

  std::string body(std::span<const Program::Result> results) {
    const auto registers = static_cast<uint16_t>(code_.size());
    for (uint16_t reg = 0; reg < registers; ++reg) {
      if (uses_[reg] < 2 || operand_count(code_[reg].opcode) == 0) continue;
      const std::string expression = text(reg);
      const size_t number = names_.size();
      names_.emplace(reg, number);
      out_ += fmt::format("%{}={}; ", number, expression);
    }
    const char* separator = "";
    for (const Program::Result& result : results) {
      out_ += separator + text(result.reg);
      separator = ", ";
    }
    return std::move(out_);
  }

 private:
  struct Open {
    uint16_t reg;
    int next = 0;  // operand
  };

  std::string text(uint16_t root) const {
    std::string out;
    std::vector<Open> open;  // a stack of our own: 4096 calls may be nested
    const auto begin = [&](uint16_t reg) {
      if (const auto leaf = leaf_text(reg)) {
        out.append(*leaf);
      } else {
        out.append(function_name(code_[reg]));
        open.push_back({reg});
      }
    };
    begin(root);
    while (!open.empty()) {
      auto& [reg, next] = open.back();
      if (next == operand_count(code_[reg].opcode)) {
        out.append(")");
        open.pop_back();
      } else {
        out.append(next == 0 ? "(" : ",");
        begin(code_[reg].operands[next++]);
      }
    }
    return out;
  }

  // nullopt: a function of operands
  std::optional<std::string> leaf_text(uint16_t reg) const {
    if (const auto named = names_.find(reg); named != names_.end())
      return "%" + std::to_string(named->second);
    const Instruction& instruction = code_[reg];
    switch (instruction.opcode) {
      case Opcode::kInput:
        return "$" + std::to_string(instruction.immediate);
      case Opcode::kConstant:
        return literal(instruction.type, {instruction.immediate});
      case Opcode::kIndex:
        return "index(" + std::to_string(instruction.immediate) + ")";
      default:
        return std::nullopt;
    }
  }

  std::span<const Instruction> code_;
  std::vector<int> uses_;
  std::map<uint16_t, size_t> names_;
  std::string out_;
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

std::optional<RegisterType> register_type_from_name(std::string_view text) {
  for (size_t i = 0; i < kRegisterTypeCount; ++i)
    if (to_string(static_cast<RegisterType>(i)) == text) return static_cast<RegisterType>(i);
  return std::nullopt;
}

class ProgramParser {
 public:
  explicit ProgramParser(std::string_view text) : text_(text) {}

  Program parse() {
    const auto inputs = types();
    for (size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(builder_.input(i, inputs[i]));
    expect("->");
    const auto dtypes = types();
    definitions();
    std::vector<std::pair<Reg, DataType>> results;
    for (const DataType dtype : dtypes) {
      if (!results.empty()) expect(",");
      results.emplace_back(expression(), dtype);
      const RegisterType type = results.back().first.type;
      if (type != register_type(dtype))
        refuse(fmt::format("a result of type {} is computed in {}, not {}", to_string(dtype),
                           to_string(register_type(dtype)), to_string(type)));
    }
    if (peek() != '\0') refuse("the end is expected");
    return builder_.finish(results);
  }

 private:
  // A function whose operands are being read.
  struct Call {
    Instruction instruction;
    std::vector<Reg> operands;
  };

  [[noreturn]] void refuse(std::string_view why) const {
    fail(ErrorCode::kInvalidArgument, fmt::format("program, column {}: {}", at_ + 1, why));
  }
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool skip(std::string_view token) {
    peek();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!skip(token)) refuse(fmt::format("\"{}\" is expected", token));
  }
  std::string_view word() {
    peek();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  size_t number() {
    peek();
    size_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) refuse("a number is expected");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  std::vector<DataType> types() {
    std::vector<DataType> dtypes;
    expect("(");
    if (skip(")")) return dtypes;
    do {
      const auto dtype = dtype_from_name(word());
      if (!dtype || *dtype == DataType::kString) refuse("a storage type is expected");
      dtypes.push_back(*dtype);
    } while (skip(","));
    expect(")");
    return dtypes;
  }

  // "%0=EXPRESSION;" each, before the results.
  void definitions() {
    while (peek() == '%') {
      const size_t start = at_;
      skip("%");
      const size_t register_name = number();
      if (!skip("=")) {  // a result that begins with a register
        at_ = start;
        return;
      }
      const Reg reg = expression();
      if (!names_.emplace(register_name, reg).second)
        refuse(fmt::format("%{} is named twice", register_name));
      expect(";");
    }
  }

  Reg expression() {
    std::vector<Call> calls;  // a stack of our own: depth is the writer's choice
    for (;;) {
      if (auto call = call_begins()) {
        calls.push_back(std::move(*call));
        continue;
      }
      Reg value = leaf();
      for (;;) {
        if (calls.empty()) return value;
        calls.back().operands.push_back(value);
        if (skip(",")) break;
        expect(")");
        value = call(calls.back());
        calls.pop_back();
      }
    }
  }

  // "name(" of a function; what it is, but not its operands.
  std::optional<Call> call_begins() {
    const char first = peek();
    if (first < 'a' || first > 'z') return std::nullopt;
    const size_t start = at_;
    const std::string_view function = word();
    if (!skip("(") || function == to_string(Opcode::kIndex)) {
      at_ = start;
      return std::nullopt;
    }
    if (const auto type = register_type_from_name(function))
      return Call{{Opcode::kCast, *type, {}, 0}, {}};
    for (const Opcode opcode : {Opcode::kRound, Opcode::kSaturate}) {
      if (!function.starts_with(fmt::format("{}_", to_string(opcode)))) continue;
      const auto dtype = dtype_from_name(function.substr(to_string(opcode).size() + 1));
      if (dtype && *dtype != DataType::kString)
        return Call{{opcode, register_type(*dtype), {}, static_cast<uint64_t>(*dtype)}, {}};
    }
    for (const DataType dtype : {DataType::kF16, DataType::kBF16})
      if (function == fmt::format("{}_{}", to_string(Opcode::kCast), to_string(dtype)))
        return Call{
            {Opcode::kRound, RegisterType::kF32, {}, static_cast<uint64_t>(dtype) | kByCast}, {}};
    for (size_t i = static_cast<size_t>(Opcode::kNeg); i < kOpcodeCount; ++i)
      if (const auto opcode = static_cast<Opcode>(i); to_string(opcode) == function)
        return Call{{opcode, RegisterType::kF32, {}, 0}, {}};
    at_ = start;
    refuse(fmt::format("there is no function {}", function));
  }

  Reg call(Call& call) {
    Instruction& instruction = call.instruction;
    std::vector<RegisterType> operand_types;
    for (const Reg operand : call.operands) operand_types.push_back(operand.type);
    if (instruction.opcode >= Opcode::kNeg)
      instruction.type = result_type(instruction.opcode, operand_types);
    if (const std::string wrong = fault(instruction, operand_types); !wrong.empty()) refuse(wrong);

    const std::vector<Reg>& of = call.operands;
    const auto dtype = static_cast<DataType>(instruction.immediate);
    switch (instruction.opcode) {
      case Opcode::kCast:
        return builder_.cast(of[0], instruction.type);
      case Opcode::kRound:
        return (instruction.immediate & kByCast) != 0 ? builder_.round_by_cast(of[0], dtype)
                                                      : builder_.round(of[0], dtype);
      case Opcode::kSaturate:
        return builder_.saturate(of[0], dtype);
      case Opcode::kSelect:
        return builder_.select(of[0], of[1], of[2]);
      default:
        return of.size() == 1 ? builder_.apply(instruction.opcode, of[0])
                              : builder_.apply(instruction.opcode, of[0], of[1]);
    }
  }

  Reg leaf() {
    if (skip("$")) {
      const size_t input = number();
      if (input >= inputs_.size()) refuse(fmt::format("there is no input ${}", input));
      return inputs_[input];
    }
    if (skip("%")) {
      const size_t register_name = number();
      const auto named = names_.find(register_name);
      if (named == names_.end()) refuse(fmt::format("%{} has no value yet", register_name));
      return named->second;
    }
    if (skip("index(")) {
      const size_t axis = number();
      const std::string wrong = fault({Opcode::kIndex, RegisterType::kI64, {}, axis}, {});
      if (!wrong.empty()) refuse(wrong);
      expect(")");
      return builder_.index(static_cast<int>(axis));
    }
    return literal();
  }

  Reg literal() {
    peek();
    size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '-' || text_[end] == '+'))
      ++end;
    const std::string_view whole = text_.substr(at_, end - at_);
    for (size_t i = 0; i < kRegisterTypeCount; ++i) {
      const auto type = static_cast<RegisterType>(i);
      if (!whole.ends_with(to_string(type))) continue;
      const std::string_view digits = whole.substr(0, whole.size() - to_string(type).size());
      if (const auto reg = literal(type, digits)) {
        at_ = end;
        return *reg;
      }
    }
    refuse("a value is expected");
  }

  std::optional<Reg> literal(RegisterType type, std::string_view digits) {
    switch (type) {
      case RegisterType::kF32:
        return constant<float>(digits);
      case RegisterType::kF64:
        return constant<double>(digits);
      case RegisterType::kI32:
        return constant<int32_t>(type, digits);
      case RegisterType::kI64:
        return constant<int64_t>(type, digits);
      case RegisterType::kU32:
        return constant<uint32_t>(type, digits);
      case RegisterType::kU64:
        return constant<uint64_t>(type, digits);
      case RegisterType::kBool:
        if (digits != "0" && digits != "1") return std::nullopt;
        return builder_.constant(type, int64_t{digits == "1"});
    }
    return std::nullopt;
  }

  template <std::floating_point T>
  std::optional<Reg> constant(std::string_view digits) {
    const auto value = parse_number<T>(digits);
    if (!value) return std::nullopt;
    return builder_.constant(*value);
  }
  template <std::integral T>
  std::optional<Reg> constant(RegisterType type, std::string_view digits) {
    const auto value = parse_number<T>(digits);
    if (!value) return std::nullopt;
    return builder_.constant(type, static_cast<int64_t>(*value));
  }

  std::string_view text_;
  size_t at_ = 0;
  ProgramBuilder builder_;
  std::vector<Reg> inputs_;
  std::map<size_t, Reg> names_;
};

}  // namespace

std::string to_string(const Program& program) {
  const auto list = [](auto&& range, auto&& dtype_of) {
    std::string text = "(";
    for (const auto& item : range) {
      if (text.size() > 1) text += ',';
      text += to_string(dtype_of(item));
    }
    return text + ")";
  };
  std::string text = list(program.inputs(), [](DataType dtype) { return dtype; }) + "->" +
                     list(program.results(), [](const Program::Result& r) { return r.dtype; });
  if (program.empty()) return text;
  return text + " " + Printer(program).body(program.results());
}

Program parse_program(std::string_view text) { return ProgramParser(text).parse(); }

}  // namespace anneal
