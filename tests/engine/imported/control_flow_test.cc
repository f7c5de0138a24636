// Control flow as exporters write it, from ONNX to results.
#include <gmock/gmock.h>

#include <set>

#include "anneal/importer/importer.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBool = anneal_onnx::TensorProto::BOOL;
constexpr int kInt64 = anneal_onnx::TensorProto::INT64;

void set_body(anneal_onnx::NodeProto& node, const std::string& name, ModelBuilder& body) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
}

void cast_to_float(ModelBuilder& model, const std::string& from, const std::string& to) {
  set(model.node("Cast", {from}, {to}), "to", int64_t{anneal_onnx::TensorProto::FLOAT});
}

ModelBuilder branch(const char* op, const char* input) {
  ModelBuilder branch;
  branch.node(op, {input}, {"t"});
  branch.output("t");
  return branch;
}

void add_if(ModelBuilder& model, const char* result, ModelBuilder then_branch,
            ModelBuilder else_branch) {
  auto& node = model.node("If", {"c"}, {result});
  set_body(node, "then_branch", then_branch);
  set_body(node, "else_branch", else_branch);
}

std::shared_ptr<const Engine> engine_of_model(const ModelBuilder& model) {
  return engine_of(build(import_bytes(model.bytes(), "").graph, {}));
}

Tensor number(DataType dtype, int64_t value) {
  if (dtype == DataType::kBool)
    return Tensor::of<uint8_t>(dtype, {}, {{static_cast<uint8_t>(value)}});
  return Tensor::of<int64_t>(dtype, {}, {{value}});
}

// The list begins as a number that nothing reads, and `scale` as one that everything fits.
TEST(ImportedControlFlow, CarriedValuesMayGetTheirAxesInTheFirstIteration) {
  ModelBuilder model;
  model.input("n", {}, kInt64)
      .input("x", {"2"})
      .floats("nothing", {}, {-1})
      .output("y")
      .output("all");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"?"});
  loop.output("c2").output("v2").output("k");
  loop.node("Identity", {"c"}, {"c2"});
  set(loop.node("Cast", {"i"}, {"k"}), "to", int64_t{anneal_onnx::TensorProto::FLOAT});
  loop.node("Add", {"x", "k"}, {"v2"});
  set_body(model.node("Loop", {"n", "", "nothing"}, {"y", "all"}, "loop"), "body", loop);
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2}, {{10, 20}});
  auto got = run(context, *engine, {number(DataType::kI64, 3), x});
  EXPECT_THAT(got["y"], ElementsAre(12, 22));
  EXPECT_THAT(got["all"], ElementsAre(0, 1, 2));
  got = run(context, *engine, {number(DataType::kI64, 1), x});
  EXPECT_THAT(got["y"], ElementsAre(10, 20));
  EXPECT_THAT(got["all"], ElementsAre(0));
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {number(DataType::kI64, 0), x});
              }),
              HasSubstr("runs_at_least_once"));
}

// A loop without a trip count ends by its condition alone: a constant, an input, or computed.
TEST(ImportedControlFlow, LoopsWithoutATripCount) {
  for (const std::string condition : {"", "no", "yes", "goes"})
    for (const int carried : {0, 1, 2}) {
      SCOPED_TRACE(condition + std::to_string(carried));
      ModelBuilder model;
      model.input("x", {}).input("goes", {}, kBool);
      model.small_integers("no", {}, kBool, {0}).small_integers("yes", {}, kBool, {1});
      model.floats("limit", {}, {20}).integers("two", {2});
      ModelBuilder loop;
      loop.input("i", {}, kInt64).input("c", {}, kBool).output("c2");
      std::vector<std::string> inputs = {"", condition}, outputs;
      for (int k = 0; k < carried; ++k) {
        const std::string name = std::to_string(k);
        loop.input("v" + name, {}).output("w" + name);
        loop.node("Add", {"v" + name, "v" + name}, {"w" + name});
        inputs.push_back("x");
        outputs.push_back("y" + name);
        model.output("y" + name);
      }
      loop.output("e");
      loop.node("Identity", {"i"}, {"e"});
      if (carried > 0)
        loop.node("Less", {"w0", "limit"}, {"c2"});
      else
        loop.node("Less", {"i", "two"}, {"c2"});
      model.output("all");
      outputs.push_back("all");
      set_body(model.node("Loop", inputs, outputs, "loop"), "body", loop);
      const auto engine = engine_of_model(model);
      ExecutionContext context(engine);
      for (const bool goes : {false, true}) {
        const std::vector<Tensor> given = {Tensor::of<float>(DataType::kF32, {}, {{6}}),
                                           number(DataType::kBool, goes)};
        auto got = run(context, *engine, given);
        const bool runs = condition == "goes" ? goes : condition != "no";
        for (int k = 0; k < carried; ++k)
          EXPECT_THAT(got["y" + std::to_string(k)], ElementsAre(runs ? 24 : 6));
        EXPECT_EQ(got["all"].size(), !runs ? 0U : carried > 0 ? 2U : 3U);
      }
    }
}

