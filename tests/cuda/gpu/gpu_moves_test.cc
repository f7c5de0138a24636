// Layers that move, add up or choose elements: on the device, also where only a run knows how far.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> kernels_of(const Plan& plan, bool on_device) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps)
    if (step.kernel != kTransfer && step.kernel != "sizes" && (step.device == 0) == on_device)
      names.push_back(step.kernel);
  return names;
}

void expect_run(ExecutionContext& context, const Engine& engine, std::string_view text,
                const std::vector<Dims>& dims, uint32_t seed) {
  std::vector<Tensor> inputs;
  for (const Dims& each : dims) inputs.push_back(random_f32(each, seed + 10 * inputs.size()));
  expect_near(run(context, engine, inputs), reference(text, inputs));
}

// Amounts that follow from the sizes of a run, which come back after others.
void expect_at_sizes(std::string_view text, const std::string& kernel,
                     const std::vector<std::vector<Dims>>& sizes) {
  const auto engine = gpu_engine(text);
  EXPECT_THAT(kernels_of(plan_of(*engine), false), IsEmpty());
  EXPECT_THAT(kernels_of(plan_of(*engine), true), Contains(kernel));
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed)
    for (const std::vector<Dims>& dims : sizes)
      for (int again = 0; again < 3; ++again) expect_run(context, *engine, text, dims, seed);
}

TEST(GpuMoves, SliceFromWhereASizeSays) {
  expect_at_sizes(R"txt(
size N in 1..9 opt 4
size M in 1..9 opt 2
graph backwards(x: f32[N,6], y: f32[M])
  n = ShapeOf(y) end=1
  p = Slice(x, n, i64{-100}, i64{0}, i64{-1})
  z = Pointwise(p) program="(f32)->(f32) mul($0,2f32)"
  return z
)txt",
                  "cuda.slice.strided", {{{5, 6}, {2}}, {{4, 6}, {7}}, {{9, 6}, {1}}});
}

TEST(GpuMoves, PadByASize) {
  for (const std::string mode : {"constant", "reflect", "edge", "wrap"})
    expect_at_sizes(fmt::format(R"txt(
size N in 1..9 opt 4
size M in 1..9 opt 2
graph padded(x: f32[2,N], y: f32[M])
  n = ShapeOf(y) end=1
  pads = Concat(i64{{0}}, n, i64{{1}}, n) axis=0
  p = Pad(x, pads) mode={}
  z = Pointwise(p) program="(f32)->(f32) mul($0,2f32)"
  return z
)txt",
                                mode),
                    "cuda.pad.strided", {{{2, 5}, {2}}, {{2, 4}, {7}}, {{2, 1}, {3}}});
}

constexpr std::string_view kReflected = R"txt(
size N in 0..9 opt 4
graph reflected(x: f32[2,N])
  p = Pad(x, i64{0,-2,0,4}) mode=reflect
  return p
)txt";

TEST(GpuMoves, AnAxisOfWhichNothingIsLeftToRepeatIsAnError) {
  const auto engine = gpu_engine(kReflected);
  EXPECT_THAT(kernels_of(plan_of(*engine), false), IsEmpty());
  ExecutionContext context(engine);
  const auto at = [&](int64_t n) { expect_run(context, *engine, kReflected, {{2, n}}, 1); };
  at(4);
  EXPECT_THAT(error_of([&] {
                static_cast<void>(run(context, *engine, {random_f32({2, 2}, 1)}));
              }),
              HasSubstr("padding of no elements by their like"));
  at(3);
}

constexpr std::string_view kChoices = R"txt(
size N in 6..40 opt 20
graph choices(x: f32[3,N,7], lengths: f32[3])
  l = Pointwise(lengths) program="(f32)->(i64) i64(abs(mul($0,3f32)))"
  r = ReverseSequence(x, l) batch_axis=0 time_axis=1
  s = Cumulative(r, i64{1}) exclusive=true reverse=true
  best, where = TopK(s, i64{1}) axis=1
  y = Pointwise(best, where) program="(f32,i64)->(f32) add($0,f32($1))"
  return y, s as sums
)txt";

TEST(GpuMoves, SequencesSumsAndChoicesStayOnTheDevice) {
  const auto engine = gpu_engine(kChoices);
  EXPECT_THAT(kernels_of(plan_of(*engine), false), IsEmpty());
  ExecutionContext context(engine);
  for (const int64_t n : {20, 6, 40, 20})
    for (uint32_t seed = 1; seed <= 3; ++seed)
      expect_run(context, *engine, kChoices, {{3, n, 7}, {3}}, seed);
}

