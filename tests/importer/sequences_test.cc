// Sequences that are solved while importing, and what is said of those that are not.
#include <gmock/gmock.h>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;
using testing::HasSubstr;
using testing::StartsWith;
using Build = std::function<void(ModelBuilder&)>;

Graph import(const Build& build) {
  ModelBuilder model(17);
  model.input("x", {"7", "N"}).output("y");
  build(model);
  Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  return graph;
}

TEST(Sequences, PartsAreSlices) {
  const Graph graph = import([](ModelBuilder& m) {
    m.small_integers("size", {}, TensorProto::INT32, {3})
        .small_integers("last", {}, TensorProto::INT32, {-1});
    m.node("SplitToSequence", {"x", "size"}, {"parts"});
    m.node("SequenceAt", {"parts", "last"}, {"y"});
  });
  EXPECT_EQ(output_type(graph), "f32[1,N]");
  EXPECT_EQ(graph.layer_count(), 1u) << "parts without a reader are removed";
}

TEST(Sequences, ElementsWithoutTheirAxis) {
  const Graph graph = import([](ModelBuilder& m) {
    auto& split = m.node("SplitToSequence", {"x"}, {"rows"});
    set(split, "keepdims", int64_t{0});
    auto& stack = m.node("ConcatFromSequence", {"rows"}, {"y"});
    set(stack, "axis", int64_t{1});
    set(stack, "new_axis", int64_t{1});
  });
  EXPECT_EQ(output_type(graph), "f32[N,7]");
}

TEST(Sequences, InsertedErasedAndCounted) {
  const auto concat = [](ModelBuilder& m, const char* sequence) {
    set(m.node("ConcatFromSequence", {sequence}, {"y"}), "axis", int64_t{0});
  };
  EXPECT_EQ(output_type(import([&](ModelBuilder& m) {
              m.small_integers("front", {}, TensorProto::INT32, {0});
              m.node("SequenceEmpty", {}, {"none"});
              m.node("SequenceInsert", {"none", "x"}, {"one"});
              m.node("SequenceInsert", {"one", "x", "front"}, {"two"});
              m.node("Identity", {"two"}, {"same"});
              m.node("SequenceErase", {"same", "front"}, {"rest"});
              m.node("SequenceConstruct", {"x", "x"}, {"pair"});
              concat(m, "same");
            })),
            "f32[14,N]");
  const Graph length = import([](ModelBuilder& m) {
    m.node("SequenceConstruct", {"x", "x", "x"}, {"all"});
    m.node("SequenceLength", {"all"}, {"y"});
  });
  EXPECT_EQ(output_type(length), "i64[]");
}

TEST(Sequences, WhatIsNotKnownIsSaid) {
  struct Case {
    Build build;
    std::string error;
  };
  const Case cases[] = {
      {[](ModelBuilder& m) { m.node("SequenceConstruct", {"x"}, {"y"}); }, "graph output"},
      {[](ModelBuilder& m) {
         m.node("SequenceConstruct", {"x"}, {"s"});
         m.node("Relu", {"s"}, {"y"});
       },
       "input 0 is a sequence"},
      {[](ModelBuilder& m) { m.node("SequenceLength", {"x"}, {"y"}); }, "known only at run time"},
      {[](ModelBuilder& m) {
         m.small_integers("two", {}, TensorProto::INT32, {2});
         m.node("SequenceConstruct", {"x", "x"}, {"s"});
         m.node("SequenceAt", {"s", "two"}, {"y"});
       },
       "position 2 of a sequence of 2"},
      {[](ModelBuilder& m) {
         m.node("SequenceEmpty", {}, {"s"});
         m.node("SequenceErase", {"s"}, {"t"});
         m.node("SequenceLength", {"t"}, {"y"});
       },
       "an empty sequence"},
      {[](ModelBuilder& m) {
         m.node("SequenceEmpty", {}, {"s"});
         set(m.node("ConcatFromSequence", {"s"}, {"y"}), "axis", int64_t{0});
       },
       "an empty sequence"},
      {[](ModelBuilder& m) {
         m.small_integers("zero", {}, TensorProto::INT32, {0});
         m.node("SplitToSequence", {"x", "zero"}, {"s"});
         m.node("SequenceLength", {"s"}, {"y"});
       },
       "parts of 0 elements"},
      {[](ModelBuilder& m) {
         m.integers("sizes", {3, 5});
         set(m.node("SplitToSequence", {"x", "sizes"}, {"s"}), "axis", int64_t{1});
         m.node("SequenceLength", {"s"}, {"y"});
       },
       "an axis of unknown size"},
      {[](ModelBuilder& m) {
         m.integers("sizes", {3, 5});
         m.node("SplitToSequence", {"x", "sizes"}, {"s"});
         m.node("SequenceLength", {"s"}, {"y"});
       },
       "parts of 8 elements in all, of 7"},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(error_of([&] { import(wrong.build); }), HasSubstr(wrong.error));
}

// An input stays a port of the engine, also where nothing reads it.
TEST(Sequences, PortsAreTensors) {
  const auto refusal = [](bool is_optional, bool is_read) {
    const Build build = [&](ModelBuilder& m) {
      m.input("z", {"2"});
      auto& type = *m.graph().mutable_input(1)->mutable_type();
      const auto inner = type;
      type.clear_tensor_type();
      if (is_optional)
        *type.mutable_optional_type()->mutable_elem_type() = inner;
      else
        *type.mutable_sequence_type()->mutable_elem_type() = inner;
      m.node("Identity", {"x"}, {"y"});
      if (is_read) m.output("w").node("Identity", {"z"}, {"w"});
    };
    return error_of([&] { static_cast<void>(import(build)); });
  };
  for (const bool is_optional : {false, true}) {
    EXPECT_THAT(refusal(is_optional, false), StartsWith("unsupported: graph input \"z\""));
    EXPECT_THAT(refusal(is_optional, true), StartsWith("unsupported: the model needs"));
  }
  EXPECT_THAT(
      refusal(true, false),
      HasSubstr("\"z\" is optional(f32[2]), which engines do not take: remove it, or export "
                "the model with tensors"));
}

}  // namespace
}  // namespace anneal
