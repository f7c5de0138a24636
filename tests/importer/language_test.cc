// Operators of language models: attention with past keys and values, and weights of a few bits.
// Each gives what several plain operators give.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/optimizer/rewrite/evaluate.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::HasSubstr;
using Build = std::function<void(ModelBuilder&)>;

struct FloatInput {
  std::string name;
  std::vector<int64_t> dims;
};

std::vector<double> values_of(const std::vector<FloatInput>& inputs, const Build& build) {
  ModelBuilder model(28);
  std::vector<Tensor> tensors;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (const FloatInput& input : inputs) {
    std::vector<std::string> dims;
    for (const int64_t dim : input.dims) dims.push_back(std::to_string(dim));
    model.input(input.name, dims);
    const Dims shape{std::span<const int64_t>(input.dims)};
    std::vector<double> values(static_cast<size_t>(count(shape)));
    for (double& value : values) value = unit(random);
    tensors.push_back(tensor_of(DataType::kF32, shape, values));
  }
  model.output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  return numbers_of(evaluate(graph, tensors)[0]);
}

void expect_same(const std::vector<FloatInput>& inputs, const Build& one, const Build& several) {
  const auto got = values_of(inputs, one), want = values_of(inputs, several);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << i;
}

NodeProto& microsoft(ModelBuilder& m, const char* op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs = {"y"}) {
  NodeProto& node = m.node(op, inputs, outputs);
  node.set_domain("com.microsoft");
  return node;
}

NodeProto& group_attention(ModelBuilder& m, std::vector<std::string> inputs,
                           const std::vector<int>& last_positions, int total,
                           const std::vector<std::string>& outputs = {"y"}, int64_t key_heads = 2) {
  m.small_integers("last", {static_cast<int64_t>(last_positions.size())}, TensorProto::INT32,
                   last_positions);
  m.small_integers("total", {}, TensorProto::INT32, {total});
  inputs.insert(inputs.begin() + std::min<std::ptrdiff_t>(5, std::ssize(inputs)),
                {"last", "total"});
  NodeProto& node = microsoft(m, "GroupQueryAttention", inputs, outputs);
  set(node, "num_heads", int64_t{4});
  set(node, "kv_num_heads", key_heads);
  return node;
}

NodeProto& causal_attention(ModelBuilder& m, const std::vector<std::string>& inputs) {
  NodeProto& node = m.node("Attention", inputs, {"y"});
  set(node, "q_num_heads", int64_t{4});
  set(node, "kv_num_heads", int64_t{2});
  set(node, "is_causal", int64_t{1});
  return node;
}

const std::vector<FloatInput> kNew = {{"q", {1, 3, 16}}, {"k", {1, 3, 8}}, {"v", {1, 3, 8}}};
std::vector<FloatInput> with_past(int64_t length) {
  std::vector<FloatInput> inputs = kNew;
  inputs.push_back({"pk", {1, 2, length, 4}});
  inputs.push_back({"pv", {1, 2, length, 4}});
  return inputs;
}

TEST(GroupQueryAttention, APromptIsCausalAttention) {
  expect_same(
      kNew,
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "", ""}, {2}, 3);
      },
      [](ModelBuilder& m) {
        causal_attention(m, {"q", "k", "v"});
      });
}

TEST(GroupQueryAttention, QueriesComeBehindThePast) {
  const Build several = [](ModelBuilder& m) {
    causal_attention(m, {"q", "k", "v", "", "pk", "pv"});
  };
  expect_same(
      with_past(5),
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "pk", "pv"}, {7}, 8);
      },
      several);
  // A scale, a limit of the scores, and a window of 3 keys with the query's own.
  expect_same(
      with_past(5),
      [](ModelBuilder& m) {
        auto& node = group_attention(m, {"q", "k", "v", "pk", "pv"}, {7}, 8);
        set(node, "scale", 0.7F);
        set(node, "softcap", 2.0F);
        set(node, "local_window_size", int64_t{3});
      },
      [](ModelBuilder& m) {
        auto& node = causal_attention(m, {"q", "k", "v", "", "pk", "pv"});
        set(node, "scale", 0.7F);
        set(node, "softcap", 2.0F);
        set(node, "left_window_size", int64_t{2});
      });
}

