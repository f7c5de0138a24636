// Loops that carry or read sequences, against models without a loop.
#include <gmock/gmock.h>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;
using testing::HasSubstr;

void set_body(anneal_onnx::NodeProto& loop, ModelBuilder& body) {
  auto* attribute = loop.add_attribute();
  attribute->set_name("body");
  attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
}

void add_flag(ModelBuilder& m, const char* name, bool value) {
  m.small_integers(name, {}, TensorProto::BOOL, {value ? 1 : 0});
}

void add_number(ModelBuilder& m, const char* name, int64_t value) {
  m.add_tensor(name, {}, TensorProto::INT64)->add_int64_data(value);
}

void concat(ModelBuilder& m, const std::vector<std::string>& inputs, const char* result) {
  set(m.node("Concat", inputs, {result}), "axis", int64_t{0});
}

ModelBuilder loop_body(const std::vector<std::string>& iteration_dims = {}) {
  ModelBuilder body(28);
  body.input("i", iteration_dims, TensorProto::INT64).input("c", {}, TensorProto::BOOL);
  body.output("c2");
  body.node("Identity", {"c"}, {"c2"});
  return body;
}

// As PyTorch writes tensor_split(): rows [bounds[i], bounds[i + 1]) are appended by iteration i,
// whose number has an axis.
TEST(SequenceLoop, AppendsParts) {
  const auto parts = [](ModelBuilder& m) {
    m.integers("bounds", {0, 2, 5, 6}).integers("three", {3}).integers("one", {1});
    m.integers("axis", {0});
    add_flag(m, "yes", true);
    m.node("SequenceEmpty", {}, {"none"});
    ModelBuilder body = loop_body({"1"});
    body.input("s", {});
    body.output("s2");
    body.node("Add", {"i", "one"}, {"next"});
    body.node("Gather", {"bounds", "i"}, {"begin"});
    body.node("Gather", {"bounds", "next"}, {"end"});
    body.node("Slice", {"x", "begin", "end", "axis"}, {"part"});
    body.node("SequenceInsert", {"s", "part"}, {"s2"});
    set_body(m.node("Loop", {"three", "yes", "none"}, {"parts"}), body);
    m.node("SequenceInsert", {"parts", "x"}, {"all"});
    for (int i = 0; i < 4; ++i) {
      const std::string place = "place" + std::to_string(i);
      m.small_integers(place, {}, TensorProto::INT32, {std::vector<int>{3, 1, 0, 2}[i]});
      m.node("SequenceAt", {"all", place}, {"part" + std::to_string(i)});
    }
    concat(m, {"part0", "part1", "part2", "part3"}, "y");
  };
  const auto slices = [](ModelBuilder& m) {
    const auto slice = [&](const char* name, int64_t begin, int64_t end) {
      const std::string from = std::string(name) + "_begin", to = std::string(name) + "_end";
      m.integers(from, {begin}).integers(to, {end});
      m.node("Slice", {"x", from, to}, {name});
    };
    slice("a", 0, 2), slice("b", 2, 5), slice("c", 5, 6);
    concat(m, {"x", "b", "a", "c"}, "y");
  };
  expect_same({{"x", {6, 3}}}, parts, slices);
}

