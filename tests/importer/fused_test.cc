// Operators that say in one node what ONNX says in several: both give the same numbers.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using Build = std::function<void(ModelBuilder&)>;

struct Input {
  std::string name;
  std::vector<int64_t> dims;
  int type = TensorProto::FLOAT;
};

Tensor random_tensor(const Input& input, uint32_t seed) {
  std::mt19937 random(seed);
  const Dims dims{std::span<const int64_t>(input.dims)};
  const auto total = static_cast<size_t>(count(dims));
  std::uniform_real_distribution<double> unit(-1, 1);
  std::uniform_int_distribution<int> small(0, 3);
  std::vector<double> reals(total);
  std::vector<int64_t> longs(total);
  std::vector<int32_t> ints(total);
  std::vector<uint8_t> bytes(total);
  for (size_t i = 0; i < total; ++i) {
    reals[i] = unit(random);
    longs[i] = ints[i] = small(random);
    bytes[i] = static_cast<uint8_t>(small(random) * 60);
  }
  if (input.type == TensorProto::INT64) return Tensor::of<int64_t>(DataType::kI64, dims, longs);
  if (input.type == TensorProto::INT32) return Tensor::of<int32_t>(DataType::kI32, dims, ints);
  if (input.type == TensorProto::UINT8) return Tensor::of<uint8_t>(DataType::kU8, dims, bytes);
  return tensor_of(DataType::kF32, dims, reals);
}

std::vector<double> result_of(const std::vector<Input>& inputs, int opset, const Build& build) {
  ModelBuilder model(opset);
  std::vector<Tensor> tensors;
  for (const Input& input : inputs) {
    std::vector<std::string> dims;
    for (const int64_t dim : input.dims) dims.push_back(std::to_string(dim));
    model.input(input.name, dims, input.type);
    tensors.push_back(random_tensor(input, static_cast<uint32_t>(tensors.size()) + 1));
  }
  model.output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  return numbers_of(evaluate(graph, tensors)[0]);
}

NodeProto& fused(ModelBuilder& m, const char* op, const std::vector<std::string>& inputs) {
  NodeProto& node = m.node(op, inputs, {"y"});
  node.set_domain("com.microsoft");
  return node;
}

struct Pair {
  const char* name;
  std::vector<Input> inputs;
  Build one, several;
};

