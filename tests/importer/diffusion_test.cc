// Operators that ONNX Runtime's optimizer writes into diffusion models and others. Each gives what
// several plain operators give.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;

using Integers = std::vector<int64_t>;
using Names = std::vector<std::string>;

void transpose(ModelBuilder& m, const std::string& from, const std::string& to,
               const Integers& order) {
  set(m.node("Transpose", {from}, {to}), "perm", order);
}

// y = GroupNormalization of x, then SiLU.
void group_norm(ModelBuilder& m, const std::string& x, bool is_last, bool is_activated) {
  if (is_last) transpose(m, x, "first", {0, 3, 1, 2});
  auto& node = m.node("GroupNormalization", {is_last ? "first" : x, "gamma", "beta"}, {"normal"});
  set(node, "num_groups", int64_t{2});
  set(node, "epsilon", 0.01F);
  if (is_activated) {
    m.node("Sigmoid", {"normal"}, {"open"});
    m.node("Mul", {"normal", "open"}, {"silu"});
  }
  const std::string y = is_activated ? "silu" : "normal";
  is_last ? transpose(m, y, "y", {0, 2, 3, 1}) : void(m.node("Identity", {y}, {"y"}));
}

NodeProto& fused_group_norm(NodeProto& node, bool is_last, bool is_activated) {
  set(node, "groups", int64_t{2});
  set(node, "epsilon", 0.01F);
  set(node, "activation", int64_t{is_activated});
  if (!is_last) set(node, "channels_last", int64_t{0});
  return node;
}

TEST(GroupNorm, NormalizesGroupsOfChannels) {
  for (const bool is_last : {true, false})
    for (const bool is_activated : {true, false})
      expect_same(
          {{"x", is_last ? Integers{2, 3, 5, 6} : Integers{2, 6, 3, 5}},
           {"gamma", {6}},
           {"beta", {6}}},
          [&](ModelBuilder& m) {
            fused_group_norm(microsoft(m, "GroupNorm", {"x", "gamma", "beta"}), is_last,
                             is_activated);
          },
          [&](ModelBuilder& m) { group_norm(m, "x", is_last, is_activated); });
}

TEST(SkipGroupNorm, AddsBefore) {
  struct Case {
    Integers skip;
    bool is_last = true, has_bias = true, is_sum = false;
  };
  for (const Case& c :
       {Case{{2, 3, 5, 6}}, Case{{2, 1, 1, 6}}, Case{{2, 6}}, Case{{2, 6}, true, false},
        Case{{2, 6, 3, 5}, false}, Case{{2, 6}, false}, Case{{2, 3, 5, 6}, true, true, true}}) {
    SCOPED_TRACE(fmt::format("{} axes, {} {}", c.skip.size(), c.is_last, c.has_bias));
    expect_same(
        {{"x", c.is_last ? Integers{2, 3, 5, 6} : Integers{2, 6, 3, 5}},
         {"gamma", {6}},
         {"beta", {6}},
         {"skip", c.skip},
         {"bias", {6}}},
        [&](ModelBuilder& m) {
          auto& node = microsoft(m, "SkipGroupNorm",
                                 {"x", "gamma", "beta", "skip", c.has_bias ? "bias" : ""},
                                 {c.is_sum ? "normal" : "y", c.is_sum ? "y" : "sum"});
          fused_group_norm(node, c.is_last, true);
        },
        [&](ModelBuilder& m) {
          m.integers("shape", c.is_last ? Integers{2, 1, 1, 6} : Integers{2, 6, 1, 1});
          m.integers("bias_shape", c.is_last ? Integers{1, 1, 1, 6} : Integers{1, 6, 1, 1});
          std::string skip = "skip";
          if (c.skip.size() == 2) m.node("Reshape", {"skip", "shape"}, {skip = "skip4"});
          m.node("Reshape", {"bias", "bias_shape"}, {"bias4"});
          Names terms = {"x", skip};
          if (c.has_bias) terms.push_back("bias4");
          m.node("Sum", terms, {c.is_sum ? "y" : "sum"});
          if (!c.is_sum) group_norm(m, "sum", c.is_last, true);
        });
  }
}

