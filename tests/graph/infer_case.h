// One row of the inference tables: an op and its inputs as text, the outputs as text or the error.
//
//   input    = "_" | TYPE | DTYPE["[]"] "{" element {"," element} "}"
//   element  = a size expression, "?" if it is not known; any number for float inputs
//   expected = TYPE ["{" elements "}"] {"; " ...} | "error: " part of the message
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/graph/op/infer.h"
#include "anneal/graph/text/text.h"
#include "anneal/graph/text/text_rules.h"

namespace anneal {

struct InferCase {
  std::string op;
  std::vector<std::string> inputs;
  std::string expected;
};

class InferRunner {
 public:
  explicit InferRunner(SizeTable& sizes) : sizes_(sizes) {}

  // with_values: inputs whose contents are plain numbers are given as data, with a stride, as in a
  // run; else as facts, as in a graph.
  std::string run(const InferCase& c, bool with_values) {
    try {
      const Op op = op_from_text(c.op, sizes_);
      std::vector<Input> inputs(c.inputs.size());
      std::vector<InferInput> given(inputs.size());
      for (size_t i = 0; i < inputs.size(); ++i)
        given[i] = read(c.inputs[i], inputs[i], with_values);
      return text(infer(op, InferInputs(given, sizes_)));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) return std::string("internal: ") + error.what();
      return std::string("error: ") + error.what();
    }
  }

  std::string text(const Facts& facts) const {
    std::string text;
    for (const Fact& fact : facts) {
      if (!text.empty()) text += "; ";
      text += to_string(fact.type, sizes_);
      if (!fact.elements) continue;
      text += "{";
      for (const Size& element : *fact.elements)
        text += (text.back() == '{' ? "" : ",") + sizes_.text(element);
      text += "}";
    }
    return text;
  }

  struct Input {
    Fact fact;
    std::vector<std::byte> data;
    TensorView view;
  };

  InferInput read(const std::string& text, Input& to, bool with_values) {
    if (text == "_") return {};
    const size_t brace = text.find('{');
    if (brace == text.npos) {
      to.fact.type = parse_type(text, sizes_);
      return {&to.fact, nullptr};
    }
    std::vector<std::string> elements;
    std::string element;
    for (char c : text.substr(brace + 1)) {
      if (c == ',' || c == '}') {
        if (!element.empty()) elements.push_back(element);
        element.clear();
      } else {
        element += c;
      }
    }
    const std::string type = text.substr(0, brace);
    const bool has_shape = type.find('[') != type.npos;
    to.fact.type =
        parse_type(has_shape ? type : type + "[" + std::to_string(elements.size()) + "]", sizes_);
    const DataType dtype = to.fact.type.dtype;
    bool numbers = true;
    for (const std::string& one : elements)
      numbers &= one.find_first_not_of("-0123456789.e") == one.npos;
    if (numbers && (with_values || is_float(dtype))) {
      std::vector<std::string_view> views(elements.begin(), elements.end());
      if (dtype == DataType::kBool)
        for (std::string_view& one : views) one = one == "1" ? "true" : "false";
      fill(to, text::tensor_of(dtype, dims_of(to.fact.type.shape), views));
      return {&to.fact, &to.view};
    }
    to.fact.elements.emplace();
    for (const std::string& one : elements) to.fact.elements->push_back(sizes_.parse(one));
    return {&to.fact, nullptr};
  }

 private:
  // Every second element of the memory, so that strides matter.
  static void fill(Input& to, const Tensor& tensor) {
    const size_t size = size_of(tensor.dtype());
    to.data.resize(static_cast<size_t>(tensor.count()) * size * 2 + 1, std::byte{0x55});
    for (size_t i = 0; i < static_cast<size_t>(tensor.count()); ++i)
      std::copy_n(tensor.bytes().data() + i * size, size, to.data.data() + i * size * 2);
    to.view = row_major_view(tensor.dtype(), tensor.dims(), to.data.data());
    for (int axis = 0; axis < to.view.strides.rank(); ++axis) to.view.strides[axis] *= 2;
  }

  SizeTable& sizes_;
};

inline void check_cases(const std::vector<InferCase>& cases) {
  for (const InferCase& c : cases) {
    for (bool with_values : {false, true}) {
      SizeTable sizes;
      std::string inputs;
      for (const std::string& input : c.inputs) inputs += " " + input;
      const std::string result = InferRunner(sizes).run(c, with_values);
      SCOPED_TRACE(c.op + inputs + (with_values ? " (data)" : " (facts)"));
      if (c.expected.starts_with("error: ")) {
        EXPECT_TRUE(result.starts_with("error: ")) << result;
        EXPECT_NE(result.find(c.expected.substr(7)), result.npos) << result;
      } else {
        EXPECT_EQ(result, c.expected);
      }
    }
  }
}

}  // namespace anneal
