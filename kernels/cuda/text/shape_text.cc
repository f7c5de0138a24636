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

void ShapeText::number(std::string_view name, std::string_view value) {
  // Parameters are named v0, v1, ...; nothing else in an expression has that letter.
  if (value.find('v') == std::string_view::npos) {
    constants_ += fmt::format("  static constexpr Index {} = Index({});\n", name, value);
    return;
  }
  members_ += fmt::format("  Index {};\n", name);
  values_ += fmt::format("{}{}({})", values_.empty() ? "" : ", ", index_, value);
}

void ShapeText::number(std::string_view name, int64_t value) {
  number(name, fmt::format("{}", value));
}

void ShapeText::flag(std::string_view name, bool value) {
  constants_ += fmt::format("  static constexpr bool {} = {};\n", name, value);
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
