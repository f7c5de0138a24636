// Plans of the installed cuDNN, made without a card: they travel, and what does not fit is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <tuple>

#include "anneal/core/refuse.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"
#include "anneal/kernels/cuda/cudnn/card_properties.h"
#include "anneal/kernels/cuda/cudnn/plan_text.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cudnn/layer.h"
#include "anneal/tests/cudnn/plans.h"

namespace anneal::cuda {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class CudnnPlansTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string reason = why_no_cudnn(); !reason.empty()) GTEST_SKIP() << reason;
  }
  static std::vector<Tactic> tactics(const Layer& layer, Device& device) {
    const LayerRequest request(layer, device);
    return cudnn_entry_of(layer.op).tactics(*request);
  }
  // Empty if a kernel is made.
  static std::string refusal(const Layer& layer, Device& device, Tactic tactic = {}) {
    const LayerRequest request(layer, device, std::move(tactic));
    const KernelResult made = cudnn_entry_of(layer.op).make(*request);
    return made.reason();
  }

  const Layer conv_ = conv_layer("3x3", {8, 64, 56, 56}, {64, 64, 3, 3}, 1, 1,
                                 "(f32,f32)->(f16) round_f16(max(add($0,$1),0f32))");
};

TEST_F(CudnnPlansTest, TacticsAreReloaded) {
  const auto device = open_device("sm_90");
  const auto found = tactics(conv_, *device);
  ASSERT_GE(found.size(), 2u);
  EXPECT_LE(found.size(), 8u);
  for (const Tactic& tactic : found) {
    const auto vendor = vendor_tactic_of(tactic);
    ASSERT_TRUE(vendor);
    EXPECT_EQ(vendor->library_version, cudnn_library().table->cudnnGetVersion());
    EXPECT_EQ(vendor->architecture, 90u);
    EXPECT_THAT(tactic_text("cudnn.conv", tactic), MatchesRegex("engine [0-9]+, setting [0-9]+"));
    const LayerRequest request(conv_, *device, tactic);
    const KernelResult made = cudnn_entry_of(conv_.op).make(*request);
    ASSERT_TRUE(made) << made.reason();
    EXPECT_EQ((*made)->tactic(), tactic);
  }
  // A kernel without a tactic takes the first one.
  const LayerRequest request(conv_, *device);
  const KernelResult made = cudnn_entry_of(conv_.op).make(*request);
  ASSERT_TRUE(made) << made.reason();
  EXPECT_EQ((*made)->tactic(), found[0]);
}

TEST_F(CudnnPlansTest, MemoryThatMayBeLessAlignedIsRefused) {
  const auto device = open_device("sm_90");
  const LayerRequest request(conv_, *device);
  KernelResult made = cudnn_entry_of(conv_.op).make(*request);
  ASSERT_TRUE(made) << made.reason();
  const std::vector<uint32_t> aligned(conv_.inputs.size(), 64), output = {64};
  EXPECT_EQ(know_alignments(**made, aligned, output), "");
  for (const uint32_t less : {0u, 2u, 8u}) {
    std::vector<uint32_t> inputs = aligned;
    inputs[0] = less;
    const std::string why = "the plan reads 16 bytes at once, and the memory may be less aligned";
    EXPECT_EQ(know_alignments(**made, inputs, output), why);
    EXPECT_EQ(know_alignments(**made, aligned, std::vector<uint32_t>{less}), why);
  }
}

TEST_F(CudnnPlansTest, PlansForAnotherCardAreRefused) {
  const auto h100 = open_device("sm_90");
  const auto found = tactics(conv_, *h100);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(refusal(conv_, *open_device("sm_80"), found[0]),
            "the plan is for sm_90 with 132 multiprocessors and 232448 bytes of shared memory, and "
            "this device is sm_80 with 108 multiprocessors and 166912 bytes of shared memory");
  const Setting other("ANNEAL_CUDNN_PROPERTIES", "H100 PCIe");
  EXPECT_THAT(refusal(conv_, *open_device("sm_90"), found[0]),
              HasSubstr("this device is sm_90 with 114 multiprocessors"));
}

