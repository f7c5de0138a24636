// Sizes that a model's operators demand to be equal: solved at import, the same in every order of
// operands.
#include <gmock/gmock.h>

#include <algorithm>

#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using testing::HasSubstr;

Graph imported(ModelBuilder& model, const ImportOptions& options = {}) {
  Graph graph = import_bytes(model.bytes(), "", options).graph;
  verify(graph);
  return graph;
}

std::string size_text(const Graph& graph, const std::string& value) {
  return graph.sizes().text(graph.value(graph.find_value(value)).type().shape);
}

Bounds bounds_of(const Graph& graph, std::string_view symbol) {
  const auto& symbols = graph.sizes().symbols();
  return std::ranges::find(symbols, symbol, &SizeSymbol::name)->bounds;
}

void concat(ModelBuilder& model, const std::vector<std::string>& inputs, const std::string& result,
            int64_t axis = 0) {
  set(model.node("Concat", inputs, {result}), "axis", axis);
}

TEST(SettledSizes, AnExpressionMeetsANumber) {
  for (const bool number_first : {false, true}) {
    ModelBuilder doubled;
    doubled.input("x", {"n"}).output("y").floats("c", {16}, std::vector<float>(16));
    concat(doubled, {"x", "x"}, "two");
    doubled.node(
        "Add",
        number_first ? std::vector<std::string>{"c", "two"} : std::vector<std::string>{"two", "c"},
        {"sum"});
    doubled.node("Mul", {"c", "sum"}, {"y"});
    const Graph graph = imported(doubled);
    EXPECT_EQ(size_text(graph, "x"), "[8]");
    EXPECT_EQ(size_text(graph, "two"), "[16]");
  }
  ModelBuilder padded;
  padded.input("x", {"n"}).output("y").floats("c", {16}, std::vector<float>(16));
  padded.integers("pads", {1, 1});
  padded.node("Pad", {"x", "pads"}, {"more"});
  padded.node("Add", {"c", "more"}, {"y"});
  EXPECT_EQ(size_text(imported(padded), "x"), "[14]");
}

TEST(SettledSizes, OneSymbolFollowsFromOthers) {
  ModelBuilder same;
  same.input("x", {"p"}).input("y", {"q"}).output("z");
  concat(same, {"x", "x"}, "a");
  concat(same, {"y", "y"}, "b");
  same.node("Add", {"b", "a"}, {"z"});
  const Graph equal = imported(same);
  EXPECT_EQ(size_text(equal, "y"), "[p]");
  EXPECT_EQ(size_text(equal, "z"), "[2*p]");

  ModelBuilder longer;
  longer.input("x", {"n"}).input("y", {"m"}).input("w", {"m", "3"}).output("z");
  concat(longer, {"x", "x"}, "two");
  longer.node("MatMul", {"two", "w"}, {"z"});
  const Graph graph = imported(longer);
  EXPECT_EQ(size_text(graph, "w"), "[2*n,3]");
  EXPECT_EQ(size_text(graph, "y"), "[2*n]");
}

TEST(SettledSizes, AnAxisThatIsFixedIsFixedInProducts) {
  ModelBuilder model;
  model.input("x", {"b", "channels", "h", "w"}).output("flat").output("y");
  model.floats("k", {1, 3, 1, 1}, {1, 2, 3});
  model.node("Flatten", {"x"}, {"flat"});
  model.node("Conv", {"x", "k"}, {"y"});
  EXPECT_EQ(size_text(imported(model), "flat"), "[b,3*h*w]");
}

TEST(SettledSizes, PartsOfASplitFixItsAxis) {
  ModelBuilder model;
  model.input("x", {"n"}).output("a").output("b").integers("parts", {5, 8});
  model.node("Split", {"x", "parts"}, {"a", "b"});
  EXPECT_EQ(size_text(imported(model), "x"), "[13]");
}

// As a map that is halved, rounded up, and doubled again beside another one.
TEST(SettledSizes, WhatNoSymbolSolvesHasOneRepresentative) {
  for (const bool first : {false, true}) {
    ModelBuilder model;
    model.input("x", {"1", "1", "s"}).output("y").floats("k", {1, 1, 3}, {1, 2, 3});
    auto& conv = model.node("Conv", {"x", "k"}, {"half"});
    set(conv, "strides", std::vector<int64_t>{2});
    set(conv, "pads", std::vector<int64_t>{1, 1});
    concat(model, {"half", "half"}, "whole", 2);
    concat(model, {"x", "x"}, "wide", 2);
    concat(model, {"whole", "whole"}, "other", 2);
    model.node("Add",
               first ? std::vector<std::string>{"other", "wide"}
                     : std::vector<std::string>{"wide", "other"},
               {"y"});
    const Graph graph = imported(model);
    EXPECT_EQ(size_text(graph, "y"), "[1,1,2*s]");
    EXPECT_EQ(size_text(graph, "other"), "[1,1,2*s]");
    EXPECT_EQ(bounds_of(graph, "s").opt, 2);  // 1 does not fit
    EXPECT_EQ(graph.sizes().representatives().size(), 1);
  }
}

