#include "anneal/cli/flags/shape_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "anneal/cli/output/errors.h"

namespace anneal {
namespace {

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string name_list(std::span<const std::string> names) {
  if (names.empty()) return "it has none";
  return fmt::format("it has {}", fmt::join(names, ", "));
}

// "input:1,3,224,224" names one shape in another tool's spelling.
void refuse_commas_within(std::string_view text) {
  bool after_comma = false;
  for (std::string_view rest = text; !rest.empty(); after_comma = true) {
    const size_t end = std::min(rest.find(','), rest.size());
    if (after_comma && parse_number<int64_t>(rest.substr(0, end)))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\": write sizes with x between them, NAME:1x3x224x224; a comma begins "
                       "the next input",
                       text));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

Dims parse_dims(std::string_view text) {
  Dims dims;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('x'), rest.size());
    const auto size = parse_number<int64_t>(rest.substr(0, end));
    if (!size || *size < 0 || end + 1 == rest.size())
      fail(
          ErrorCode::kInvalidArgument,
          fmt::format("\"{}\" is not a shape; write sizes with x between them: 1x3x224x224", text));
    if (dims.rank() == kMaxRank)
      fail(ErrorCode::kInvalidArgument, fmt::format("the shape {} has more than 8 axes", text));
    dims.push_back(*size);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return dims;
}

std::map<std::string, Dims> parse_shapes(std::string_view text) {
  refuse_commas_within(text);
  std::map<std::string, Dims> shapes;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t colon = item.rfind(':');
    const std::string name(colon == item.npos ? "" : item.substr(0, colon));
    const Dims dims = parse_dims(colon == item.npos ? item : item.substr(colon + 1));
    if (item.empty() || colon == 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" lacks a name or a shape; write NAME:1x3x224x224,OTHER:1x10", text));
    if (!shapes.emplace(name, dims).second)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" names {} twice", text,
                       name.empty() ? "the input" : "\"" + name + "\""));
  }
  return shapes;
}

std::optional<Dims> shape_for(const std::map<std::string, Dims>& shapes, std::string_view input,
                              size_t input_count) {
  auto found = shapes.find(std::string(input));
  if (found == shapes.end() && input_count == 1) found = shapes.find("");
  if (found == shapes.end()) return std::nullopt;
  return found->second;
}

void check_names(const std::map<std::string, Dims>& shapes, std::span<const std::string> inputs,
                 std::string_view flag) {
  for (const auto& [name, dims] : shapes) {
    if (name.empty() && inputs.size() != 1)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} {}: the model has {} inputs, so say which: NAME:{} ({})", flag,
                       fmt::join(dims.span(), "x"), inputs.size(), fmt::join(dims.span(), "x"),
                       name_list(inputs)));
    if (!name.empty() && std::find(inputs.begin(), inputs.end(), name) == inputs.end())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{}: the model has no input \"{}\"; {}", flag, name, name_list(inputs)));
  }
}

InputFlag parse_input(std::string_view text, std::span<const std::string> inputs,
                      std::string_view only) {
  InputFlag flag;
  std::string_view value = text;
  for (const std::string& name : inputs) {
    if (name.size() >= flag.name.size() && text.starts_with(name) &&
        text.substr(name.size()).starts_with('=')) {
      flag.name = name;
      value = text.substr(name.size() + 1);
    }
  }
  if (value.empty())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("--input \"{}\": write NAME=FILE, NAME=random or NAME=random:SEED", text));
  if (value == "random") {
    flag.seed = 0;
  } else if (value.starts_with("random:")) {
    flag.seed = parse_number<uint64_t>(value.substr(7));
    if (!flag.seed)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("--input \"{}\": the seed must be a whole number, as in random:7", text));
  } else {
    flag.file = value;
    const size_t equals = text.find('=');
    if (flag.name.empty() && equals != text.npos)
      fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--input \"{}\": the engine has no input \"{}\"; {}. An initializer that the "
                      "model lists among its inputs is one in engines of anneal build "
                      "--default-inputs {}",
                      text, text.substr(0, equals), name_list(inputs), text.substr(0, equals)));
    if (flag.name.empty() && only.empty())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("--input \"{}\": the engine has {} inputs, so say which: NAME={} ({})", text,
                       inputs.size(), text, name_list(inputs)));
  }
  if (flag.name.empty()) flag.name = only;
  return flag;
}

}  // namespace anneal
