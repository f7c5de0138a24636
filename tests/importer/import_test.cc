// Models right and wrong: what the walker makes of names, sizes, functions, and mistakes.
#include <gmock/gmock.h>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using testing::HasSubstr;
using testing::Not;

Graph import(const ModelBuilder& model, const ImportOptions& options = {}) {
  Graph graph = import_bytes(model.bytes(), "", options).graph;
  verify(graph);
  return graph;
}
std::string error(const ModelBuilder& model, const ImportOptions& options = {}) {
  return error_of([&] { import(model, options); });
}

ModelBuilder unary(const std::string& op, int opset = 17) {
  ModelBuilder model(opset);
  model.input("x", {"2", "3"}).output("y");
  model.node(op, {"x"}, {"y"}, "n");
  return model;
}

TEST(Import, NamesOfLayersAndValues) {
  ModelBuilder model;
  model.input("x", {"1", "2", "4", "4"}).floats("w", {3, 2, 1, 1}, {1, 2, 3, 4, 5, 6});
  model.floats("b", {3}, {1, 2, 3}).output("conv1");
  model.node("Conv", {"x", "w", "b"}, {"conv1"}, "conv1");
  const Graph graph = import(model);
  const Layer& conv = graph.layer(graph.value(graph.outputs()[0].value).producer);
  EXPECT_EQ(conv.name, "conv1");
  EXPECT_EQ(conv.origins, std::vector<std::string>{"conv1"});
  EXPECT_EQ(graph.value(conv.outputs[0]).name, "conv1");
  EXPECT_TRUE(std::holds_alternative<Conv>(conv.op));
  // The bias is part of the layer, as it is part of the node.
  ASSERT_EQ(conv.epilogues.size(), 1u);
  EXPECT_EQ(conv.inputs.size(), 3u);
}

TEST(Import, NodesWithoutNamesAndInAnyOrder) {
  ModelBuilder model;
  model.input("x", {"2"}).output("y");
  model.node("Relu", {"h"}, {"y"});
  model.node("Exp", {"x"}, {"h"});
  const Graph graph = import(model);
  EXPECT_EQ(graph.layer(graph.order()[0]).name, "Exp_1");
  EXPECT_EQ(graph.layer(graph.order()[1]).name, "Relu_0");
}

TEST(Import, SizesBecomeSymbols) {
  ModelBuilder model;
  model.input("a", {"batch size", "?", "3"}).input("b", {"batch size", "", "3"}).output("y");
  // What exporters call a size that they do not know.
  for (int i = 0; i < 2; ++i)
    model.graph()
        .mutable_input(i)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(1)
        ->set_dim_param("?");
  model.node("Add", {"a", "b"}, {"y"});
  const Graph graph = import(model);
  const auto& sizes = graph.sizes();
  const Shape &a = graph.value(graph.inputs()[0]).type().shape,
              &b = graph.value(graph.inputs()[1]).type().shape;
  EXPECT_EQ(sizes.text(a), "[batch_size,a.1,3]");
  EXPECT_EQ(sizes.text(b), "[batch_size,b.1,3]");
}

TEST(Import, BoundsOfInputs) {
  ModelBuilder model;
  model.input("a", {"N", "?"}).input("b", {"N", "3"}).output("y");
  model.node("Concat", {"a", "b"}, {"y"}).add_attribute();
  auto* axis = model.graph().mutable_node(0)->mutable_attribute(0);
  axis->set_name("axis");
  axis->set_type(anneal_onnx::AttributeProto::INT);
  axis->set_i(1);
  ImportOptions options;
  options.bounds["a"] = {{1, 5}, {4, 5}, {8, 5}};
  const Graph graph = import(model, options);
  EXPECT_EQ(graph.sizes().text(graph.value(graph.outputs()[0].value).type().shape), "[N,8]");
  EXPECT_EQ(graph.sizes().symbols()[0].bounds, (Bounds{1, 4, 8}));

  const auto refused = [&](const std::string& name, InputBounds bounds) {
    ImportOptions wrong;
    wrong.bounds[name] = bounds;
    return error(model, wrong);
  };
  EXPECT_THAT(refused("c", {{1}, {1}, {1}}), HasSubstr("no such input, but a, b"));
  EXPECT_THAT(refused("a", {{1}, {1}, {1}}), HasSubstr("the input has 2 axes"));
  EXPECT_THAT(refused("a", {{2, 1}, {1, 1}, {3, 1}}), HasSubstr("min <= opt <= max"));
  EXPECT_THAT(refused("b", {{1, 2}, {1, 2}, {1, 4}}), HasSubstr("axis 1 is 3 in the model"));
  options.bounds["b"] = {{2, 3}, {4, 3}, {8, 3}};
  EXPECT_THAT(error(model, options), HasSubstr("1..8 by another input's bounds"));
}

