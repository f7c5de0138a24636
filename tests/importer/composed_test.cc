// Operators that become several layers: transforms, windows, images from parts, rotary positions.
#include <gmock/gmock.h>

#include <random>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

using Change = std::function<void(ModelBuilder&)>;

Graph import(int opset, const std::vector<std::string>& dims, const Change& build) {
  ModelBuilder model(opset);
  model.input("x", dims).output("y");
  build(model);
  Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  return graph;
}

std::vector<double> constant(const Graph& graph, const std::string& name) {
  for (const LayerId id : graph.order())
    for (const ValueId input : graph.layer(id).inputs)
      if (input != ValueId::kNone && graph.value(input).name == name)
        return numbers_of(*graph.constant(input));
  ADD_FAILURE() << "no constant \"" << name << '"';
  return {};
}

Graph dft(const std::vector<std::string>& dims, int64_t axis, int64_t inverse, int64_t onesided,
          std::optional<int64_t> length = {}) {
  return import(17, dims, [&](ModelBuilder& model) {
    std::vector<std::string> inputs = {"x"};
    if (length) {
      model.integers("length", {*length});
      inputs.push_back("length");
    }
    auto& node = model.node("DFT", inputs, {"y"}, "n");
    set(node, "axis", axis);
    set(node, "inverse", inverse);
    set(node, "onesided", onesided);
  });
}

TEST(Composed, DftIsAProductWithWaves) {
  const Graph forward = dft({"N", "2", "1"}, 1, 0, 0);
  EXPECT_EQ(output_type(forward), "f32[N,2,2]");
  EXPECT_THAT(constant(forward, "n/coefficients"), ElementsAre(1, 0, 1, 0, 1, 0, -1, 0));
  // Half a spectrum gives a real signal, the conjugate half included.
  const Graph real = dft({"N", "2", "2"}, 1, 1, 1);
  EXPECT_EQ(output_type(real), "f32[N,2,1]");
  EXPECT_THAT(constant(real, "n/coefficients"), ElementsAre(0.5, 0.5, 0, 0, 0.5, -0.5, 0, 0));
  // Points beyond the length do not count.
  const Graph cut = dft({"N", "3", "1"}, 1, 0, 1, 2);
  EXPECT_EQ(output_type(cut), "f32[N,2,2]");
  EXPECT_THAT(constant(cut, "n/coefficients"), ElementsAre(1, 0, 1, 0, 1, 0, -1, 0, 0, 0, 0, 0));
  EXPECT_EQ(output_type(dft({"3", "N", "2"}, 0, 0, 0, 8)), "f32[8,N,2]");
  EXPECT_THAT(to_string(dft({"3", "N", "2"}, 0, 0, 0)), HasSubstr("Transpose(x)"));
}

// Each run computes the matrix of a signal whose length is open.
TEST(Composed, DftOfAnOpenLengthIsThatOfAKnownOne) {
  std::mt19937 random(1);
  for (const auto& [inverse, onesided] : {std::pair{0, 0}, {1, 0}, {0, 1}})
    for (const int64_t parts : {1, 2})
      for (const int64_t length : {1, 2, 7, 16}) {
        const Graph open = dft({"3", "N", std::to_string(parts)}, 1, inverse, onesided);
        const Graph known =
            dft({"3", std::to_string(length), std::to_string(parts)}, 1, inverse, onesided);
        const Dims dims = {3, length, parts};
        std::vector<double> numbers(static_cast<size_t>(count(dims)));
        for (double& number : numbers) number = static_cast<int>(random() % 17) - 8;
        const std::vector<Tensor> inputs = {tensor_of(DataType::kF32, dims, numbers)};
        const Tensor got = evaluate(open, inputs)[0], want = evaluate(known, inputs)[0];
        ASSERT_EQ(got.dims(), want.dims());
        EXPECT_THAT(numbers_of(got), Pointwise(DoubleNear(1e-4), numbers_of(want)))
            << inverse << onesided << parts << length;
      }
  EXPECT_EQ(output_type(dft({"3", "N", "1"}, 1, 0, 1)), "f32[3,N//2 + 1,2]");
  EXPECT_EQ(output_type(dft({"N", "3", "2"}, 0, 0, 0)), "f32[N,3,2]");
  for (const auto& [inverse, length] : {std::pair<int, std::optional<int64_t>>{1, {}}, {0, 8}})
    EXPECT_THAT(error_of([&] {
                  dft({"3", "N", "2"}, 1, inverse, inverse, length);
                }),
                HasSubstr("a signal of open length that has another length than its transform"));
}

