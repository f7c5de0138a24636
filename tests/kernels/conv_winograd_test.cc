// Winograd's convolutions: how exact they are, how far a NaN reaches, and what they refuse. That
// they agree with the reference is the op suite's (conv_3x3_tiles*).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "anneal/core/isa.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/conv/winograd.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

Conv conv2(int64_t stride, int64_t pad, int64_t dilation = 1, int64_t groups = 1) {
  return {{stride, stride}, {pad, pad}, {pad, pad}, {dilation, dilation}, groups};
}

TestLayer layer_of(const Conv& op, std::vector<std::optional<Tensor>> inputs) {
  TestLayer layer{op};
  layer.inputs = std::move(inputs);
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  SizeTable sizes;
  for (const Fact& fact : infer_with(layer, own_types(layer), sizes)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  return layer;
}
TestLayer layer_of(const Conv& op, std::string_view x, std::string_view w) {
  return layer_of(op, {tensor_from_text(x, 1), tensor_from_text(w, 2)});
}

RunResult run_winograd(const TestLayer& layer, RunOptions options = {}) {
  if (options.constants.empty()) options.constants = {1};
  if (options.placement == Placement::kRowMajor) options.placement = Placement::kChannelsLast;
  return run_layer(*find_kernel(cpu_backend(), "cpu.conv.winograd"), layer,
                   *cpu_backend().open("cpu"), options);
}

// Of the padded sums in f64: the largest error of a tensor as a share of their root mean square.
double largest_error(const Tensor& x, const Tensor& w, const Tensor& y) {
  const int64_t inputs = x.dims()[1], outputs = y.dims()[1], height = x.dims()[2],
                width = x.dims()[3];
  const auto in = x.as<float>(), weights = w.as<float>(), out = y.as<float>();
  double worst = 0, squares = 0;
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t i = 0; i < height; ++i)
      for (int64_t j = 0; j < width; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < inputs; ++c)
          for (int64_t tap = 0; tap < 9; ++tap) {
            const int64_t at_y = i + tap / 3 - 1, at_x = j + tap % 3 - 1;
            if (at_y < 0 || at_y >= height || at_x < 0 || at_x >= width) continue;
            sum +=
                static_cast<double>(in[static_cast<size_t>((c * height + at_y) * width + at_x)]) *
                static_cast<double>(weights[static_cast<size_t>((o * inputs + c) * 9 + tap)]);
          }
        const double error =
            sum - static_cast<double>(out[static_cast<size_t>((o * height + i) * width + j)]);
        worst = std::max(worst, std::abs(error));
        squares += sum * sum;
      }
  return worst / std::sqrt(squares / static_cast<double>(count(y.dims())));
}

TEST(Winograd, ErrorsAreWithinTheBoundOfItsHeader) {
  for (const int64_t channels : {16, 64, 512}) {
    const Tensor x = tensor_from_text("f32[1," + std::to_string(channels) + ",14,14]", 3);
    const Tensor w = tensor_from_text("f32[16," + std::to_string(channels) + ",3,3]", 4);
    const RunResult result = run_winograd(layer_of(conv2(1, 1), {x, w}));
    ASSERT_EQ(result.why_not, "");
    EXPECT_LT(largest_error(x, w, result.outputs[0]), 2e-5) << channels << " channels";
  }
}

