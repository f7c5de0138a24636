// Graph -> text. docs/graph_text.md has the grammar.
#include "anneal/graph/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/graph/text/text_rules.h"

namespace anneal {
namespace text {

bool is_plain_name(std::string_view name) {
  constexpr std::array kWords = {"_", "graph", "body", "end", "const", "return", "size"};
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name.front()) && std::ranges::all_of(name, [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '.';
  }) && std::ranges::find(kWords, name) == kWords.end();
}

std::string quoted(std::string_view name) {
  std::string text = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string name_text(std::string_view name) {
  return is_plain_name(name) ? std::string(name) : quoted(name);
}

std::string inline_name(std::string_view output, size_t index) {
  return fmt::format("{}.in{}", output, index);
}

}  // namespace text

namespace {

constexpr int64_t kMostInlineElements = 8;
constexpr int64_t kMostElidedElements = 16;

class Writer {
 public:
  Writer(const Graph& graph, Constants constants) : graph_(graph), constants_(constants) {}

  void write(std::string& to, std::string_view keyword, const std::string& indent) {
    const SizeTable& sizes = graph_.sizes();
    std::string inputs;
    for (ValueId id : graph_.inputs()) {
      const Value& input = graph_.value(id);
      if (!inputs.empty()) inputs += ", ";
      inputs += text::name_text(input.name) + ": " + to_string(input.type(), sizes);
      if (input.default_value) inputs += " = " + value_text(*input.default_value);
    }
    to += fmt::format("{}{} {}({})\n", indent, keyword, text::name_text(graph_.name), inputs);
    for (const Graph& body : graph_.bodies()) {
      Writer(body, constants_).write(to, "body", indent + "  ");
      to += indent + "  end\n";
    }
    find_constants();
    for (ValueId id : written_)
      to += fmt::format("{}  const {}\n", indent, constant_text(graph_.value(id)));
    for (LayerId id : graph_.order()) to += fmt::format("{}  {}\n", indent, layer_text(id));
    to += indent + "  return";
    bool first = true;
    for (const Graph::Output& output : graph_.outputs()) {
      const std::string& value = graph_.value(output.value).name;
      to += first ? " " : ", ";
      to += text::name_text(value);
      if (output.name != value) to += " as " + text::name_text(output.name);
      first = false;
    }
    to += '\n';
  }

 private:
  // The constants that get a line of their own, in order of their ids: those that some layer reads
  // by name, and those that are outputs.
  void find_constants() {
    for (LayerId id : graph_.order()) {
      const Layer& layer = graph_.layer(id);
      for (size_t i = 0; i < layer.inputs.size(); ++i)
        if (graph_.constant(layer.inputs[i]) != nullptr && !is_inline(layer, i))
          written_.push_back(layer.inputs[i]);
    }
    for (const Graph::Output& output : graph_.outputs())
      if (graph_.constant(output.value) != nullptr) written_.push_back(output.value);
    std::ranges::sort(written_);
    written_.erase(std::unique(written_.begin(), written_.end()), written_.end());
  }

  bool is_inline(const Layer& layer, size_t i) const {
    const ValueId id = layer.inputs[i];
    const Tensor* tensor = graph_.constant(id);
    if (tensor == nullptr || !is_integer(tensor->dtype()) || tensor->dims().rank() > 1 ||
        tensor->count() > kMostInlineElements || graph_.is_output(id))
      return false;
    if (constants_ == Constants::kElided) return true;
    const Value& value = graph_.value(id);
    return value.users.size() == 1 && value.name == text::inline_name(first_output(layer), i);
  }

  const std::string& first_output(const Layer& layer) const {
    return graph_.value(layer.outputs.front()).name;
  }

  std::string constant_text(const Value& value) const {
    const Tensor& tensor = *value.constant;
    return fmt::format("{}: {}{} = {{{}}}", text::name_text(value.name), to_string(tensor.dtype()),
                       to_string(tensor.dims()), elements_text(tensor));
  }