constexpr std::string_view kAxisOfARun = R"txt(
graph axis_of_a_run(x: f32[3,5,40], a: f32[])
  axis = Pointwise(a) program="(f32)->(i64) i64(min(mul(abs($0),1.5f32),2f32))"
  y = Cumulative(x, axis) reverse=true
  return y
)txt";

TEST(GpuMoves, ARunDecidesOnAnAxis) {
  GraphBuildOptions options;
  options.targets = {test_target()};
  options.allow_fallback = false;  // what computes the axis decides shapes alone, and is none
  const auto engine = load_on(build_text(kAxisOfARun, options), test_device());
  EXPECT_THAT(kernels_of(plan_of(*engine), true), Contains("cuda.cumulative.lines"));
  EXPECT_THAT(kernels_of(plan_of(*engine), false), Not(IsEmpty()));
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 6; ++seed)
    expect_run(context, *engine, kAxisOfARun, {{3, 5, 40}, {}}, seed);
}

// The sizes of a crop are known before a run, and its region is a value of the run.
TEST(GpuMoves, ACropReadsTheRegionOfItsRun) {
  expect_at_sizes(R"txt(
size N in 1..9 opt 2
graph crop(x: f32[N,3,9,7], region: f32[4])
  c = Resize(x, i64{5,4}, region) mode=linear coordinates=tf_crop_and_resize axes=[2,3] extrapolation_value=2
  y = Pointwise(c) program="(f32)->(f32) mul($0,2f32)"
  return y
)txt",
                  "cuda.resize.strided", {{{2, 3, 9, 7}, {4}}, {{1, 3, 9, 7}, {4}}});
}

constexpr std::string_view kSamples = R"txt(
size N in 1..9 opt 2
size R in 0..20 opt 8
graph samples(x: f32[N,6,9,7], grid: f32[N,4,5,2], regions: f32[R,4], images: f32[R])
  w = Pointwise(regions) program="(f32)->(f32) mul($0,9f32)"
  i = Pointwise(images) program="(f32)->(i64) i64(mul($0,0f32))"
  g = GridSample(x, grid) mode=cubic padding=reflection
  r = RoiAlign(x, w, i) height=2 width=3
  y = Pointwise(r) program="(f32)->(f32) max($0,0f32)"
  return y, g as sampled
)txt";

TEST(GpuMoves, SamplesAndRegionsStayOnTheDevice) {
  const auto engine = gpu_engine(kSamples);
  EXPECT_THAT(kernels_of(plan_of(*engine), true), Contains("cuda.grid_sample.window"));
  EXPECT_THAT(kernels_of(plan_of(*engine), false), IsEmpty());
  ExecutionContext context(engine);
  for (const int64_t regions : {8, 0, 20, 1})
    expect_run(context, *engine, kSamples, {{2, 6, 9, 7}, {2, 4, 5, 2}, {regions, 4}, {regions}},
               static_cast<uint32_t>(regions));
}

constexpr std::string_view kOverlapping = R"txt(
size H in 1..20 opt 6
graph overlapping(x: f32[2,8,H,7])
  const w: f32[8,12,4,3] = random(1)
  const b: f32[12,1,1] = random(2)
  y = ConvTranspose(x, w; b) strides=[2,2] pads_begin=[1,1] pads_end=[1,0] dilations=[1,1] output_padding=[0,1] epilogue="(f32,f32)->(f32) max(add($0,$1),0f32)"
  return y
)txt";

TEST(GpuMoves, AnOverlappingTransposedConvolutionStaysOnTheDevice) {
  const auto engine = gpu_engine(kOverlapping);
  EXPECT_THAT(kernels_of(plan_of(*engine), true), Contains("cuda.conv_transpose.direct"));
  EXPECT_THAT(kernels_of(plan_of(*engine), false), IsEmpty());
  ExecutionContext context(engine);
  for (const int64_t height : {6, 1, 20}) {
    const std::vector<Tensor> inputs = {random_f32({2, 8, height, 7}, 1)};
    expect_near(run(context, *engine, inputs), reference(kOverlapping, inputs));
  }
}

