// Attention and embeddings of com.microsoft, of floats and of 8 bits: each gives what several plain
// operators give.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kLength = 3, kWidth = 8, kPast = 4, kHeads = 2;

std::vector<float> bias() {
  std::vector<float> numbers;
  for (int i = 0; i < 3 * kWidth; ++i) numbers.push_back(0.1F * static_cast<float>(i % 7 - 3));
  return numbers;
}

// Queries, keys and values by plain operators: "q", "k" and "v" of "all".
void split(ModelBuilder& m) {
  m.integers("thirds", {kWidth, kWidth, kWidth});
  set(m.node("Split", {"all", "thirds"}, {"q", "k", "v"}), "axis", int64_t{2});
}

// Keys or values of the past as [batch, heads, positions, width].
void past_part(ModelBuilder& m, const std::string& name, int64_t part) {
  m.integers(name + "/part", {part}).integers(name + "/axis", {0});
  m.node("Gather", {"past", name + "/part"}, {name + "/one"});
  m.node("Squeeze", {name + "/one", name + "/axis"}, {name});
}

NodeProto& plain_attention(ModelBuilder& m, bool has_past, bool causal, const std::string& output) {
  split(m);
  std::vector<std::string> inputs = {"q", "k", "v"};
  if (has_past) {
    past_part(m, "past_keys", 0);
    past_part(m, "past_values", 1);
    inputs.insert(inputs.end(), {"", "past_keys", "past_values"});
  }
  NodeProto& node = m.node("Attention", inputs, {output, "present_keys", "present_values"});
  set(node, "q_num_heads", kHeads);
  set(node, "kv_num_heads", kHeads);
  set(node, "is_causal", int64_t{causal});
  return node;
}

std::vector<FloatInput> inputs_of(bool has_past) {
  std::vector<FloatInput> inputs = {{"x", {kBatch, kLength, kWidth}}, {"w", {kWidth, 3 * kWidth}}};
  if (has_past) inputs.push_back({"past", {2, kBatch, kHeads, kPast, kWidth / kHeads}});
  return inputs;
}

TEST(FusedAttention, QueriesSeeThePast) {
  for (const bool has_past : {false, true})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(fmt::format("past {}, causal {}", has_past, causal));
      expect_same(
          inputs_of(has_past),
          [&](ModelBuilder& m) {
            m.floats("b", {3 * kWidth}, bias());
            auto& node = microsoft(m, "Attention", {"x", "w", "b", "", has_past ? "past" : ""});
            set(node, "num_heads", kHeads);
            set(node, "unidirectional", int64_t{causal});
          },
          [&](ModelBuilder& m) {
            m.floats("b", {3 * kWidth}, bias());
            m.node("MatMul", {"x", "w"}, {"product"});
            m.node("Add", {"product", "b"}, {"all"});
            plain_attention(m, has_past, causal, "y");
          });
    }
}

TEST(FusedAttention, ThePresentHasKeysAndThenValues) {
  expect_same(
      inputs_of(true),
      [](ModelBuilder& m) {
        set(microsoft(m, "Attention", {"x", "w", "", "", "past"}, {"out", "y"}), "num_heads",
            kHeads);
      },
      [](ModelBuilder& m) {
        m.node("MatMul", {"x", "w"}, {"all"});
        plain_attention(m, true, false, "out");
        m.integers("front", {0});
        m.node("Unsqueeze", {"present_keys", "front"}, {"keys"});
        m.node("Unsqueeze", {"present_values", "front"}, {"values"});
        set(m.node("Concat", {"keys", "values"}, {"y"}), "axis", int64_t{0});
      });
}

// x and the weights are quantized; all columns have one scale, or each has its own.
void quantized(ModelBuilder& m, bool by_column) {
  const int64_t columns = by_column ? 3 * kWidth : 1;
  std::vector<float> scales;
  std::vector<int> codes, zeros;
  for (int64_t i = 0; i < columns; ++i) {
    scales.push_back(0.01F * static_cast<float>(i + 1));
    zeros.push_back(static_cast<int>(i % 3));
  }
  for (int64_t i = 0; i < kWidth * 3 * kWidth; ++i)
    codes.push_back(static_cast<int>(i * 37 % 101 - 50));
  const std::vector<int64_t> dims =
      by_column ? std::vector<int64_t>{columns} : std::vector<int64_t>{};
  m.small_integers("wq", {kWidth, 3 * kWidth}, TensorProto::INT8, codes);
  m.floats("ws", dims, scales).small_integers("wz", dims, TensorProto::INT8, zeros);
  m.floats("xs", {}, {0.02F}).small_integers("xz", {}, TensorProto::UINT8, {100});
  m.floats("b", {3 * kWidth}, bias());
  m.node("QuantizeLinear", {"x", "xs", "xz"}, {"xq"});
}