// Keras carries the weights of a recurrent layer through its loop: they are no values of
// iterations.
TEST(ImportedControlFlow, CarriedValuesThatStayTheSameAreNotCarried) {
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"1", "2"}).input("s", {"2"});
  model.floats("w", {2, 2}, {0, 1, 2, 0}).output("w2").output("y").output("s2").output("all");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool);
  loop.input("bw", {"2", "2"}).input("v", {"1", "2"}).input("bs", {"2"});
  loop.output("c2").output("bw2").output("v2").output("bs").output("e");
  loop.node("Identity", {"c"}, {"c2"});
  loop.node("Identity", {"bw"}, {"bw2"});
  loop.node("MatMul", {"v", "bw"}, {"p"});
  loop.node("Add", {"p", "bs"}, {"v2"});
  loop.node("Neg", {"bs"}, {"e"});
  set_body(model.node("Loop", {"n", "", "w", "x", "s"}, {"w2", "y", "s2", "all"}, "loop"), "body",
           loop);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  const Loop* op = nullptr;
  for (const LayerId id : graph.order())
    if (const auto* found = std::get_if<Loop>(&graph.layer(id).op)) op = found;
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->carried, 1);
  EXPECT_EQ(graph.bodies()[0].inputs().size(), 4u);  // and s; w is a constant of the body
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {1, 2}, {{1, 2}});
  const Tensor s = Tensor::of<float>(DataType::kF32, {2}, {{10, 20}});
  auto got = run(context, *engine, {number(DataType::kI64, 2), x, s});
  // [1,2] -> [2*2, 1] + s = [14, 21] -> [42, 14] + s
  EXPECT_THAT(got["y"], ElementsAre(52, 34));
  EXPECT_THAT(got["w2"], ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(got["s2"], ElementsAre(10, 20));
  EXPECT_THAT(got["all"], ElementsAre(-10, -20, -10, -20));
  got = run(context, *engine, {number(DataType::kI64, 0), x, s});
  EXPECT_THAT(got["y"], ElementsAre(1, 2));
}

// Of z, a number, where c holds, and of x, a tensor of one element, where not.
ModelBuilder number_or_tensor() {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"1"}, kBool).input("z", {}, kBool).output("y");
  model.floats("two", {2}, {10, 20}).integers("first", {0}).integers("flat", {-1});
  add_if(model, "truth", branch("Identity", "z"), branch("Not", "x"));
  return model;
}

// The first result for each branch; "refused" where running it fails for the branch.
std::vector<std::string> results_of_branches(const ModelBuilder& model) {
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<uint8_t>(DataType::kBool, {1}, {{1}});
  std::vector<std::string> results;
  for (const int condition : {1, 0}) {
    const std::string why = error_of([&] {
      const auto got = run(context, *engine,
                           {number(DataType::kBool, condition), x, number(DataType::kBool, 1)});
      results.push_back(std::to_string(static_cast<int>(got.at("y")[0])));
    });
    if (why.find("branch_only") != std::string::npos) results.emplace_back("refused");
  }
  return results;
}

