// LSTM, GRU and RNN as ONNX writes them.
#include <gmock/gmock.h>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal::set;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void set(anneal_onnx::NodeProto& node, const std::string& name,
         const std::vector<std::string>& values) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::STRINGS);
  for (const std::string& value : values) attribute->add_strings(value);
}
void set(anneal_onnx::NodeProto& node, const std::string& name, const std::vector<float>& values) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::FLOATS);
  for (const float value : values) attribute->add_floats(value);
}

struct Shapes {
  int64_t gates = 1, directions = 1;
};
using Change = std::function<void(ModelBuilder&, anneal_onnx::NodeProto&)>;

// One node of hidden size 2 over x[T,N,3], with all its outputs as the graph's.
std::string text(const std::string& op, const Change& change, int opset = 14,
                 int64_t directions = 1, const std::vector<std::string>& outputs = {"y", "h"}) {
  const int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  ModelBuilder model(opset);
  model.input("x", {"T", "N", "3"});
  const auto weights = [&](const std::string& name, int64_t columns) {
    model.floats(name, {directions, gates * 2, columns},
                 std::vector<float>(static_cast<size_t>(directions * gates * 2 * columns), 1));
  };
  weights("w", 3), weights("r", 2);
  auto& node = model.node(op, {"x", "w", "r"}, outputs, "n");
  for (const std::string& output : outputs)
    if (!output.empty()) model.output(output);
  change(model, node);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  return to_string(graph);
}

TEST(Recurrent, FieldsAndDefaults) {
  const auto nothing = [](ModelBuilder&, anneal_onnx::NodeProto&) {};
  EXPECT_THAT(text("LSTM", nothing, 1), HasSubstr("y, h, n = Recurrent(x, w, r) @name(\"n\")\n"));
  EXPECT_THAT(text("GRU", nothing, 1), HasSubstr("= Recurrent(x, w, r) kind=gru"));
  EXPECT_THAT(text("RNN", nothing, 22), HasSubstr("= Recurrent(x, w, r) kind=rnn"));
  EXPECT_THAT(text(
                  "LSTM",
                  [](ModelBuilder&, anneal_onnx::NodeProto& node) {
                    set(node, "direction", "reverse");
                    set(node, "clip", 1.5F);
                    set(node, "input_forget", int64_t{1});
                    set(node, "hidden_size", int64_t{2});
                    set(node, "output_sequence", int64_t{1});
                  },
                  1),
              HasSubstr("direction=reverse clip=1.5 input_forget=true"));
  EXPECT_THAT(text(
                  "GRU",
                  [](ModelBuilder&, anneal_onnx::NodeProto& node) {
                    set(node, "linear_before_reset", int64_t{1});
                  },
                  3),
              HasSubstr("linear_before_reset=true"));
}

TEST(Recurrent, ActivationsTakeTheirNumbersInOrder) {
  EXPECT_THAT(
      text("LSTM",
           [](ModelBuilder&, anneal_onnx::NodeProto& node) {
             set(node, "activations", std::vector<std::string>{"HardSigmoid", "LeakyRelu", "ELU"});
           }),
      HasSubstr("gate=hard_sigmoid cell=leaky_relu output=elu alphas=[0.2,0.01,1] "
                "betas=[0.5,0,0]"));
  EXPECT_THAT(text("GRU",
                   [](ModelBuilder&, anneal_onnx::NodeProto& node) {
                     set(node, "activations", std::vector<std::string>{"Tanh", "affine"});
                     set(node, "activation_alpha", std::vector<float>{0.5F});
                     set(node, "activation_beta", std::vector<float>{2});
                   }),
              HasSubstr("gate=tanh cell=affine alphas=[0,0.5,0] betas=[0,2,0]"));
  // The two that ONNX names for RNN.
  EXPECT_THAT(text("RNN",
                   [](ModelBuilder&, anneal_onnx::NodeProto& node) {
                     set(node, "activations", std::vector<std::string>{"Relu", "Tanh"});
                   }),
              HasSubstr("kind=rnn cell=relu"));
}

TEST(Recurrent, OutputsMayBeAbsent) {
  const auto nothing = [](ModelBuilder&, anneal_onnx::NodeProto&) {};
  EXPECT_THAT(text("LSTM", nothing, 14, 1, {"", "", "c"}), HasSubstr("return c"));
  EXPECT_THAT(text("GRU", nothing, 14, 1, {"", "h"}), HasSubstr("return h"));
  EXPECT_THAT(text("RNN", nothing, 14, 1, {"y"}), HasSubstr("return y"));
}