std::vector<Pair> pairs() {
  return {
      {"FusedMatMul",
       {{"a", {2, 3, 4}}, {"b", {2, 5, 4}}},
       [](ModelBuilder& m) {
         auto& node = fused(m, "FusedMatMul", {"a", "b"});
         set(node, "transB", int64_t{1});
         set(node, "alpha", 0.5F);
       },
       [](ModelBuilder& m) {
         set(m.node("Transpose", {"b"}, {"t"}), "perm", std::vector<int64_t>{0, 2, 1});
         m.floats("half", {}, {0.5F});
         m.node("MatMul", {"a", "t"}, {"p"});
         m.node("Mul", {"p", "half"}, {"y"});
       }},
      {"BiasGelu",
       {{"a", {3, 5}}, {"b", {5}}},
       [](ModelBuilder& m) {
         fused(m, "BiasGelu", {"a", "b"});
       },
       [](ModelBuilder& m) {
         m.node("Add", {"a", "b"}, {"s"});
         m.node("Gelu", {"s"}, {"y"});
       }},
      {"FastGelu",
       {{"a", {3, 5}}},
       [](ModelBuilder& m) { fused(m, "FastGelu", {"a"}); },
       [](ModelBuilder& m) { set(m.node("Gelu", {"a"}, {"y"}), "approximate", "tanh"); }},
      {"SkipLayerNormalization",
       {{"a", {2, 3, 8}}, {"b", {2, 3, 8}}, {"g", {8}}, {"s", {8}}},
       [](ModelBuilder& m) {
         set(fused(m, "SkipLayerNormalization", {"a", "b", "g", "s"}), "epsilon", 1e-5F);
       },
       [](ModelBuilder& m) {
         m.node("Add", {"a", "b"}, {"t"});
         m.node("LayerNormalization", {"t", "g", "s"}, {"y"});
       }},
      {"SkipSimplifiedLayerNormalization",
       {{"a", {2, 3, 8}}, {"b", {2, 3, 8}}, {"g", {8}}},
       [](ModelBuilder& m) {
         set(fused(m, "SkipSimplifiedLayerNormalization", {"a", "b", "g"}), "epsilon", 1e-5F);
       },
       [](ModelBuilder& m) {
         m.node("Add", {"a", "b"}, {"t"});
         m.node("RMSNormalization", {"t", "g"}, {"y"});
       }},
      {"FusedConv",
       {{"a", {1, 3, 6, 6}}, {"w", {4, 3, 3, 3}}, {"b", {4}}, {"z", {1, 4, 4, 4}}},
       [](ModelBuilder& m) {
         set(fused(m, "FusedConv", {"a", "w", "b", "z"}), "activation", "Relu");
       },
       [](ModelBuilder& m) {
         m.node("Conv", {"a", "w", "b"}, {"c"});
         m.node("Add", {"c", "z"}, {"s"});
         m.node("Relu", {"s"}, {"y"});
       }},
      {"MultiHeadAttention",
       {{"q", {2, 3, 12}}, {"k", {2, 5, 12}}, {"v", {2, 5, 12}}},
       [](ModelBuilder& m) {
         set(fused(m, "MultiHeadAttention", {"q", "k", "v"}), "num_heads", int64_t{3});
       },
       [](ModelBuilder& m) {
         auto& node = m.node("Attention", {"q", "k", "v"}, {"y"});
         set(node, "q_num_heads", int64_t{3});
         set(node, "kv_num_heads", int64_t{3});
       }},
      {"RotaryEmbedding",
       {{"x", {2, 3, 16}}, {"at", {2, 3}, TensorProto::INT64}, {"c", {5, 4}}, {"s", {5, 4}}},
       [](ModelBuilder& m) {
         set(fused(m, "RotaryEmbedding", {"x", "at", "c", "s"}), "num_heads", int64_t{2});
       },
       [](ModelBuilder& m) {
         set(m.node("RotaryEmbedding", {"x", "c", "s", "at"}, {"y"}), "num_heads", int64_t{2});
       }},
      {"RotaryEmbedding",  // the heads follow from the angles
       {{"x", {2, 3, 16}}, {"at", {2, 3}, TensorProto::INT64}, {"c", {5, 4}}, {"s", {5, 4}}},
       [](ModelBuilder& m) {
         set(fused(m, "RotaryEmbedding", {"x", "at", "c", "s"}), "num_heads", int64_t{0});
       },
       [](ModelBuilder& m) {
         set(m.node("RotaryEmbedding", {"x", "c", "s", "at"}, {"y"}), "num_heads", int64_t{2});
       }},
      {"RotaryEmbedding",
       {{"x", {2, 2, 3, 8}}, {"at", {1}, TensorProto::INT64}, {"c", {9, 4}}, {"s", {9, 4}}},
       [](ModelBuilder& m) {
         fused(m, "RotaryEmbedding", {"x", "at", "c", "s"});
       },
       [](ModelBuilder& m) {
         m.add_tensor("counted", {2, 3}, TensorProto::INT64);
         auto* counted = m.graph().mutable_initializer(m.graph().initializer_size() - 1);
         for (const int64_t position : {0, 1, 2, 0, 1, 2}) counted->add_int64_data(position);
         m.node("Add", {"counted", "at"}, {"positions"});
         m.node("RotaryEmbedding", {"x", "c", "s", "positions"}, {"y"});
       }},
      {"QLinearAdd",
       {{"a", {2, 5}, TensorProto::UINT8}, {"b", {5}, TensorProto::UINT8}},
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         fused(m, "QLinearAdd", {"a", "s", "z", "b", "s", "z", "s", "z"});
       },
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         m.node("DequantizeLinear", {"a", "s", "z"}, {"ra"});
         m.node("DequantizeLinear", {"b", "s", "z"}, {"rb"});
         m.node("Add", {"ra", "rb"}, {"r"});
         m.node("QuantizeLinear", {"r", "s", "z"}, {"y"});
       }},
      {"QLinearAveragePool",
       {{"a", {1, 2, 5, 5}, TensorProto::UINT8}},
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         auto& node = fused(m, "QLinearAveragePool", {"a", "s", "z", "s", "z"});
         set(node, "kernel_shape", std::vector<int64_t>{3, 3});
         set(node, "pads", std::vector<int64_t>{1, 1, 1, 1});
       },
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         m.node("DequantizeLinear", {"a", "s", "z"}, {"r"});
         auto& node = m.node("AveragePool", {"r"}, {"p"});
         set(node, "kernel_shape", std::vector<int64_t>{3, 3});
         set(node, "pads", std::vector<int64_t>{1, 1, 1, 1});
         m.node("QuantizeLinear", {"p", "s", "z"}, {"y"});
       }},
      {"QGemm",
       {{"a", {3, 4}, TensorProto::UINT8},
        {"b", {2, 4}, TensorProto::UINT8},
        {"c", {2}, TensorProto::INT32}},
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         m.floats("t", {2}, {0.2F, 0.4F}).small_integers("zt", {2}, TensorProto::UINT8, {5, 6});
         auto& node = fused(m, "QGemm", {"a", "s", "z", "b", "t", "zt", "c"});
         set(node, "transB", int64_t{1});
         set(node, "alpha", 0.5F);
       },
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         m.floats("t", {2}, {0.2F, 0.4F}).small_integers("zt", {2}, TensorProto::UINT8, {5, 6});
         m.floats("st", {2}, {0.02F, 0.04F});
         m.node("DequantizeLinear", {"a", "s", "z"}, {"ra"});
         set(m.node("DequantizeLinear", {"b", "t", "zt"}, {"rb"}), "axis", int64_t{0});
         set(m.node("Cast", {"c"}, {"fc"}), "to", int64_t{TensorProto::FLOAT});
         m.node("Mul", {"fc", "st"}, {"rc"});
         auto& node = m.node("Gemm", {"ra", "rb", "rc"}, {"y"});
         set(node, "transB", int64_t{1});
         set(node, "alpha", 0.5F);
         set(node, "beta", 0.5F);
       }},
      {"MatMulIntegerToFloat",
       {{"a", {2, 3, 4}, TensorProto::UINT8}, {"b", {4, 2}, TensorProto::UINT8}, {"c", {2}}},
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         m.floats("t", {2}, {0.2F, 0.4F}).small_integers("zt", {2}, TensorProto::UINT8, {5, 6});
         fused(m, "MatMulIntegerToFloat", {"a", "b", "s", "t", "z", "zt", "c"});
       },
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         m.floats("t", {2}, {0.2F, 0.4F}).small_integers("zt", {2}, TensorProto::UINT8, {5, 6});
         m.node("DequantizeLinear", {"a", "s", "z"}, {"ra"});
         set(m.node("DequantizeLinear", {"b", "t", "zt"}, {"rb"}), "axis", int64_t{1});
         m.node("MatMul", {"ra", "rb"}, {"p"});
         m.node("Add", {"p", "c"}, {"y"});
       }},
      {"QLinearWhere",
       {{"a", {2, 5}, TensorProto::UINT8}, {"b", {5}, TensorProto::UINT8}, {"x", {5}}},
       [](ModelBuilder& m) {
         m.floats("s", {}, {0.1F}).small_integers("z", {}, TensorProto::UINT8, {7});
         set(m.node("Cast", {"x"}, {"c"}), "to", int64_t{TensorProto::BOOL});
         fused(m, "QLinearWhere", {"c", "a", "s", "z", "b", "s", "z", "s", "z"});
       },
       [](ModelBuilder& m) {
         set(m.node("Cast", {"x"}, {"c"}), "to", int64_t{TensorProto::BOOL});
         m.node("Where", {"c", "a", "b"}, {"y"});
       }},
      {"SwiGLU",
       {{"a", {2, 3}}, {"b", {2, 3}}},
       [](ModelBuilder& m) {
         m.node("SwiGLU", {"a", "b"}, {"y"});
       },
       [](ModelBuilder& m) {
         m.node("Swish", {"a"}, {"s"});
         m.node("Mul", {"s", "b"}, {"y"});
       }},
      {"SoftmaxCrossEntropyLoss",
       {{"x", {2, 4, 3}}, {"t", {2, 3}, TensorProto::INT64}, {"w", {4}}},
       [](ModelBuilder& m) {
         set(m.node("SoftmaxCrossEntropyLoss", {"x", "t", "w"}, {"y"}), "ignore_index", int64_t{2});
       },
       [](ModelBuilder& m) {
         set(m.node("LogSoftmax", {"x"}, {"l"}), "axis", int64_t{1});
         set(m.node("NegativeLogLikelihoodLoss", {"l", "t", "w"}, {"y"}), "ignore_index",
             int64_t{2});
       }},
  };
}