// Reads a sequence from outside, carries a tensor, and stacks a result of each iteration. Its
// condition ends it before its trip count does.
TEST(SequenceLoop, ReadsASequenceAndStops) {
  const auto looped = [](ModelBuilder& m) {
    add_number(m, "many", 9);
    add_number(m, "last", 1);
    add_flag(m, "yes", true);
    m.node("SequenceConstruct", {"x", "z", "x"}, {"list"});
    ModelBuilder body(28);
    body.input("i", {}, TensorProto::INT64).input("c", {}, TensorProto::BOOL);
    body.input("sum", {"3"});
    body.output("goes_on").output("sum2").output("twice");
    body.node("Less", {"i", "last"}, {"goes_on"});
    body.node("SequenceAt", {"list", "i"}, {"element"});
    body.node("Add", {"sum", "element"}, {"sum2"});
    body.node("Add", {"sum2", "sum2"}, {"twice"});
    set_body(m.node("Loop", {"many", "yes", "x"}, {"total", "stack"}), body);
    m.node("Add", {"total", "stack"}, {"y"});
  };
  const auto flat = [](ModelBuilder& m) {
    m.node("Add", {"x", "x"}, {"one"});
    m.node("Add", {"one", "z"}, {"two"});
    m.integers("axis", {0});
    m.node("Add", {"one", "one"}, {"one_twice"});
    m.node("Add", {"two", "two"}, {"two_twice"});
    m.node("Unsqueeze", {"one_twice", "axis"}, {"row0"});
    m.node("Unsqueeze", {"two_twice", "axis"}, {"row1"});
    concat(m, {"row0", "row1"}, "stack");
    m.node("Add", {"two", "stack"}, {"y"});
  };
  expect_same({{"x", {3}}, {"z", {3}}}, looped, flat);
}

// The number of an iteration has an axis in loops that stay loops, too.
TEST(SequenceLoop, NumbersWithAnAxisInOtherLoops) {
  ModelBuilder m(17);
  m.input("x", {"5", "2"}).input("n", {}, TensorProto::INT64).output("y");
  m.integers("axis", {0}).integers("one", {1});
  ModelBuilder body = loop_body({"1"});
  body.output("row");
  body.node("Add", {"i", "one"}, {"next"});
  body.node("Slice", {"x", "i", "next", "axis"}, {"row"});
  set_body(m.node("Loop", {"n", ""}, {"y"}), body);
  const Graph graph = import_bytes(m.bytes(), "").graph;
  verify(graph);
  EXPECT_EQ(graph.bodies().size(), 1u) << "it is not unrolled";
  EXPECT_EQ(graph.value(graph.outputs()[0].value).type().shape.rank(), 3);
}

// Without a trip count the condition ends it, but not after any number of iterations.
TEST(SequenceLoop, CountsByItsCondition) {
  const auto import = [](int64_t limit) {
    ModelBuilder m(17);
    m.input("x", {"3"}).output("y");
    add_number(m, "limit", limit);
    add_flag(m, "yes", true);
    m.node("SequenceEmpty", {}, {"none"});
    ModelBuilder body(17);
    body.input("i", {}, TensorProto::INT64).input("c", {}, TensorProto::BOOL).input("s", {});
    body.output("goes_on").output("s2");
    body.node("SequenceInsert", {"s", "x"}, {"s2"});
    body.node("SequenceLength", {"s2"}, {"length"});
    body.node("Less", {"length", "limit"}, {"goes_on"});
    set_body(m.node("Loop", {"", "yes", "none"}, {"all"}), body);
    set(m.node("ConcatFromSequence", {"all"}, {"y"}), "axis", int64_t{0});
    return output_type(import_bytes(m.bytes(), "").graph);
  };
  EXPECT_EQ(import(5), "f32[15]");
  EXPECT_THAT(error_of([&] { import(5000); }), HasSubstr("reads the sequence to which it appends"));
}

TEST(SequenceLoop, MistakesAreNamed) {
  const auto error = [](bool has_sequence_as_condition, const std::vector<std::string>& outputs,
                        bool is_counted) {
    ModelBuilder m(17);
    m.input("x", {"3"}).input("n", {}, TensorProto::INT64).output("y");
    add_number(m, "three", 3);
    m.node("SequenceEmpty", {}, {"none"});
    ModelBuilder body(17);
    body.input("i", {}, TensorProto::INT64).input("c", {}, TensorProto::BOOL).input("s", {});
    body.output(has_sequence_as_condition ? "s2" : "c").output("s2");
    body.node("SequenceInsert", {"s", "x"}, {"s2"});
    set_body(m.node("Loop", {is_counted ? "three" : "n", "", "none"}, outputs), body);
    set(m.node("ConcatFromSequence", {"all"}, {"y"}), "axis", int64_t{0});
    return error_of([&] { import_bytes(m.bytes(), ""); });
  };
  for (const bool is_counted : {false, true})
    EXPECT_THAT(error(false, {"all", "more"}, is_counted), HasSubstr("more outputs than the body"));
  EXPECT_THAT(error(true, {"all"}, true), HasSubstr("a condition that is a sequence"));
  EXPECT_EQ(error(false, {"all"}, true), "");
}