TEST(Composed, StftIsAConvolution) {
  const auto stft = [](bool window) {
    return [=](ModelBuilder& model) {
      model.integers("step", {3}).integers("length", {2}).floats("w", {2}, {1, 2});
      if (window) {
        model.node("STFT", {"x", "step", "w"}, {"y"}, "n");
      } else {
        model.node("STFT", {"x", "step", "", "length"}, {"y"}, "n");
      }
    };
  };
  const Graph plain = import(17, {"N", "T", "1"}, stft(false));
  EXPECT_EQ(output_type(plain), "f32[N,(T + 1)//3,2,2]");
  EXPECT_THAT(constant(plain, "n/waves"), ElementsAre(1, 1, 0, 0, 1, -1, 0, 0));
  EXPECT_THAT(to_string(plain), HasSubstr("strides=[3]"));
  EXPECT_THAT(to_string(import(17, {"N", "8", "1"}, stft(true))), HasSubstr("\"n/windowed\""));
}

// As the older exporter of torch writes it: [batch, length], without the axis of parts.
TEST(Composed, StftOfARealSignalNeedsNoParts) {
  const auto stft = [](const std::vector<std::string>& dims) {
    return import(17, dims, [](ModelBuilder& model) {
      model.integers("step", {3}).floats("w", {2}, {1, 2});
      model.node("STFT", {"x", "step", "w"}, {"y"}, "n");
    });
  };
  const Graph two = stft({"N", "T"}), three = stft({"N", "T", "1"});
  EXPECT_EQ(output_type(two), output_type(three));
  EXPECT_EQ(output_type(stft({"2", "16"})), "f32[2,5,2,2]");
  EXPECT_EQ(constant(two, "n/waves"), constant(three, "n/waves"));
  EXPECT_THAT(error_of([&] { stft({"T"}); }), HasSubstr("has not 3 axes, or 2 of a real signal"));
}

TEST(Composed, SpaceToDepthHasTwoOrders) {
  const auto blocks = [](const char* mode) {
    return import(28, {"N", "3", "4", "6"}, [=](ModelBuilder& m) {
      auto& node = m.node("SpaceToDepth", {"x"}, {"y"}, "n");
      set(node, "blocksize", int64_t{2});
      set(node, "mode", mode);
    });
  };
  EXPECT_THAT(to_string(blocks("DCR")), HasSubstr("permutation=[0,3,5,1,2,4]"));
  EXPECT_THAT(to_string(blocks("CRD")), HasSubstr("permutation=[0,1,3,5,2,4]"));
  EXPECT_EQ(output_type(blocks("CRD")), "f32[N,12,2,3]");
}

TEST(Composed, RangeTakesItsStashType) {
  const Graph graph = import(27, {"1"}, [](ModelBuilder& m) {
    m.floats("from", {}, {0}).floats("to", {}, {5}).floats("by", {}, {2});
    set(m.node("Range", {"from", "to", "by"}, {"y"}), "stash_type", int64_t{1});
  });
  EXPECT_EQ(output_type(graph), "f32[3]");
}

TEST(Composed, MicrosoftsRangeHasAStepOf1ByDefault) {
  const auto range = [](bool has_step, bool is_integer) {
    return import(17, {"1"}, [=](ModelBuilder& m) {
      m.floats("from", {}, {2}).floats("to", {}, {8}).floats("by", {}, {3});
      auto* tensor = m.add_tensor("end", {}, anneal_onnx::TensorProto::INT64);
      tensor->add_int64_data(6);
      tensor = m.add_tensor("begin", {}, anneal_onnx::TensorProto::INT64);
      tensor->add_int64_data(2);
      const std::vector<std::string> inputs = is_integer ? std::vector<std::string>{"begin", "end"}
                                                         : std::vector<std::string>{"from", "to"};
      auto& node = m.node("Range", inputs, {"y"}, "n");
      node.set_domain("com.microsoft");
      if (has_step) node.add_input("by");
    });
  };
  EXPECT_EQ(output_type(range(false, false)), "f32[6]");
  EXPECT_EQ(output_type(range(true, false)), "f32[2]");
  EXPECT_EQ(output_type(range(false, true)), "i64[4]");
}

