#include "anneal/engine/builder/timing/timing_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/engine/builder/timing/timed_operands.h"
#include "anneal/graph/program/program.h"

namespace anneal {
namespace {

std::string sizes_text(const SizeTable& sizes, const Shape& shape) {
  std::string text;
  for (const Size size : shape)
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", size.known() ? "" : "?",
                        opt_size(sizes, size));
  return text;
}

std::string operand_text(const SizeTable& sizes, const Operand& operand, bool is_weight) {
  if (!operand.present) return "-";
  const std::string type =
      fmt::format("{}[{}]", to_string(operand.type.dtype), sizes_text(sizes, operand.type.shape));
  if (is_weight) return "const " + type;
  return fmt::format("{}{}{{{}}}", operand.constant != nullptr ? "const " : "", type,
                     sizes_text(sizes, operand.strides));
}

// Strings of an op may hold anything.
std::string without_control_characters(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

}  // namespace

std::string timing_text(const Request& request) {
  return timing_text(request, std::vector<bool>(request.inputs.size()));
}

std::string timing_text(const Request& request, const std::vector<bool>& is_weight) {
  std::string text = to_string(request.op, request.sizes) + " (";
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (i > 0) text += static_cast<int>(i) == request.op_input_count ? "; " : ", ";
    text += operand_text(request.sizes, request.inputs[i], is_weight[i]);
  }
  text += ") -> ";
  for (size_t i = 0; i < request.outputs.size(); ++i)
    text += (i > 0 ? ", " : "") + operand_text(request.sizes, request.outputs[i], false);
  for (const Program& epilogue : request.epilogues)
    text += fmt::format(" epilogue \"{}\"", to_string(epilogue));
  return without_control_characters(std::move(text));
}

bool has_open_sizes(const Request& request) {
  const auto is_open = [](const Operand& operand) {
    return operand.present && !(known(operand.type.shape) && known(operand.strides));
  };
  return std::any_of(request.inputs.begin(), request.inputs.end(), is_open) ||
         std::any_of(request.outputs.begin(), request.outputs.end(), is_open);
}

}  // namespace anneal