TEST_F(CudnnPlansTest, OtherTacticsAreRefused) {
  const auto device = open_device("sm_90");
  const auto found = tactics(conv_, *device);
  ASSERT_FALSE(found.empty());
  VendorTactic tactic = *vendor_tactic_of(found[0]);
  ++tactic.library_version;
  EXPECT_THAT(refusal(conv_, *device, tactic_of(tactic)),
              MatchesRegex("the plan is of cuDNN [0-9.]+, and this one is [0-9.]+"));
  Layer other = conv_;
  other.epilogue = "(f32,f32)->(f16) round_f16(add($0,$1))";
  EXPECT_EQ(refusal(other, *device, found[0]), "the plan is of another layer");
  tactic = *vendor_tactic_of(found[0]);
  tactic.bytes.resize(tactic.bytes.size() / 2);
  EXPECT_EQ(refusal(conv_, *device, tactic_of(tactic)), "a tactic that is none of this kernel's");
  EXPECT_EQ(refusal(conv_, *device, Tactic(3, std::byte{1})),
            "a tactic that is none of this kernel's");
  tactic = *vendor_tactic_of(found[0]);
  for (std::byte& each : std::span(tactic.bytes).last(tactic.bytes.size() / 2)) each = {};
  EXPECT_THAT(refusal(conv_, *device, tactic_of(tactic)), HasSubstr("CUDNN_STATUS"));
}

// A plan of another layer would access memory beyond this layer's, and cuDNN would run it.
TEST_F(CudnnPlansTest, PlansThatSayOtherThanTheLayerAreRefused) {
  const auto device = open_device("sm_90");
  const auto found = tactics(conv_, *device);
  ASSERT_FALSE(found.empty());
  const std::string other = "the plan has other tensors than the layer";
  const std::string form = "the plan has a form that Anneal does not know";
  const std::tuple<std::string, std::string, std::string> changes[] = {
      {"\"dim\":[8,64,56,56]", "\"dim\":[8,64,96,56]", other},
      {"\"stride\":[200704,", "\"stride\":[900704,", other},
      {"\"name\":\"1\"", "\"name\":\"z\"", other},
      {"\"isVirtual\":true", "\"isVirtual\":null", other},
      {"CUDNN_DATA_HALF", "CUDNN_DATA_INT8", other},
      {"\"tensors\":[", "\"tenzors\":[", form},
      {"{\"", "[\"", form},
      {"\"deviceName\":\"", "\"deviceName\": ", "the text has no valid name of a device"},
  };
  for (const auto& [part, replaced, reason] : changes) {
    VendorTactic tactic = *vendor_tactic_of(found[0]);
    const auto at = std::search(tactic.bytes.begin(), tactic.bytes.end(), part.begin(), part.end(),
                                [](std::byte a, char b) { return static_cast<char>(a) == b; });
    ASSERT_NE(at, tactic.bytes.end()) << part;
    std::ranges::transform(replaced, at, [](char c) { return static_cast<std::byte>(c); });
    EXPECT_EQ(refusal(conv_, *device, tactic_of(tactic)), reason) << part;
  }
  VendorTactic nested = *vendor_tactic_of(found[0]);
  const std::string_view tensors = "\"tensors\":[";
  const auto list = std::ranges::search(nested.bytes, std::as_bytes(std::span(tensors)));
  ASSERT_FALSE(list.empty());
  std::fill_n(list.end(), 100, std::byte{'['});
  EXPECT_EQ(refusal(conv_, *device, tactic_of(nested)), "the text is nested more than 16 times");
}

