#include "anneal/kernels/cuda/text/shape_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace anneal::cuda {

std::string_view index_type(const Request& request) {
  // Windows reach beyond their input by less than its size, so half of the range is enough.
  constexpr double kMost = 1 << 30;
  const auto is_small = [&](const Operand& operand) {
    double elements = 1, reach = 0;
    for (int axis = 0; axis < operand.type.shape.rank(); ++axis) {
      const auto most = static_cast<double>(request.sizes.range(operand.type.shape[axis]).max);
      const Bounds stride = request.sizes.range(operand.strides[axis]);
      elements *= std::max(most, 1.0);
      reach += most * std::max(std::abs(static_cast<double>(stride.min)),
                               std::abs(static_cast<double>(stride.max)));
    }
    return elements < kMost && reach < kMost;
  };
  for (const Operand& operand : request.inputs)
    if (operand.present && !is_small(operand)) return "i64";
  return std::all_of(request.outputs.begin(), request.outputs.end(), is_small) ? "i32" : "i64";
}

namespace {

// Whether an expression names a parameter of Extents: v0, v1, ...
bool names_parameter(std::string_view expression) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto in_word = [&](char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  for (size_t i = 0; i + 1 < expression.size(); ++i)
    if (expression[i] == 'v' && is_digit(expression[i + 1]) &&
        (i == 0 || !in_word(expression[i - 1])))
      return true;
  return false;
}

}  // namespace

void ShapeText::number(std::string_view name, std::string_view value) {
  if (!names_parameter(value)) {
    constants_ += fmt::format("  enum : Index {{ {} = Index({}) }};\n", name, value);
    return;
  }
  members_ += fmt::format("  Index {};\n", name);
  values_ += fmt::format("{}{}({})", values_.empty() ? "" : ", ", index_, value);
}

void ShapeText::number(std::string_view name, int64_t value) {
  number(name, fmt::format("{}", value));
}

void ShapeText::flag(std::string_view name, bool value) {
  constants_ += fmt::format("  enum : bool {{ {} = {} }};\n", name, value);
}

void ShapeText::add(std::string_view declaration) { declarations_ += declaration; }

std::string ShapeText::definition() const {
  return fmt::format("struct Shape {{\n  using Index = {};\n{}{}{}}};\n", index_, constants_,
                     members_, declarations_);
}

std::string divisor_text(Size size, std::string expression) {
  return size == Size(0) ? "1" : expression;
}

std::string ceil_div_text(std::string_view a, int64_t b) {
  return fmt::format("({} + {}) / {}", a, b - 1, b);
}

}  // namespace anneal::cuda
