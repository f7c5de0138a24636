// An op in text: its name, then FIELD=VALUE for each field that differs from its default.
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/op/op.h"
#include "anneal/graph/op/op_names.h"
#include "anneal/graph/program/number_text.h"

namespace anneal {
namespace {

template <class T>
std::string value_text(const T& value, const SizeTable& sizes) {
  if constexpr (is_vector<T>) {
    std::string text = "[";
    for (const auto& element : value) {
      if (text.size() > 1) text += ',';
      text += value_text(element, sizes);
    }
    return text + "]";
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Size>) {
    return sizes.text(value);
  } else if constexpr (std::is_same_v<T, Program>) {
    return "\"" + to_string(value) + "\"";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return quoted_text(value);
  } else if constexpr (std::is_same_v<T, CustomAttribute>) {
    return to_string(value);
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(to_string(value));
  } else {
    return number_text(value);
  }
}

[[noreturn]] void refuse_value(std::string_view value, std::string_view expected) {
  fail(ErrorCode::kInvalidArgument, std::string(value).append(" is not ").append(expected));
}

// The length of the text before the first character of `ends` outside of quotes and brackets.
size_t length_until(std::string_view text, std::string_view ends) {
  int depth = 0;
  bool in_quotes = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_quotes && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_quotes = !in_quotes;
    } else if (!in_quotes) {
      if (depth <= 0 && ends.find(c) != ends.npos) return i;
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
    }
  }
  return text.size();
}

void parse_value(std::string_view text, bool& value, SizeTable&) {
  if (text != "true" && text != "false") refuse_value(text, "true or false");
  value = text == "true";
}

template <class T>
requires std::is_same_v<T, int64_t> || std::is_same_v<T, float>
void parse_value(std::string_view text, T& value, SizeTable&) {
  const auto number = parse_number<T>(text);
  if (!number) refuse_value(text, std::is_same_v<T, float> ? "an f32" : "an integer of 64 bits");
  value = *number;
}

void parse_value(std::string_view text, Program& value, SizeTable&) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') refuse_value(text, "in quotes");
  value = parse_program(text.substr(1, text.size() - 2));
}
void parse_value(std::string_view text, std::string& value, SizeTable&) {
  value = unquoted_text(text);
}
void parse_value(std::string_view text, CustomAttribute& value, SizeTable&) {
  value = parse_custom_attribute(text);
}
void parse_value(std::string_view text, Size& value, SizeTable& sizes) {
  value = sizes.parse(text);
}

void parse_value(std::string_view text, DataType& value, SizeTable&) {
  const auto dtype = dtype_from_name(text);
  if (!dtype) refuse_value(text, "a data type");
  value = *dtype;
}

template <NamedEnum E>
void parse_value(std::string_view text, E& value, SizeTable&) {
  const auto found = enumerator<E>(text);
  if (!found) {
    std::string expected = "one of";
    for (const std::string_view name : names_of<E>()) expected.append(" ").append(name);
    refuse_value(text, expected);
  }
  value = *found;
}

template <class T>
void parse_value(std::string_view text, std::vector<T>& values, SizeTable& sizes) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') refuse_value(text, "a list");
  text = text.substr(1, text.size() - 2);
  values.clear();
  if (text.empty()) return;
  for (;;) {
    const size_t length = length_until(text, ",");
    parse_value(text.substr(0, length), values.emplace_back(), sizes);
    if (length == text.size()) return;
    text.remove_prefix(length + 1);
  }
}

template <class T>
void parse_field(T& op, std::string_view field, std::string_view value, SizeTable& sizes) {
  bool found = false;
  T::fields(op, [&](const char* name, auto& member) {
    if (field != name) return;
    found = true;
    with_context([&] { return "field " + std::string(name); },
                 [&] { parse_value(value, member, sizes); });
  });
  if (!found) fail(ErrorCode::kInvalidArgument, "there is no field \"" + std::string(field) + "\"");
}

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == text.npos ? std::string_view() : text.substr(begin);
}

// The fields behind the op's name.
template <class T>
void parse_fields(T& op, std::string_view text, SizeTable& sizes) {
  std::vector<std::string_view> seen;
  while (!(text = without_spaces(text)).empty()) {
    const std::string_view assignment = text.substr(0, length_until(text, " "));
    text.remove_prefix(assignment.size());
    const size_t equals = assignment.find('=');
    if (equals == assignment.npos) refuse_value(assignment, "FIELD=VALUE");
    const std::string_view field = assignment.substr(0, equals);
    for (const std::string_view earlier : seen)
      if (earlier == field)
        fail(ErrorCode::kInvalidArgument, "the field " + std::string(field) + " occurs twice");
    parse_field(op, field, assignment.substr(equals + 1), sizes);
    seen.push_back(field);
  }
}

}  // namespace

std::string to_string(const Op& op, const SizeTable& sizes) {
  std::string text(to_string(op));
  std::visit(
      [&]<class T>(const T& known) {
        if constexpr (!std::is_same_v<T, std::monostate>) {
          const T initial;
          std::vector<std::string> defaults;
          T::fields(initial, [&](const char*, const auto& value) {
            defaults.push_back(value_text(value, sizes));
          });
          size_t i = 0;
          T::fields(known, [&](const char* field, const auto& value) {
            std::string shown = value_text(value, sizes);
            if (shown != defaults[i++]) text.append(" ").append(field).append("=").append(shown);
          });
        }
      },
      op);
  return text;
}

Op op_from_text(std::string_view text, SizeTable& sizes) {
  text = without_spaces(text);
  std::string op_name(text.substr(0, text.find(' ')));
  text.remove_prefix(op_name.size());
  Op op = op_named(op_name);
  std::visit(
      [&]<class T>(T& known) {
        if constexpr (std::is_same_v<T, std::monostate>) {
          fail(ErrorCode::kInvalidArgument, "there is no op \"" + op_name + "\"");
        } else {
          with_context([&] { return op_name; }, [&] { parse_fields(known, text, sizes); });
        }
      },
      op);
  return op;
}

}  // namespace anneal
