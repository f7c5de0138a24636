#include "anneal/kernels/cuda/text/zero_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

bool is_always_zero(const Operand& operand) {
  if (operand.constant == nullptr) return false;
  return std::ranges::all_of(operand.constant->bytes(),
                             [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

bool has_input(const Request& request, int input) {
  return input < request.op_input_count && request.inputs[static_cast<size_t>(input)].present;
}

ZeroText::ZeroText(const Request& request, Extents& extents, int input, std::string_view name,
                   std::string_view accumulator)
    : name_(name), value_(fmt::format("{}(0)", accumulator)) {
  if (!has_input(request, input) || is_always_zero(request.inputs[static_cast<size_t>(input)]))
    return;
  const Type& type = request.inputs[static_cast<size_t>(input)].type;
  declaration_ = fmt::format("In<{}> {}", type_text(type.dtype), name);
  parameter_ = ", " + declaration_;
  const int axis = type.shape.rank() - 1;
  per_line_ = axis >= 0 && !(type.shape[axis] == Size(1));
  std::string index = "0";
  if (per_line_) {
    index = fmt::format("i * {}", extents.input_stride(input, axis));
    if (!type.shape[axis].known())
      index = fmt::format("({} == 1 ? 0 : {})", extents.input_dim(input, axis), index);
  }
  value_ = fmt::format("{}(op::widen({}[{}]))", accumulator, name, index);
}

std::string ZeroText::members(const Extents& extents) const {
  if (!is_present()) return {};
  std::string text = fmt::format("  {};\n", declaration_);
  for (size_t i = 0; i < extents.sources().size(); ++i) text += fmt::format("  i64 v{};\n", i);
  return text;
}

std::string ZeroText::arguments(const Extents& extents) const {
  return is_present() ? ", " + name_ + extents.names() : "";
}

}  // namespace anneal::cuda
