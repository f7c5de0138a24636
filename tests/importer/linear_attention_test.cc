// What ONNX Runtime's generators write for models with linear attention. Each operator gives what
// several plain operators give.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "anneal/tests/importer/delta_nets.h"
#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using ::testing::HasSubstr;

TEST(CausalConvWithState, OfMicrosoftMayBeDilated) {
  for (const int64_t dilation : {1, 2})
    for (const bool has_past : {false, true})
      for (const char* output : {"conv", "state"}) {
        SCOPED_TRACE(std::to_string(dilation) + output);
        const int64_t before = 2 * dilation;
        std::vector<FloatInput> inputs = {{"x", {2, 3, 5}}, {"w", {3, 1, 3}}, {"b", {3}}};
        if (has_past) inputs.push_back({"past", {2, 3, before}});
        const std::string name = output;
        expect_same(
            inputs,
            [&](ModelBuilder& m) {
              auto& node =
                  microsoft(m, "CausalConvWithState", {"x", "w", "b", has_past ? "past" : ""},
                            {name == "conv" ? "y" : "c", name == "state" ? "y" : "s"});
              set(node, "dilation", dilation);
              set(node, "activation", "silu");
            },
            [&](ModelBuilder& m) {
              if (!has_past)
                m.floats("past", {2, 3, before},
                         std::vector<float>(static_cast<size_t>(6 * before)));
              set(m.node("Concat", {"past", "x"}, {name == "state" ? "all" : "padded"}), "axis",
                  int64_t{2});
              if (name == "state") {
                m.integers("from", {5}).integers("to", {5 + before}).integers("axis", {2});
                m.node("Slice", {"all", "from", "to", "axis"}, {"y"});
                return;
              }
              auto& node = m.node("Conv", {"padded", "w", "b"}, {"c"});
              set(node, "group", int64_t{3});
              set(node, "dilations", std::vector<int64_t>{dilation});
              m.node("Sigmoid", {"c"}, {"s"});
              m.node("Mul", {"c", "s"}, {"y"});
            });
      }
}

NodeProto& linear(NodeProto& node, int64_t queries) {
  set(node, "q_num_heads", queries);
  set(node, "kv_num_heads", int64_t{4});
  set(node, "update_rule", "gated_delta");
  return node;
}

// Heads a, b of 3 numbers as a, a, b, b.
void repeat(ModelBuilder& m, const std::string& from, const std::string& to) {
  m.integers(to + "/split", {2, 1, 2, 1, 3}).integers(to + "/joined", {2, 1, 12});
  m.integers(to + "/shape", {2, 1, 2, 2, 3});
  m.node("Reshape", {from, to + "/split"}, {to + "/heads"});
  m.node("Expand", {to + "/heads", to + "/shape"}, {to + "/repeated"});
  m.node("Reshape", {to + "/repeated", to + "/joined"}, {to});
}

TEST(LinearAttention, HeadsOfTheStateShareQueriesAndKeys) {
  const std::vector<FloatInput> inputs = {{"q", {2, 1, 6}}, {"k", {2, 1, 6}},
                                          {"v", {2, 1, 8}}, {"past", {2, 4, 3, 2}},
                                          {"g", {2, 1, 4}}, {"b", {2, 1, 4}}};
  expect_same(
      inputs,
      [](ModelBuilder& m) {
        linear(microsoft(m, "LinearAttention", {"q", "k", "v", "past", "g", "b"}), 2);
      },
      [](ModelBuilder& m) {
        repeat(m, "q", "q4");
        repeat(m, "k", "k4");
        linear(m.node("LinearAttention", {"q4", "k4", "v", "past", "g", "b"}, {"y"}), 4);
      });
}

