// Layers as operations of cuDNN, and properties of cards. Needs no library.
#include "anneal/kernels/cuda/cudnn/operations.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/cudnn/card_properties.h"
#include "anneal/kernels/cuda/cudnn/layer_operations.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cudnn/layer.h"

namespace anneal::cuda {
namespace {

using testing::HasSubstr;

class CudnnLayers : public testing::Test {
 protected:
  // The graph, or "refused: " and why.
  std::string text_of(const Layer& layer, EpilogueForm form = EpilogueForm::kAsGiven) {
    const LayerRequest request(layer, *device_);
    Result<Operations> made = refuse("no such op");
    if (const auto* const conv = std::get_if<Conv>(&layer.op))
      made = conv_operations(*conv, *request, form);
    if (const auto* const matmul = std::get_if<MatMul>(&layer.op))
      made = matmul_operations(*matmul, *request, form);
    if (const auto* const attention = std::get_if<Attention>(&layer.op))
      made = attention_operations(*attention, *request, form);
    return made ? to_string(*made) : "refused: " + made.reason();
  }

 private:
  const std::unique_ptr<Device> device_ = open_device("sm_90");
};

constexpr auto kBiasRelu = "(f32,f32)->(f16) round_f16(max(add($0,$1),0f32))";

TEST_F(CudnnLayers, Conv) {
  EXPECT_EQ(text_of(conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 2, 1, kBiasRelu)),
            "%0: f16[2,8,6,6] strides [288,1,48,8] of 16 bytes, input 0\n"
            "%1: f16[16,8,3,3] strides [72,1,24,8] of 16 bytes, input 1\n"
            "%2: f32[2,16,3,3]\n"
            "%3: f16[2,16,3,3] strides [144,1,48,16] of 16 bytes, output\n"
            "%4: f32[1,16,1,1] strides [16,1,16,16] of 16 bytes, input 2\n"
            "%5: f32[2,16,3,3]\n"
            "%2 = conv(%0, %1) strides=[2,2] pads=[1,1]..[1,1] dilations=[1,1]\n"
            "%5 = add(%2, %4)\n"
            "%3 = relu(%5)\n");
}

TEST_F(CudnnLayers, ABiasIsRoundedBesideAHalfPrecisionProduct) {
  const Layer layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 2, 1, kBiasRelu);
  EXPECT_THAT(text_of(layer, EpilogueForm::kRewritten),
              HasSubstr("%4: f16[1,16,1,1] of input 2 in 16 bits\n"));
  Layer large = layer;
  const std::vector<float> values(16, 1e30f);
  large.inputs[2].constant =
      std::make_shared<Tensor>(Tensor::of<float>(DataType::kF32, {16, 1, 1}, values));
  EXPECT_EQ(text_of(large, EpilogueForm::kRewritten), text_of(large, EpilogueForm::kAsGiven));
}

TEST_F(CudnnLayers, OneSpatialAxisGetsASecondOne) {
  EXPECT_THAT(text_of(conv_layer("", {2, 8, 6}, {16, 8, 3}, 1, 1, "")),
              HasSubstr("%0: f16[2,8,1,6] strides [48,1,48,8]"));
  EXPECT_THAT(text_of(conv_layer("", {2, 8, 6}, {16, 8, 3}, 1, 1, "")),
              HasSubstr("strides=[1,1] pads=[0,1]..[0,1]"));
}

TEST_F(CudnnLayers, LeadingAxesOfAProductAreRowsOrBatches) {
  EXPECT_EQ(text_of(matmul_layer("", {2, 3, 8}, {8, 16}, "", {})),
            "%0: f16[1,6,8] strides [48,8,1] of 16 bytes, input 0\n"
            "%1: f16[1,8,16] strides [128,16,1] of 16 bytes, input 1\n"
            "%2: f16[1,6,16] strides [96,16,1] of 16 bytes, output\n"
            "%2 = matmul(%0, %1)\n");
  EXPECT_EQ(text_of(matmul_layer("", {2, 3, 4, 8}, {2, 3, 8, 16}, "", {})),
            "%0: f16[6,4,8] strides [32,8,1] of 16 bytes, input 0\n"
            "%1: f16[6,8,16] strides [128,16,1] of 16 bytes, input 1\n"
            "%2: f16[6,4,16] strides [64,16,1] of 16 bytes, output\n"
            "%2 = matmul(%0, %1)\n");
  EXPECT_EQ(text_of(matmul_layer("", {2, 3, 4, 8}, {1, 3, 8, 16}, "", {})),
            "refused: batches of one operand that the other lacks");
}

