// Text -> graph. docs/graph_text.md has the grammar.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/refuse.h"
#include "anneal/graph/text/text.h"
#include "anneal/graph/text/text_rules.h"

namespace anneal {
namespace {

constexpr int kMaxDepth = 128;  // of bodies in bodies

// One line, read from left to right. Blanks between words mean nothing.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {}

  bool at_end() { return rest().empty(); }
  void expect_end() {
    if (!at_end()) refuse_argument(fmt::format("\"{}\" is left over", rest()));
  }
  bool accept(std::string_view token) {
    if (!rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool is_next(char c) { return rest().starts_with(c); }
  void expect(std::string_view token) {
    if (!accept(token))
      refuse_argument(fmt::format("\"{}\" is expected before \"{}\"", token, rest()));
  }
  // A word of the grammar, which no letter follows.
  bool accept_word(std::string_view word) {
    if (!rest().starts_with(word) || word_length(rest()) != word.size()) return false;
    at_ += word.size();
    return true;
  }
  std::string name() {
    if (rest().starts_with('"')) return quoted();
    const size_t length = word_length(rest());
    if (length == 0) refuse_argument(fmt::format("a name is expected before \"{}\"", rest()));
    return std::string(take(length));
  }
  std::string quoted() {
    expect("\"");
    std::string text;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == 'n') c = '\n';
      }
      text += c;
    }
    if (at_ == text_.size()) refuse_argument("a quote is not closed");
    ++at_;
    return text;
  }
  int64_t number() {
    int64_t value = 0;
    const std::string_view from = rest();
    const auto end = std::from_chars(from.data(), from.data() + from.size(), value);
    if (end.ec != std::errc())
      refuse_argument(fmt::format("a number is expected before \"{}\"", from));
    at_ += static_cast<size_t>(end.ptr - from.data());
    return value;
  }
  // Up to the first of `stops` outside quotes and brackets, or the end.
  std::string_view until(std::string_view stops) {
    const std::string_view from = rest();
    int depth = 0;
    bool in_quotes = false;
    size_t length = 0;
    for (; length < from.size(); ++length) {
      const char c = from[length];
      if (in_quotes) {
        if (c == '\\') ++length;
        in_quotes = c != '"';
      } else if (depth == 0 && stops.find(c) != stops.npos) {
        break;
      } else if (c == '"') {
        in_quotes = true;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if (c == ')' || c == ']' || c == '}') {
        --depth;
      }
    }
    return take(std::min(length, from.size()));
  }

 private:
  std::string_view rest() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
    return text_.substr(at_);
  }
  std::string_view take(size_t length) {
    const std::string_view taken = text_.substr(at_, length);
    at_ += length;
    return taken;
  }
  static size_t word_length(std::string_view text) {
    size_t length = 0;
    while (length < text.size() && (std::isalnum(static_cast<unsigned char>(text[length])) != 0 ||
                                    text[length] == '_' || text[length] == '.'))
      ++length;
    return length;
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

Shape parse_shape(Line& line, SizeTable& sizes) {
  line.expect("[");
  Shape shape;
  if (line.accept("]")) return shape;
  do {
    const Size size = sizes.parse(trimmed(line.until(",]")));
    if (size.is_unknown()) refuse_argument("a size without a name");
    shape.push_back(size);
  } while (line.accept(","));
  line.expect("]");
  return shape;
}

DataType parse_dtype(Line& line) {
  const std::string word = line.name();
  const auto dtype = dtype_from_name(word);
  if (!dtype) refuse_argument(fmt::format("\"{}\" is no type of elements", word));
  return *dtype;
}

Type parse_type(Line& line, SizeTable& sizes) {
  Type type;
  const bool optional = line.accept("optional(");
  const bool sequence = line.accept("seq(");
  type.dtype = parse_dtype(line);
  type.shape = parse_shape(line, sizes);
  if (sequence) line.expect(")");
  if (optional) line.expect(")");
  if (optional) {
    type.container = sequence ? Container::kOptionalSequence : Container::kOptional;
  } else if (sequence) {
    type.container = Container::kSequence;
  }
  return type;
}

std::vector<std::string_view> parse_elements(Line& line) {
  line.expect("{");
  std::vector<std::string_view> elements;
  if (line.accept("}")) return elements;
  do elements.push_back(trimmed(line.until(",}")));
  while (line.accept(","));
  line.expect("}");
  if (elements.back() == "...") refuse_argument("the elements are left out");
  return elements;
}

class GraphParser {
 public:
  explicit GraphParser(std::string_view text) : text_(text) {}

  Graph all() {
    Graph graph;
    while (next()) {
      if (in_line([&](Line& line) {
            if (line.accept_word("size")) {
              size_line(line, graph.sizes());
              return false;
            }
            if (!line.accept_word("graph")) refuse_argument("\"size\" or \"graph\" is expected");
            header(line, graph);
            return true;
          })) {
        contents(graph, 0);
        if (next()) in_line([](Line&) { refuse_argument("something follows the graph"); });
        return graph;
      }
    }
    fail(ErrorCode::kInvalidArgument, "a text without a graph");
  }

 private:
  // The next line that is not empty, without its comment.
  bool next() {
    while (!text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      current_ = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_;
      Line line(current_);
      current_ = line.until("#");
      if (!trimmed(current_).empty()) return true;
    }
    return false;
  }

  // Errors get the line's number, and are the text's fault.
  template <class Body>
  auto in_line(Body&& body) -> decltype(body(std::declval<Line&>())) {
    Line line(current_);
    try {
      return body(line);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      fail(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", number_, error.what()));
    }
  }

  static void size_line(Line& line, SizeTable& sizes) {
    const Size symbol = sizes.symbol(line.name());
    if (line.accept_word("in")) {
      Bounds bounds;
      bounds.min = line.number();
      line.expect("..");
      bounds.max = line.number();
      if (line.accept_word("opt")) {
        bounds.opt = line.number();
      } else {
        bounds.opt = std::clamp(bounds.opt, bounds.min, std::max(bounds.min, bounds.max));
      }
      sizes.set_bounds(symbol, bounds);
    }
    line.expect_end();
  }

  static void header(Line& line, Graph& graph) {
    graph.name = line.name();
    line.expect("(");
    if (!line.accept(")")) {
      do {
        const std::string name = new_name(line, graph);
        line.expect(":");
        const Type type = parse_type(line, graph.sizes());
        graph.add_input(
            name, type,
            line.accept("=") ? std::optional(default_value(line, graph, type)) : std::nullopt);
      } while (line.accept(","));
      line.expect(")");
    }
    line.expect_end();
  }

  static Tensor default_value(Line& line, Graph& graph, const Type& of) {
    const Type type = parse_type(line, graph.sizes());
    if (type.container != Container::kTensor || !known(type.shape) || type.dtype != of.dtype)
      refuse_argument("a default value is a tensor of known sizes, of its input's element type");
    return text::tensor_of(type.dtype, dims_of(type.shape), parse_elements(line));
  }

  // Lines up to `return`. A body is defined before the layers that run it.
  void contents(Graph& graph, int depth) {
    enum class Kind { kReturn, kBody, kOther };
    for (;;) {
      if (!next()) refuse_argument(fmt::format("line {}: \"return\" is missing", number_));
      const Kind kind = in_line([&](Line& line) {
        if (line.accept_word("return")) {
          outputs(line, graph);
          return Kind::kReturn;
        }
        if (line.accept_word("body")) {
          if (depth == kMaxDepth) refuse_argument("too many bodies in bodies");
          header(line, graph.add_body(graph.make_body()));
          return Kind::kBody;
        }
        if (line.accept_word("const")) {
          constant(line, graph);
        } else {
          layer(line, graph);
        }
        return Kind::kOther;
      });
      if (kind == Kind::kReturn) return;
      if (kind == Kind::kBody) body(graph.bodies().back(), depth + 1);
    }
  }

  void body(Graph& graph, int depth) {
    contents(graph, depth);
    if (!next()) refuse_argument(fmt::format("line {}: \"end\" is missing", number_));
    in_line([](Line& line) {
      if (!line.accept_word("end")) refuse_argument("\"end\" is expected");
      line.expect_end();
    });
  }

  static void outputs(Line& line, Graph& graph) {
    if (line.at_end()) return;
    do {
      const std::string name = line.name();
      const ValueId value = known_value(graph, name);
      graph.mark_output(value, line.accept_word("as") ? line.name() : name);
    } while (line.accept(","));
    line.expect_end();
  }

  static void constant(Line& line, Graph& graph) {
    const std::string name = new_name(line, graph);
    line.expect(":");
    const Type type = parse_type(line, graph.sizes());
    if (type.container != Container::kTensor || !known(type.shape))
      refuse_argument("a constant is a tensor of known sizes");
    line.expect("=");
    if (line.accept("random(")) {
      const auto seed = static_cast<uint64_t>(line.number());
      line.expect(")");
      graph.add_constant(name, text::random_tensor(type.dtype, dims_of(type.shape), seed));
    } else {
      graph.add_constant(name,
                         text::tensor_of(type.dtype, dims_of(type.shape), parse_elements(line)));
    }
    line.expect_end();
  }

  static void layer(Line& line, Graph& graph) {
    NewLayer layer;
    do {
      layer.output_names.push_back(new_name(line, graph));
      if (line.accept(":")) layer.output_types.push_back(parse_type(line, graph.sizes()));
    } while (line.accept(","));
    const std::vector<std::string> names = layer.output_names;
    for (size_t i = 0; i < names.size(); ++i)
      if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
          names.begin() + static_cast<ptrdiff_t>(i))
        refuse_argument(fmt::format("\"{}\" is defined twice", names[i]));
    if (!layer.output_types.empty() && layer.output_types.size() != names.size())
      refuse_argument("types are given for some outputs only");
    line.expect("=");
    layer.name = names.front();
    std::string op = line.name();
    line.expect("(");
    arguments(line, graph, layer);
    while (!line.at_end()) {
      if (line.accept("epilogue=")) {
        const std::string program = line.quoted();
        layer.epilogues.push_back(program.empty() ? Program() : parse_program(program));
      } else if (line.accept("@name(")) {
        layer.name = line.quoted();
        line.expect(")");
      } else if (line.accept("@from(")) {
        do layer.origins.push_back(line.quoted());
        while (line.accept(","));
        line.expect(")");
      } else {
        op += ' ';
        op += line.until(" ");
      }
    }
    layer.op = op_from_text(op, graph.sizes());
    const std::string wanted = layer.name;
    const LayerId id = graph.add(std::move(layer));
    if (graph.layer(id).outputs.size() != names.size())
      refuse_argument(
          fmt::format("{} names for {} outputs", names.size(), graph.layer(id).outputs.size()));
    if (graph.layer(id).name != wanted)
      refuse_argument(fmt::format("two layers named \"{}\"", wanted));
  }

  // Everything up to the closing parenthesis.
  static void arguments(Line& line, Graph& graph, NewLayer& layer) {
    if (line.accept(")")) return;
    for (;;) {
      layer.inputs.push_back(argument(line, graph, layer));
      if (line.accept(",")) continue;
      if (line.accept(")")) return;
      line.expect(";");
      if (layer.op_input_count >= 0) refuse_argument("a second \";\"");
      layer.op_input_count = static_cast<int>(layer.inputs.size());
    }
  }

  static ValueId argument(Line& line, Graph& graph, const NewLayer& layer) {
    if (line.accept_word("_")) return ValueId::kNone;
    const std::string name = line.name();
    const bool scalar = line.accept("[");
    if (scalar) line.expect("]");
    if (scalar || line.is_next('{')) {
      const auto dtype = dtype_from_name(name);
      if (!dtype) refuse_argument(fmt::format("\"{}\" is no type of elements", name));
      const auto elements = parse_elements(line);
      const Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
      const auto constant = text::inline_name(layer.output_names.front(), layer.inputs.size());
      if (graph.find_value(constant) != ValueId::kNone)
        refuse_argument(fmt::format("\"{}\" is defined twice", constant));
      return graph.add_constant(constant, text::tensor_of(*dtype, dims, elements));
    }
    return known_value(graph, name);
  }

  static std::string new_name(Line& line, const Graph& graph) {
    std::string name = line.name();
    if (graph.find_value(name) != ValueId::kNone)
      refuse_argument(fmt::format("\"{}\" is defined twice", name));
    return name;
  }

  static ValueId known_value(const Graph& graph, const std::string& name) {
    const ValueId id = graph.find_value(name);
    if (id == ValueId::kNone) refuse_argument(fmt::format("\"{}\" is not defined", name));
    return id;
  }

  std::string_view text_, current_;
  int number_ = 0;
};

}  // namespace

Type parse_type(std::string_view text, SizeTable& sizes) {
  Line line(text);
  const Type type = parse_type(line, sizes);
  line.expect_end();
  return type;
}

Graph parse_graph(std::string_view text) { return GraphParser(text).all(); }

}  // namespace anneal