// tf2onnx writes a mode of opset 11 and 12 into models of later ones.
TEST(Composed, ResizeNamesAModeThatAnOpsetDoesNotHave) {
  const auto resize = [](int opset, const char* mode) {
    return import(opset, {"1", "2", "4", "4"}, [=](ModelBuilder& m) {
      m.floats("scales", {4}, {1, 1, 2, 2});
      auto& node = m.node("Resize", {"x", "", "scales"}, {"y"}, "n");
      set(node, "coordinate_transformation_mode", mode);
    });
  };
  EXPECT_EQ(output_type(resize(18, "tf_half_pixel_for_nn")), "f32[1,2,8,8]");
  EXPECT_THAT(to_string(resize(18, "tf_half_pixel_for_nn")), HasSubstr("axes=[2,3]"))
      << "axes of scale 1 are not moved by half an element";
  EXPECT_EQ(output_type(resize(19, "half_pixel_symmetric")), "f32[1,2,8,8]");
  EXPECT_THAT(error_of([&] { resize(18, "half_pixel_symmetric"); }),
              HasSubstr("which opset 18 does not have"));
  EXPECT_THAT(error_of([&] { resize(18, "half"); }), HasSubstr("which is no mode of ONNX"));
}

// torch's exporter writes num_heads beside 4 axes, which say it themselves.
TEST(Composed, RotaryEmbeddingOfFourAxesMayHaveNumHeads) {
  const auto rotary = [](std::optional<int64_t> heads) {
    return import(23, {"N", "4", "3", "8"}, [=](ModelBuilder& m) {
      m.floats("angles", {1, 3, 4}, std::vector<float>(12, 1));
      auto& node = m.node("RotaryEmbedding", {"x", "angles", "angles"}, {"y"}, "n");
      if (heads) set(node, "num_heads", *heads);
    });
  };
  EXPECT_EQ(to_string(rotary(4)), to_string(rotary({})));
  EXPECT_EQ(output_type(rotary(4)), "f32[N,4,3,8]");
}

TEST(Composed, ShapesOfTheRest) {
  struct Case {
    int opset;
    std::vector<std::string> dims;
    std::string type;
    Change build;
  };
  const auto integer = [](const std::string& name, int64_t value) {
    return [=](ModelBuilder& model) {
      auto* tensor = model.add_tensor(name, {}, anneal_onnx::TensorProto::INT64);
      tensor->add_int64_data(value);
    };
  };
  const Case cases[] = {
      {17,
       {"1"},
       "f32[23]",
       [&](ModelBuilder& m) {
         integer("size", 23)(m);
         m.node("HannWindow", {"size"}, {"y"});
       }},
      {17,
       {"1"},
       "f64[9,5]",
       [&](ModelBuilder& m) {
         integer("mels", 5)(m), integer("length", 17)(m), integer("rate", 8000)(m);
         m.floats("low", {}, {0}).floats("high", {}, {4000});
         set(m.node("MelWeightMatrix", {"mels", "length", "rate", "low", "high"}, {"y"}),
             "output_datatype", int64_t{anneal_onnx::TensorProto::DOUBLE});
       }},
      {11, {"N", "3", "3"}, "f32[N]", [](ModelBuilder& m) { m.node("Det", {"x"}, {"y"}); }},
      {11,
       {"N", "C", "3", "W"},
       "f32[N,C,5,2*W]",
       [](ModelBuilder& m) {
         m.graph().mutable_input(0)->set_name("x");
         m.input("i", {"N", "C", "3", "W"}, anneal_onnx::TensorProto::INT64);
         auto& node = m.node("MaxUnpool", {"x", "i"}, {"y"});
         set(node, "kernel_shape", std::vector<int64_t>{2, 2});
         set(node, "strides", std::vector<int64_t>{2, 2});
         set(node, "pads", std::vector<int64_t>{1, 0, 0, 0});
       }},
      {18,
       {"N", "8", "12"},
       "f32[N,2,4,5]",
       [](ModelBuilder& m) {
         m.integers("image", {4, 5}).integers("block", {2, 2});
         m.node("Col2Im", {"x", "image", "block"}, {"y"});
       }},
      {18,
       {"N", "8", "W"},
       "f32[N,3,10]",
       [](ModelBuilder& m) {
         m.integers("shape", {10, 3});
         set(m.node("CenterCropPad", {"x", "shape"}, {"y"}), "axes", std::vector<int64_t>{-1, 1});
       }},
      {20,
       {"N", "2", "3"},
       "f32[N,5,7,2]",
       [](ModelBuilder& m) {
         m.integers("size", {1, 3, 5, 7});
         m.node("AffineGrid", {"x", "size"}, {"y"});
       }},
      {23,
       {"N", "T", "32"},
       "f32[N,T,32]",
       [](ModelBuilder& m) {
         m.floats("angles", {50, 2}, std::vector<float>(100, 1));
         m.input("at", {"N", "T"}, anneal_onnx::TensorProto::INT64);
         auto& node = m.node("RotaryEmbedding", {"x", "angles", "angles", "at"}, {"y"});
         set(node, "num_heads", int64_t{4});
         set(node, "rotary_embedding_dim", int64_t{4});
         set(node, "interleaved", int64_t{1});
       }},
      {28,
       {"N", "8"},
       "f32[N,8]",
       [](ModelBuilder& m) {
         m.node("SwiGLU", {"x", "x"}, {"y"});
       }},
  };
  for (const Case& each : cases)
    EXPECT_EQ(output_type(import(each.opset, each.dims, each.build)), each.type);
}