// The product makes the second half 2 wide; sums and bodies that have it as a part follow.
TEST(SettledSizes, ARepresentativeIsUsedInPartsOfSizes) {
  ModelBuilder model;
  constexpr int kInt64 = anneal_onnx::TensorProto::INT64, kBool = anneal_onnx::TensorProto::BOOL;
  model.input("x", {"4", "n"}).input("trips", {}, kInt64).output("y").floats("w", {2, 1}, {1, 2});
  auto& split = model.node("Split", {"x"}, {"first", "second"});
  set(split, "axis", int64_t{1});
  concat(model, {"second", "first"}, "turned", 1);
  model.node("MatMul", {"second", "w"}, {"column"});
  ModelBuilder body;
  body.input("i", {}, kInt64).input("go", {}, kBool).input("state", {"?", "?"});
  body.output("on").output("next");
  body.node("Identity", {"go"}, {"on"});
  body.node("Add", {"state", "column"}, {"next"});
  auto* attribute = model.node("Loop", {"trips", "", "turned"}, {"y"}).add_attribute();
  attribute->set_name("body");
  attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
  const Graph graph = imported(model);
  EXPECT_EQ(size_text(graph, "second"), "[4,2]");
  EXPECT_EQ(size_text(graph, "turned"), "[4,min(n, (n + 1)//2) + 2]");
  EXPECT_EQ(size_text(graph, "y"), "[4,min(n, (n + 1)//2) + 2]");
}

TEST(SettledSizes, BoundsHoldForWhatReplacesASymbol) {
  ModelBuilder model;
  model.input("x", {"n"}).input("y", {"m"}).output("z");
  concat(model, {"x", "x"}, "two");
  model.node("Add", {"two", "y"}, {"z"});
  ImportOptions options;
  options.bounds["y"] = {{4}, {16}, {21}};
  const Graph graph = imported(model, options);
  EXPECT_EQ(size_text(graph, "y"), "[2*n]");
  EXPECT_EQ(bounds_of(graph, "n"), (Bounds{2, 8, 10}));
}

TEST(SettledSizes, DemandsThatNoSizesMeet) {
  ModelBuilder odd;
  odd.input("x", {"n"}).output("y").floats("c", {15}, std::vector<float>(15));
  concat(odd, {"x", "x"}, "two");
  odd.node("Add", {"two", "c"}, {"y"}, "sum");
  EXPECT_THAT(error_of([&] { imported(odd); }),
              HasSubstr("sizes 2*n and 15 must be equal for \"sum\" (Pointwise)"));

  ModelBuilder outside;
  outside.input("x", {"n"}).output("y").floats("c", {16}, std::vector<float>(16));
  concat(outside, {"x", "x"}, "two");
  outside.node("Add", {"two", "c"}, {"y"}, "sum");
  ImportOptions options;
  options.bounds["x"] = {{1}, {2}, {9}};
  EXPECT_EQ(size_text(imported(outside, options), "x"), "[8]");
}

// A layer of a body demands nothing of the sizes outside: no run need take the branch.
TEST(SettledSizes, BodiesDemandNothing) {
  ModelBuilder model;
  model.input("x", {"n"}).input("c", {}, anneal_onnx::TensorProto::BOOL).output("y");
  concat(model, {"x", "x"}, "two");
  ModelBuilder taken, other;
  taken.floats("k", {16}, std::vector<float>(16)).output("t");
  taken.node("Add", {"k", "two"}, {"t"});
  other.node("Abs", {"two"}, {"t"});
  other.output("t");
  auto& node = model.node("If", {"c"}, {"y"});
  for (const auto& [name, body] : {std::pair{"then_branch", &taken}, {"else_branch", &other}}) {
    auto* attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
    *attribute->mutable_g() = body->graph();
  }
  EXPECT_EQ(size_text(imported(model), "x"), "[n]");
}

}  // namespace
}  // namespace anneal