// What is packed is G w G^T of f64, rounded once, at every instruction set.
TEST(Winograd, WeightsAreRoundedOnce) {
  const int64_t inputs = 21, outputs = 70;
  const double a = std::sqrt(0.5), b = std::sqrt(2.0), p = -2.0 / 3, q = 1.0 / 6;
  const double g[6][3] = {{1, 0, 0},
                          {p, p * a, p * a * a},
                          {p, -p * a, p * a * a},
                          {q, q * b, q * b * b},
                          {q, -q * b, q * b * b},
                          {0, 0, 1}};
  for (const char* text : {"f32[70,21,3,3]", "bf16[70,21,3,3]"}) {
    const Tensor w = tensor_from_text(text, 1);
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > current_isa()) continue;
      const cpu::WinogradWeights weights(isa, inputs, outputs);
      const auto packed = allocate_tensor(DataType::kU8, {static_cast<int64_t>(weights.bytes())});
      for (int64_t panel = 0; panel < weights.panels(); ++panel)
        weights.pack(kernel_view(w), panel, packed.data.data());
      const int64_t width = cpu::f32_gemm(isa).tile_columns;
      for (int64_t o = 0; o < weights.chunks() * weights.chunk(); ++o)
        for (int64_t i = 0; i < inputs; ++i)
          for (int64_t at = 0; at < 36; ++at) {
            double sum = 0;
            for (int64_t tap = 0; tap < 9 && o < outputs; ++tap)
              sum += g[at / 6][tap / 3] * g[at % 6][tap % 3] *
                     static_cast<double>(element(w, (o * inputs + i) * 9 + tap));
            const int64_t chunk = o / weights.chunk(), column = o % weights.chunk();
            if (column / width * weights.panel_bytes() >= weights.position_step(chunk)) continue;
            const auto* const found = reinterpret_cast<const float*>(
                packed.data.data() + weights.chunk_offset(chunk) +
                at * weights.position_step(chunk) + column / width * weights.panel_bytes());
            ASSERT_NEAR(static_cast<double>(found[i * width + column % width]), sum,
                        std::abs(sum) * 6e-8 + 1e-14)
                << text << ": output " << o << ", input " << i << ", position " << at;
          }
    }
  }
}

// Blocks of rows, of parts of rows, and of output channels: cut otherwise for each team.
TEST(Winograd, AnyTeamGivesTheSameBits) {
  const std::pair<const char*, const char*> layers[] = {
      {"f32[1,33,15,14]", "f32[290,33,3,3]"},
      {"f32[3,16,9,250]", "f32[40,16,3,3]"},
      {"f32[2,20,61,57]", "f32[70,20,3,3]"},
  };
  for (const auto& [x, w] : layers) {
    const TestLayer layer = layer_of(conv2(1, 1), x, w);
    const RunResult once = run_winograd(layer);
    ASSERT_EQ(once.why_not, "");
    for (const int threads : {2, 3, 8}) {
      RunOptions options;
      options.threads = threads;
      EXPECT_EQ(run_winograd(layer, options).outputs, once.outputs) << x << ", " << threads;
    }
  }
}

// Too large for the naive reference in the op suite: several blocks of each kind, and pixels that
// are parts of wider ones, as a Concat's operands are.
TEST(Winograd, BlocksAgreeWithTheMatrixProduct) {
  const std::pair<const char*, const char*> layers[] = {{"f32[1,33,15,14]", "f32[290,33,3,3]"},
                                                        {"f32[3,16,9,250]", "f32[40,16,3,3]"},
                                                        {"f32[5,65,7,9]", "f32[130,65,3,3]"},
                                                        {"bf16[2,33,15,14]", "bf16[290,33,3,3]"},
                                                        {"bf16[1,40,9,250]", "bf16[40,40,3,3]"}};
  for (const auto& [x, w] : layers) {
    const TestLayer layer = layer_of(conv2(1, 1), x, w);
    const DataType dtype = layer.inputs[0]->dtype();
    for (const Placement placement : {Placement::kChannelsLast, Placement::kPadded}) {
      RunOptions options;
      options.placement = placement;
      options.constants = {1};
      const RunResult got = run_winograd(layer, options);
      const RunResult wanted = run_layer(*find_kernel(cpu_backend(), "cpu.conv.nhwc"), layer,
                                         *cpu_backend().open("cpu"), options);
      ASSERT_EQ(got.why_not, "");
      const auto problem = difference(got.outputs[0], wanted.outputs[0], default_tolerance(dtype));
      EXPECT_FALSE(problem) << x << ", " << to_string(placement) << ": " << *problem;
    }
  }
}

TEST(Winograd, NanReachesTheTilesThatReadIt) {
  constexpr int64_t kSize = 16;
  auto x = allocate_tensor(DataType::kF32, {1, 16, kSize, kSize});
  auto* const values = reinterpret_cast<float*>(x.data.data());
  std::fill(values, values + 16 * kSize * kSize, 1.0f);
  values[5 * kSize + 5] = std::numeric_limits<float>::quiet_NaN();
  const RunResult result =
      run_winograd(layer_of(conv2(1, 1), {x.tensor, tensor_from_text("f32[16,16,3,3]")}));
  ASSERT_EQ(result.why_not, "");
  // The tiles of outputs 4..7 read inputs 3..8; those beside them read no further than 4, or
  // from 7.
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t j = 0; j < kSize; ++j) {
      const bool inside = i >= 4 && i < 8 && j >= 4 && j < 8;
      EXPECT_EQ(std::isnan(element(result.outputs[0], i * kSize + j)), inside) << i << ", " << j;
    }
}

