#include "anneal/tests/cudnn/networks.h"

#include <fmt/format.h>

namespace anneal::cuda {
namespace {

// Epilogues as plans have them.
constexpr auto kBias = "(f32,f32)->(f16) round_f16(add($0,$1))";
constexpr auto kRelu = "(f32,f32)->(f16) round_f16(max(add($0,$1),0f32))";
constexpr auto kRelu6 = "(f32,f32)->(f16) round_f16(min(max(add($0,$1),0f32),6f32))";
constexpr auto kResidual = "(f32,f32,f16)->(f16) round_f16(add($2,add($0,$1)))";
constexpr auto kResidualRelu = "(f32,f32,f16)->(f16) round_f16(max(add($2,add($0,$1)),0f32))";
constexpr auto kGelu =
    "(f32,f32)->(f16) %0=add($0,$1); "
    "round_f16(mul(mul(%0,0.5f32),add(erf(mul(%0,0.70710677f32)),1f32)))";

constexpr int64_t kBatch = 8;

Layer square_conv(std::string name, int64_t size, int64_t from, int64_t to, int64_t kernel,
                  int64_t stride, const char* epilogue, int64_t groups = 1) {
  return conv_layer(std::move(name), {kBatch, from, size, size},
                    {to, from / groups, kernel, kernel}, stride, kernel / 2, epilogue, groups);
}

std::vector<Layer> resnet50() {
  std::vector<Layer> layers = {
      conv_layer("stem", {kBatch, 3, 224, 224}, {64, 3, 7, 7}, 2, 3, kRelu)};
  int64_t size = 56, from = 64;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2, after = size / stride;
    const auto name = [&](const char* what) { return fmt::format("{} {}", width, what); };
    layers.push_back(square_conv(name("first reduce"), size, from, width, 1, 1, kRelu));
    layers.push_back(square_conv(name("first 3x3"), size, width, width, 3, stride, kRelu));
    layers.push_back(square_conv(name("shortcut"), size, from, 4 * width, 1, stride, kBias));
    layers.push_back(square_conv(name("expand"), after, width, 4 * width, 1, 1, kResidualRelu));
    layers.push_back(square_conv(name("reduce"), after, 4 * width, width, 1, 1, kRelu));
    layers.push_back(square_conv(name("3x3"), after, width, width, 3, 1, kRelu));
    size = after;
    from = 4 * width;
  }
  layers.push_back(
      matmul_layer("classes", {kBatch, 2048}, {2048, 1000}, kBias, {bias_operand({1000})}));
  return layers;
}

std::vector<Layer> mobilenet_v2() {
  std::vector<Layer> layers = {
      conv_layer("stem", {kBatch, 3, 224, 224}, {32, 3, 3, 3}, 2, 1, kRelu6)};
  struct Block {
    int64_t size, from, to, stride;
  };
  for (const auto& [size, from, to, stride] :
       {Block{112, 16, 24, 2}, Block{56, 24, 24, 1}, Block{28, 32, 32, 1}, Block{14, 64, 96, 1},
        Block{7, 160, 320, 1}}) {
    const auto name = [&](const char* what) { return fmt::format("{} to {} {}", from, to, what); };
    const int64_t wide = 6 * from;
    layers.push_back(square_conv(name("expand"), size, from, wide, 1, 1, kRelu6));
    layers.push_back(square_conv(name("depthwise"), size, wide, wide, 3, stride, kRelu6, wide));
    layers.push_back(square_conv(name("project"), size / stride, wide, to, 1, 1,
                                 from == to ? kResidual : kBias));
  }
  return layers;
}

std::vector<Layer> unet() {
  std::vector<Layer> layers;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t size = 256 * 64 / width;
    layers.push_back(square_conv(fmt::format("{} down", width), size, width, width, 3, 1, kRelu));
    layers.push_back(square_conv(fmt::format("{} up", width), size, 2 * width, width, 3, 1, kRelu));
    Layer larger = square_conv(fmt::format("{} transposed", width), size, width, width, 2, 2, "");
    larger.op = ConvTranspose{.strides = {2, 2},
                              .pads_begin = {0, 0},
                              .pads_end = {0, 0},
                              .dilations = {1, 1},
                              .output_padding = {0, 0}};
    larger.output.dims = {kBatch, width, 2 * size, 2 * size};
    layers.push_back(larger);
  }
  layers.push_back(square_conv("classes", 256, 64, 2, 1, 1, kBias));
  return layers;
}

// A layer of a transformer with 12 heads of 64.
std::vector<Layer> transformer(int64_t length, bool has_mask) {
  const int64_t width = 768, wide = 3072;
  const Dims x = {kBatch, length, width}, heads = {kBatch, 12, length, 64};
  const LayerOperand residual{DataType::kF16, x};
  std::vector<Layer> layers = {
      matmul_layer("query", x, {width, width}, kBias, {bias_operand({width})}),
      matmul_layer("project", x, {width, width}, kResidual, {bias_operand({width}), residual}),
      matmul_layer("widen", x, {width, wide}, kGelu, {bias_operand({wide})}),
      matmul_layer("narrow", {kBatch, length, wide}, {wide, width}, kResidual,
                   {bias_operand({width}), residual})};
  if (has_mask) {
    layers.push_back(attention_layer("attention", heads, heads,
                                     "(f32,f32)->(f32) add($1,mul($0,0.125f32))",
                                     {{DataType::kF32, {kBatch, 1, 1, length}}}));
  } else {
    layers.push_back(attention_layer("attention", heads, heads, "(f32)->(f32) mul($0,0.125f32)"));
  }
  return layers;
}

std::vector<Layer> vit() {
  std::vector<Layer> layers = transformer(197, false);
  layers.push_back(conv_layer("patches", {kBatch, 3, 224, 224}, {768, 3, 16, 16}, 16, 0, kBias));
  return layers;
}

// A decoder: heads share keys, and no position sees later ones.
std::vector<Layer> decoder() {
  const Dims q = {1, 16, 1024, 64}, k = {1, 4, 1024, 64};
  return {attention_layer("causal", q, k,
                          "(f32)->(f32) select(lt(index(2),index(3)),-inff32,mul($0,0.125f32))")};
}

}  // namespace

std::vector<LayerList> layers_of_networks() {
  return {{"ResNet-50", resnet50()}, {"MobileNet v2", mobilenet_v2()},
          {"U-Net", unet()},         {"BERT-base", transformer(128, true), true},
          {"ViT-B/16", vit(), true}, {"decoder", decoder(), true}};
}

}  // namespace anneal::cuda