// The buffer of the past has 9 places, of which 2 are in use.
TEST(GroupQueryAttention, ABufferIsFilledInPlace) {
  const Build one = [](ModelBuilder& m) {
    group_attention(m, {"q", "k", "v", "pk", "pv"}, {4}, 5);
  };
  expect_same(with_past(9), one, [](ModelBuilder& m) {
    m.integers("from", {0}).integers("to", {2}).integers("axis", {2});
    m.node("Slice", {"pk", "from", "to", "axis"}, {"used_keys"});
    m.node("Slice", {"pv", "from", "to", "axis"}, {"used_values"});
    causal_attention(m, {"q", "k", "v", "", "used_keys", "used_values"});
  });
  // The new keys, without rotation, are the rows 2 to 4 of the present ones.
  expect_same(
      with_past(9),
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "pk", "pv"}, {4}, 5, {"out", "keys", "y"});
      },
      [](ModelBuilder& m) {
        m.integers("shape", {1, 3, 2, 4}).integers("two", {2}).integers("five", {5});
        m.integers("zero", {0}).integers("nine", {9}).integers("axis", {2});
        m.node("Reshape", {"v", "shape"}, {"split"});
        set(m.node("Transpose", {"split"}, {"new"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
        m.node("Slice", {"pv", "zero", "two", "axis"}, {"before"});
        m.node("Slice", {"pv", "five", "nine", "axis"}, {"behind"});
        set(m.node("Concat", {"before", "new", "behind"}, {"y"}), "axis", int64_t{2});
      });
}

TEST(GroupQueryAttention, BatchesHaveLengthsOfTheirOwn) {
  const std::vector<FloatInput> inputs = {{"q", {2, 1, 16}},
                                          {"k", {2, 1, 8}},
                                          {"v", {2, 1, 8}},
                                          {"pk", {2, 2, 5, 4}},
                                          {"pv", {2, 2, 5, 4}}};
  const auto batch = [](ModelBuilder& m, int index, int past) {
    const std::string n = std::to_string(index);
    m.integers("from" + n, {index}).integers("to" + n, {index + 1}).integers("first" + n, {0});
    m.integers("zero" + n, {0}).integers("past" + n, {past}).integers("two" + n, {2});
    for (const char* name : {"q", "k", "v"})
      m.node("Slice", {name, "from" + n, "to" + n, "first" + n}, {name + n});
    for (const char* name : {"pk", "pv"}) {
      m.node("Slice", {name, "from" + n, "to" + n, "first" + n}, {name + n + "all"});
      m.node("Slice", {name + n + "all", "zero" + n, "past" + n, "two" + n}, {name + n});
    }
    auto& node = causal_attention(m, {"q" + n, "k" + n, "v" + n, "", "pk" + n, "pv" + n});
    node.set_output(0, "y" + n);
  };
  expect_same(
      inputs,
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "pk", "pv"}, {5, 2}, 6);
      },
      [&](ModelBuilder& m) {
        batch(m, 0, 5);
        batch(m, 1, 2);
        set(m.node("Concat", {"y0", "y1"}, {"y"}), "axis", int64_t{0});
      });
}

TEST(GroupQueryAttention, RotatesQueriesAndKeysByTheirPositions) {
  std::vector<FloatInput> inputs = with_past(4);
  inputs.push_back({"cos", {9, 2}});
  inputs.push_back({"sin", {9, 2}});
  for (const int64_t interleaved : {0, 1})
    expect_same(
        inputs,
        [&](ModelBuilder& m) {
          auto& node = group_attention(m, {"q", "k", "v", "pk", "pv", "cos", "sin"}, {6}, 7);
          set(node, "do_rotary", int64_t{1});
          set(node, "rotary_interleaved", interleaved);
        },
        [&](ModelBuilder& m) {
          m.small_integers("at", {1, 3}, TensorProto::INT64, {});
          auto* tensor = m.graph().mutable_initializer(m.graph().initializer_size() - 1);
          for (const int64_t position : {4, 5, 6}) tensor->add_int64_data(position);
          for (const auto& [name, heads] :
               {std::pair{"q", int64_t{4}}, std::pair{"k", int64_t{2}}}) {
            auto& node =
                m.node("RotaryEmbedding", {name, "cos", "sin", "at"}, {std::string(name) + "r"});
            set(node, "num_heads", heads);
            set(node, "interleaved", interleaved);
          }
          causal_attention(m, {"qr", "kr", "v", "", "pk", "pv"});
        });
}