TEST(Winograd, RefusesWhatItCannotDoOrDoesSlower) {
  const auto why_not = [](const Conv& op, std::string_view x, std::string_view w) {
    return run_winograd(layer_of(op, x, w)).why_not;
  };
  EXPECT_EQ(why_not(conv2(1, 1), "f16[1,16,14,14]", "f16[16,16,3,3]"), "only f32 and bf16");
  EXPECT_THAT(why_not(conv2(1, 1), "bf16[1,16,14,14]", "bf16[32,16,3,3]"), HasSubstr("channels"));
  EXPECT_EQ(why_not(conv2(1, 1), "bf16[1,32,14,14]", "bf16[32,32,3,3]"), "");
  EXPECT_EQ(why_not(conv2(1, 1), "f32[1,16,14,14]", "f32[16,16,1,3]"), "only windows of 3 x 3");
  EXPECT_EQ(why_not(conv2(2, 1), "f32[1,16,14,14]", "f32[16,16,3,3]"), "strides");
  EXPECT_EQ(why_not(conv2(1, 2, 2), "f32[1,16,14,14]", "f32[16,16,3,3]"), "");
  EXPECT_THAT(why_not(conv2(1, 17, 17), "f32[1,16,99,99]", "f32[16,16,3,3]"), HasSubstr("memory"));
  EXPECT_THAT(why_not(conv2(1, 6, 6), "f32[1,16,14,14]", "f32[16,16,3,3]"), HasSubstr("empty"));
  EXPECT_EQ(why_not(conv2(1, 1, 1, 2), "f32[1,32,14,14]", "f32[16,16,3,3]"), "groups");
  EXPECT_THAT(why_not(conv2(1, 1), "f32[1,3,14,14]", "f32[16,3,3,3]"), HasSubstr("channels"));
  EXPECT_THAT(why_not(conv2(1, 1), "f32[1,16,14,14]", "f32[8,16,3,3]"), HasSubstr("channels"));
  EXPECT_THAT(why_not(conv2(1, 1), "f32[1,16,8,8]", "f32[16,16,3,3]"), HasSubstr("small"));
  EXPECT_EQ(why_not(conv2(1, 1), "f32[3,16,8,8]", "f32[16,16,3,3]"), "");
}

TEST(Winograd, SlowShapesRunWhereAClockChoosesThem) {
  RunOptions options;
  options.ignore_speed_heuristics = true;
  for (const auto& [x, w] : {std::pair("f32[1,16,2,1]", "f32[3,16,3,3]"),
                             std::pair("f32[1,16,14,14]", "f32[1,16,3,3]")}) {
    const TestLayer layer = layer_of(conv2(1, 1), x, w);
    const RunResult got = run_winograd(layer, options);
    ASSERT_EQ(got.why_not, "");
    const RunResult wanted = run_layer(*reference_entry(cpu_backend(), op_index<Conv>), layer,
                                       *cpu_backend().open("cpu"));
    const auto problem =
        difference(got.outputs[0], wanted.outputs[0], default_tolerance(DataType::kF32));
    EXPECT_FALSE(problem) << x << ": " << *problem;
  }
  if (current_isa() == Isa::kBaseline) return;  // without vectors
  const TestLayer narrow = layer_of(conv2(1, 1), "f32[1,3,14,14]", "f32[16,3,3,3]");
  EXPECT_THAT(run_winograd(narrow, options).why_not, HasSubstr("vector"));
}

TEST(Winograd, TakesImagesOfUnknownSize) {
  const TestLayer known = layer_of(conv2(1, 1), "f32[1,16,2,3]", "f32[16,16,3,3]");
  EXPECT_THAT(run_winograd(known).why_not, HasSubstr("small"));
  SizeTable sizes;
  RunOptions options;
  options.input_types = own_types(known);
  for (const int axis : {0, 2, 3})
    options.input_types[0].shape[axis] = sizes.symbol(std::string("D") + std::to_string(axis));
  TestLayer layer = known;
  layer.outputs.clear();
  for (const Fact& fact : infer_with(known, options.input_types, sizes))
    layer.outputs.push_back(fact.type);
  options.sizes = &sizes;
  EXPECT_EQ(run_winograd(layer, options).why_not, "");
}

}  // namespace
}  // namespace anneal::testing