TEST(BiasAdd, AddsBoth) {
  expect_same(
      {{"x", {2, 3, 4}}, {"bias", {4}}, {"skip", {2, 3, 4}}},
      [](ModelBuilder& m) {
        microsoft(m, "BiasAdd", {"x", "bias", "skip"});
      },
      [](ModelBuilder& m) {
        m.node("Sum", {"x", "bias", "skip"}, {"y"});
      });
}

TEST(BiasSplitGelu, MultipliesTheFirstHalf) {
  expect_same(
      {{"x", {2, 3, 8}}, {"bias", {8}}},
      [](ModelBuilder& m) {
        microsoft(m, "BiasSplitGelu", {"x", "bias"});
      },
      [](ModelBuilder& m) {
        m.node("Add", {"x", "bias"}, {"sum"});
        set(m.node("Split", {"sum"}, {"left", "right"}), "axis", int64_t{-1});
        set(*m.graph().mutable_node(1), "num_outputs", int64_t{2});
        m.node("Gelu", {"right"}, {"gelu"});
        m.node("Mul", {"left", "gelu"}, {"y"});
      });
}

// Weights are [channels out, height, width, channels in].
TEST(NhwcConv, IsConvWithChannelsLast) {
  for (const char* auto_pad : {"NOTSET", "SAME_UPPER"})
    for (const bool has_bias : {true, false}) {
      const auto attributes = [&](NodeProto& node) {
        set(node, "group", int64_t{2});
        set(node, "strides", Integers{2, 1});
        set(node, "auto_pad", auto_pad);
        if (std::string_view(auto_pad) == "NOTSET") set(node, "pads", Integers{1, 0, 2, 1});
      };
      expect_same(
          {{"x", {2, 7, 5, 4}}, {"w", {6, 3, 2, 2}}, {"b", {6}}},
          [&](ModelBuilder& m) {
            attributes(microsoft(m, "NhwcConv", {"x", "w", has_bias ? "b" : ""}));
          },
          [&](ModelBuilder& m) {
            transpose(m, "x", "x1", {0, 3, 1, 2});
            transpose(m, "w", "w1", {0, 3, 1, 2});
            attributes(m.node("Conv", {"x1", "w1", has_bias ? "b" : ""}, {"c"}));
            transpose(m, "c", "y", {0, 2, 3, 1});
          });
    }
}

TEST(NhwcMaxPool, IsMaxPoolWithChannelsLast) {
  for (const char* auto_pad : {"NOTSET", "SAME_LOWER"}) {
    const auto attributes = [&](NodeProto& node) {
      set(node, "kernel_shape", Integers{3, 2});
      set(node, "strides", Integers{2, 1});
      set(node, "ceil_mode", int64_t{1});
      set(node, "auto_pad", auto_pad);
    };
    expect_same(
        {{"x", {2, 6, 5, 3}}},
        [&](ModelBuilder& m) { attributes(microsoft(m, "NhwcMaxPool", {"x"})); },
        [&](ModelBuilder& m) {
          transpose(m, "x", "x1", {0, 3, 1, 2});
          attributes(m.node("MaxPool", {"x1"}, {"p"}));
          transpose(m, "p", "y", {0, 2, 3, 1});
        });
  }
}

TEST(ExpandDims, AddsAnAxis) {
  for (const int axis : {1, -1})
    expect_same(
        {{"x", {2, 3}}},
        [&](ModelBuilder& m) {
          m.small_integers("axis", {}, anneal_onnx::TensorProto::INT32, {axis});
          microsoft(m, "ExpandDims", {"x", "axis"});
        },
        [&](ModelBuilder& m) {
          m.integers("axes", {axis});
          m.node("Unsqueeze", {"x", "axes"}, {"y"});
        });
}

