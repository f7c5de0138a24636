// Loops of sequences whose number of iterations only a run knows, from ONNX to results.
#include <gmock/gmock.h>

#include "anneal/importer/importer.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kBool = anneal_onnx::TensorProto::BOOL;
constexpr int kInt64 = anneal_onnx::TensorProto::INT64;

void cast_to_float(ModelBuilder& model, const std::string& from, const std::string& to) {
  set(model.node("Cast", {from}, {to}), "to", int64_t{anneal_onnx::TensorProto::FLOAT});
}

ModelBuilder loop_body() {
  ModelBuilder body(17);
  body.input("i", {}, kInt64).input("c", {}, kBool).output("c2");
  body.node("Identity", {"c"}, {"c2"});
  return body;
}

void add_loop(ModelBuilder& model, const std::vector<std::string>& inputs,
              const std::vector<std::string>& outputs, ModelBuilder& body) {
  auto* attribute = model.node("Loop", inputs, outputs, "loop").add_attribute();
  attribute->set_name("body");
  attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
}

void concat(ModelBuilder& m, const std::string& sequence, const std::string& result, int64_t axis,
            bool has_new_axis) {
  auto& node = m.node("ConcatFromSequence", {sequence}, {result});
  set(node, "axis", axis);
  set(node, "new_axis", int64_t{has_new_axis});
}

Tensor floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::of<float>(DataType::kF32, dims, values);
}
Tensor number(int64_t value) { return Tensor::of<int64_t>(DataType::kI64, {}, {{value}}); }

std::shared_ptr<const Engine> engine_of_model(const ModelBuilder& model) {
  return engine_of(build(import_bytes(model.bytes(), "").graph, {}));
}

// An iteration appends x + i and x * x to a sequence that begins with x.
TEST(SequenceLoops, AppendTwoTensorsEach) {
  ModelBuilder m(17);
  m.input("n", {}, kInt64).input("x", {"1", "2"}).input("place", {}, kInt64);
  m.output("stack").output("row").output("at").output("count").output("sum");
  m.node("SequenceConstruct", {"x"}, {"start"});
  ModelBuilder body = loop_body();
  body.input("s", {}).input("v", {"1", "2"}).output("s3").output("v2");
  cast_to_float(body, "i", "number");
  body.node("Add", {"x", "number"}, {"a"});
  body.node("SequenceInsert", {"s", "a"}, {"s2"});
  body.node("Mul", {"x", "x"}, {"b"});
  body.node("SequenceInsert", {"s2", "b"}, {"s3"});
  body.node("Add", {"v", "a"}, {"v2"});
  add_loop(m, {"n", "", "start", "x"}, {"all", "sum"}, body);
  concat(m, "all", "stack", 1, true);
  concat(m, "all", "row", 1, false);
  m.node("SequenceAt", {"all", "place"}, {"at"});
  m.node("SequenceLength", {"all"}, {"length"});
  cast_to_float(m, "length", "count");
  const auto engine = engine_of_model(m);
  ExecutionContext context(engine);
  const Tensor x = floats({1, 2}, {10, 2});
  auto got = run(context, *engine, {number(2), x, number(-2)});
  EXPECT_THAT(got["stack"], ElementsAre(10, 2, 10, 2, 100, 4, 11, 3, 100, 4));
  EXPECT_THAT(got["row"], ElementsAre(10, 2, 10, 2, 100, 4, 11, 3, 100, 4));
  EXPECT_THAT(got["at"], ElementsAre(11, 3));
  EXPECT_THAT(got["count"], ElementsAre(5));
  EXPECT_THAT(got["sum"], ElementsAre(31, 7));
  got = run(context, *engine, {number(0), x, number(0)});
  EXPECT_THAT(got["row"], ElementsAre(10, 2));
  EXPECT_THAT(got["count"], ElementsAre(1));
}

// The length regulator of FastSpeech: row i of x, counts[i] times.
TEST(SequenceLoops, AppendTensorsOfSeveralSizes) {
  ModelBuilder m(17);
  m.input("x", {"T", "2"}).input("counts", {"T"}, kInt64).output("y");
  m.integers("axis", {0}).integers("two", {2});
  m.node("Size", {"counts"}, {"n"});
  m.node("SequenceEmpty", {}, {"none"});
  ModelBuilder body = loop_body();
  body.input("s", {}).output("s2");
  set(body.node("Gather", {"x", "i"}, {"row"}), "axis", int64_t{0});
  body.node("Unsqueeze", {"row", "axis"}, {"rows"});
  set(body.node("Gather", {"counts", "i"}, {"count"}), "axis", int64_t{0});
  body.node("Unsqueeze", {"count", "axis"}, {"counted"});
  set(body.node("Concat", {"counted", "two"}, {"shape"}), "axis", int64_t{0});
  body.node("Expand", {"rows", "shape"}, {"part"});
  body.node("SequenceInsert", {"s", "part"}, {"s2"});
  add_loop(m, {"n", "", "none"}, {"all"}, body);
  concat(m, "all", "y", -2, false);
  const auto engine = engine_of_model(m);
  ExecutionContext context(engine);
  const auto counts = [](const std::vector<int64_t>& values) {
    return Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(values.size())}, values);
  };
  auto got = run(context, *engine, {floats({3, 2}, {1, 2, 3, 4, 5, 6}), counts({2, 0, 1})});
  EXPECT_THAT(got["y"], ElementsAre(1, 2, 1, 2, 5, 6));
  got = run(context, *engine, {floats({1, 2}, {7, 8}), counts({0})});
  EXPECT_THAT(got["y"], IsEmpty());
  got = run(context, *engine, {floats({2, 2}, {1, 2, 3, 4}), counts({1, 3})});
  EXPECT_THAT(got["y"], ElementsAre(1, 2, 3, 4, 3, 4, 3, 4));
}

