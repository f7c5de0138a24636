#include "anneal/cli/flags/shape_flags.h"
#include "anneal/core/error.h"
#include "anneal/engine/onnx/import_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anneal {
namespace {

using ::testing::HasSubstr;
using Shapes = std::map<std::string, Dims>;

template <class F>
std::string refusal(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(ParseDims, Table) {
  EXPECT_EQ(parse_dims("1x3x224x224"), (Dims{1, 3, 224, 224}));
  EXPECT_EQ(parse_dims("7"), (Dims{7}));
  EXPECT_EQ(parse_dims("0x2"), (Dims{0, 2}));
  EXPECT_EQ(parse_dims(""), Dims{});
  for (const char* text : {"x", "1x", "x1", "1xx2", "-1", "1x-3", "1 x 2", "1,2", "a", "1x2y",
                           "99999999999999999999", "+1", "0x10x", "1.5"})
    EXPECT_THAT(refusal([&] { parse_dims(text); }), HasSubstr("is not a shape")) << text;
  EXPECT_THAT(refusal([] { parse_dims("1x1x1x1x1x1x1x1x1"); }), HasSubstr("8 axes"));
}

TEST(ParseShapes, Table) {
  EXPECT_EQ(parse_shapes("x:1x3"), (Shapes{{"x", {1, 3}}}));
  EXPECT_EQ(parse_shapes("x:1x3,y:7"), (Shapes{{"x", {1, 3}}, {"y", {7}}}));
  EXPECT_EQ(parse_shapes("input:0:1x3"), (Shapes{{"input:0", {1, 3}}}));
  EXPECT_EQ(parse_shapes("sr:"), (Shapes{{"sr", {}}}));
  EXPECT_EQ(parse_shapes("1x3"), (Shapes{{"", {1, 3}}}));
  EXPECT_EQ(parse_shapes(""), Shapes{});
  EXPECT_THAT(refusal([] { parse_shapes("x"); }), HasSubstr("\"x\" is not a shape"));
  EXPECT_THAT(refusal([] { parse_shapes("x:1x3,x:2"); }), HasSubstr("names \"x\" twice"));
  EXPECT_THAT(refusal([] { parse_shapes("1x2,2x1"); }), HasSubstr("names the input twice"));
  EXPECT_THAT(refusal([] { parse_shapes("1,2"); }), HasSubstr("write sizes with x between them"));
  EXPECT_THAT(refusal([] { parse_shapes("x:1,3,8"); }), HasSubstr("write sizes with x"));
  EXPECT_THAT(refusal([] { parse_shapes(":1"); }), HasSubstr("lacks a name"));
  EXPECT_THAT(refusal([] { parse_shapes("x:1,,y:1"); }), HasSubstr("lacks a name"));
}

TEST(ShapeFor, AnEntryWithoutNameIsForTheOnlyInput) {
  const Shapes shapes = {{"", {1}}, {"x", {2}}};
  EXPECT_EQ(shape_for(shapes, "x", 1), (Dims{2}));
  EXPECT_EQ(shape_for(shapes, "y", 1), (Dims{1}));
  EXPECT_EQ(shape_for(shapes, "y", 2), std::nullopt);
}

TEST(CheckNames, RefusesUnknownAndMissingNames) {
  const std::vector<std::string> two = {"x", "y"};
  EXPECT_EQ(refusal([&] { check_names({{"x", {1}}}, two, "--shapes"); }), "accepted");
  EXPECT_THAT(refusal([&] {
                check_names({{"z", {1}}}, two, "--shapes");
              }),
              HasSubstr("--shapes: the model has no input \"z\"; it has x, y"));
  EXPECT_THAT(refusal([&] {
                check_names({{"", {1, 3}}}, two, "--shapes");
              }),
              HasSubstr("say which: NAME:1x3"));
}

InputBoundsByName merge_bounds(Shapes min, Shapes opt, Shapes max) {
  return bounds_of({{.min = std::move(min), .opt = std::move(opt), .max = std::move(max)}});
}

TEST(BoundsOf, FillsWhatIsMissing) {
  const auto all = merge_bounds({{"x", {1}}}, {{"x", {4}}}, {{"x", {8}}}).at("x");
  EXPECT_EQ(all.min, (Dims{1}));
  EXPECT_EQ(all.opt, (Dims{4}));
  EXPECT_EQ(all.max, (Dims{8}));
  const auto fixed = merge_bounds({}, {{"x", {4}}}, {}).at("x");
  EXPECT_EQ(fixed.min, (Dims{4}));
  EXPECT_EQ(fixed.max, (Dims{4}));
  const auto range = merge_bounds({{"x", {1}}}, {}, {{"x", {8}}}).at("x");
  EXPECT_EQ(range.opt, (Dims{8}));
  EXPECT_THAT(refusal([] {
                merge_bounds({{"x", {9}}}, {}, {{"x", {8}}});
              }),
              HasSubstr("no size may shrink"));
  EXPECT_THAT(refusal([] {
                merge_bounds({{"x", {1, 1}}}, {}, {{"x", {8}}});
              }),
              HasSubstr("same number of axes"));
}

TEST(BoundsOf, NoProfileIsNoBounds) {
  EXPECT_TRUE(bounds_of({}).empty());
  EXPECT_TRUE(bounds_of({Profile()}).empty());
}

TEST(ParseInput, Table) {
  const std::vector<std::string> one = {"x"}, two = {"x", "x=y"};
  EXPECT_EQ(parse_input("x=a.npy", one, "x").file, "a.npy");
  EXPECT_EQ(parse_input("a.npy", one, "x").name, "x");
  EXPECT_EQ(parse_input("x=y=a.npy", two, "").name, "x=y");
  EXPECT_EQ(parse_input("x=random", two, "").seed, 0u);
  EXPECT_EQ(parse_input("random:7", two, "").seed, 7u);
  EXPECT_EQ(parse_input("random:7", two, "").name, "");
  EXPECT_EQ(parse_input("random", one, "x").name, "x");
  EXPECT_THAT(refusal([&] { parse_input("z=a.npy", one, "x"); }),
              HasSubstr("no input \"z\"; it has x"));
  EXPECT_THAT(refusal([&] { parse_input("a.npy", two, ""); }), HasSubstr("2 inputs"));
  EXPECT_THAT(refusal([&] { parse_input("x=", one, "x"); }), HasSubstr("NAME=FILE"));
  EXPECT_THAT(refusal([&] { parse_input("x=random:", one, "x"); }), HasSubstr("whole number"));
  EXPECT_THAT(refusal([&] { parse_input("x=random:-1", one, "x"); }), HasSubstr("whole number"));
  EXPECT_THAT(refusal([&] { parse_input("z=a", {}, ""); }), HasSubstr("it has none"));
}

}  // namespace
}  // namespace anneal
