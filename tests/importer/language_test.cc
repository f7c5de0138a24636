// Operators of language models: weights of a few bits, and products with activations. Each gives
// what several plain operators give.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <limits>

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

// As half-quadratic quantization (HQQ) makes them.
TEST(MatMulNBits, ZeroPointsMayBeFloats) {
  constexpr size_t kColumns = 3, kBlock = 16;
  for (const size_t bits : {4, 8})
    for (const size_t inner : {32, 40}) {
      SCOPED_TRACE(fmt::format("{} bits, K {}", bits, inner));
      const size_t blocks = (inner + kBlock - 1) / kBlock, row_bytes = blocks * kBlock * bits / 8;
      std::vector<int> bytes;
      std::vector<float> scales, zeros, weights(inner * kColumns);
      for (size_t i = 0; i < kColumns * row_bytes; ++i)
        bytes.push_back(static_cast<int>(i * 73 + 29) % 256);
      for (size_t i = 0; i < kColumns * blocks; ++i) {
        scales.push_back(0.01F * static_cast<float>(i + 1));
        zeros.push_back(7.3F + 0.4F * static_cast<float>(i));
      }
      for (size_t n = 0; n < kColumns; ++n)
        for (size_t k = 0; k < inner; ++k) {
          const size_t block = n * blocks + k / kBlock;
          weights[k * kColumns + n] =
              (static_cast<float>(code_of(bytes, n, row_bytes, k, bits)) - zeros[block]) *
              scales[block];
        }
      const auto k = static_cast<int64_t>(inner);
      expect_same(
          {{"x", {2, 2, k}}, {"b", {kColumns}}},
          [&](ModelBuilder& m) {
            m.small_integers("codes", {static_cast<int64_t>(bytes.size())}, TensorProto::UINT8,
                             bytes);
            m.floats("scales", {static_cast<int64_t>(scales.size())}, scales);
            m.floats("zeros", {static_cast<int64_t>(zeros.size())}, zeros);
            auto& node = microsoft(m, "MatMulNBits", {"x", "codes", "scales", "zeros", "", "b"});
            set(node, "N", int64_t{kColumns});
            set(node, "K", k);
            set(node, "bits", static_cast<int64_t>(bits));
            set(node, "block_size", int64_t{kBlock});
            set(node, "accuracy_level", int64_t{4});
          },
          [&](ModelBuilder& m) {
            m.floats("w", {k, kColumns}, weights);
            m.node("MatMul", {"x", "w"}, {"p"});
            m.node("Add", {"p", "b"}, {"y"});
          });
    }
}

