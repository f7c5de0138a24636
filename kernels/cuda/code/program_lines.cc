#include "anneal/kernels/cuda/code/program_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/code/embedded_text.h"

namespace anneal::cuda {
namespace {

int count_lines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

std::string_view line_of(std::string_view text, int number) {
  for (; number > 1; --number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// The names of "(In<f32> x0, i64 v0)", from behind the parenthesis.
std::vector<std::string_view> names_of(std::string_view text) {
  std::vector<std::string_view> names;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size() && depth >= 0; ++i) {
    const char c = text[i];
    depth += c == '<' || c == '(' ? 1 : c == '>' || c == ')' ? -1 : 0;
    if (depth > 0 || (c != ',' && depth == 0)) continue;
    const std::string_view declaration = text.substr(begin, i - begin);
    const size_t name = declaration.find_last_of(" \n>");
    if (name != std::string_view::npos) names.push_back(declaration.substr(name + 1));
    begin = i + 1;
  }
  return names;
}

}  // namespace

ProgramLines::ProgramLines(std::string_view function, std::string_view program)
    : function_(function), program_(program) {
  const std::string head = fmt::format("namespace of_{} {{\n", function);
  if (const size_t at = program.find(head); at != std::string_view::npos)
    own_ = program.substr(at + head.size());
  for (const auto& [name, text] : device_texts()) {
    if (const size_t at = program.find(text); at != std::string_view::npos)
      headers_.push_back({name, count_lines(program.substr(0, at)), count_lines(text)});
  }
  const std::string kernel = fmt::format("KERNEL({},", function);
  if (const size_t at = own_.find(kernel); at != std::string_view::npos)
    if (const size_t open = own_.find(")(", at); open != std::string_view::npos)
      parameters_ = names_of(own_.substr(open + 2));
}

ProgramLine ProgramLines::at(emulator::Site site) const {
  // Lines count from the function's own text, or from the program's for text that functions share.
  const bool is_own = function_ == site.file;
  std::string_view text = line_of(is_own ? own_ : program_, site.line);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  ProgramLine line{is_own ? "" : site.file, site.line, std::string(text)};
  if (!is_own)
    for (const Header& header : headers_)
      if (site.line > header.before && site.line <= header.before + header.lines) {
        line.file = header.name;
        line.line = site.line - header.before;
      }
  return line;
}

std::string ProgramLines::parameter(int number) const {
  const auto index = static_cast<size_t>(number);
  if (number < 0) return "";
  return index < parameters_.size() ? std::string(parameters_[index])
                                    : fmt::format("parameter {}", number);
}

}  // namespace anneal::cuda
