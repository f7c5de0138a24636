// Bodies: what they capture, the sizes that change in them, and branches that cannot both be right.
#include <gmock/gmock.h>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kBool = anneal_onnx::TensorProto::BOOL;
constexpr int kInt64 = anneal_onnx::TensorProto::INT64;

Graph import(const ModelBuilder& model, const ImportOptions& options = {}) {
  Graph graph = import_bytes(model.bytes(), "", options).graph;
  verify(graph);
  return graph;
}
std::string error(const ModelBuilder& model) {
  return error_of([&] { import(model); });
}

void set(anneal_onnx::NodeProto& node, const std::string& name, ModelBuilder& body) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
}

// A body of one node.
ModelBuilder body_of(const std::string& op, const std::vector<std::string>& inputs,
                     const std::string& output) {
  ModelBuilder body;
  body.node(op, inputs, {output});
  body.output(output);
  return body;
}

const Graph& body(const Graph& graph, std::string_view name) {
  for (const Graph& one : graph.bodies())
    if (one.name == name) return one;
  throw std::runtime_error("no body " + std::string(name));
}

TEST(ImportControlFlow, BranchesCaptureWhatEitherUses) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"N"}).input("z", {"N"}).floats("w", {1}, {2});
  model.output("y");
  model.node("Exp", {"x"}, {"e"});
  ModelBuilder then_branch = body_of("Mul", {"e", "w"}, "t");
  ModelBuilder else_branch = body_of("Sub", {"z", "e"}, "t");
  auto& node = model.node("If", {"c"}, {"y"}, "branch");
  set(node, "then_branch", then_branch);
  set(node, "else_branch", else_branch);
  const Graph graph = import(model);
  const Layer& layer = graph.layer(graph.value(graph.outputs()[0].value).producer);
  ASSERT_TRUE(std::holds_alternative<If>(layer.op));
  ASSERT_EQ(layer.inputs.size(), 3u);
  EXPECT_EQ(graph.value(layer.inputs[1]).name, "e");
  EXPECT_EQ(graph.value(layer.inputs[2]).name, "z");
  EXPECT_EQ(graph.sizes().text(graph.value(layer.outputs[0]).type().shape), "[N]");
  // The constant is the body's own.
  EXPECT_EQ(body(graph, "branch/then").inputs().size(), 2u);
  EXPECT_THAT(to_string(graph), HasSubstr("const w"));
}

TEST(ImportControlFlow, ABranchThatIsKnownStandsInTheGraph) {
  ModelBuilder model;
  model.input("x", {"2", "3"}).integers("two", {2}).integers("zero", {0}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.node("Gather", {"s", "zero"}, {"n"});
  model.node("Equal", {"n", "two"}, {"c"});
  ModelBuilder then_branch = body_of("Exp", {"x"}, "t");
  ModelBuilder else_branch = body_of("Frobnicate", {"x"}, "t");
  auto& node = model.node("If", {"c"}, {"y"}, "branch");
  set(node, "then_branch", then_branch);
  set(node, "else_branch", else_branch);
  const Graph graph = import(model);
  EXPECT_EQ(graph.value(graph.outputs()[0].value).name, "y");
  EXPECT_THAT(to_string(graph), HasSubstr("exp($0)"));
  EXPECT_THAT(to_string(graph), Not(HasSubstr("If(")));
}

// What exporters write for squeeze(): only one of the branches fits what follows.
TEST(ImportControlFlow, BranchesOfDifferentRankAreChosenByWhatFollows) {
  for (const bool squeezed : {true, false}) {
    ModelBuilder model;
    model.input("x", {"N", "K"}).integers("one", {1}).integers("last", {1}).output("y");

    model.node("Shape", {"x"}, {"s"});
    model.node("Gather", {"s", "last"}, {"n"});
    model.node("Equal", {"n", "one"}, {"c"});
    ModelBuilder then_branch = body_of("Squeeze", {"x", "last"}, "t");
    ModelBuilder else_branch = body_of("Identity", {"x"}, "t");
    auto& node = model.node("If", {"c"}, {"v"}, "branch");
    set(node, "then_branch", then_branch);
    set(node, "else_branch", else_branch);
    anneal::set(model.node("Transpose", {"v"}, {"y"}, "next"), "perm",
                squeezed ? std::vector<int64_t>{0} : std::vector<int64_t>{1, 0});
    const Graph graph = import(model);
    EXPECT_EQ(graph.value(graph.outputs()[0].value).type().shape.rank(), squeezed ? 1 : 2);
    EXPECT_THAT(to_string(graph), HasSubstr("= Require("));
  }
}

TEST(ImportControlFlow, CarriedSizesThatChangeAreSymbols) {
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"2", "K"}).input("z", {"1", "K"});
  model.output("y").output("all");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"?"});
  loop.output("c2").output("v2").output("e");
  loop.node("Identity", {"c"}, {"c2"});
  anneal::set(loop.node("Concat", {"v", "z"}, {"v2"}), "axis", int64_t{0});
  loop.node("Exp", {"z"}, {"e"});
  auto& node = model.node("Loop", {"n", "", "x"}, {"y", "all"}, "loop");
  set(node, "body", loop);
  const Graph graph = import(model);
  const SizeTable& sizes = graph.sizes();
  const Graph& inner = body(graph, "loop/body");
  EXPECT_EQ(sizes.text(inner.value(inner.inputs()[2]).type().shape), "[\"loop/v.size0\",K]");
  EXPECT_EQ(sizes.text(graph.value(graph.outputs()[1].value).type().shape), "[all.size0,1,K]");
}

