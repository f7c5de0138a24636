// Operators with a state, DeformConv and BitCast: shapes that stay open, and nodes that are wrong.
// What they compute is in the suite of ONNX.
#include <gmock/gmock.h>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Change = std::function<void(ModelBuilder&, NodeProto&)>;

struct OperatorCase {
  std::string op;
  std::vector<std::vector<std::string>> inputs;  // dims
  std::vector<std::string> outputs = {"y"};
  int opset = 27;
};

Graph import(const OperatorCase& given, const Change& change) {
  ModelBuilder model(given.opset);
  std::vector<std::string> names;
  for (const auto& dims : given.inputs) {
    names.push_back("i" + std::to_string(names.size()));
    model.input(names.back(), dims);
  }
  for (const std::string& output : given.outputs) model.output(output);
  change(model, model.node(given.op, names, given.outputs, "n"));
  Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  return graph;
}

std::string output_types(const Graph& graph) {
  std::string text;
  for (const Graph::Output& output : graph.outputs())
    text += to_string(graph.value(output.value).type(), graph.sizes()) + " ";
  return text;
}

void nothing(ModelBuilder&, NodeProto&) {}

Change heads(int64_t queries, int64_t keys, const char* rule) {
  return [=](ModelBuilder&, NodeProto& node) {
    set(node, "q_num_heads", queries);
    set(node, "kv_num_heads", keys);
    set(node, "update_rule", rule);
  };
}

TEST(State, CausalConvKeepsOpenSizes) {
  const OperatorCase given{
      "CausalConvWithState", {{"N", "4", "L"}, {"4", "1", "3"}}, {"y", "state"}};
  EXPECT_EQ(output_types(import(given, nothing)), "f32[N,4,L] f32[N,4,2] ");
}

TEST(State, LinearAttentionKeepsOpenSizes) {
  const OperatorCase given{
      "LinearAttention", {{"B", "T", "12"}, {"B", "T", "6"}, {"B", "T", "10"}}, {"y", "state"}};
  const Graph graph = import(given, heads(4, 2, "linear"));
  EXPECT_EQ(output_types(graph), "f32[B,T,20] f32[B,2,3,5] ");
  EXPECT_THAT(to_string(graph), AllOf(HasSubstr("LinearAttention("), Not(HasSubstr("Scan("))));
}

TEST(State, GatedDeltaNetKeepsOpenSizes) {
  const Change gated = [](ModelBuilder&, NodeProto& node) {
    node.set_domain("com.microsoft");
    node.add_input("");
    node.add_input("g");
    node.add_input("g");
    node.add_input("s");
  };
  const auto with = [&](const std::vector<std::string>& gate) -> Change {
    return [=](ModelBuilder& m, NodeProto& node) {
      m.input("g", gate).input("s", {"B", "4", "5", "3"});
      gated(m, node);
    };
  };
  const OperatorCase batches{"GatedDeltaNet",
                             {{"B", "T", "2", "3"}, {"B", "T", "2", "3"}, {"B", "T", "4", "5"}},
                             {"y", "state"}};
  EXPECT_EQ(output_types(import(batches, with({"B", "T", "4"}))), "f32[B,T,4,5] f32[B,4,5,3] ");
  const OperatorCase tokens{
      "GatedDeltaNet", {{"N", "2", "3"}, {"N", "2", "3"}, {"N", "4", "5"}}, {"y", "state"}};
  EXPECT_EQ(output_types(import(tokens, with({"N", "4"}))), "f32[N,4,5] f32[B,4,5,3] ");
}

TEST(State, DeformConvKeepsOpenSizes) {
  const OperatorCase given{"DeformConv",
                           {{"N", "4", "H", "W"}, {"6", "2", "3", "3"}, {"N", "36", "OH", "OW"}}};
  const Change groups = [](ModelBuilder&, NodeProto& node) {
    set(node, "group", int64_t{2});
    set(node, "offset_group", int64_t{2});
  };
  EXPECT_EQ(output_types(import(given, groups)), "f32[N,6,OH,OW] ");
}