// Exporters mix up numbers and tensors of one element.
TEST(ImportedControlFlow, ANumberAndATensorOfOneElementAreAlike) {
  ModelBuilder sum = number_or_tensor();
  cast_to_float(sum, "truth", "number");
  sum.node("Add", {"number", "two"}, {"y"});
  EXPECT_THAT(results_of_branches(sum), ElementsAre("11", "10"));

  ModelBuilder list = number_or_tensor();
  cast_to_float(list, "truth", "number");
  list.node("Reshape", {"number", "flat"}, {"y"});
  EXPECT_THAT(results_of_branches(list), ElementsAre("1", "0"));

  ModelBuilder condition = number_or_tensor();
  condition.node("Not", {"truth"}, {"lie"});
  auto& node = condition.node("If", {"lie"}, {"y"});
  for (const auto& [name, op] :
       {std::pair("then_branch", "Neg"), std::pair("else_branch", "Abs")}) {
    ModelBuilder one = branch(op, "two");
    set_body(node, name, one);
  }
  EXPECT_THAT(results_of_branches(condition), ElementsAre("10", "-10"));

  // Where a body uses it, and in a result of another If.
  ModelBuilder nested = number_or_tensor();
  add_if(nested, "again", branch("Not", "truth"), branch("Identity", "truth"));
  cast_to_float(nested, "again", "number");
  nested.node("Sub", {"number", "two"}, {"y"});
  EXPECT_THAT(results_of_branches(nested), ElementsAre("-10", "-10"));
}

// But not where that is seen: a branch is taken, and what wants the other is refused.
TEST(ImportedControlFlow, NumbersAreNotAlikeWhereTheirRankIsUsed) {
  const auto expect_refusal = [](const ModelBuilder& model, const std::string& result) {
    EXPECT_THAT(results_of_branches(model), ElementsAre(result, "refused"));
  };
  ModelBuilder output = number_or_tensor();
  cast_to_float(output, "truth", "y");
  expect_refusal(output, "1");

  ModelBuilder shape = number_or_tensor();
  shape.node("Shape", {"truth"}, {"shape"});
  shape.node("Size", {"shape"}, {"rank"});
  cast_to_float(shape, "rank", "y");
  expect_refusal(shape, "0");

  ModelBuilder axis = number_or_tensor();
  cast_to_float(axis, "truth", "number");
  axis.node("Unsqueeze", {"number", "first"}, {"y"});
  expect_refusal(axis, "1");

  ModelBuilder nested = number_or_tensor();
  add_if(nested, "again", branch("Not", "truth"), branch("Identity", "truth"));
  cast_to_float(nested, "again", "y");
  expect_refusal(nested, "0");

  ModelBuilder stacked = number_or_tensor();
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("goes_on", {}, kBool);
  loop.output("goes_on_2").output("element");
  loop.node("Identity", {"goes_on"}, {"goes_on_2"});
  cast_to_float(loop, "truth", "element");
  stacked.integers("three", {3});
  set_body(stacked.node("Loop", {"three", ""}, {"y"}, "loop"), "body", loop);
  expect_refusal(stacked, "1");
}

// Of many, only the one whose rank is used takes a branch.
TEST(ImportedControlFlow, OneRankThatIsUsedTakesOneBranch) {
  ModelBuilder model = number_or_tensor();
  model.node("Shape", {"truth"}, {"shape"});
  model.node("Size", {"shape"}, {"rank"});
  cast_to_float(model, "rank", "number");
  std::vector<std::string> terms = {"two", "number"};
  for (int i = 0; i < 12; ++i) {
    const std::string result = "other" + std::to_string(i);
    add_if(model, result.c_str(), branch("Identity", "z"), branch("Not", "x"));
    cast_to_float(model, result, terms.emplace_back(result + "/number"));
  }
  model.node("Sum", terms, {"y"});
  const Graph graph = import_bytes(model.bytes(), "").graph;
  EXPECT_EQ(graph.bodies().size(), 24u);
  EXPECT_THAT(results_of_branches(model), ElementsAre("22", "refused"));
}