TEST(BiasSoftmax, TakesAllAxesFromOneOn) {
  struct Case {
    Integers bias;
    int64_t axis, is_inner;
  };
  for (const Case& c : {Case{{2, 1, 1, 5}, 3, 1}, Case{{4, 5}, 3, 0}, Case{{1, 1, 4, 5}, 2, 0}})
    expect_same(
        {{"x", {2, 3, 4, 5}}, {"bias", c.bias}},
        [&](ModelBuilder& m) {
          auto& node = microsoft(m, "BiasSoftmax", {"x", "bias"});
          set(node, "axis", c.axis);
          set(node, "is_inner_broadcast", c.is_inner);
        },
        [&](ModelBuilder& m) {
          m.integers("rows", {2, 3, -1}).integers("shape", {2, 3, 4, 5});
          m.node("Add", {"x", "bias"}, {"sum"});
          if (c.axis == 3) {
            m.node("Softmax", {"sum"}, {"y"});
            return;
          }
          m.node("Reshape", {"sum", "rows"}, {"flat"});
          m.node("Softmax", {"flat"}, {"soft"});
          m.node("Reshape", {"soft", "shape"}, {"y"});
        });
}

TEST(QLinearReduceMean, IsTheMeanOfRealNumbers) {
  for (const int64_t keeps : {0, 1}) {
    const auto numbers = [](ModelBuilder& m) {
      m.floats("s", {}, {0.01F}).floats("t", {}, {0.005F});
      for (const auto& [name, zero] : {std::pair{"z", 100}, std::pair{"u", 90}})
        m.small_integers(name, {}, anneal_onnx::TensorProto::UINT8, {zero});
      m.node("QuantizeLinear", {"x", "s", "z"}, {"q"});
    };
    expect_same(
        {{"x", {2, 3, 5}}},
        [&](ModelBuilder& m) {
          numbers(m);
          auto& node = microsoft(m, "QLinearReduceMean", {"q", "s", "z", "t", "u"}, {"r"});
          set(node, "axes", Integers{0, -1});
          set(node, "keepdims", keeps);
          m.node("DequantizeLinear", {"r", "t", "u"}, {"y"});
        },
        [&](ModelBuilder& m) {
          numbers(m);
          m.integers("axes", {0, 2});
          m.node("DequantizeLinear", {"q", "s", "z"}, {"real"});
          set(m.node("ReduceMean", {"real", "axes"}, {"mean"}), "keepdims", keeps);
          m.node("QuantizeLinear", {"mean", "t", "u"}, {"r"});
          m.node("DequantizeLinear", {"r", "t", "u"}, {"y"});
        });
  }
}

// T5: half of the buckets hold one distance each, the others ranges that grow up to max_distance.
int64_t bucket_of(int64_t ahead, int64_t buckets, int64_t most, bool is_bidirectional) {
  int64_t first = 0;
  if (is_bidirectional) {
    buckets /= 2;
    if (ahead > 0) first = buckets;
  }
  const int64_t distance = is_bidirectional ? std::abs(ahead) : std::max<int64_t>(-ahead, 0);
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double steps = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(most) / static_cast<double>(exact)) *
                       static_cast<double>(buckets - exact);
  return first + std::min(exact + static_cast<int64_t>(steps + 1e-6), buckets - 1);
}

TEST(RelativePositionBias, HasTheBucketOfEachDistance) {
  constexpr int64_t kBuckets = 12, kHeads = 3, kMost = 20, kQueries = 30, kKeys = 26;
  for (const bool is_bidirectional : {true, false}) {
    std::vector<float> table;
    for (int i = 0; i < kBuckets * kHeads; ++i) table.push_back(static_cast<float>(i));
    const auto got = values_of({{"unused", {1}}}, [&](ModelBuilder& m) {
      m.floats("table", {kBuckets, kHeads}, table);
      m.integers("queries", {kQueries}).integers("keys", {kKeys});
      auto& node = microsoft(m, "RelativePositionBias", {"table", "queries", "keys"});
      set(node, "max_distance", kMost);
      set(node, "is_bidirectional", int64_t{is_bidirectional});
    });
    ASSERT_EQ(got.size(), kHeads * kQueries * kKeys);
    for (int64_t i = 0; i < std::ssize(got); ++i) {
      const int64_t key = i % kKeys, query = i / kKeys % kQueries, head = i / kKeys / kQueries;
      const int64_t bucket = bucket_of(key - query, kBuckets, kMost, is_bidirectional);
      EXPECT_EQ(got[static_cast<size_t>(i)], table[static_cast<size_t>(head * kBuckets + bucket)])
          << query << " " << key;
    }
  }
}

}  // namespace
}  // namespace anneal