// Tensors of several sizes that a branch reads one by one are not concatenated: the run says so.
TEST(SequenceLoops, TensorsOfSeveralSizesAreNotMistaken) {
  ModelBuilder m(17);
  m.input("n", {}, kInt64).input("x", {"T"}).input("c", {}, kBool).output("y").output("z");
  m.integers("zero", {0}).integers("one", {1});
  m.add_tensor("first", {}, kInt64)->add_int64_data(0);
  m.node("SequenceEmpty", {}, {"none"});
  ModelBuilder body = loop_body();
  body.input("s", {}).output("s2");
  body.node("Add", {"i", "one"}, {"end"});
  body.node("Slice", {"x", "zero", "end", "zero"}, {"part"});
  body.node("SequenceInsert", {"s", "part"}, {"s2"});
  add_loop(m, {"n", "", "none"}, {"all"}, body);
  concat(m, "all", "y", 0, false);
  ModelBuilder then_branch(17), else_branch(17);
  then_branch.node("SequenceAt", {"all", "first"}, {"t"});
  then_branch.output("t");
  else_branch.node("Identity", {"x"}, {"t"});
  else_branch.output("t");
  auto& node = m.node("If", {"c"}, {"z"});
  for (auto [name, branch] :
       {std::pair("then_branch", &then_branch), {"else_branch", &else_branch}}) {
    auto* attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
    *attribute->mutable_g() = branch->graph();
  }
  const auto engine = engine_of_model(m);
  ExecutionContext context(engine);
  const Tensor yes = Tensor::of<uint8_t>(DataType::kBool, {}, {{1}});
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {number(3), floats({4}, {1, 2, 3, 4}), yes});
              }),
              HasSubstr("is stacked of"));
}

// Sums of bags of rows, as PyTorch writes EmbeddingBag: each bag ends where the next one begins,
// and only a run knows that a slice has one start.
TEST(SequenceLoops, SumBags) {
  ModelBuilder m(17);
  m.input("x", {"T", "2"}).input("bounds", {"B"}, kInt64).input("n", {}, kInt64).output("y");
  m.integers("one", {1}).integers("axis", {0});
  m.node("SequenceEmpty", {}, {"none"});
  ModelBuilder body = loop_body();
  body.input("s", {}).output("s2");
  body.node("Unsqueeze", {"i", "axis"}, {"at"});
  body.node("Add", {"at", "one"}, {"next"});
  body.node("Add", {"next", "one"}, {"behind"});
  body.node("Slice", {"bounds", "at", "next"}, {"begin"});
  body.node("Slice", {"bounds", "next", "behind"}, {"end"});
  body.node("Slice", {"x", "begin", "end"}, {"rows"});
  body.node("ReduceSum", {"rows", "axis"}, {"bag"});
  body.node("SequenceInsert", {"s", "bag"}, {"s2"});
  add_loop(m, {"n", "", "none"}, {"all"}, body);
  concat(m, "all", "y", 0, false);
  const auto engine = engine_of_model(m);
  ExecutionContext context(engine);
  const Tensor bounds = Tensor::of<int64_t>(DataType::kI64, {4}, {{0, 2, 2, 3}});
  auto got = run(context, *engine, {floats({3, 2}, {1, 2, 3, 4, 5, 6}), bounds, number(3)});
  EXPECT_THAT(got["y"], ElementsAre(4, 6, 0, 0, 5, 6));
}

// Elements of an axis of open size, and of a sequence that is known, at places that a run knows.
TEST(SequenceLoops, ReadSequences) {
  for (const bool keeps_axis : {false, true}) {
    ModelBuilder m(17);
    m.input("x", {"2", "T"}).input("a", {"1"}).input("b", {"1"}).output("y").output("last");
    auto& split = m.node("SplitToSequence", {"x"}, {"parts"});
    set(split, "axis", int64_t{1});
    set(split, "keepdims", int64_t{keeps_axis});
    m.node("SequenceConstruct", {"a", "b", "a", "b"}, {"pairs"});
    m.node("SequenceLength", {"parts"}, {"n"});
    ModelBuilder body = loop_body();
    body.output("e");
    body.node("SequenceAt", {"parts", "i"}, {"part"});
    body.node("SequenceAt", {"pairs", "i"}, {"factor"});
    body.node("Mul", {"part", "factor"}, {"e"});
    add_loop(m, {"n", ""}, {"y"}, body);
    m.add_tensor("minus_one", {}, kInt64)->add_int64_data(-1);
    m.node("SequenceAt", {"parts", "minus_one"}, {"last"});
    const auto engine = engine_of_model(m);
    ExecutionContext context(engine);
    const std::vector<Tensor> inputs = {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({1}, {10}),
                                        floats({1}, {1})};
    auto got = run(context, *engine, inputs);
    EXPECT_THAT(got["y"], ElementsAre(10, 40, 2, 5, 30, 60)) << keeps_axis;
    EXPECT_THAT(got["last"], ElementsAre(3, 6)) << keeps_axis;
  }
}

}  // namespace
}  // namespace anneal::testing