// As convolutions of their phases; the open size stays open.
TEST(GpuMoves, AnOverlappingTransposedConvolutionUsesTensorCores) {
  for (const Precision half : {Precision::kF16, Precision::kBF16}) {
    GraphBuildOptions options;
    options.targets = {test_target()};
    options.passes.precision.types = {half};
    const auto engine = load_on(build_text(kOverlapping, options), test_device());
    EXPECT_THAT(kernels_of(plan_of(*engine), true), Contains("cuda.conv.mma"));
    EXPECT_THAT(kernels_of(plan_of(*engine), true), Not(Contains("cuda.conv_transpose.direct")));
    EXPECT_THAT(kernels_of(plan_of(*engine), false), IsEmpty());
    ExecutionContext context(engine);
    const float rounding = half == Precision::kF16 ? 0x1p-11F : 0x1p-8F;  // relative
    for (const int64_t height : {6, 1, 20}) {
      const std::vector<Tensor> inputs = {random_f32({2, 8, height, 7}, 1)};
      const auto got = run(context, *engine, inputs).at("y");
      const auto wanted = reference(kOverlapping, inputs).at("y");
      ASSERT_EQ(got.size(), wanted.size());
      // Of up to 32 products, whose operands are rounded.
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], wanted[i], 32 * rounding * (1 + std::abs(wanted[i]))) << i;
    }
  }
}

// What a launch reads of the host, a recording of it reads anew whenever it is played.
TEST(GpuMoves, ARecordingReadsTheValuesOfItsTime) {
  const auto device = cuda_backend().open(test_device());
  const KernelEntry* const entry = find_kernel(cuda_backend(), "cuda.slice.strided");
  ASSERT_NE(entry, nullptr);
  const Op op = Slice{};
  const SizeTable sizes;
  const Type list{DataType::kI64, {1}, Container::kTensor};
  const Operand at{.type = list, .strides = {1}};
  const std::vector<Operand> inputs = {
      {.type = {DataType::kF32, {8}, Container::kTensor}, .strides = {1}}, at, at, at, at};
  const std::vector<Operand> outputs = {
      {.type = {DataType::kF32, {3}, Container::kTensor}, .strides = {1}}};
  const KernelResult kernel = entry->make({.op = op,
                                           .epilogues = {},
                                           .op_input_count = 5,
                                           .inputs = inputs,
                                           .outputs = outputs,
                                           .sizes = sizes,
                                           .device = *device,
                                           .tactic = {}});
  ASSERT_TRUE(kernel) << kernel.reason();
  device->prepare_code({});
  const auto x = device->allocate(8 * sizeof(float)), y = device->allocate(3 * sizeof(float));
  const auto host = device->allocate_staging(4 * sizeof(int64_t)),
             result = device->allocate_staging(3 * sizeof(float));
  auto* const values = reinterpret_cast<int64_t*>(host->data());  // start, end, axis, step
  const auto view_of = [](DataType dtype, int64_t count, std::byte* data) {
    return TensorView{dtype, {count}, {1}, data};
  };
  std::vector<TensorView> in = {view_of(DataType::kF32, 8, nullptr)},
                          out = {view_of(DataType::kF32, 3, nullptr)};
  for (int i = 0; i < 4; ++i) in.push_back(view_of(DataType::kI64, 1, nullptr));
  const auto prepared = (*kernel)->prepare(in, out, 1);
  in[0].data = x->data();
  out[0].data = y->data();
  for (size_t i = 0; i < 4; ++i) in[i + 1].data = host->data() + i * sizeof(int64_t);
  const auto workspace = device->allocate(prepared->workspace_bytes);
  const auto stream = device->make_stream();
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  device->copy(x->data(), reinterpret_cast<const std::byte*>(numbers.data()), 32, *stream);
  ThreadTeam team(1);
  const auto put = [&] {
    (*kernel)->launch({in, out, prepared.get(), workspace->data(), *stream, team, nullptr});
  };
  const auto set = [&](int64_t start, int64_t step) {
    stream->wait();
    values[0] = start, values[1] = start + 3 * step, values[2] = 0, values[3] = step;
  };
  const auto numbers_now = [&] {
    device->copy(result->data(), y->data(), 3 * sizeof(float), *stream);
    stream->wait();
    const auto* const now = reinterpret_cast<const float*>(result->data());
    return std::vector<float>(now, now + 3);
  };
  set(1, 2);
  const auto recording = stream->record(put);
  if (!recording) GTEST_SKIP() << "the device records nothing";
  stream->play(*recording);
  EXPECT_EQ(numbers_now(), (std::vector<float>{1, 3, 5}));
  set(-2, -1);
  stream->play(*recording);
  EXPECT_EQ(numbers_now(), (std::vector<float>{6, 5, 4}));
}

}  // namespace
}  // namespace anneal::testing