// Tensors that differ in size are only joined where nothing else reads them one by one.
TEST(SequenceLoop, TensorsOfSeveralSizes) {
  const auto error = [](const char* start, const std::vector<std::string>& appended) {
    ModelBuilder m(17);
    m.input("x", {"3"}).input("z", {"5"}).input("n", {}, TensorProto::INT64).output("y");
    m.node("SequenceConstruct", {start}, {"first"});
    ModelBuilder body = loop_body();
    body.input("s", {});
    std::string last = "s";
    for (const std::string& name : appended) {
      body.node("SequenceInsert", {last, name}, {last + "+"});
      last += "+";
    }
    body.output(last);
    set_body(m.node("Loop", {"n", "", "first"}, {"all"}), body);
    set(m.node("ConcatFromSequence", {"all"}, {"y"}), "axis", int64_t{0});
    return error_of([&] { import_bytes(m.bytes(), ""); });
  };
  EXPECT_EQ(error("x", {"x", "x"}), "");
  EXPECT_THAT(error("z", {"x"}), HasSubstr("several types or sizes"));
  EXPECT_THAT(error("x", {"x", "z"}), HasSubstr("several types or sizes"));
}

TEST(SequenceLoop, WhatIsNotSupportedIsSaid) {
  using Change = std::function<void(ModelBuilder & model, ModelBuilder & body)>;
  const auto error = [](const Change& change) {
    ModelBuilder model(17);
    model.input("x", {"3"}).input("n", {}, TensorProto::INT64).output("y");
    model.node("SequenceEmpty", {}, {"none"});
    ModelBuilder body = loop_body();
    body.input("s", {});
    change(model, body);
    set_body(model.node("Loop", {"trips", "", "none"}, {"all"}), body);
    set(model.node("ConcatFromSequence", {"all"}, {"y"}), "axis", int64_t{0});
    return error_of([&] { import_bytes(model.bytes(), ""); });
  };
  const auto append = [](ModelBuilder& body, const char* to) {
    body.output("s2");
    body.node("SequenceInsert", {to, "x"}, {"s2"});
  };
  const auto run_n_times = [](ModelBuilder& m) { m.node("Identity", {"n"}, {"trips"}); };
  EXPECT_THAT(error([&](ModelBuilder& m, ModelBuilder& body) {
                m.integers("trips", {0});
                append(body, "s");
              }),
              HasSubstr("an empty sequence"));
  EXPECT_THAT(error([&](ModelBuilder& m, ModelBuilder& body) {
                run_n_times(m);
                append(body, "s");
                body.output("length");
                body.node("SequenceLength", {"s"}, {"length"});
              }),
              HasSubstr("reads the sequence to which it appends"));
  EXPECT_THAT(error([&](ModelBuilder& m, ModelBuilder& body) {
                run_n_times(m);
                body.node("SequenceErase", {"s"}, {"rest"});
                append(body, "rest");
              }),
              HasSubstr("SequenceErase of a sequence that the loop carries"));
  EXPECT_THAT(error([&](ModelBuilder& m, ModelBuilder& body) {
                run_n_times(m);
                append(body, "none");
              }),
              HasSubstr("to which an iteration does not append"));
}

}  // namespace
}  // namespace anneal