TEST(Import, InitializersShadowInputs) {
  ModelBuilder model;
  model.model.set_ir_version(3);
  model.input("x", {"2"}).input("w", {"2"}).floats("w", {2}, {1, 2}).output("y");
  model.node("Mul", {"x", "w"}, {"y"});
  EXPECT_EQ(import(model).inputs().size(), 1U);
}

// A default value is a constant, unless the caller asks for the input.
TEST(Import, InitializersThatAreInputsToo) {
  ModelBuilder model;
  model.input("w", {"2"}).input("x", {"2"}).output("y").floats("w", {2}, {1, 2});
  model.node("Add", {"x", "w"}, {"y"});
  const auto inputs = [&](const ImportOptions& options) {
    const Graph graph = import_bytes(model.bytes(), "", options).graph;
    std::vector<std::string> names;
    for (const ValueId input : graph.inputs()) names.push_back(graph.value(input).name);
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(inputs({}), ElementsAre("x"));
  EXPECT_THAT(inputs({.default_inputs = {"w"}}), ElementsAre("w", "x"));
  EXPECT_THAT(inputs({.default_inputs = {"*"}}), ElementsAre("w", "x"));
  EXPECT_THAT(inputs({.fed_inputs = 2}), ElementsAre("w", "x"));
  EXPECT_THAT(error_of([&] { inputs({.default_inputs = {"x"}}); }),
              testing::HasSubstr("such inputs are: w"));
  const ImportResult constant = import_bytes(model.bytes(), "", {});
  EXPECT_THAT(constant.constant_inputs, ElementsAre("w"));
  const ImportResult open = import_bytes(model.bytes(), "", {.default_inputs = {"w"}});
  EXPECT_THAT(open.constant_inputs, ElementsAre());
  const std::vector<float> values = {1, 2};
  EXPECT_EQ(open.graph.value(open.graph.inputs()[0]).default_value,
            Tensor::of<float>(DataType::kF32, {2}, values));
}

TEST(Import, DefaultValuesFitTheirInputs) {
  const auto import = [](const std::vector<std::string>& sizes) {
    ModelBuilder model;
    model.input("w", sizes).input("x", {"M"}).output("y").floats("w", {3}, {1, 2, 3});
    model.node("Add", {"x", "w"}, {"y"});
    return import_bytes(model.bytes(), "", {.default_inputs = {"w"}}).graph;
  };
  const Graph graph = import({"N"});
  const Shape& shape = graph.value(graph.find_value("w")).type().shape;
  EXPECT_EQ(graph.sizes().text(shape), "[N]");
  EXPECT_EQ(graph.sizes().range(shape[0]).opt, 3);
  EXPECT_THAT(error_of([&] { import({"2"}); }),
              HasSubstr("input \"w\": it is declared as f32[2], but its default value, the "
                        "initializer of that name, is f32[3]"));
  EXPECT_THAT(error_of([&] { import({"3", "1"}); }), HasSubstr("is f32[3]"));
}

// A function that calls another twice, which calls a third one twice, and so on.
TEST(Import, FunctionsThatDoubleAreRefusedBeforeTheyAreInlined) {
  ModelBuilder model;
  model.input("x", {"2"}).output("y");
  auto* import = model.model.add_opset_import();
  import->set_domain("own");
  import->set_version(1);
  for (int level = 0; level < 30; ++level) {
    auto* function = model.model.add_functions();
    function->set_domain("own");
    function->set_name("f" + std::to_string(level));
    function->add_input("a");
    function->add_output("c");
    *function->add_opset_import() = model.model.opset_import(0);
    *function->add_opset_import() = *import;
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "c")}) {
      auto& node =
          ModelBuilder::fill(*function->add_node(),
                             level == 0 ? "Neg" : "f" + std::to_string(level - 1), {from}, {to});
      if (level > 0) node.set_domain("own");
    }
  }
  model.node("f29", {"x"}, {"y"}).set_domain("own");
  EXPECT_THAT(error_of([&] { import_bytes(model.bytes(), ""); }),
              testing::HasSubstr("local functions stand for 2147483647"));
}

