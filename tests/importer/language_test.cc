// Operators of language models: weights of a few bits, and products with activations. Each gives
// what several plain operators give.
#include <gmock/gmock.h>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::HasSubstr;

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

TEST(SubByteConstants, MayBeDeclaredAndGivenByNodes) {
  const auto declared = [](int declared_type, bool by_node) {
    return values_of({{"x", {3}}}, [&](ModelBuilder& m) {
      m.small_integers("w", {3}, TensorProto::INT4, {0x7F, 0x08}).floats("scale", {}, {1});
      if (by_node) {
        auto* attribute = m.node("Constant", {}, {"w"}).add_attribute();
        attribute->set_name("value");
        attribute->set_type(anneal_onnx::AttributeProto::TENSOR);
        *attribute->mutable_t() = m.graph().initializer(0);
        m.graph().mutable_initializer()->DeleteSubrange(0, 1);
      }
      for (const char* name : {"w", "r"}) {
        auto* value = m.graph().add_value_info();
        value->set_name(name);
        value->mutable_type()->mutable_tensor_type()->set_elem_type(declared_type);
      }
      m.node("Identity", {"w"}, {"r"});
      m.node("DequantizeLinear", {"r", "scale"}, {"f"});
      m.node("Sub", {"x", "x"}, {"zero"});
      m.node("Add", {"zero", "f"}, {"y"});
    });
  };
  for (const bool by_node : {false, true})
    EXPECT_THAT(declared(TensorProto::INT4, by_node), ::testing::ElementsAre(-1, 7, -8));
  EXPECT_THAT(error_of([&] { declared(TensorProto::INT8, false); }),
              HasSubstr("\"w\" is declared as int8 but is int4"));
  EXPECT_THAT(error_of([&] { declared(TensorProto::UINT4, true); }),
              HasSubstr("\"w\" is declared as uint4 but is i8"));
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