TEST(Fused, OneNodeGivesWhatSeveralGive) {
  for (const Pair& pair : pairs()) {
    const auto got = result_of(pair.inputs, 28, pair.one);
    const auto want = result_of(pair.inputs, 28, pair.several);
    ASSERT_EQ(got.size(), want.size()) << pair.name;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << pair.name << "[" << i << "]";
  }
}

// The loss by hand: of the targets 0, 3 and the ignored 1, with weights 2, 1, 1, 3.
TEST(Fused, LossesLeaveIgnoredTargetsOut) {
  ModelBuilder model(13);
  model.floats("x", {3, 4}, {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12});
  model.integers("t", {0, 3, 1}).floats("w", {4}, {2, 1, 1, 3}).output("y");
  set(model.node("NegativeLogLikelihoodLoss", {"x", "t", "w"}, {"y"}), "ignore_index", int64_t{1});
  const Graph graph = import_bytes(model.bytes(), "").graph;
  EXPECT_NEAR(numbers_of(evaluate(graph, {})[0])[0], (1 * 2 + 8 * 3) / 5.0, 1e-6);
}

TEST(Fused, WeightsOfALossHaveTheTypeOfItsScores) {
  ModelBuilder model(13);
  model.floats("x", {3, 4}, std::vector<float>(12)).integers("t", {0, 3, 1});
  model.integers("w", {2, 1, 1, 3}).output("y");
  model.node("NegativeLogLikelihoodLoss", {"x", "t", "w"}, {"y"});
  EXPECT_THAT(error_of([&] { import_bytes(model.bytes(), ""); }),
              testing::HasSubstr("inputs of different types: f32 and i64"));
}