// Found together, so that a model may have many.
TEST(ImportedControlFlow, ManyRanksThatAreUsedTakeABranchEach) {
  ModelBuilder model = number_or_tensor();
  std::vector<std::string> terms = {"two"};
  for (int i = 0; i < 300; ++i) {
    const std::string result = "v" + std::to_string(i);
    add_if(model, result.c_str(), branch("Identity", "z"), branch("Not", "x"));
    cast_to_float(model, result, result + "/number");
    model.node("Unsqueeze", {result + "/number", "first"}, {terms.emplace_back(result + "/list")});
  }
  set(model.node("Concat", terms, {"all"}), "axis", int64_t{0});
  set(model.node("ReduceSum", {"all"}, {"y"}), "keepdims", int64_t{0});
  EXPECT_THAT(results_of_branches(model), ElementsAre("330", "refused"));
}

// What exporters write for squeeze(1): the branch is taken that the sizes to optimize for want.
TEST(ImportedControlFlow, TheBranchIsTakenThatTheBestSizesWant) {
  for (const int64_t best : {1, 3}) {
    ModelBuilder model;
    model.input("x", {"N", "M"}).integers("last", {1}).integers("one", {1}).output("y");
    model.node("Shape", {"x"}, {"shape"});
    model.node("Gather", {"shape", "last"}, {"size"});
    model.node("Equal", {"size", "one"}, {"c"});
    ModelBuilder squeeze;
    squeeze.node("Squeeze", {"x", "last"}, {"t"});
    squeeze.output("t");
    add_if(model, "y", squeeze, branch("Identity", "x"));
    ImportOptions options;
    options.bounds["x"] = {.min = {1, 1}, .opt = {2, best}, .max = {4, 8}};
    const auto engine = engine_of(build(import_bytes(model.bytes(), "", options).graph, {}));
    EXPECT_EQ(engine->outputs()[0].dims.rank(), best == 1 ? 1 : 2);
    ExecutionContext context(engine);
    const auto rows = [&](int64_t columns) {
      const std::vector<float> numbers(static_cast<size_t>(2 * columns), 1);
      return run(context, *engine, {Tensor::of<float>(DataType::kF32, {2, columns}, numbers)});
    };
    EXPECT_EQ(rows(best)["y"].size(), static_cast<size_t>(2 * best));
    // Without its axis x has as many elements as with it: M can only be 1.
    EXPECT_THAT(error_of([&] { rows(4 - best); }),
                HasSubstr(best == 1 ? "the engine expects [N,1]" : "branch_only"));
  }
}

TEST(ImportedControlFlow, OutputsKeepTheirRank) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"1"}).floats("three", {}, {3}).output("y");
  add_if(model, "y", branch("Identity", "x"), branch("Identity", "three"));
  const auto engine = engine_of_model(model);
  EXPECT_EQ(engine->outputs()[0].dims, Dims({1}));
}

// Nor where what follows wants an axis.
TEST(ImportedControlFlow, NumbersAreAlikeOnlyWhereThatFits) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"1"}, kBool).input("z", {}, kBool).output("y");
  add_if(model, "t", branch("Identity", "x"), branch("Identity", "z"));
  set(model.node("Transpose", {"t"}, {"same"}), "perm", std::vector<int64_t>{0});
  cast_to_float(model, "same", "y");
  const auto engine = engine_of_model(model);
  EXPECT_EQ(engine->outputs()[0].dims, Dims({1}));
}

// Where the result is the same for both, both branches run.
TEST(ImportedControlFlow, AnOpenRankIsIgnoredByOperatorsThatMakeItANumber) {
  for (const char* const op : {"Squeeze", "ReduceSum"}) {
    ModelBuilder model;
    model.input("c", {}, kBool).input("x", {"1"}).floats("three", {}, {3}).output("y");
    add_if(model, "t", branch("Identity", "three"), branch("Neg", "x"));
    auto& node = model.node(op, {"t"}, {"y"});
    if (op == std::string("ReduceSum")) set(node, "keepdims", int64_t{0});
    const auto engine = engine_of_model(model);
    EXPECT_EQ(engine->outputs()[0].dims.rank(), 0) << op;
    ExecutionContext context(engine);
    const Tensor x = Tensor::of<float>(DataType::kF32, {1}, {{5}});
    EXPECT_THAT(run(context, *engine, {number(DataType::kBool, 1), x})["y"], ElementsAre(3)) << op;
    EXPECT_THAT(run(context, *engine, {number(DataType::kBool, 0), x})["y"], ElementsAre(-5)) << op;
  }
}