TEST(LinearAttention, FormsOfMicrosoftThatAreNotTaken) {
  const auto error = [](const char* op, const char* attribute, int64_t value) {
    return error_of([&] {
      values_of({{"q", {1, 1, 12}}, {"k", {1, 1, 12}}, {"v", {1, 1, 12}}, {"w", {2, 1, 3}}},
                [&](ModelBuilder& m) {
                  const bool is_conv = std::string_view(op) == "CausalConvWithState";
                  auto& node = microsoft(m, op,
                                         is_conv ? std::vector<std::string>{"q", "w"}
                                                 : std::vector<std::string>{"q", "k", "v"});
                  if (!is_conv) {
                    linear(node, 4);
                    node.mutable_attribute()->RemoveLast();
                    set(node, "update_rule", "linear");
                  }
                  set(node, attribute, value);
                });
    });
  };
  EXPECT_EQ(error("LinearAttention", "state_window", 0), "");
  EXPECT_THAT(error("LinearAttention", "state_window", 2), HasSubstr("state_window = 2"));
  EXPECT_THAT(error("CausalConvWithState", "channels_last", 1), HasSubstr("channels_last = 1"));
  EXPECT_THAT(error("CausalConvWithState", "ndim", 2), HasSubstr("ndim = 2"));
  EXPECT_THAT(error("CausalConvWithState", "dilation", 0), HasSubstr("a dilation of 0"));
  EXPECT_THAT(error("CausalConvWithState", "dilation", int64_t{1} << 62),
              HasSubstr("a dilation of"));
}

TEST(GatedDeltaNet, IsLinearAttentionWithItsGates) {
  for (const DeltaNet& net : delta_nets())
    for (const bool is_state : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", net.rule, net.gate, net.layout, is_state));
      expect_same(
          inputs_of(net), [&](ModelBuilder& m) { gated_delta_net(m, net, is_state); },
          [&](ModelBuilder& m) { linear_attention(m, net, is_state); });
    }
}

TEST(GatedDeltaNet, WrongNodesAndFormsThatAreNotTaken) {
  using Names = std::vector<std::string>;
  const std::vector<FloatInput> inputs = {
      {"q", {2, 1, 2, 3}},   {"v", {2, 1, 4, 2}}, {"g", {2, 1, 4}},  {"s", {2, 4, 2, 3}},
      {"one", {1, 4, 2, 3}}, {"a", {4}},          {"p", {2, 1, 21}}, {"three", {2, 1, 3, 2}}};
  const auto error = [&](const Names& names, const char* attribute = "", const char* value = "") {
    return error_of([&] {
      values_of(inputs, [&](ModelBuilder& m) {
        auto& node = microsoft(m, "GatedDeltaNet", names);
        if (*attribute != 0) set(node, attribute, value);
      });
    });
  };
  EXPECT_EQ(error({"q", "q", "v", "", "g", "g", "s"}), "");
  EXPECT_EQ(error({"q", "q", "v", "", "g", "g"}), "");
  EXPECT_THAT(error({"q", "q", "v", "a", "g", "g", "s"}), HasSubstr("cu_seqlens"));
  EXPECT_THAT(error({"q", "q", "v", "", "g", "g", "s", "", "", "a"}), HasSubstr("capture_count"));
  EXPECT_THAT(error({"q", "q", "v", "", "g", "", "s"}), HasSubstr("update_rule"));
  EXPECT_THAT(error({"q", "q", "v", "", "g", "g", "s", "a", "a"}), HasSubstr("gate_activation"));
  EXPECT_THAT(error({"q", "q", "v", "", "g", "g", "s"}, "gate_activation", "softplus"),
              HasSubstr("gate_activation"));
  EXPECT_THAT(error({"q", "q", "v", "", "g", "g", "one"}), HasSubstr("initial_state is not"));
  EXPECT_THAT(error({"q", "q", "three", "", "g", "g", "s"}), HasSubstr("2 heads of queries for 3"));
  EXPECT_THAT(error({"p", "", "", "", "g", "g", "s"}), HasSubstr("packed elements"));
  EXPECT_THAT(error({"p", "", "", "", "g", "g"}), HasSubstr("initial_state"));
  EXPECT_THAT(error({"q", "q", "", "", "g", "g", "s"}), HasSubstr("keys without values"));
}

TEST(LinearAttentionGate, IsSoftplusAndSigmoid) {
  const std::vector<FloatInput> inputs = {
      {"a", {2, 3, 4}}, {"bias", {4}}, {"scale", {4}}, {"b", {2, 3, 4}}};
  // Large numbers, too: exp(200) is infinite in f32.
  for (const float factor : {1.0F, 200.0F, -200.0F})
    expect_same(
        inputs,
        [&](ModelBuilder& m) {
          m.floats("factor", {}, {factor});
          m.node("Mul", {"a", "factor"}, {"wide"});
          microsoft(m, "LinearAttentionGate", {"wide", "bias", "scale", "b"}, {"decay", "beta"});
          m.node("Add", {"decay", "beta"}, {"y"});
        },
        [&](ModelBuilder& m) {
          m.floats("factor", {}, {factor});
          m.node("Mul", {"a", "factor"}, {"wide"});
          m.node("Add", {"wide", "bias"}, {"sum"});
          m.node("Softplus", {"sum"}, {"soft"});
          m.node("Mul", {"soft", "scale"}, {"decay"});
          m.node("Sigmoid", {"b"}, {"beta"});
          m.node("Add", {"decay", "beta"}, {"y"});
        });
}