TEST(GroupQueryAttention, TakesPackedInputs) {
  expect_same(
      {{"x", {2, 3, 32}}},
      [](ModelBuilder& m) {
        group_attention(m, {"x", "", "", "", ""}, {2, 2}, 3);
      },
      [](ModelBuilder& m) {
        m.integers("sizes", {16, 8, 8});
        set(m.node("Split", {"x", "sizes"}, {"q", "k", "v"}), "axis", int64_t{2});
        causal_attention(m, {"q", "k", "v"});
      });
}

TEST(GroupQueryAttention, FormsThatAreNotTaken) {
  const auto error = [&](const Build& build) { return error_of([&] { values_of(kNew, build); }); };
  EXPECT_THAT(
      error([](ModelBuilder& m) {
        set(group_attention(m, {"q", "k", "v", "", ""}, {2}, 3), "smooth_softmax", int64_t{1});
      }),
      HasSubstr("smooth_softmax"));
  EXPECT_THAT(error([](ModelBuilder& m) {
                set(group_attention(m, {"q", "k", "v", "", ""}, {2}, 3), "do_rotary", int64_t{1});
              }),
              HasSubstr("do_rotary without cos_cache and sin_cache"));
  EXPECT_THAT(error([](ModelBuilder& m) {
                group_attention(m, {"q", "k", "v", "", ""}, {2}, 3, {"y"}, 3);
              }),
              HasSubstr("4 heads of queries for 3 of keys"));
}

