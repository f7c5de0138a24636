// Devices without a card: what is refused, and building for an architecture.
#include "anneal/kernels/cuda/runtime/device.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(DeviceSpecs, AreSortedAndPlausible) {
  int before = 0;
  for (const DeviceSpec& spec : device_specs()) {
    SCOPED_TRACE(spec.name);
    EXPECT_GT(spec.architecture, before);
    before = spec.architecture;
    EXPECT_LT(spec.shared_bytes_per_block, spec.shared_bytes_per_multiprocessor);
    EXPECT_GT(spec.f16_tensor_flops, spec.f32_flops);
    EXPECT_EQ(find_spec(spec.architecture), &spec);
    // FMA on 128 lanes of each multiprocessor, 64 on sm_80, at a clock between 1 and 3 GHz.
    const double clock =
        spec.f32_flops / (2.0 * spec.multiprocessors * (spec.architecture == 80 ? 64 : 128));
    EXPECT_GT(clock, 1e9);
    EXPECT_LT(clock, 3e9);
  }
}

TEST(DeviceSpecs, ThoseOfANewerCardOfTheGeneration) {
  EXPECT_EQ(find_spec(87), find_spec(86));
  EXPECT_EQ(find_spec(103), find_spec(100));
  EXPECT_EQ(find_spec(121), find_spec(120));
  for (const int architecture : {0, 75, 72, 110, 130}) EXPECT_EQ(find_spec(architecture), nullptr);
}

TEST(CudaTargets, Names) {
  for (const char* target : {"sm_90", "cuda", "cuda:0", "cuda:11", "emulated"})
    EXPECT_TRUE(is_cuda_target(target)) << target;
  for (const char* target : {"cpu", "cpu:avx2", "cudas", "", "emulate", "gpu"})
    EXPECT_FALSE(is_cuda_target(target)) << target;
}

TEST(CudaTargets, WhatIsNone) {
  for (const char* target :
       {"sm_", "sm_90a", "sm_x", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "gpu"})
    EXPECT_THAT(
        error_of([&] { open_device(target); }),
        StartsWith(std::string("invalid_argument: \"") + target + "\" is no CUDA target: use "));
  EXPECT_EQ(
      error_of([] { open_device("sm_75"); }),
      "invalid_argument: there are no kernels for sm_75: use one of sm_80, sm_86, sm_89, sm_90, "
      "sm_100, sm_120");
}

TEST(CudaTargets, ACardThatIsNotHere) {
  const std::string error = error_of([] { open_device("cuda:4095"); });
  if (!driver_library().table)
    EXPECT_EQ(error, "device: there is no CUDA driver here (" + driver_library().why_not + ")");
  else
    EXPECT_THAT(error, StartsWith("device: "));
}

TEST(OfflineDevice, HasNoMemory) {
  const auto device = open_device("sm_90");
  EXPECT_EQ(device->kind(), DeviceKind::kCuda);
  EXPECT_EQ(device->target(), "sm_90");
  EXPECT_EQ(device->description(), "sm_90, to build for, as on the H100 SXM");
  const std::string refusal = "device: sm_90 is only to build for: to run, open cuda or emulated";
  EXPECT_EQ(error_of([&] { device->allocate(1); }), refusal);
  EXPECT_EQ(error_of([&] { device->allocate_staging(1); }), refusal);
  EXPECT_EQ(error_of([&] { device->make_stream(); }), refusal);
}

FunctionText scale_by(int factor) {
  return {"scale",
          {},
          "KERNEL($name, 32)(In<f32> x, Out<f32> y) { y[threadIdx.x] = " + std::to_string(factor) +
              " * x[threadIdx.x]; }"};
}

TEST(OfflineDevice, MakesAnImage) {
  if (!nvrtc_library().table) GTEST_SKIP() << nvrtc_library().why_not;
  const auto device = open_device("sm_87");
  EXPECT_TRUE(device->prepare_code({}).empty()) << "no functions";
  const auto two = code_of(*device).add(scale_by(2)), three = code_of(*device).add(scale_by(3));
  const auto image = device->prepare_code({});
  const auto parts = parts_of(image);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].architecture, 87);
  EXPECT_EQ((std::set<std::string>(parts[0].names.begin(), parts[0].names.end())),
            (std::set<std::string>{two->name, three->name}));
  EXPECT_EQ(device->prepare_code({}), image);
}

CodePart part_of(const Code& code, int architecture) {
  CodePart part = part_for(code.functions(), architecture);
  // A header with one section.
  part.cubin.resize(128);
  const unsigned char header[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  std::memcpy(part.cubin.data(), header, sizeof(header));
  part.cubin[40] = std::byte{64};  // the sections' offset
  part.cubin[58] = std::byte{64};  // their size
  part.cubin[60] = std::byte{1};   // their number
  return part;
}

TEST(CodeImage, RoundTripAndDamage) {
  Code code;
  const auto a = code.add(scale_by(2)), b = code.add(scale_by(3));
  const std::vector<CodePart> parts = {part_of(code, 80), part_of(code, 120)};
  const auto image = code_image(parts);
  EXPECT_EQ(parts_of(image), parts);
  EXPECT_TRUE(parts_of({}).empty());
  for (size_t size = 1; size < image.size(); ++size)
    EXPECT_THAT(error_of([&] { parts_of(std::span(image).first(size)); }),
                StartsWith("incompatible_plan: "))
        << size;
  auto longer = image;
  longer.push_back(std::byte{0});
  EXPECT_THAT(error_of([&] { parts_of(longer); }), StartsWith("incompatible_plan: "));
  for (size_t at = 0; at < image.size(); ++at) {  // is an error or other parts, never a crash
    auto wrong = image;
    wrong[at] ^= std::byte{0xff};
    std::vector<CodePart> read;
    if (error_of([&] { read = parts_of(wrong); }).empty()) {
      EXPECT_NE(read, parts) << at;
    }
  }
  auto outside = parts;
  outside[0].cubin[40] = std::byte{65};
  EXPECT_THAT(error_of([&] { parts_of(code_image(outside)); }),
              HasSubstr("machine code is cut off"));
}

TEST(CodeImage, IsForTheVerySameFunctions) {
  Code code;
  const auto a = code.add(scale_by(2)), b = code.add(scale_by(3));
  const CodePart part = part_of(code, 80);
  EXPECT_EQ(functions_of(part, code.functions()), code.functions());
  const auto more = code.add(scale_by(4));
  EXPECT_EQ(functions_of(part, code.functions()).size(), 2u);
  Code other;
  const auto c = other.add(scale_by(2)), d = other.add(scale_by(5));
  ASSERT_EQ(functions_of(part, other.functions()).size(), 1u);
  EXPECT_EQ(functions_of(part, other.functions())[0], c) << "of a part that has others";
  CodePart changed = part;
  changed.digests[0][3] ^= std::byte{1};
  ASSERT_EQ(functions_of(changed, code.functions()).size(), 1u);
  EXPECT_EQ(functions_of(changed, code.functions())[0]->name, part.names[1]);
}

TEST(CodeImage, RunsOnLaterCardsOfTheGeneration) {
  EXPECT_TRUE(runs_on(80, 80));
  EXPECT_TRUE(runs_on(80, 89));
  EXPECT_FALSE(runs_on(89, 80));
  EXPECT_FALSE(runs_on(80, 90));
  EXPECT_FALSE(runs_on(100, 120));
}

}  // namespace
}  // namespace anneal::cuda