TEST(GatedRMSNorm, NormalizesGroupsAndGatesThem) {
  const std::vector<FloatInput> inputs = {{"x", {2, 3, 8}}, {"scale", {4}}, {"gate", {2, 3, 8}}};
  for (const char* activation : {"silu", "sigmoid"})
    expect_same(
        inputs,
        [&](ModelBuilder& m) {
          auto& node = microsoft(m, "GatedRMSNorm", {"x", "scale", "gate"});
          set(node, "activation", activation);
          set(node, "epsilon", 0.01F);
        },
        [&](ModelBuilder& m) {
          m.integers("split", {2, 3, 2, 4}).integers("joined", {2, 3, 8});
          m.node("Reshape", {"x", "split"}, {"groups"});
          set(m.node("RMSNormalization", {"groups", "scale"}, {"normalized"}), "epsilon", 0.01F);
          m.node("Reshape", {"normalized", "joined"}, {"all"});
          m.node("Sigmoid", {"gate"}, {"open"});
          const bool is_silu = std::string_view(activation) == "silu";
          if (is_silu) m.node("Mul", {"gate", "open"}, {"silu"});
          m.node("Mul", {"all", is_silu ? "silu" : "open"}, {"y"});
        });
  EXPECT_THAT(error_of([&] {
                values_of({{"x", {2, 7}}, {"scale", {4}}, {"gate", {2, 7}}}, [](ModelBuilder& m) {
                  microsoft(m, "GatedRMSNorm", {"x", "scale", "gate"});
                });
              }),
              HasSubstr("7 elements in groups of 4"));
}

TEST(BranchwiseRMSNorm, NormalizesEachBranch) {
  struct Case {
    std::vector<int64_t> x, scale;
    int64_t branches;
  };
  for (const Case& c : {Case{{2, 5, 3, 4}, {}, 0}, Case{{2, 3, 4}, {12}, 0},
                        Case{{2, 3, 4}, {3, 4}, 0}, Case{{2, 3, 4}, {4}, 0}, Case{{2, 12}, {12}, 3},
                        Case{{2, 12}, {4}, 3}, Case{{12}, {3, 4}, 3}}) {
    std::vector<FloatInput> inputs = {{"x", c.x}};
    if (!c.scale.empty()) inputs.push_back({"scale", c.scale});
    SCOPED_TRACE(fmt::format("{} axes, {} branches", c.x.size(), c.branches));
    expect_same(
        inputs,
        [&](ModelBuilder& m) {
          auto& node = microsoft(m, "BranchwiseRMSNorm", {"x", c.scale.empty() ? "" : "scale"});
          set(node, "num_branches", c.branches);
          set(node, "epsilon", 0.01F);
        },
        [&](ModelBuilder& m) {
          m.integers("branches", {-1, 3, 4})
              .integers("joined", c.x)
              .floats("ones", {4}, {1, 1, 1, 1});
          m.integers("scale_shape", {c.scale == std::vector<int64_t>{4} ? 1 : 3, 4});
          m.node("Reshape", {"x", "branches"}, {"rows"});
          set(m.node("RMSNormalization", {"rows", "ones"}, {"unit"}), "epsilon", 0.01F);
          if (!c.scale.empty()) {
            m.node("Reshape", {"scale", "scale_shape"}, {"factors"});
            m.node("Mul", {"unit", "factors"}, {"scaled"});
          }
          m.node("Reshape", {c.scale.empty() ? "unit" : "scaled", "joined"}, {"y"});
        });
  }
  EXPECT_THAT(error_of([&] {
                values_of({{"x", {2, 12}}}, [](ModelBuilder& m) {
                  set(microsoft(m, "BranchwiseRMSNorm", {"x"}), "num_branches", int64_t{5});
                });
              }),
              HasSubstr("5 branches"));
}

}  // namespace
}  // namespace anneal