// What the bytes of weights hold: code i of a row of `row_bytes` bytes.
int code_of(const std::vector<int>& bytes, size_t row, size_t row_bytes, size_t i, size_t bits) {
  return bytes[row * row_bytes + i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
}

struct NBits {
  size_t bits, inner, block;
  bool has_zero_points;
};

TEST(MatMulNBits, WeightsAreCodesByBlocks) {
  constexpr size_t kColumns = 3;
  for (const NBits& c : {NBits{4, 32, 16, true}, NBits{4, 40, 16, false}, NBits{8, 32, 32, true},
                         NBits{2, 48, 16, true}, NBits{4, 16, 16, true}}) {
    SCOPED_TRACE(std::to_string(c.bits) + " bits, K " + std::to_string(c.inner));
    const size_t blocks = (c.inner + c.block - 1) / c.block, block_bytes = c.block * c.bits / 8;
    const size_t zero_bytes = (blocks * c.bits + 7) / 8;
    std::vector<int> bytes, zeros;
    std::vector<float> scales, weights(c.inner * kColumns);
    for (size_t i = 0; i < kColumns * blocks * block_bytes; ++i)
      bytes.push_back(static_cast<int>(i * 73 + 29) % 256);
    for (size_t i = 0; i < kColumns * zero_bytes; ++i)
      zeros.push_back(static_cast<int>(i * 91 + 6) % 256);
    for (size_t i = 0; i < kColumns * blocks; ++i)
      scales.push_back(0.01F * static_cast<float>(i + 1));
    for (size_t n = 0; n < kColumns; ++n)
      for (size_t k = 0; k < c.inner; ++k) {
        const size_t block = k / c.block;
        const int zero =
            c.has_zero_points ? code_of(zeros, n, zero_bytes, block, c.bits) : 1 << (c.bits - 1);
        weights[k * kColumns + n] =
            static_cast<float>(code_of(bytes, n, blocks * block_bytes, k, c.bits) - zero) *
            scales[n * blocks + block];
      }
    const auto signed_size = [](size_t size) { return static_cast<int64_t>(size); };
    expect_same(
        {{"x", {2, signed_size(c.inner)}}, {"b", {kColumns}}},
        [&](ModelBuilder& m) {
          m.small_integers("codes", {kColumns, signed_size(blocks), signed_size(block_bytes)},
                           TensorProto::UINT8, bytes);
          m.floats("scales", {signed_size(scales.size())}, scales);
          m.small_integers("zeros", {signed_size(zeros.size())}, TensorProto::UINT8, zeros);
          auto& node =
              microsoft(m, "MatMulNBits",
                        {"x", "codes", "scales", c.has_zero_points ? "zeros" : "", "", "b"});
          set(node, "N", int64_t{kColumns});
          set(node, "K", signed_size(c.inner));
          set(node, "bits", signed_size(c.bits));
          set(node, "block_size", signed_size(c.block));
        },
        [&](ModelBuilder& m) {
          m.floats("w", {signed_size(c.inner), kColumns}, weights);
          m.node("MatMul", {"x", "w"}, {"p"});
          m.node("Add", {"p", "b"}, {"y"});
        });
  }
}

TEST(MatMulNBits, WrongSizesAreRefused) {
  const auto error = [](int64_t block, int64_t bits) {
    return error_of([&] {
      values_of({{"x", {1, 32}}}, [&](ModelBuilder& m) {
        m.small_integers("codes", {1, 2, 8}, TensorProto::UINT8, std::vector<int>(16));
        m.floats("scales", {2}, {1, 1});
        auto& node = microsoft(m, "MatMulNBits", {"x", "codes", "scales"});
        set(node, "N", int64_t{1});
        set(node, "K", int64_t{32});
        set(node, "bits", bits);
        set(node, "block_size", block);
      });
    });
  };
  EXPECT_EQ(error(16, 4), "");
  EXPECT_THAT(error(32, 4), HasSubstr("scales are not one for each block"));
  EXPECT_THAT(error(16, 8), HasSubstr("16 bytes of codes, 32 expected"));
  EXPECT_THAT(error(16, 3), HasSubstr("weights of 3 bits"));
  EXPECT_THAT(error(0, 4), HasSubstr("block_size = 0"));
}

TEST(SubByteConstants, AreReadFromTheirBits) {
  const auto dequantized = [](int type, const std::vector<int>& bytes, int64_t size) {
    return values_of({{"x", {size}}}, [&](ModelBuilder& m) {
      m.small_integers("w", {size}, type, bytes);
      m.floats("scale", {}, {1});
      m.node("DequantizeLinear", {"w", "scale"}, {"f"});
      m.node("Sub", {"x", "x"}, {"zero"});
      m.node("Add", {"zero", "f"}, {"y"});
    });
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(dequantized(TensorProto::INT4, {0x7F, 0x08}, 3), ElementsAre(-1, 7, -8));
  EXPECT_THAT(dequantized(TensorProto::UINT4, {0x7F, 0x08}, 3), ElementsAre(15, 7, 8));
  EXPECT_THAT(dequantized(TensorProto::INT2, {0xE4}, 4), ElementsAre(0, 1, -2, -1));
  EXPECT_THAT(dequantized(TensorProto::UINT2, {0xE4}, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(error_of([&] { dequantized(TensorProto::INT4, {0x7F}, 3); }),
              HasSubstr("1 elements in int32_data, but 2 in shape [2]"));
}

TEST(SubByteConstants, QuantizationToThemIsNotTaken) {
  EXPECT_THAT(error_of([] {
                values_of({{"x", {4}}}, [](ModelBuilder& m) {
                  m.floats("scale", {}, {1}).small_integers("zero", {}, TensorProto::INT4, {0});
                  m.node("QuantizeLinear", {"x", "scale", "zero"}, {"y"});
                });
              }),
              HasSubstr("to integers of 4 or 2 bits"));
}

TEST(FusedGemm, IsGemmThenTheActivation) {
  expect_same(
      {{"a", {2, 3}}, {"b", {4, 3}}, {"c", {4}}},
      [](ModelBuilder& m) {
        auto& node = microsoft(m, "FusedGemm", {"a", "b", "c"});
        set(node, "transB", int64_t{1});
        set(node, "alpha", 0.5F);
        set(node, "activation", "LeakyRelu");
        set(node, "activation_alpha", 0.1F);
      },
      [](ModelBuilder& m) {
        auto& node = m.node("Gemm", {"a", "b", "c"}, {"g"});
        set(node, "transB", int64_t{1});
        set(node, "alpha", 0.5F);
        set(m.node("LeakyRelu", {"g"}, {"y"}), "alpha", 0.1F);
      });
}

TEST(OptimizedFiles, AskForTheOriginalModel) {
  EXPECT_THAT(error_of([] {
                values_of({{"x", {1, 8, 4, 4}}}, [](ModelBuilder& m) {
                  m.node("ReorderInput", {"x"}, {"y"}).set_domain("com.microsoft.nchwc");
                });
              }),
              HasSubstr("build from the original file"));
}

}  // namespace
}  // namespace anneal