// How often a Loop runs is known if its trip count is, and if no condition can end it before.
TEST(ImportControlFlow, StackedResultsHaveTheLengthOfACountedLoop) {
  enum class Next { kGiven, kOwn, kCaptured, kCarried, kComputed };
  const auto type_of = [](const std::string& count, const std::string& first, Next next) {
    ModelBuilder model;
    model.input("x", {"N", "2"}).input("n", {}, kInt64).input("b", {}, kBool).output("y");
    model.integers("five", {5}).integers("zero", {0});
    model.small_integers("yes", {}, kBool, {1}).small_integers("no", {}, kBool, {0});
    model.node("Shape", {"x"}, {"s"});
    model.node("Gather", {"s", "zero"}, {"rows"});
    ModelBuilder loop;
    loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {}, kBool);
    loop.small_integers("true", {}, kBool, {1});
    const std::string from = next == Next::kGiven      ? "c"
                             : next == Next::kOwn      ? "true"
                             : next == Next::kCaptured ? "yes"
                                                       : "v";
    loop.node(next == Next::kComputed ? "Not" : "Identity", {from}, {"c2"});
    loop.node("Not", {"v"}, {"v2"});
    loop.node("Exp", {"x"}, {"e"});
    loop.output("c2").output("v2").output("e");
    set(model.node("Loop", {count, first, "yes"}, {"last", "y"}, "loop"), "body", loop);
    const Graph graph = import(model);
    return graph.sizes().text(graph.value(graph.outputs()[0].value).type().shape);
  };
  EXPECT_EQ(type_of("five", "", Next::kGiven), "[5,N,2]");
  EXPECT_EQ(type_of("five", "yes", Next::kOwn), "[5,N,2]");
  EXPECT_EQ(type_of("five", "yes", Next::kCaptured), "[5,N,2]");
  EXPECT_EQ(type_of("rows", "", Next::kGiven), "[N,N,2]");
  const std::string unknown = "[y.size0,N,2]";
  EXPECT_EQ(type_of("n", "", Next::kGiven), unknown);
  EXPECT_EQ(type_of("", "yes", Next::kGiven), unknown);
  EXPECT_EQ(type_of("five", "b", Next::kGiven), unknown);
  EXPECT_EQ(type_of("five", "no", Next::kGiven), unknown);
  EXPECT_EQ(type_of("five", "yes", Next::kCarried), unknown);
  EXPECT_EQ(type_of("five", "yes", Next::kComputed), unknown);
}

TEST(ImportControlFlow, NodesWaitForWhatTheirBodiesUse) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"2"}).output("y");
  ModelBuilder then_branch = body_of("Neg", {"e"}, "t");
  ModelBuilder else_branch = body_of("Exp", {"x"}, "t");
  auto& node = model.node("If", {"c"}, {"y"});
  set(node, "then_branch", then_branch);
  set(node, "else_branch", else_branch);
  model.node("Exp", {"x"}, {"e"});
  EXPECT_EQ(import(model).bodies().size(), 2u);
}

// The size of what NonZero gives is known once it ran: nothing says that it does if only its shape
// is used, so the body takes the shape.
TEST(ImportControlFlow, SizesThatValuesDecideAreCaptured) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"N"}).output("y");
  model.node("NonZero", {"x"}, {"nz"});
  model.node("Shape", {"nz"}, {"s"});
  model.node("Shape", {"x"}, {"n"});
  ModelBuilder then_branch = body_of("Neg", {"s"}, "t");
  ModelBuilder else_branch = body_of("Mul", {"s", "n"}, "t");
  auto& node = model.node("If", {"c"}, {"y"}, "branch");
  set(node, "then_branch", then_branch);
  set(node, "else_branch", else_branch);
  const Graph graph = import(model);
  const Graph& inner = body(graph, "branch/else");
  ASSERT_EQ(inner.inputs().size(), 1u);
  EXPECT_EQ(inner.value(inner.inputs()[0]).name, "s");
  EXPECT_THAT(to_string(inner), HasSubstr("SizeTensor() elements=[N]"));
}