// Faults that are known only at run time end the run.
TEST(Fused, ConditionsOfTheRun) {
  ModelBuilder model(17);
  model.input("x", {"6"}).input("parts", {"2"}, TensorProto::INT64);
  model.input("train", {}, TensorProto::BOOL).input("ratio", {}).output("y").output("z");
  model.node("Split", {"x", "parts"}, {"a", "y"});
  model.node("Dropout", {"a", "ratio", "train"}, {"z"});
  const Graph graph = import_bytes(model.bytes(), "").graph;
  const Tensor x = random_tensor({"x", {6}}, 1);
  const auto run = [&](const std::vector<int64_t>& parts, uint8_t train, double ratio) {
    const Tensor inputs[] = {x, Tensor::of<int64_t>(DataType::kI64, {2}, parts),
                             Tensor::of<uint8_t>(DataType::kBool, {}, std::vector<uint8_t>{train}),
                             tensor_of(DataType::kF32, {}, {ratio})};
    return evaluate(graph, inputs);
  };
  EXPECT_EQ(run({2, 4}, 0, 0.5)[0].dims(), (Dims{4}));
  EXPECT_EQ(run({6, 0}, 1, 0)[1], x);
  EXPECT_THAT(error_of([&] {
                run({2, 3}, 0, 0);
              }),
              testing::HasSubstr("does not accept [2,3] for [6]"));
  EXPECT_THROW(run({-1, 7}, 0, 0), Error);
  EXPECT_THROW(run({2, 4}, 1, 0.5), Error);
}