TEST(Composed, WrongNodes) {
  struct Case {
    int opset;
    std::vector<std::string> dims;
    const char* error;
    Change build;
  };
  const auto dft_at = [](int64_t axis) {
    return [=](ModelBuilder& m) { set(m.node("DFT", {"x"}, {"y"}), "axis", axis); };
  };
  const auto col2im = [](const std::vector<int64_t>& image, const std::vector<int64_t>& block) {
    return [=](ModelBuilder& m) {
      m.integers("image", image).integers("block", block);
      m.node("Col2Im", {"x", "image", "block"}, {"y"});
    };
  };
  const auto stft = [](int64_t step, int64_t length) {
    return [=](ModelBuilder& m) {
      m.integers("step", {step}).integers("length", {length});
      m.node("STFT", {"x", "step", "", "length"}, {"y"});
    };
  };
  const Case cases[] = {
      {17, {"N", "4", "3"}, "a last axis of 3 elements, not 1 or 2", dft_at(1)},
      {17, {"N", "4", "1"}, "the axis of parts is not one of the signal", dft_at(2)},
      {17, {"N", "0", "1"}, "a transform of 0 points", dft_at(1)},
      {17, {"N", "1000000", "1"}, "a transform of 1000000 points", dft_at(1)},
      {17,
       {"N", "9000000000000000000", "1"},
       "a transform of 9000000000000000000 points",
       dft_at(1)},
      {17, {"N", "8", "1"}, "a step of 0", stft(0, 4)},
      {17, {"N", "8", "1"}, "a transform of -4 points", stft(1, -4)},
      {17, {"N", "8", "2"}, "one side of the spectrum of a complex signal", stft(1, 4)},
      {17, {"N", "8", "1"}, "larger than the padded input", stft(1, 9)},
      {18, {"N", "8", "12"}, "a size of -4", col2im({-4, 5}, {2, 2})},
      {18, {"N", "8", "12"}, "blocks larger than the padded image", col2im({4, 5}, {5, 2})},
      {18, {"N", "9", "12"}, "is not made of 12 blocks of 4", col2im({4, 5}, {2, 2})},
      {18, {"N", "8", "12"}, "an image of 2 axes from blocks of 1", col2im({4, 5}, {2})},
      {18, {"N", "C", "L"}, "an image of more than", col2im({60000, 60000}, {2, 2})},
      {18,
       {"4", "5"},
       "a shape for 2 axes is expected",
       [](ModelBuilder& m) {
         m.integers("shape", {1, 2, 3});
         m.node("CenterCropPad", {"x", "shape"}, {"y"});
       }},
      {20,
       {"N", "2", "2"},
       "input 0 is not [N,2,3] or [N,3,4]",
       [](ModelBuilder& m) {
         m.integers("size", {1, 3, 5, 7});
         m.node("AffineGrid", {"x", "size"}, {"y"});
       }},
      {11,
       {"N", "3", "4"},
       "matrices that are not square",
       [](ModelBuilder& m) { m.node("Det", {"x"}, {"y"}); }},
      {11,
       {"N", "9", "9"},
       "matrices larger than 4",
       [](ModelBuilder& m) { m.node("Det", {"x"}, {"y"}); }},
      {23,
       {"N", "T", "32"},
       "attribute \"num_heads\" is 0",
       [](ModelBuilder& m) {
         m.floats("angles", {5, 2}, std::vector<float>(10, 1));
         m.node("RotaryEmbedding", {"x", "angles", "angles"}, {"y"});
       }},
      {23,
       {"N", "4", "T", "8"},
       "\"rotary_embedding_dim\" is 10",
       [](ModelBuilder& m) {
         m.floats("angles", {5, 2}, std::vector<float>(10, 1));
         set(m.node("RotaryEmbedding", {"x", "angles", "angles"}, {"y"}), "rotary_embedding_dim",
             int64_t{10});
       }},
      {10,
       {"N", "4", "T"},
       "two axes that are one",
       [](ModelBuilder& m) {
         m.integers("lengths", {1, 1});
         set(m.node("ReverseSequence", {"x", "lengths"}, {"y"}), "time_axis", int64_t{1});
       }},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(error_of([&] { import(wrong.opset, wrong.dims, wrong.build); }),
                HasSubstr(wrong.error));
}

// PyTorch aligns the last elements; in the test data of ONNX the fraction of 5 * 1.5 counts.
TEST(Resize, ScalesOfPyTorchAlignTheCorners) {
  const auto resized = [](const char* producer) {
    return values_of({{"x", {1}}}, [&](ModelBuilder& m) {
      m.model.set_producer_name(producer);
      m.floats("n", {5}, {0, 1, 2, 3, 4}).floats("scales", {1}, {1.5});
      auto& node = m.node("Resize", {"n", "", "scales"}, {"y"});
      set(node, "mode", "linear");
      set(node, "coordinate_transformation_mode", "align_corners");
    });
  };
  using ::testing::DoubleNear;
  using ::testing::ElementsAre;
  const auto near = [](double value) { return DoubleNear(value, 1e-6); };
  EXPECT_THAT(resized("pytorch"), ElementsAre(near(0), near(2 / 3.0), near(4 / 3.0), near(2),
                                              near(8 / 3.0), near(10 / 3.0), near(4)));
  EXPECT_THAT(resized("another"), ElementsAre(near(0), near(4 / 6.5), near(8 / 6.5), near(12 / 6.5),
                                              near(16 / 6.5), near(20 / 6.5), near(24 / 6.5)));
}

// Kernels need not subtract what is 0; constant scales give one constant.
TEST(QLinearConv, ZeroPointsOfZeroAreLeftOut) {
  const auto conv = [](int zero_of_x, int zero_of_w) {
    ModelBuilder m(20);
    m.input("x", {"1", "2", "3", "3"}, anneal_onnx::TensorProto::UINT8).output("y");
    m.floats("xs", {}, {0.5F}).floats("ws", {1}, {0.25F}).floats("ys", {}, {0.125F});
    m.small_integers("xz", {}, anneal_onnx::TensorProto::UINT8, {zero_of_x});
    m.small_integers("yz", {}, anneal_onnx::TensorProto::UINT8, {3});
    m.small_integers("w", {1, 2, 1, 1}, anneal_onnx::TensorProto::INT8, {1, -2});
    m.small_integers("wz", {1}, anneal_onnx::TensorProto::INT8, {zero_of_w});
    m.node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz"}, {"y"}, "conv");
    return import_bytes(m.bytes(), "").graph;
  };
  const auto inputs_of_conv = [](const Graph& graph) {
    for (const LayerId id : graph.order())
      if (std::holds_alternative<Conv>(graph.layer(id).op)) return graph.layer(id).inputs.size();
    return size_t{0};
  };
  EXPECT_EQ(inputs_of_conv(conv(0, 0)), 2U);
  EXPECT_EQ(inputs_of_conv(conv(9, 0)), 3U);
  EXPECT_EQ(inputs_of_conv(conv(0, 1)), 4U);
  EXPECT_THAT(to_string(conv(0, 0)), HasSubstr("\"conv/scale\" = "));
}

}  // namespace
}  // namespace anneal
