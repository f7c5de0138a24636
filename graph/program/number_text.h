// Numbers as text: the shortest digits that parse to the same bits; "nan", "inf", "-0" for floats.
#pragma once
#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>

namespace anneal {

template <class T>
std::string number_text(T value) {
  if constexpr (std::floating_point<T>)
    if (std::isnan(value)) return "nan";
  char digits[40];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

// nullopt unless all of `text` is one number that T can hold.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace anneal