TEST_F(CudnnLayers, OperandsOfAProductAreBroadcastToItsRows) {
  const auto text = [&](Dims operand) {
    return text_of(matmul_layer("", {2, 3, 8}, {8, 16}, "(f32,f16)->(f16) round_f16(add($0,$1))",
                                {{DataType::kF16, operand}}));
  };
  EXPECT_THAT(text({16}), HasSubstr("f16[1,1,16] strides [16,16,1] of 16 bytes, input 2\n"));
  EXPECT_THAT(text({2, 3, 16}), HasSubstr("f16[1,6,16] strides [96,16,1] of 16 bytes, input 2\n"));
  EXPECT_THAT(text({2, 3, 1}), HasSubstr("f16[1,6,1] strides"));
  EXPECT_EQ(text({2, 1, 16}), "refused: an operand that is broadcast along some leading axes");
  EXPECT_EQ(text({3, 16}), "refused: an operand that is broadcast along some leading axes");
}

TEST_F(CudnnLayers, Attention) {
  const std::string text = text_of(attention_layer("", {1, 4, 32, 64}, {1, 2, 32, 64}, ""));
  EXPECT_THAT(text, HasSubstr("%1: f16[1,2,64,32] strides [4096,2048,1,64] of 16 bytes, input 1"));
  EXPECT_THAT(text, HasSubstr("%4 = reduce_max(%3)"));
}

TEST_F(CudnnLayers, AlignmentOfViews) {
  EXPECT_EQ(alignment_of({2, 8, 4, 4}, {128, 1, 32, 8}, DataType::kF16), 16);
  EXPECT_EQ(alignment_of({2, 3, 4, 4}, {64, 1, 16, 4}, DataType::kF16), 8);
  EXPECT_EQ(alignment_of({2, 3, 4, 4}, {80, 1, 20, 5}, DataType::kF16), 2);
  EXPECT_EQ(alignment_of({2, 3, 5, 5}, {75, 1, 15, 3}, DataType::kF16), 2) << "half of four images";
  EXPECT_EQ(alignment_of({64}, {1}, DataType::kF16), 16);
}

TEST_F(CudnnLayers, Refusals) {
  Layer layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, 1, "");
  std::get<Conv>(layer.op).split = {8, 8};
  EXPECT_EQ(text_of(layer), "refused: several outputs");
  layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, 1, "", 1, DataType::kF64);
  EXPECT_EQ(text_of(layer), "refused: only f32, f16, bf16 and i8, not f64");
  layer = conv_layer("", {2, 8, 6}, {16, 8, 3}, 1, 1,
                     "(f32)->(f16) round_f16(select(lt(index(1),index(2)),0f32,$0))");
  EXPECT_EQ(text_of(layer), "refused: coordinates in an epilogue");
  layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, -1, "");
  EXPECT_EQ(text_of(layer), "refused: padding below zero");
  layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, 1,
                     "(i32,f32,f32)->(f32) add($2,mul($1,f32($0)))", 1, DataType::kI8);
  EXPECT_EQ(text_of(layer),
            "refused: cuDNN may round a product and a sum once, where we round twice");
  layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, 1, "", 1, DataType::kI8);
  layer.inputs.push_back({DataType::kI8, {}});
  layer.op_input_count = 3;
  EXPECT_EQ(text_of(layer), "refused: a zero point that is not 0");
  EXPECT_EQ(text_of(attention_layer("", {1, 4, 32, 64}, {1, 2, 32, 64}, "", {}, DataType::kF32)),
            "refused: only f16 and bf16");
  layer = attention_layer("", {1, 4, 32, 64}, {1, 2, 32, 64}, "(f32,f32)->(f32) add($0,$1)",
                          {{DataType::kF32, {1, 1, 1, 32}}});
  std::get<Attention>(layer.op).hidden_is_zero = true;
  EXPECT_EQ(text_of(layer), "refused: a mask that may hide a whole row, whose result is 0");
  layer = conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, 1,
                     "(f32,bool)->(f16) round_f16(select($1,$0,0f32))");
  layer.inputs[2].dtype = DataType::kBool;
  layer.inputs[2].constant = nullptr;
  EXPECT_EQ(text_of(layer), "refused: bools in memory, which cuDNN may read packed");
}