TEST(Recurrent, BatchFirstIsTransposed) {
  const std::string graph = text("LSTM",
                                 [](ModelBuilder& model, anneal_onnx::NodeProto& node) {
                                   model.input("h0", {"T", "1", "2"});
                                   for (const char* input : {"", "", "h0"}) node.add_input(input);
                                   set(node, "layout", int64_t{1});
                                 },
                                 14, 1, {"y", "h", "c"});
  EXPECT_THAT(graph, HasSubstr("\"n/x\" = Transpose(x) permutation=[1,0,2]"));
  EXPECT_THAT(graph, HasSubstr("\"n/initial_h\" = Transpose(h0) permutation=[1,0,2]"));
  EXPECT_THAT(graph, HasSubstr("Recurrent(\"n/x\", w, r, _, _, \"n/initial_h\")"));
  EXPECT_THAT(graph, HasSubstr("y = Transpose(\"n/time_first\") permutation=[2,0,1,3]"));
  EXPECT_THAT(graph, HasSubstr("h = Transpose("));
  EXPECT_THAT(graph, HasSubstr("c = Transpose("));
}

TEST(Recurrent, DirectionsOfDifferentFunctionsAreSplit) {
  const auto activations = [](const std::vector<std::string>& names) {
    return [=](ModelBuilder&, anneal_onnx::NodeProto& node) {
      set(node, "direction", "bidirectional");
      set(node, "activations", names);
    };
  };
  const std::string same = text("GRU", activations({"Tanh", "Relu", "Tanh", "Relu"}), 14, 2);
  EXPECT_THAT(same, AllOf(HasSubstr("direction=bidirectional gate=tanh cell=relu"),
                          Not(HasSubstr("Concat"))));
  const std::string split = text("GRU", activations({"Tanh", "Relu", "Sigmoid", "Elu"}), 14, 2);
  EXPECT_THAT(split, HasSubstr("kind=gru gate=tanh cell=relu"));
  EXPECT_THAT(split, HasSubstr("kind=gru direction=reverse cell=elu alphas=[0,1,0]"));
  EXPECT_THAT(split, HasSubstr("y = Concat(\"n/forward\", \"n/reverse\") axis=1"));
  EXPECT_THAT(split, HasSubstr("h = Concat("));
}

TEST(Recurrent, LengthsOfAllStepsAreLeftOut) {
  const auto lengths = [](const std::vector<int>& values) {
    return [=](ModelBuilder& model, anneal_onnx::NodeProto& node) {
      auto* x = model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
      x->mutable_shape()->mutable_dim(0)->set_dim_value(5);
      model.small_integers("lengths", {static_cast<int64_t>(values.size())},
                           anneal_onnx::TensorProto::INT32, values);
      for (const char* input : {"", "lengths"}) node.add_input(input);
    };
  };
  EXPECT_THAT(text("RNN", lengths({5, 5})), HasSubstr("Recurrent(x, w, r) "));
  EXPECT_THAT(text("RNN", lengths({5, 4})), HasSubstr("Recurrent(x, w, r, _, i32{5, 4})"));
}

TEST(Recurrent, WrongNodes) {
  struct Case {
    std::string op, error;
    int opset;
    Change change;
  };
  const auto strings = [](const char* name, const std::vector<std::string>& values) {
    return [=](ModelBuilder&, anneal_onnx::NodeProto& node) { set(node, name, values); };
  };
  const auto integer = [](const char* name, int64_t value) {
    return [=](ModelBuilder&, anneal_onnx::NodeProto& node) { set(node, name, value); };
  };
  const Case cases[] = {
      {"LSTM", "\"activations\" names 2, 3 expected", 14, strings("activations", {"Tanh", "Tanh"})},
      {"GRU", "the activation \"Mish\"", 14, strings("activations", {"Mish", "Tanh"})},
      {"RNN", "\"activation_alpha\" has 1 values for 0 activations that take one", 14,
       [](ModelBuilder&, anneal_onnx::NodeProto& node) {
         set(node, "activation_alpha", std::vector<float>{1});
       }},
      {"LSTM", "\"hidden_size\" contradicts", 14, integer("hidden_size", 3)},
      {"GRU", "attribute \"linear_before_reset\" is not understood", 1,
       integer("linear_before_reset", 1)},
      {"LSTM", "attribute \"layout\" is not understood", 7, integer("layout", 1)},
      {"LSTM", "attribute \"output_sequence\" is not understood", 7, integer("output_sequence", 1)},
      {"RNN", "attribute \"clip\" is negative", 14,
       [](ModelBuilder&, anneal_onnx::NodeProto& node) { set(node, "clip", -1.0F); }},
      {"RNN", "\"direction\" is \"up\"", 14,
       [](ModelBuilder&, anneal_onnx::NodeProto& node) { set(node, "direction", "up"); }},
      {"RNN", "not [2,2,3]", 14,
       [](ModelBuilder&, anneal_onnx::NodeProto& node) {
         set(node, "direction", "bidirectional");
       }},
      {"GRU", "7 inputs, 3 to 6 expected", 14,
       [](ModelBuilder&, anneal_onnx::NodeProto& node) {
         for (const char* input : {"", "", "", "x"}) node.add_input(input);
       }},
      {"GRU", "3 names for 2 outputs", 14,
       [](ModelBuilder&, anneal_onnx::NodeProto& node) { node.add_output("c"); }},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(error_of([&] { text(wrong.op, wrong.change, wrong.opset); }),
                HasSubstr(wrong.error));
}

}  // namespace
}  // namespace anneal