TEST(Import, FunctionsAreInlined) {
  ModelBuilder model;
  model.input("x", {"2"}).output("y");
  model.node("Leak", {"x"}, {"y"}, "call").set_domain("mine");
  set(*model.graph().mutable_node(0), "slope", 0.5F);
  auto* function = model.model.add_functions();
  function->set_name("Leak");
  function->set_domain("mine");
  function->add_input("in");
  function->add_input("unused");
  function->add_output("out");
  function->add_attribute("slope");
  auto& inner = ModelBuilder::fill(*function->add_node(), "LeakyRelu", {"in"}, {"h"}, "leaky");
  auto* attribute = inner.add_attribute();
  attribute->set_name("alpha");
  attribute->set_ref_attr_name("slope");
  attribute->set_type(anneal_onnx::AttributeProto::FLOAT);
  ModelBuilder::fill(*function->add_node(), "Exp", {"h"}, {"out"});
  const Graph graph = import(model);
  ASSERT_EQ(graph.layer_count(), 2U);
  EXPECT_THAT(to_string(graph), HasSubstr("0.5f32"));
  EXPECT_EQ(graph.layer(graph.order()[0]).name, "call/leaky");
  EXPECT_EQ(graph.value(graph.outputs()[0].value).name, "y");

  // A function that calls itself, twice: neither deep nor wide recursion ends the process.
  for (int i = 0; i < 2; ++i)
    ModelBuilder::fill(*function->mutable_node(i), "", {}, {}).set_op_type("Leak");
  for (int i = 0; i < 2; ++i) {
    function->mutable_node(i)->set_domain("mine");
    function->mutable_node(i)->clear_attribute();
  }
  EXPECT_THAT(error(model), HasSubstr("more than 32 levels deep"));
}

TEST(Import, EverythingUnsupportedIsReportedAtOnce) {
  ModelBuilder model;
  model.input("x", {"2", "3"}).input("axes", {"?"}, anneal_onnx::TensorProto::INT64);
  model.add_tensor("w", {2}, anneal_onnx::TensorProto::COMPLEX64);
  model.output("y").output("z").output("d");
  model.node("Frobnicate", {"x"}, {"a"}, "first").set_domain("acme");
  model.node("Frobnicate", {"a"}, {"b"}, "second").set_domain("acme");
  model.node("Squeeze", {"x", "axes"}, {"c"}, "squeeze");
  model.node("Relu", {"b"}, {"y"}, "behind an unsupported one");
  model.node("Gelu", {"c"}, {"d"}, "gelu");
  model.node("SequenceMap", {"x"}, {"z"}, "map");
  const std::string text = error(model);
  EXPECT_THAT(text, HasSubstr("unsupported: the model needs what is not supported:"));
  EXPECT_THAT(text, HasSubstr("Frobnicate (acme 1), 2 times, first in \"first\": not implemented"));
  EXPECT_THAT(text,
              HasSubstr("Squeeze (ai.onnx 17), once in \"squeeze\": a number of axes known only"));
  EXPECT_THAT(text,
              HasSubstr("Gelu (ai.onnx 17), once in \"gelu\": not implemented for this opset"));
  EXPECT_THAT(text, HasSubstr("SequenceMap (ai.onnx 17), once in \"map\": not implemented"));
  EXPECT_THAT(text, HasSubstr("initializer, once in \"w\": the element type complex64"));
  EXPECT_THAT(text, Not(HasSubstr("Relu")));
}

TEST(Import, AnAttributeThatNobodyReadIsReported) {
  ModelBuilder model = unary("Relu");
  set(*model.graph().mutable_node(0), "mystery", int64_t{1});
  EXPECT_THAT(error(model), HasSubstr("attribute \"mystery\" is not understood"));
}

TEST(Import, AnOutputThatIsNotComputedIsReportedWhenUsed) {
  ModelBuilder model(6);
  model.input("x", {"1", "1", "2"}).output("y");
  for (const char* name : {"s", "b", "m", "v"}) model.floats(name, {1}, {1});
  set(model.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y", "", "other"}, "bn"),
      "is_test", int64_t{1});
  import(model);
  model.output("other");
  EXPECT_THAT(error(model), HasSubstr("in \"bn\": output 2 is not computed"));
}