TEST_F(CudnnLayers, OrdersOfAxes) {
  const std::string refused = "refused: tensors that are not all row-major or all channels-last";
  Layer layer =
      conv_layer("", {2, 8, 6, 6}, {16, 8, 3, 3}, 1, 1, "(f32,f16)->(f16) round_f16(add($0,$1))");
  layer.inputs[2] = {DataType::kF16, {2, 16, 6, 6}, true};
  EXPECT_THAT(text_of(layer), Not(HasSubstr("refused")));
  for (size_t i = 0; i < 3; ++i) {
    Layer mixed = layer;
    mixed.inputs[i].channels_last = false;
    EXPECT_EQ(text_of(mixed), refused) << "input " << i;
  }
  for (LayerOperand& each : layer.inputs) each.channels_last = false;
  EXPECT_EQ(text_of(layer), refused) << "the output";
  layer.output.channels_last = false;
  EXPECT_THAT(text_of(layer), Not(HasSubstr("refused")));
  // One pixel has no order.
  layer = conv_layer("", {2, 8, 1, 1}, {16, 8, 1, 1}, 1, 0, "");
  layer.inputs[0].channels_last = false;
  EXPECT_THAT(text_of(layer), Not(HasSubstr("refused")));
}

// Whether a row sees the key of its own number, where the result of a row that sees none is 0.
TEST_F(CudnnLayers, MasksByCoordinates) {
  const std::pair<const char*, bool> masks[] = {
      {"select(lt(index(2),index(3)),-inff32,$0)", true},
      {"select(le(index(3),index(2)),$0,-inff32)", true},
      {"select(le(index(2),index(3)),-inff32,$0)", false},
      {"select(lt(index(3),index(2)),$0,-inff32)", false},
      {"select(lt(index(2),add(index(3),1i64)),-inff32,$0)", false},
      {"select(lt(index(3),4i64),$0,-inff32)", false},
      {"select(lt(index(3),index(0)),-inff32,$0)", false},
  };
  for (const auto& [mask, sees_itself] : masks) {
    Layer layer =
        attention_layer("", {1, 4, 32, 64}, {1, 2, 32, 64}, fmt::format("(f32)->(f32) {}", mask));
    std::get<Attention>(layer.op).hidden_is_zero = true;
    const std::string text = text_of(layer);
    EXPECT_EQ(text == "refused: a mask that may hide a whole row, whose result is 0", !sees_itself)
        << mask << ": " << text;
  }
}

TEST(CardProperties, EveryCardHasAllKeys) {
  EXPECT_EQ(card_properties().size(), 13u);
  for (const CardProperties& card : card_properties()) {
    const auto json = nlohmann::json::parse(json_of(card));
    EXPECT_EQ(json.size(), 23u) << card.name;
    EXPECT_EQ(json.at("deviceVer"), 10 * card.architecture);
    const auto figures = figures_of(json_of(card));
    ASSERT_TRUE(figures);
    EXPECT_EQ(*figures, (PropertyFigures{card.architecture, card.multiprocessors,
                                         card.shared_bytes_per_block}));
    EXPECT_EQ(figures_of(json.dump(2)), figures) << "as written with spaces";
  }
}

// Targets take the card whose figures they have, so that our kernels and cuDNN's are planned for
// one card.
TEST(CardProperties, CardsOfTargetsAgree) {
  for (const DeviceSpec& spec : device_specs()) {
    const CardProperties* const card = find_card(spec.name);
    ASSERT_NE(card, nullptr) << spec.name;
    EXPECT_EQ(card->architecture, spec.architecture);
    EXPECT_EQ(card->multiprocessors, spec.multiprocessors);
    EXPECT_EQ(card->shared_bytes_per_block, spec.shared_bytes_per_block);
    EXPECT_EQ(card->threads_per_multiprocessor, spec.threads_per_multiprocessor);
    EXPECT_EQ(card->blocks_per_multiprocessor, spec.blocks_per_multiprocessor);
    EXPECT_EQ(card->l2_bytes, spec.l2_bytes);
  }
}

TEST(CardProperties, OtherTextHasNoFigures) {
  for (const char* const text : {"", "{", "{}", "{\"deviceVer\":900}",
                                 "{\"deviceVer\":\"x\",\"multiProcessorCount\":1,"
                                 "\"maxSharedMemoryPerBlockOptin\":1}",
                                 "\"deviceVer\""})
    EXPECT_FALSE(figures_of(text)) << text;
}

}  // namespace
}  // namespace anneal::cuda