// Axes that only a run tells.
TEST(Fused, AxesOfARun) {
  const auto run = [](const std::string& op, const std::vector<int64_t>& dims,
                      const std::vector<int64_t>& axes) {
    ModelBuilder model(17);
    model.input("x", std::vector<std::string>(dims.size(), "?"));
    model.input("axes", {std::to_string(axes.size())}, TensorProto::INT64).output("y");
    model.node(op, {"x", "axes"}, {"y"}, "n");
    const Graph graph = import_bytes(model.bytes(), "").graph;
    const Tensor inputs[] = {
        random_tensor({"x", dims}, 1),
        Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(axes.size())}, axes)};
    return evaluate(graph, inputs)[0].dims();
  };
  EXPECT_EQ(run("Squeeze", {1, 3, 1}, {2, 0}), (Dims{3}));
  EXPECT_EQ(run("Squeeze", {1, 3, 1}, {-1}), (Dims{1, 3}));
  EXPECT_EQ(run("Unsqueeze", {2, 3}, {0, -1}), (Dims{1, 2, 3, 1}));
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, 2}, {0, 0}, {0, 5}, {0, -4}})
    EXPECT_THAT(error_of([&] {
                  run("Squeeze", {1, 3, 2}, axes);
                }),
                testing::HasSubstr("does not accept ["));
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, 0}, {0, 4}, {-5, 1}})
    EXPECT_THAT(error_of([&] {
                  run("Unsqueeze", {2, 3}, axes);
                }),
                testing::HasSubstr("does not accept ["));
}

// Sizes of inputs that a normalization does not broadcast.
TEST(Fused, SizesOfNormalizations) {
  const auto run = [](const std::string& op, const std::vector<int64_t>& x,
                      const std::vector<int64_t>& vectors) {
    ModelBuilder model(23);
    std::vector<std::string> names = {"x"};
    model.input("x", std::vector<std::string>(x.size(), "?")).output("y");
    std::vector<Tensor> inputs = {random_tensor({"x", x}, 1)};
    for (const int64_t size : vectors) {
      names.push_back("v" + std::to_string(inputs.size()));
      model.input(names.back(), {"?"});
      inputs.push_back(random_tensor({names.back(), {size}}, 1));
    }
    model.node(op, names, {"y"}, "n");
    return evaluate(import_bytes(model.bytes(), "").graph, inputs)[0].dims();
  };
  EXPECT_EQ(run("LayerNormalization", {2, 4}, {4, 1}), (Dims{2, 4}));
  EXPECT_EQ(run("InstanceNormalization", {2, 4, 3}, {4, 4}), (Dims{2, 4, 3}));
  EXPECT_EQ(run("BatchNormalization", {2, 4, 3}, {4, 4, 4, 4}), (Dims{2, 4, 3}));
  EXPECT_THROW(run("LayerNormalization", {2, 1}, {4, 4}), Error);
  EXPECT_THROW(run("RMSNormalization", {2, 1}, {4}), Error);
  EXPECT_THROW(run("InstanceNormalization", {2, 4, 3}, {1, 4}), Error);
  EXPECT_THROW(run("InstanceNormalization", {2, 1, 3}, {4, 4}), Error);
  EXPECT_THROW(run("BatchNormalization", {2, 4, 3}, {4, 4, 1, 4}), Error);
}