  std::string elements_text(const Tensor& tensor) const {
    const bool elide = constants_ == Constants::kElided && tensor.count() > kMostElidedElements;
    return elide ? "..." : text::elements_text(tensor);
  }

  // A default value has sizes where its input's are open.
  std::string value_text(const Tensor& tensor) const {
    return fmt::format("{}{}{{{}}}", to_string(tensor.dtype()), to_string(tensor.dims()),
                       elements_text(tensor));
  }

  std::string layer_text(LayerId id) const {
    const Layer& layer = graph_.layer(id);
    const bool typed = knows_more_than_inferred(id);
    std::string text;
    for (ValueId output : layer.outputs) {
      const Value& value = graph_.value(output);
      if (!text.empty()) text += ", ";
      text += text::name_text(value.name);
      if (typed) text += ": " + to_string(value.type(), graph_.sizes());
    }
    const std::string op = to_string(layer.op, graph_.sizes());
    const size_t name_end = std::min(op.find(' '), op.size());
    text += " = " + op.substr(0, name_end) + "(";
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      if (i == static_cast<size_t>(layer.op_input_count)) {
        text += "; ";
      } else if (i > 0) {
        text += ", ";
      }
      text += input_text(layer, i);
    }
    text += ")" + op.substr(name_end);
    for (const Program& epilogue : layer.epilogues)
      text += fmt::format(" epilogue=\"{}\"", epilogue.empty() ? "" : to_string(epilogue));
    if (layer.name != first_output(layer))
      text += fmt::format(" @name({})", text::quoted(layer.name));
    if (layer.origins != std::vector{layer.name}) {
      text += " @from(";
      for (const std::string& origin : layer.origins)
        text += (&origin == &layer.origins.front() ? "" : ", ") + text::quoted(origin);
      text += ')';
    }
    return text;
  }

  std::string input_text(const Layer& layer, size_t i) const {
    const ValueId id = layer.inputs[i];
    if (id == ValueId::kNone) return "_";
    if (!is_inline(layer, i)) return text::name_text(graph_.value(id).name);
    const Tensor& tensor = *graph_.constant(id);
    return fmt::format("{}{}{{{}}}", to_string(tensor.dtype()),
                       tensor.dims().rank() == 0 ? "[]" : "", text::elements_text(tensor));
  }

  // Whether reading needs the outputs' types: sizes that depend on values have names.
  bool knows_more_than_inferred(LayerId id) const {
    try {
      const Facts facts = graph_.infer_outputs(id);
      const Layer& layer = graph_.layer(id);
      for (size_t k = 0; k < layer.outputs.size(); ++k)
        if (k >= facts.size() || facts[k].type != graph_.value(layer.outputs[k]).type())
          return true;
      return false;
    } catch (const Error&) {
      return true;  // a broken graph is printed without inlining
    }
  }

  const Graph& graph_;
  Constants constants_;
  std::vector<ValueId> written_;
};

}  // namespace

std::string to_string(const Type& type, const SizeTable& sizes) {
  std::string tensor = std::string(to_string(type.dtype)) + sizes.text(type.shape);
  switch (type.container) {
    case Container::kTensor:
      return tensor;
    case Container::kSequence:
      return "seq(" + tensor + ")";
    case Container::kOptional:
      return "optional(" + tensor + ")";
    case Container::kOptionalSequence:
      break;
  }
  return "optional(seq(" + tensor + "))";
}

std::string to_string(const Graph& graph, Constants constants) {
  SizeTable& sizes = graph.sizes();
  std::string text;
  for (const SizeSymbol& symbol : sizes.symbols()) {
    text += "size " + sizes.text(sizes.symbol(symbol.name));
    const Bounds& bounds = symbol.bounds;
    if (bounds != Bounds())
      text += fmt::format(" in {}..{} opt {}", bounds.min, bounds.max, bounds.opt);
    text += "\n";
  }
  Writer(graph, constants).write(text, "graph", "");
  return text;
}

}  // namespace anneal