TEST(ImportControlFlow, ABodyMayGiveAValueTwice) {
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"2"}).output("y").output("all");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"2"});
  loop.output("c2").output("v2").output("v2");
  loop.node("Identity", {"c"}, {"c2"});
  loop.node("Exp", {"v"}, {"v2"});
  set(model.node("Loop", {"n", "", "x"}, {"y", "all"}, "loop"), "body", loop);
  const Graph graph = import(model);
  EXPECT_EQ(graph.outputs().size(), 2u);
  EXPECT_EQ(body(graph, "loop/body").outputs()[2].name, "loop/body/v2.2");
}

// Sizes that change in the innermost body change in all bodies. Each level is tried with the sizes
// of its first iteration; together that would be 2^24 imports.
TEST(ImportControlFlow, LoopsInLoopsAreImportedAFewTimesEach) {
  constexpr int kDepth = 24;
  const auto value = [](int depth) { return "v" + std::to_string(depth); };
  ModelBuilder inner;
  for (int depth = kDepth; depth >= 0; --depth) {
    ModelBuilder outer;
    const std::string result = "r" + std::to_string(depth);
    if (depth == 0) {
      outer.input("n", {}, kInt64).input("v0", {"2"}).input("k", {"1"}).output("r0");
    } else {
      outer.input("i" + std::to_string(depth), {}, kInt64)
          .input("c" + std::to_string(depth), {}, kBool);
      outer.input(value(depth), {"?"});
      outer.output("next" + std::to_string(depth)).output(result);
      outer.node("Identity", {"c" + std::to_string(depth)}, {"next" + std::to_string(depth)});
    }
    if (depth == kDepth) {
      anneal::set(outer.node("Concat", {value(depth), "k"}, {result}), "axis", int64_t{0});
    } else {
      set(outer.node("Loop", {"n", "", value(depth)}, {result}), "body", inner);
    }
    inner = outer;
  }
  const Graph graph = import(inner);
  EXPECT_LT(graph.sizes().symbols().size(), 1000u);
}

TEST(ImportControlFlow, BodiesMayBeNestedSoFar) {
  const auto nested = [](int levels) {
    ModelBuilder inner = body_of("Neg", {"x"}, "z");
    ModelBuilder other = body_of("Abs", {"x"}, "w");
    for (int level = 0; level < levels; ++level) {
      ModelBuilder outer;
      auto& node = outer.node("If", {"c"}, {"z"});
      set(node, "then_branch", inner);
      set(node, "else_branch", other);
      outer.output("z");
      inner = outer;
    }
    inner.input("c", {}, kBool).input("x", {"2"});
    return inner;
  };
  EXPECT_EQ(error(nested(128)), "");
  EXPECT_THAT(error(nested(129)), HasSubstr("bodies nested more than 128 deep"));
  EXPECT_THAT(error(nested(400)), HasSubstr("more than 300 graphs inside each other"));
}

TEST(ImportControlFlow, MistakesAreNamed) {
  const auto loop_error = [](const std::string& op, const std::vector<std::string>& inputs) {
    ModelBuilder model;
    model.input("n", {}, kInt64).input("x", {"2"}).output("y");
    ModelBuilder loop;
    loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"2"});
    loop.output("c2").output("v2");
    loop.node("Identity", {"c"}, {"c2"});
    auto& inner = loop.node(op, inputs, {"v2"}, "inner");
    if (op == "Cast") anneal::set(inner, "to", int64_t{kInt64});
    set(model.node("Loop", {"n", "", "x"}, {"y"}, "loop"), "body", loop);
    return error(model);
  };
  EXPECT_EQ(loop_error("Exp", {"v"}), "");
  EXPECT_THAT(loop_error("Exp", {"nowhere"}),
              HasSubstr("value \"nowhere\" is produced by no node"));
  EXPECT_THAT(loop_error("Cast", {"v"}), HasSubstr("carried value \"v\" becomes i64 from f32"));
  EXPECT_THAT(loop_error("Frobnicate", {"v"}),
              HasSubstr("Frobnicate (ai.onnx 17), once in \"loop/body/inner\": not implemented"));
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"2"}).output("y");
  model.node("Loop", {"n", "", "x"}, {"y"}, "loop");
  EXPECT_THAT(error(model), HasSubstr("attribute \"body\" is missing"));

  ModelBuilder few;
  few.input("c", {}, kBool).input("x", {"2"}).output("y").output("z");
  ModelBuilder branch = body_of("Exp", {"x"}, "t");
  auto& node = few.node("If", {"c"}, {"y", "z"});
  set(node, "then_branch", branch);
  set(node, "else_branch", branch);
  EXPECT_THAT(error(few), HasSubstr("a branch of 1 outputs for 2 of the node"));

  ModelBuilder bare;
  bare.input("n", {}, kInt64).output("y");
  ModelBuilder loop = body_of("Exp", {"x"}, "t");
  set(bare.node("Loop", {"n"}, {"y"}), "body", loop);
  EXPECT_THAT(error(bare), HasSubstr("without its trip count and condition"));
}

}  // namespace
}  // namespace anneal