TEST(MatMulNBits, WrongSizesAreRefused) {
  const auto error = [](int64_t block, int64_t bits, int64_t layout = 0) {
    return error_of([&] {
      values_of({{"x", {1, 32}}}, [&](ModelBuilder& m) {
        m.small_integers("codes", {1, 2, 8}, TensorProto::UINT8, std::vector<int>(16));
        m.floats("scales", {2}, {1, 1});
        auto& node = microsoft(m, "MatMulNBits", {"x", "codes", "scales"});
        set(node, "weight_prepacked", layout);
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
  EXPECT_THAT(error(16, 4, 1), HasSubstr("weight_prepacked"));
  const auto other = [](const std::vector<int64_t>& x, const std::vector<int64_t>& bias) {
    return error_of([&] {
      values_of({{"x", x}, {"b", bias}}, [&](ModelBuilder& m) {
        m.small_integers("codes", {7, 3, 8}, TensorProto::UINT8, std::vector<int>(7 * 3 * 8));
        m.floats("scales", {21}, std::vector<float>(21))
            .floats("zeros", {21}, std::vector<float>(21));
        auto& node = microsoft(m, "MatMulNBits", {"x", "codes", "scales", "zeros", "", "b"});
        set(node, "N", int64_t{7});
        set(node, "K", int64_t{33});
        set(node, "block_size", int64_t{16});
      });
    });
  };
  EXPECT_EQ(other({2, 33}, {7}), "");
  EXPECT_THAT(other({}, {7}), HasSubstr("a product with a vector"));
  EXPECT_THAT(other({33}, {7}), HasSubstr("a product with a vector"));
  EXPECT_THAT(other({2, 33}, {1}), HasSubstr("bias"));
  EXPECT_THAT(other({2, 33}, {5, 1, 7}), HasSubstr("bias"));
}

// Rows -2 to 2 of a table, by inputs from -1 to 1.
ModelBuilder& add_indices(ModelBuilder& m) {
  m.floats("most", {}, {2.9F});
  m.node("Mul", {"x", "most"}, {"scaled"});
  set(m.node("Cast", {"scaled"}, {"i"}), "to", int64_t{TensorProto::INT64});
  return m;
}

struct Blocks {
  size_t bits, depth, block;
  bool has_zero_points;
};

TEST(GatherBlockQuantized, RowsAreCodesByBlocks) {
  constexpr size_t kRows = 5;
  const auto signed_size = [](size_t size) { return static_cast<int64_t>(size); };
  for (const Blocks& c :
       {Blocks{4, 32, 16, true}, Blocks{4, 64, 32, false}, Blocks{8, 32, 16, true},
        Blocks{8, 16, 16, false}, Blocks{2, 64, 16, true}, Blocks{4, 48, 32, true},
        Blocks{2, 16, 16, false}}) {
    SCOPED_TRACE(fmt::format("{} bits, {} of {}", c.bits, c.block, c.depth));
    const size_t blocks = (c.depth + c.block - 1) / c.block, row_bytes = c.depth * c.bits / 8;
    const size_t zero_bytes = (blocks * c.bits + 7) / 8;
    std::vector<int> bytes, zeros;
    std::vector<float> scales, table;
    for (size_t i = 0; i < kRows * row_bytes; ++i)
      bytes.push_back(static_cast<int>(i * 73 + 29) % 256);
    for (size_t i = 0; i < kRows * zero_bytes; ++i)
      zeros.push_back(static_cast<int>(i * 91 + 6) % 256);
    for (size_t i = 0; i < kRows * blocks; ++i) scales.push_back(0.01F * static_cast<float>(i + 1));
    for (size_t n = 0; n < kRows; ++n)
      for (size_t k = 0; k < c.depth; ++k) {
        const size_t block = k / c.block;
        const int zero =
            c.has_zero_points ? code_of(zeros, n, zero_bytes, block, c.bits) : 1 << (c.bits - 1);
        table.push_back(static_cast<float>(code_of(bytes, n, row_bytes, k, c.bits) - zero) *
                        scales[n * blocks + block]);
      }
    expect_same(
        {{"x", {2, 7}}},
        [&](ModelBuilder& m) {
          add_indices(m)
              .small_integers("codes", {kRows, signed_size(row_bytes)}, TensorProto::UINT8, bytes)
              .floats("scales", {kRows, signed_size(blocks)}, scales)
              .small_integers("zeros", {kRows, signed_size(zero_bytes)}, TensorProto::UINT8, zeros);
          auto& node = microsoft(m, "GatherBlockQuantized",
                                 {"codes", "i", "scales", c.has_zero_points ? "zeros" : ""});
          set(node, "bits", signed_size(c.bits));
          set(node, "block_size", signed_size(c.block));
        },
        [&](ModelBuilder& m) {
          add_indices(m).floats("table", {kRows, signed_size(c.depth)}, table);
          m.node("Gather", {"table", "i"}, {"y"});
        });
  }
}

TEST(GatherBlockQuantized, IntegersOf4BitsHaveAnyAxes) {
  const auto gathered = [](int64_t gather_axis, int64_t quantize_axis, bool by_one_node) {
    return [=](ModelBuilder& m) {
      std::vector<int> bytes;
      for (int i = 0; i < 5 * 5 * 16 / 2; ++i) bytes.push_back(i * 73 % 256);
      add_indices(m).small_integers("codes", {5, 5, 16}, TensorProto::INT4, bytes);
      std::vector<int64_t> dims = {5, 5, 16};
      dims[static_cast<size_t>(quantize_axis)] =
          (dims[static_cast<size_t>(quantize_axis)] + 15) / 16;
      std::vector<float> scales;
      for (int64_t i = 0; i < dims[0] * dims[1] * dims[2]; ++i)
        scales.push_back(0.01F * static_cast<float>(i + 1));
      m.floats("scales", dims, scales);
      if (by_one_node) {
        auto& node = microsoft(m, "GatherBlockQuantized", {"codes", "i", "scales"});
        set(node, "gather_axis", gather_axis);
        set(node, "quantize_axis", quantize_axis);
        set(node, "block_size", int64_t{16});
        return;
      }
      auto& node = m.node("DequantizeLinear", {"codes", "scales"}, {"table"});
      set(node, "axis", quantize_axis);
      set(node, "block_size", int64_t{16});
      set(m.node("Gather", {"table", "i"}, {"y"}), "axis", gather_axis);
    };
  };
  expect_same({{"x", {2}}}, gathered(0, 2, true), gathered(0, 2, false));
  expect_same({{"x", {2, 3}}}, gathered(1, 2, true), gathered(1, 2, false));
}

// The codes of shared embeddings have the shape of the product's, [rows, blocks, bytes of a block].
TEST(GatherBlockQuantized, AReshapeMayGiveTheTableItsShape) {
  const auto table = [](bool by_reshape) {
    return [=](ModelBuilder& m) {
      std::vector<int> bytes;
      for (int i = 0; i < 5 * 16; ++i) bytes.push_back(i * 73 % 256);
      add_indices(m).floats("scales", {5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
      m.small_integers(by_reshape ? "whole" : "codes",
                       by_reshape ? std::vector<int64_t>{5, 2, 8} : std::vector<int64_t>{5, 16},
                       TensorProto::UINT8, bytes);
      if (by_reshape) m.integers("shape", {5, -1}).node("Reshape", {"whole", "shape"}, {"codes"});
      set(microsoft(m, "GatherBlockQuantized", {"codes", "i", "scales"}), "block_size",
          int64_t{16});
    };
  };
  expect_same({{"x", {2, 3}}}, table(true), table(false));
}

TEST(GatherBlockQuantized, WrongTablesAreRefused) {
  const auto error = [](int64_t columns, int64_t bits, int64_t gather_axis, int type) {
    return error_of([&] {
      values_of({{"x", {2}}}, [&](ModelBuilder& m) {
        add_indices(m).small_integers("codes", {5, columns}, type,
                                      std::vector<int>(static_cast<size_t>(5 * columns)));
        m.floats("scales", {5, 2}, std::vector<float>(10));
        m.small_integers("zeros", {5, 1}, type, std::vector<int>(5));
        auto& node = microsoft(m, "GatherBlockQuantized", {"codes", "i", "scales", "zeros"});
        set(node, "bits", bits);
        set(node, "block_size", int64_t{16});
        set(node, "gather_axis", gather_axis);
      });
    });
  };
  EXPECT_EQ(error(16, 4, 0, TensorProto::UINT8), "");
  EXPECT_THAT(error(32, 8, 0, TensorProto::UINT8),
              HasSubstr("zero_points of [5,1], [5,2] expected"));
  EXPECT_THAT(error(16, 3, 0, TensorProto::UINT8), HasSubstr("weights of 3 bits"));
  EXPECT_THAT(error(16, 4, 1, TensorProto::UINT8), HasSubstr("gathered along axis 0"));
  EXPECT_THAT(error(16, 4, 0, TensorProto::INT8), HasSubstr("i8"));
}

TEST(MatMulBnb4, WrongSizesAreRefused) {
  const auto error = [](int64_t block, int64_t scales, int64_t type) {
    return error_of([&] {
      values_of({{"x", {1, 32}}}, [&](ModelBuilder& m) {
        m.small_integers("codes", {16}, TensorProto::UINT8, std::vector<int>(16));
        m.floats("scales", {scales}, std::vector<float>(static_cast<size_t>(scales)));
        auto& node = microsoft(m, "MatMulBnb4", {"x", "codes", "scales"});
        set(node, "N", int64_t{1});
        set(node, "K", int64_t{32});
        set(node, "block_size", block);
        set(node, "quant_type", type);
      });
    });
  };
  EXPECT_EQ(error(16, 2, 0), "");
  EXPECT_THAT(error(16, 3, 0), HasSubstr("16 bytes of codes and 3 scales for 32 weights"));
  EXPECT_THAT(error(15, 2, 0), HasSubstr("block_size = 15"));
  EXPECT_THAT(error(std::numeric_limits<int64_t>::max() - 1, 1, 0), HasSubstr("block_size"));
  EXPECT_THAT(error(16, 2, 2), HasSubstr("quant_type 2"));
}

TEST(MatMulBnb4, CodesAreNumbersOfATable) {
  constexpr size_t kColumns = 3, kInner = 32, kBlock = 16;
  // The largest and the smallest number, and one between them, of FP4 and NF4.
  const float numbers[2][3] = {{1.0F, -0.25F, 0.005208333F},
                               {0.07958029955625534F, 1.0F, -0.6961928F}};
  const int codes[2][3] = {{3, 15, 1}, {8, 15, 1}};
  for (const int64_t type : {0, 1})
    for (const int64_t transposed : {0, 1}) {
      std::vector<int> bytes(kColumns * kInner / 2);
      std::vector<float> scales, weights;
      for (size_t i = 0; i < kColumns * kInner; ++i) {
        if (i % kBlock == 0) scales.push_back(0.1F * static_cast<float>(scales.size() + 1));
        bytes[i / 2] |= codes[type][i % 3] << (i % 2 == 0 ? 4 : 0);
        weights.push_back(numbers[type][i % 3] * scales.back());
      }
      expect_same(
          {{"x", {2, kInner}}},
          [&](ModelBuilder& m) {
            m.small_integers("codes", {kColumns * kInner / 2}, TensorProto::UINT8, bytes);
            m.floats("scales", {kColumns * kInner / kBlock}, scales);
            auto& node = microsoft(m, "MatMulBnb4", {"x", "codes", "scales"});
            set(node, "N", int64_t{kColumns});
            set(node, "K", int64_t{kInner});
            set(node, "block_size", int64_t{kBlock});
            set(node, "quant_type", type);
            if (!transposed) set(node, "transB", int64_t{0});
          },
          [&](ModelBuilder& m) {
            const std::vector<int64_t> dims = {kColumns, kInner}, other = {kInner, kColumns};
            m.floats("w", transposed ? dims : other, weights);
            m.node("Gemm", {"x", "w"}, {"y"});
            if (transposed) set(*m.graph().mutable_node(0), "transB", int64_t{1});
          });
    }
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

// As quantizers write them behind weights.
TEST(SubByteConstants, QuantizationToThemCutsAtTheirEnds) {
  struct Case {
    TensorProto::DataType type;
    int zero;
    double low, high;
  };
  for (const Case& each : {Case{TensorProto::INT4, 0, -8, 7}, Case{TensorProto::UINT4, 7, 0, 15},
                           Case{TensorProto::INT2, 0, -2, 1}, Case{TensorProto::UINT2, 1, 0, 3}}) {
    const auto numbers = [](ModelBuilder& m) { m.floats("scale", {}, {0.0625}); };
    expect_same(
        {{"x", {50}}},
        [&](ModelBuilder& m) {
          numbers(m);
          m.small_integers("zero", {}, each.type, {each.zero});
          m.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"});
          m.node("DequantizeLinear", {"q", "scale", "zero"}, {"y"});
        },
        [&](ModelBuilder& m) {
          numbers(m);
          m.floats("low", {}, {static_cast<float>(each.low - each.zero)});
          m.floats("high", {}, {static_cast<float>(each.high - each.zero)});
          m.node("Div", {"x", "scale"}, {"a"}).set_name("a");
          m.node("Round", {"a"}, {"b"}).set_name("b");
          m.node("Clip", {"b", "low", "high"}, {"c"}).set_name("c");
          m.node("Mul", {"c", "scale"}, {"y"}).set_name("d");
        });
  }
}

TEST(MicrosoftOperators, AreThoseOfOnnxWithTheSameName) {
  struct Case {
    const char *name, *onnx;
    std::vector<std::string> inputs;
    void (*change)(anneal_onnx::NodeProto&);
  };
  const auto no_change = [](anneal_onnx::NodeProto&) {};
  for (const Case& each : {
           Case{"Trilu", "Trilu", {"x"}, [](auto& node) { set(node, "upper", int64_t{0}); }},
           Case{"GatherND", "GatherND", {"x", "places"}, no_change},
           Case{"Pad", "Pad", {"x", "pads", "seven"}, no_change},
           Case{"TransposeMatMul", "MatMul", {"x", "x"}, no_change},
       }) {
    const auto constants = [](ModelBuilder& m) {
      m.integers("places", {1, 2}).integers("pads", {1, 0, 0, 2}).floats("seven", {}, {7});
    };
    const auto built = [&](const char* name, const char* domain) {
      return [=](ModelBuilder& m) {
        constants(m);
        auto& node = m.node(name, each.inputs, {"y"});
        node.set_domain(domain);
        each.change(node);
      };
    };
    expect_same({{"x", {4, 4}}}, built(each.name, "com.microsoft"), built(each.onnx, ""));
  }
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