TEST(State, ScanOfOpset8HasABatchAxis) {
  ModelBuilder model(8);
  model.input("start", {"N", "2"}).input("x", {"N", "T", "2"}).input("step", {"2"});
  model.output("last").output("all");
  NodeProto& node = model.node("Scan", {"", "start", "x"}, {"last", "all"}, "n");
  set(node, "num_scan_inputs", int64_t{1});
  auto* attribute = node.add_attribute();
  attribute->set_name("body");
  attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
  auto& body = *attribute->mutable_g();
  for (const char* name : {"sum", "element"}) body.add_input()->set_name(name);
  for (const char* name : {"next", "copy"}) body.add_output()->set_name(name);
  const auto add = [&](const char* op, const std::vector<std::string>& inputs, const char* output) {
    NodeProto& inner = *body.add_node();
    inner.set_op_type(op);
    for (const std::string& input : inputs) inner.add_input(input);
    inner.add_output(output);
  };
  add("Add", {"sum", "element"}, "moved");
  add("Add", {"moved", "step"}, "next");  // step is captured through both bodies
  add("Identity", {"next"}, "copy");
  const Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  EXPECT_EQ(output_types(graph), "f32[N,2] f32[N,T,2] ");
}

TEST(State, WrongNodes) {
  struct Case {
    OperatorCase given;
    Change change;
    std::string error;
  };
  const std::vector<std::vector<std::string>> qkv(3, {"2", "3", "8"});
  const auto with = [](std::vector<std::vector<std::string>> inputs, size_t index,
                       std::vector<std::string> dims) {
    inputs[index] = std::move(dims);
    return inputs;
  };
  const std::vector<std::vector<std::string>> deform = {
      {"1", "4", "5", "5"}, {"6", "2", "3", "3"}, {"1", "18", "3", "3"}};
  const auto group = [](const char* name, int64_t value) -> Change {
    return [=](ModelBuilder&, NodeProto& node) {
      set(node, "group", int64_t{2});
      if (std::string_view(name) == "group") node.clear_attribute();
      set(node, name, value);
    };
  };
  const Change bool_bits = [](ModelBuilder&, NodeProto& node) {
    set(node, "to", int64_t{TensorProto::BOOL});
  };
  const Case cases[] = {
      {{"CausalConvWithState", {{"N", "4", "L"}, {"4", "1", "0"}}}, nothing, "no elements"},
      {{"CausalConvWithState", {{"N", "4"}, {"4", "1", "3"}}}, nothing, "3 axes"},
      {{"CausalConvWithState", {{"N", "5", "L"}, {"4", "1", "3"}}}, nothing, "5"},
      {{"CausalConvWithState", {{"N", "4", "L"}, {"4", "1", "3"}}},
       [](ModelBuilder&, NodeProto& node) { set(node, "activation", "relu"); },
       "\"activation\" is \"relu\""},
      {{"LinearAttention", qkv}, heads(4, 3, "linear"), "4 heads of queries for 3"},
      {{"LinearAttention", qkv}, heads(0, 0, "linear"), "0 heads"},
      {{"LinearAttention", qkv}, heads(3, 3, "linear"), "8 elements in 3 heads"},
      {{"LinearAttention", qkv}, heads(2, 2, "delta"), "do not fit attribute \"update_rule\""},
      {{"LinearAttention", qkv}, heads(2, 2, "other"), "\"update_rule\" is \"other\""},
      {{"LinearAttention", with(qkv, 1, {"2", "8"})}, heads(2, 2, "linear"), "3 axes"},
      {{"DeformConv", deform}, group("group", 4), "do not divide"},
      {{"DeformConv", deform}, group("group", int64_t{1} << 62), "do not divide"},
      {{"DeformConv", deform}, group("offset_group", int64_t{1} << 62), "do not divide"},
      {{"DeformConv", deform}, group("offset_group", 2), "18 offsets instead of 36"},
      {{"DeformConv", with(deform, 2, {"1", "18", "4", "3"})},
       group("offset_group", 1),
       "offsets for 4 places"},
      {{"DeformConv", with(deform, 0, {"1", "4", "5"})}, group("offset_group", 1), "spatial axes"},
      {{"BitCast", {{"3"}}}, bool_bits, "bits as bool"},
      {{"BitCast", {{"3"}}},
       [](ModelBuilder&, NodeProto& node) { set(node, "to", int64_t{TensorProto::INT64}); },
       "the bits of f32 as i64"},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(error_of([&] { import(wrong.given, wrong.change); }), HasSubstr(wrong.error));
}

}  // namespace
}  // namespace anneal