TEST(QAttention, IsAttentionOfDequantizedOperands) {
  for (const bool has_past : {false, true})
    for (const bool by_column : {false, true}) {
      SCOPED_TRACE(fmt::format("past {}, scales of columns {}", has_past, by_column));
      expect_same(
          inputs_of(has_past),
          [&](ModelBuilder& m) {
            quantized(m, by_column);
            std::vector<std::string> inputs = {"xq", "wq", "b", "xs", "ws", "", "xz", "wz"};
            if (has_past) inputs.push_back("past");
            auto& node = microsoft(m, "QAttention", inputs);
            set(node, "num_heads", kHeads);
            set(node, "unidirectional", int64_t{1});
          },
          [&](ModelBuilder& m) {
            quantized(m, by_column);
            m.node("DequantizeLinear", {"xq", "xs", "xz"}, {"xr"});
            m.node("DequantizeLinear", {"wq", "ws", "wz"}, {"wr"});
            m.node("MatMul", {"xr", "wr"}, {"product"});
            m.node("Add", {"product", "b"}, {"all"});
            plain_attention(m, has_past, true, "y");
          });
    }
}

TEST(QEmbedLayerNormalization, IsThatOfDequantizedTables) {
  constexpr const char* kTables[] = {"words", "positions", "segments", "gamma", "beta"};
  const auto network = [&](bool is_quantized) {
    return [=](ModelBuilder& m) {
      m.floats("most", {}, {2.9F}).small_integers("last", {}, TensorProto::INT32, {3});
      m.node("Abs", {"x"}, {"positive"});
      m.node("Mul", {"positive", "most"}, {"wide"});
      set(m.node("Cast", {"wide"}, {"ids"}), "to", int64_t{TensorProto::INT32});
      m.node("Sub", {"last", "ids"}, {"segment_ids"});
      std::vector<std::string> inputs = {"ids", "segment_ids"}, scales, zeros;
      for (const std::string name : kTables) {
        const bool is_table = name != "gamma" && name != "beta";
        std::vector<int> codes;
        for (int i = 0; i < 4 * 6; ++i)
          codes.push_back((i * 53 + static_cast<int>(name.size()) * 17) % 256);
        if (!is_table) codes.resize(6);
        m.small_integers(name, is_table ? std::vector<int64_t>{4, 6} : std::vector<int64_t>{6},
                         TensorProto::UINT8, codes);
        m.floats(name + "/s", {}, {0.003F * static_cast<float>(name.size())});
        m.small_integers(name + "/z", {}, TensorProto::UINT8, {static_cast<int>(name.size()) * 9});
        scales.push_back(name + "/s");
        zeros.push_back(name + "/z");
        if (!is_quantized)
          m.node("DequantizeLinear", {name, scales.back(), zeros.back()}, {name + "/r"});
        inputs.push_back(is_quantized ? name : name + "/r");
      }
      if (is_quantized) {
        inputs.emplace_back();
        inputs.insert(inputs.end(), scales.begin(), scales.end());
        inputs.insert(inputs.end(), zeros.begin(), zeros.end());
      }
      microsoft(m, is_quantized ? "QEmbedLayerNormalization" : "EmbedLayerNormalization", inputs,
                {"y", "mask_index"});
    };
  };
  expect_same({{"x", {2, 4}}}, network(true), network(false));
}

TEST(FusedAttention, FormsThatAreNotTaken) {
  const auto error = [](const char* attribute) {
    return error_of([&] {
      values_of(inputs_of(false), [&](ModelBuilder& m) {
        auto& node = microsoft(m, "Attention", {"x", "w"});
        set(node, "num_heads", kHeads);
        set(node, attribute, int64_t{1});
      });
    });
  };
  EXPECT_THAT(error("do_rotary"), HasSubstr("rotated positions"));
  EXPECT_THAT(error("past_present_share_buffer"), HasSubstr("past_present_share_buffer"));
}

}  // namespace
}  // namespace anneal
