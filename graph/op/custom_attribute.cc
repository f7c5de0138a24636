#include "anneal/graph/op/custom_attribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/program/number_text.h"

namespace anneal {
namespace {

constexpr std::string_view kKinds = "ifst";  // by index of the variant

// The number of bytes of a tensor; nullopt if size_t cannot hold it.
std::optional<size_t> bytes_of(DataType dtype, const Dims& dims) {
  size_t bytes = size_of(dtype);
  for (const int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes))
      return std::nullopt;
  return bytes;
}

bool is_stored_type(DataType dtype) { return dtype >= DataType::kF32 && dtype <= DataType::kBool; }

Tensor load_tensor(ByteReader& from) {
  const auto dtype = static_cast<DataType>(from.number<uint8_t>());
  if (!is_stored_type(dtype)) from.refuse("an attribute of no known element type");
  const auto rank = from.number<uint8_t>();
  if (rank > kMaxRank) from.refuse("an attribute of too many axes");
  Dims dims;
  for (int axis = 0; axis < rank; ++axis) dims.push_back(from.number<int64_t>());
  const auto bytes = from.blob();
  if (bytes_of(dtype, dims) != bytes.size()) from.refuse("an attribute of another size");
  return Tensor::copy_of(dtype, dims, bytes);
}

template <class T>
std::vector<T> load_numbers(ByteReader& from) {
  std::vector<T> values(from.count(sizeof(T)));
  for (T& value : values) value = from.number<T>();
  return values;
}

std::string element_text(int64_t value) { return number_text(value); }
std::string element_text(float value) { return number_text(value); }
std::string element_text(const std::string& value) { return quoted_text(value); }

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ',';
    text += element_text(value);
  }
  return text + "]";
}

std::string tensor_text(const Tensor& tensor) {
  std::string text = fmt::format("{}{} ", to_string(tensor.dtype()), to_string(tensor.dims()));
  for (const std::byte byte : tensor.bytes()) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

[[noreturn]] void refuse_text(std::string_view text) {
  fail(ErrorCode::kInvalidArgument, fmt::format("{} is no attribute", text));
}

// The length of a quoted text at the beginning.
size_t quoted_length(std::string_view text) {
  if (text.empty() || text[0] != '"') refuse_text(text);
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  refuse_text(text);
}

void parse_element(std::string_view text, std::string& value) { value = unquoted_text(text); }
template <class T>
void parse_element(std::string_view text, T& value) {
  const auto number = parse_number<T>(text);
  if (!number) refuse_text(text);
  value = *number;
}

template <class T>
std::vector<T> parse_list(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') refuse_text(text);
  text = text.substr(1, text.size() - 2);
  std::vector<T> values;
  while (!text.empty()) {
    const size_t length =
        text[0] == '"' ? quoted_length(text) : std::min(text.find(','), text.size());
    parse_element(text.substr(0, length), values.emplace_back());
    text.remove_prefix(length);
    if (!text.empty() && (text[0] != ',' || text.size() == 1)) refuse_text(text);
    if (!text.empty()) text.remove_prefix(1);
  }
  return values;
}

Tensor parse_tensor(std::string_view text) {
  const size_t bracket = text.find('['), space = text.find(' ');
  if (bracket == text.npos || space == text.npos || space < bracket) refuse_text(text);
  const auto dtype = dtype_from_name(text.substr(0, bracket));
  Dims dims;
  for (const int64_t dim : parse_list<int64_t>(text.substr(bracket, space - bracket))) {
    if (dims.rank() == kMaxRank) refuse_text(text);
    dims.push_back(dim);
  }
  const std::string_view digits = text.substr(space + 1);
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    const auto digit = [&](char c) {
      const size_t value = std::string_view("0123456789abcdef").find(c);
      if (value == std::string_view::npos) refuse_text(text);
      return value;
    };
    bytes.push_back(static_cast<std::byte>(digit(digits[i]) * 16 + digit(digits[i + 1])));
  }
  if (!dtype || !is_stored_type(*dtype) || bytes_of(*dtype, dims) != bytes.size() ||
      digits.size() != 2 * bytes.size())
    refuse_text(text);
  return Tensor::copy_of(*dtype, dims, bytes);
}

}  // namespace

std::string quoted_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string unquoted_text(std::string_view text) {
  if (quoted_length(text) != text.size()) refuse_text(text);
  std::string result;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\') ++i;
    result += text[i];
  }
  return result;
}

void save(ByteWriter& to, const CustomAttribute& attribute) {
  to.text(attribute.name);
  to.number(static_cast<uint8_t>(attribute.value.index()));
  std::visit(
      [&]<class T>(const T& value) {
        if constexpr (std::is_same_v<T, Tensor>) {
          to.number(static_cast<uint8_t>(value.dtype()));
          to.number(static_cast<uint8_t>(value.dims().rank()));
          for (const int64_t dim : value.dims()) to.number(dim);
          to.blob(value.bytes());
        } else {
          to.number(static_cast<uint32_t>(value.size()));
          for (const auto& each : value) {
            if constexpr (std::is_same_v<T, std::vector<std::string>>)
              to.text(each);
            else
              to.number(each);
          }
        }
      },
      attribute.value);
}

CustomAttribute load_custom_attribute(ByteReader& from) {
  CustomAttribute attribute;
  attribute.name = from.text();
  switch (from.number<uint8_t>()) {
    case 0:
      attribute.value = load_numbers<int64_t>(from);
      break;
    case 1:
      attribute.value = load_numbers<float>(from);
      break;
    case 2: {
      std::vector<std::string> texts(from.count(sizeof(uint32_t)));
      for (std::string& text : texts) text = from.text();
      attribute.value = std::move(texts);
      break;
    }
    case 3:
      attribute.value = load_tensor(from);
      break;
    default:
      from.refuse("an attribute of unknown kind");
  }
  return attribute;
}

std::string to_string(const CustomAttribute& attribute) {
  std::string text = quoted_text(attribute.name) + ":" + kKinds[attribute.value.index()];
  std::visit(
      [&]<class T>(const T& value) {
        if constexpr (std::is_same_v<T, Tensor>)
          text += quoted_text(tensor_text(value));
        else
          text += list_text(value);
      },
      attribute.value);
  return text;
}

CustomAttribute parse_custom_attribute(std::string_view text) {
  const size_t name = quoted_length(text);
  if (text.size() < name + 3 || text[name] != ':') refuse_text(text);
  CustomAttribute attribute;
  attribute.name = unquoted_text(text.substr(0, name));
  const std::string_view value = text.substr(name + 2);
  switch (text[name + 1]) {
    case 'i':
      attribute.value = parse_list<int64_t>(value);
      break;
    case 'f':
      attribute.value = parse_list<float>(value);
      break;
    case 's':
      attribute.value = parse_list<std::string>(value);
      break;
    case 't':
      attribute.value = parse_tensor(unquoted_text(value));
      break;
    default:
      refuse_text(text);
  }
  return attribute;
}

}  // namespace anneal