// Of a loop that does nothing, whatever its body does to ranks.
TEST(ImportedControlFlow, NoIterationGivesWhatTheLoopBeganWith) {
  ModelBuilder model;
  model.input("x", {"2"}).floats("begin", {}, {5}).integers("none", {0}).output("y");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"?"});
  loop.output("c2").output("v2");
  loop.node("Identity", {"c"}, {"c2"});
  loop.node("Add", {"v", "x"}, {"v2"});
  set_body(model.node("Loop", {"none", "", "begin"}, {"y"}, "loop"), "body", loop);
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2}, {{10, 20}});
  EXPECT_THAT(run(context, *engine, {x})["y"], ElementsAre(5));
}

TEST(ImportedControlFlow, StackedElementsOfOtherRankAreUnsupported) {
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"2"}).floats("begin", {}, {5}).output("y").output("all");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"?"});
  loop.output("c2").output("v2").output("v3");
  loop.node("Identity", {"c"}, {"c2"});
  loop.node("Add", {"v", "x"}, {"v2"});
  loop.node("Identity", {"v"}, {"v3"});
  set_body(model.node("Loop", {"n", "", "begin"}, {"y", "all"}, "loop"), "body", loop);
  EXPECT_THAT(error_of([&] { engine_of_model(model); }), HasSubstr("change their rank"));
}

// The branch that is taken for good gives a constant: that must not hide that the other is wanted.
TEST(ImportedControlFlow, WhatIsRequiredOfConstantsIsChecked) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"2"}).integers("list", {1, 1}).output("y");
  ModelBuilder else_branch;
  set(else_branch.node("Concat", {"row", "row"}, {"t"}), "axis", int64_t{0});
  else_branch.output("t");
  auto* row = else_branch.graph().add_initializer();
  row->set_name("row");
  row->set_data_type(kInt64);
  row->add_dims(1);
  row->add_dims(2);
  row->add_int64_data(1);
  row->add_int64_data(1);
  add_if(model, "shape", branch("Identity", "list"), else_branch);
  model.node("Expand", {"x", "shape"}, {"y"});
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2}, {{1, 2}});
  EXPECT_THAT(run(context, *engine, {number(DataType::kBool, 1), x})["y"], ElementsAre(1, 2));
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {number(DataType::kBool, 0), x});
              }),
              HasSubstr("then_branch_only"));
}

// It does not depend on the data, which no layer needs where only sizes are used.
TEST(ImportedControlFlow, WhatIsRequiredOfSizesIsChecked) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"N", "M"}).output("y");
  ModelBuilder else_branch;
  set(else_branch.node("ReduceMax", {"x"}, {"t"}), "keepdims", int64_t{0});
  else_branch.output("t");
  add_if(model, "r", branch("Neg", "x"), else_branch);
  model.node("Size", {"r"}, {"size"});
  cast_to_float(model, "size", "y");
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2, 1}, {{1, 2}});
  EXPECT_THAT(run(context, *engine, {number(DataType::kBool, 1), x})["y"], ElementsAre(2));
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {number(DataType::kBool, 0), x});
              }),
              HasSubstr("then_branch_only"));
}

TEST(ImportedControlFlow, WhatIsRequiredOfIterationsIsCheckedForShapesToo) {
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"2", "3"}).integers("flat", {-1}).output("y");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"?"});
  loop.output("c2").output("v2");
  loop.node("Identity", {"c"}, {"c2"});
  loop.node("Reshape", {"v", "flat"}, {"v2"});
  set_body(model.node("Loop", {"n", "", "x"}, {"r"}, "loop"), "body", loop);
  model.node("Shape", {"r"}, {"s"});
  cast_to_float(model, "s", "y");
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2, 3}, {{1, 2, 3, 4, 5, 6}});
  EXPECT_THAT(run(context, *engine, {number(DataType::kI64, 1), x})["y"], ElementsAre(6));
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {number(DataType::kI64, 0), x});
              }),
              HasSubstr("runs_at_least_once"));
}