// cuDNN could read the second list, or a name that hides behind an escape.
TEST(PlanText, OtherTensorsMayNotHide) {
  const Operations none;
  const std::string plain = R"({"operationGraph":{"tensors":[]}})";
  EXPECT_EQ(why_no_plan_of(plain, none), "");
  const std::string two_lists = "the plan has two lists of tensors";
  EXPECT_EQ(why_no_plan_of(plain + R"({"operationGraph":1})", none), two_lists);
  EXPECT_EQ(why_no_plan_of(R"({"operationGraph":{"tensors":[],"tensors":[1]}})", none), two_lists);
  EXPECT_EQ(why_no_plan_of(plain + R"({"tensors" :[1]})", none), two_lists);
  EXPECT_EQ(why_no_plan_of(plain + R"({"\u006fperationGraph":1})", none),
            "the text has an escaped character");
}

TEST(PlanText, LongNamesOfDevicesAreUnsafe) {
  const auto with_name = [](size_t letters) {
    return "{\"deviceName\":\"" + std::string(letters, 'A') + "\"}";
  };
  EXPECT_EQ(why_unsafe(with_name(255)), "");
  EXPECT_EQ(why_unsafe(with_name(256)), "the text has no valid name of a device");
  EXPECT_EQ(why_unsafe(std::string(size_t{5} << 20, ' ')), "the text has more than 4194304 bytes");
}

TEST_F(CudnnPlansTest, ArchitecturesHavePlansOfTheirOwn) {
  for (const char* const target : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"})
    EXPECT_EQ(refusal(conv_, *open_device(target)), "") << target;
}

TEST_F(CudnnPlansTest, NoF32ProductIsRounded) {
  const Layer layer = conv_layer("", {8, 64, 56, 56}, {64, 64, 3, 3}, 1, 1, "", 1, DataType::kF32);
  const auto device = open_device("sm_90");
  EXPECT_FALSE(tactics(layer, *device).empty());
  // cuDNN has kernels for f32 products on tensor cores alone.
  const Layer product = matmul_layer("", {1024, 768}, {768, 768}, "", {}, DataType::kF32);
  EXPECT_NE(refusal(product, *device), "");
}

TEST_F(CudnnPlansTest, PropertiesFromAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "card.json";
  std::ofstream(path) << json_of(*find_card("L40S"));
  const Setting both("ANNEAL_CUDNN_PROPERTIES", "H200:" + path);
  const auto l40s = open_device("sm_89");
  const auto found = tactics(conv_, *l40s);
  ASSERT_FALSE(found.empty());
  // sm_90 is the H200's, and sm_80 has no entry.
  EXPECT_EQ(refusal(conv_, *open_device("sm_90")), "");
  EXPECT_EQ(refusal(conv_, *open_device("sm_80")), "");
  const Setting none("ANNEAL_CUDNN_PROPERTIES", "");
  EXPECT_THAT(refusal(conv_, *open_device("sm_89"), found[0]),
              HasSubstr("the plan is for sm_89 with 142 multiprocessors"));
}

TEST_F(CudnnPlansTest, WrongPropertiesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "card.json";
  {
    const Setting missing("ANNEAL_CUDNN_PROPERTIES", path);
    EXPECT_THAT(refusal(conv_, *open_device("sm_90")),
                HasSubstr("is neither a card that Anneal knows nor a file of at most"));
  }
  {
    const Setting directory("ANNEAL_CUDNN_PROPERTIES", folder.path().string());
    EXPECT_THAT(refusal(conv_, *open_device("sm_90")), HasSubstr("nor a file of at most"));
  }
  std::ofstream(path) << json_of(*find_card("H100 PCIe")) << std::string(1 << 17, ' ');
  {
    const Setting huge("ANNEAL_CUDNN_PROPERTIES", path);
    EXPECT_THAT(refusal(conv_, *open_device("sm_90")), HasSubstr("nor a file of at most"));
  }
  std::ofstream(path) << "{}";
  const Setting empty("ANNEAL_CUDNN_PROPERTIES", path);
  EXPECT_THAT(refusal(conv_, *open_device("sm_90")), HasSubstr("has no properties of a card"));
}

TEST_F(CudnnPlansTest, TheEmulatedDeviceTakesNoLibraries) {
  EXPECT_EQ(refusal(conv_, *open_device("emulated")), "no library of NVIDIA runs on this device");
}

}  // namespace
}  // namespace anneal::cuda