// Squares of up to two channels on each side, or one where `size` is even.
TEST(Fused, LrnDividesByThePowerOfSquaresAround) {
  for (const int64_t size : {1, 4, 5})
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{2, 7}, {2, 7, 3, 5}}) {
      ModelBuilder model(13);
      model.input("x", std::vector<std::string>(dims.size(), "?")).output("y");
      auto& node = model.node("LRN", {"x"}, {"y"}, "n");
      set(node, "size", size);
      set(node, "alpha", 0.3F);
      set(node, "bias", 2.0F);
      const Tensor x = random_tensor({"x", dims}, 1);
      const Tensor y = evaluate(import_bytes(model.bytes(), "").graph, {{x}})[0];
      const std::vector<double> in = numbers_of(x), out = numbers_of(y);
      const int64_t inner = count(x.dims()) / (dims[0] * dims[1]);
      for (int64_t i = 0; i < count(x.dims()); ++i) {
        const int64_t channel = i / inner % dims[1];
        double sum = 0;
        for (int64_t c = std::max<int64_t>(channel - (size - 1) / 2, 0);
             c <= std::min(channel + size / 2, dims[1] - 1); ++c)
          sum += std::pow(in[static_cast<size_t>(i + (c - channel) * inner)], 2);
        const double scale = std::pow(2 + 0.3 / static_cast<double>(size) * sum, 0.75);
        EXPECT_NEAR(out[static_cast<size_t>(i)], in[static_cast<size_t>(i)] / scale, 1e-6);
      }
    }
}

TEST(Fused, ShapesOfMaxUnpool) {
  const auto run = [](const Dims& indices, const std::vector<int64_t>& shape) {
    ModelBuilder model(17);
    model.input("x", {"?", "?", "?", "?"}).input("i", {"?", "?", "?", "?"}, TensorProto::INT64);
    model.input("s", {"4"}, TensorProto::INT64).output("y");
    auto& node = model.node("MaxUnpool", {"x", "i", "s"}, {"y"}, "n");
    set(node, "kernel_shape", std::vector<int64_t>{2, 2});
    set(node, "strides", std::vector<int64_t>{2, 2});
    const Tensor inputs[] = {
        random_tensor({"x", {1, 1, 2, 2}}, 1),
        Tensor::of<int64_t>(DataType::kI64, indices, std::vector<int64_t>{0, 2, 8, 10}),
        Tensor::of<int64_t>(DataType::kI64, {4}, shape)};
    return evaluate(import_bytes(model.bytes(), "").graph, inputs)[0].dims();
  };
  EXPECT_EQ(run({1, 1, 2, 2}, {1, 1, 5, 4}), (Dims{1, 1, 5, 4}));
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 2, 4, 4}, {2, 1, 4, 4}, {1, 1, 4, 3}})
    EXPECT_THAT(error_of([&] {
                  run({1, 1, 2, 2}, shape);
                }),
                testing::HasSubstr("does not accept ["));
  EXPECT_THAT(error_of([&] {
                run({1, 1, 1, 4}, {1, 1, 4, 4});
              }),
              testing::HasSubstr("does not accept [1,1,1,4] for [1,1,2,2]"));
}

TEST(Fused, FormsThatAreNotTaken) {
  const std::vector<Input> x = {{"x", {2, 3, 12}}, {"w", {12, 36}}};
  const auto error = [&](const Build& build) { return error_of([&] { result_of(x, 17, build); }); };
  EXPECT_THAT(error([](ModelBuilder& m) {
                set(fused(m, "MultiHeadAttention", {"x"}), "num_heads", int64_t{3});
              }),
              testing::HasSubstr("packed queries"));
  EXPECT_THAT(error([](ModelBuilder& m) {
                set(fused(m, "FusedMatMul", {"x", "w"}), "transBatchA", int64_t{1});
              }),
              testing::HasSubstr("not the last two axes"));
}

}  // namespace
}  // namespace anneal