TEST(ImportedControlFlow, TheRankThatSqueezeTakesIsChecked) {
  ModelBuilder model;
  model.input("x", {"N", "M"}).output("y");
  model.node("Squeeze", {"x"}, {"q"}, "squeeze");
  model.node("Shape", {"q"}, {"s"});
  model.node("Size", {"s"}, {"rank"});
  cast_to_float(model, "rank", "y");
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {1, 2}, {{1, 2}});
  EXPECT_THAT(
      run(context, *engine, {Tensor::of<float>(DataType::kF32, {2, 2}, {{1, 2, 3, 4}})})["y"],
      ElementsAre(2));
  EXPECT_THAT(error_of([&] { run(context, *engine, {x}); }),
              HasSubstr("squeeze/M and N are not 1"));
}

// A value without readers requires nothing.
TEST(ImportedControlFlow, OnlyWhatOutputsNeedIsRequired) {
  ModelBuilder model;
  model.input("c", {}, kBool).input("x", {"2"}).floats("three", {}, {3}).output("y");
  ModelBuilder then_branch = branch("Neg", "x"), else_branch = branch("Neg", "three");
  for (ModelBuilder* one : {&then_branch, &else_branch}) one->node("Frobnicate", {"x"}, {"unused"});
  add_if(model, "r", then_branch, else_branch);
  model.node("Exp", {"x"}, {"e"});
  add_if(model, "y", branch("Neg", "e"), branch("Exp", "e"));
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2}, {{0, 0}});
  EXPECT_THAT(run(context, *engine, {number(DataType::kBool, 1), x})["y"], ElementsAre(-1, -1));
}

// A condition of any number of axes is one if it has one element.
TEST(ImportedControlFlow, AConditionMayHaveAxes) {
  ModelBuilder model;
  model.input("c", {"1", "N"}, kBool).input("x", {"2"}).output("y");
  add_if(model, "y", branch("Neg", "x"), branch("Exp", "x"));
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const Tensor x = Tensor::of<float>(DataType::kF32, {2}, {{1, 2}});
  const Tensor one = Tensor::of<uint8_t>(DataType::kBool, {1, 1}, {{1}});
  EXPECT_THAT(run(context, *engine, {one, x})["y"], ElementsAre(-1, -2));
  const Tensor two = Tensor::of<uint8_t>(DataType::kBool, {1, 2}, {{1, 1}});
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {two, x});
              }),
              HasSubstr("the condition is bool[1,2], not one bool"));
}

// The number of the iteration is part of the seed of what is drawn in it.
TEST(ImportedControlFlow, EachIterationDrawsOtherRandomNumbers) {
  ModelBuilder model;
  model.input("n", {}, kInt64).input("x", {"3"}).output("last").output("all");
  ModelBuilder loop;
  loop.input("i", {}, kInt64).input("c", {}, kBool).input("v", {"3"});
  loop.output("c2").output("v2").output("drawn");
  loop.node("Identity", {"c"}, {"c2"});
  loop.node("RandomUniformLike", {"v"}, {"drawn"});
  loop.node("Add", {"v", "drawn"}, {"v2"});
  set_body(model.node("Loop", {"n", "", "x"}, {"last", "all"}, "loop"), "body", loop);
  const auto engine = engine_of_model(model);
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {number(DataType::kI64, 4),
                                      Tensor::of<float>(DataType::kF32, {3}, {{0, 0, 0}})};
  const std::vector<float> drawn = run(context, *engine, inputs)["all"];
  ASSERT_EQ(drawn.size(), 12u);
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), 12u) << "a number came twice";
  EXPECT_EQ(run(context, *engine, inputs)["all"], drawn) << "in another run";
}

}  // namespace
}  // namespace anneal::testing