// As the older exporter of PyTorch writes a module that returns a tensor twice.
TEST(Import, AnOutputThatIsListedTwiceIsThereOnce) {
  ModelBuilder m;
  m.input("x", {"2"}).node("Exp", {"x"}, {"y"});
  m.output("y").output("y");
  const Graph graph = import_bytes(m.bytes(), "").graph;
  ASSERT_EQ(graph.outputs().size(), 1U);
  EXPECT_EQ(graph.outputs()[0].name, "y");
}

TEST(Import, WrongModels) {
  struct Case {
    const char* error;
    std::function<void(ModelBuilder&)> spoil;
  };
  const auto node = [](ModelBuilder & m) -> auto& { return *m.graph().mutable_node(0); };
  const Case cases[] = {
      {"value \"nothing\" is produced by no node",
       [&](ModelBuilder& m) { node(m).set_input(0, "nothing"); }},
      {"graph output: value \"q\" is produced by no node", [](ModelBuilder& m) { m.output("q"); }},
      {"the graph has no outputs", [](ModelBuilder& m) { m.graph().clear_output(); }},
      {"value \"y\" is produced twice: by node \"n\" and by node \"Exp_1\"",
       [](ModelBuilder& m) { m.node("Exp", {"x"}, {"y"}); }},
      {"value \"x\" is defined twice",
       [](ModelBuilder& m) { m.input("k", {"1"}).node("Exp", {"k"}, {"x"}); }},
      {"value \"x\" is defined twice", [](ModelBuilder& m) { m.input("x", {"1"}); }},
      {"value \"w\" is defined twice",
       [](ModelBuilder& m) { m.floats("w", {1}, {1}).floats("w", {1}, {1}); }},
      {"the nodes form a cycle",
       [&](ModelBuilder& m) {
         node(m).set_input(0, "z");
         m.node("Exp", {"y"}, {"z"});
       }},
      {"while importing node \"n\" (Relu): input 0 is bool",
       [](ModelBuilder& m) {
         m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
             anneal_onnx::TensorProto::BOOL);
       }},
      {"2 inputs, 1 expected", [&](ModelBuilder& m) { node(m).add_input("x"); }},
      {"0 inputs, 1 expected", [&](ModelBuilder& m) { node(m).set_input(0, ""); }},
      {"the model imports no opset of ai.onnx",
       [](ModelBuilder& m) { m.model.clear_opset_import(); }},
      {"unsupported: opset 29 of ai.onnx: the newest known is 28",
       [](ModelBuilder& m) { m.model.mutable_opset_import(0)->set_version(29); }},
      {"opset 0 of domain",
       [](ModelBuilder& m) { m.model.mutable_opset_import(0)->set_version(0); }},
      {"tensor \"w\": 1 elements in float_data, but 2 in shape [2]",
       [](ModelBuilder& m) { m.floats("w", {2}, {1}); }},
      {"input \"s\": the type is not that of a tensor",
       [](ModelBuilder& m) { m.graph().add_input()->set_name("s"); }},
      {"value \"y\" is declared as int64 but is f32",
       [](ModelBuilder& m) {
         m.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
             anneal_onnx::TensorProto::INT64);
       }},
      {"attribute \"alpha\" is given twice",
       [&](ModelBuilder& m) {
         node(m).set_op_type("Elu");
         set(node(m), "alpha", 1.0F);
         set(node(m), "alpha", 2.0F);
       }},
      {"attribute \"alpha\" is not of kind FLOAT",
       [&](ModelBuilder& m) {
         node(m).set_op_type("Elu");
         set(node(m), "alpha", int64_t{1});
       }},
      {"axis 2 of 2 axes",
       [&](ModelBuilder& m) {
         node(m).set_op_type("Softmax");
         set(node(m), "axis", int64_t{2});
       }},
      {"attribute \"perm\" is no permutation of 2 axes",
       [&](ModelBuilder& m) {
         node(m).set_op_type("Transpose");
         set(node(m), "perm", std::vector<int64_t>{0, 0});
       }},
      {"the model gives no shape",
       [](ModelBuilder& m) {
         m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
       }},
  };
  for (const Case& wrong : cases) {
    ModelBuilder model = unary("Relu");
    import(model);
    wrong.spoil(model);
    EXPECT_THAT(error(model), HasSubstr(wrong.error));
  }
}

}  // namespace
}  // namespace anneal
