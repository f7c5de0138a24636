// Which figures of a present card are trusted, and that plans made elsewhere still run on it.
#include "anneal/kernels/cuda/runtime/card_spec.h"

#include <gmock/gmock.h>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/cost_model.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/tests/cuda/fake_driver.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

constexpr int kKi = 1024, kMi = 1024 * 1024;

// Figures as drivers report them.
constexpr CardFigures kH100 = {90,        132,      2048,    32,      64 * kKi, 228 * kKi,
                               227 * kKi, 50 * kMi, 1980000, 2619000, 5120};

TEST(CardSpec, ACardOfTheTableIsTheOneOfTheTable) {
  const auto spec = spec_of_card(kH100, "cuda:0");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "H100 SXM");
  EXPECT_EQ(spec->bandwidth, find_spec(90)->bandwidth) << "so that the same choices are made";
  const CardFigures a100 = {80,        108,      2048,    32,      64 * kKi, 164 * kKi,
                            163 * kKi, 40 * kMi, 1410000, 1593000, 5120};
  EXPECT_EQ(spec_of_card(a100, "cuda:0")->name, "A100 SXM 80GB");
  const CardFigures l4 = {89,       58,       1536,    24,      64 * kKi, 100 * kKi,
                          99 * kKi, 48 * kMi, 2040000, 6251000, 192};
  EXPECT_EQ(spec_of_card(l4, "cuda:0")->name, "L4");
}

TEST(CardSpec, AnotherMemoryIsItsOwn) {
  CardFigures h200 = kH100;
  h200.memory_clock_khz = 3201000;
  h200.memory_bus_bits = 6144;
  const auto spec = spec_of_card(h200, "cuda:0 (NVIDIA H200)");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "cuda:0 (NVIDIA H200)");
  EXPECT_NEAR(spec->bandwidth, 4.917e12, 1e9);
  EXPECT_NEAR(spec->f32_flops, 66.9e12, 1e11);
  EXPECT_NEAR(spec->f16_tensor_flops, 988e12, 1e12);
}

TEST(CardSpec, APartOfACardHasAPartOfItsRates) {
  CardFigures slice = kH100;
  slice.multiprocessors = 16;
  slice.memory_bus_bits = 640;
  const auto spec = spec_of_card(slice, "cuda:0 (NVIDIA H100 MIG 1g.10gb)");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->multiprocessors, 16);
  EXPECT_NEAR(spec->bandwidth, find_spec(90)->bandwidth / 8, 1e10);
  EXPECT_NEAR(spec->f16_tensor_flops, find_spec(90)->f16_tensor_flops * 16 / 132, 1e12);
}

TEST(CardSpec, RegistersAreTheCards) {
  EXPECT_EQ(spec_of_card(kH100, "cuda:0")->registers_per_multiprocessor, 65536);
  CardFigures more = kH100;
  more.registers_per_multiprocessor = 128 * kKi;
  const auto spec = spec_of_card(more, "cuda:0");
  EXPECT_EQ(spec->registers_per_multiprocessor, 128 * kKi);
  const Work work = {.threads_per_block = 256, .registers_per_thread = 128};
  EXPECT_EQ(floor_of(*spec, work).resident_blocks, 4);
  EXPECT_EQ(floor_of(*find_spec(90), work).resident_blocks, 2);
}

TEST(CardSpec, AnArchitectureThatIsNotKnown) {
  CardFigures next = kH100;
  next.architecture = 110;
  next.multiprocessors = 20;
  next.memory_clock_khz = 0;  // it shares the host's memory
  const auto spec = spec_of_card(next, "cuda:0 (Thor)");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->architecture, 110);
  EXPECT_NEAR(spec->bandwidth, find_spec(100)->bandwidth * 20 / 148, 1e9);
  EXPECT_NEAR(spec->f16_tensor_flops / spec->f32_flops,
              find_spec(100)->f16_tensor_flops / find_spec(100)->f32_flops, 1e-9);
  next.architecture = 75;
  EXPECT_FALSE(spec_of_card(next, "cuda:0"));
  next.architecture = 1000;
  EXPECT_TRUE(spec_of_card(next, "cuda:0"));
}

class CardTest : public testing::Test {
 protected:
  CardTest() { fake_card() = {}; }
  std::unique_ptr<Device> open(int major, int minor, int multiprocessors) {
    fake_card().major = major;
    fake_card().minor = minor;
    fake_card().attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = multiprocessors;
    return open_driver_device({.driver = fake_driver(), .compiler = compiler_, .name = "cuda:0"});
  }
  FakeCompiler compiler_;
};

TEST_F(CardTest, IsDescribedByItsDriver) {
  fake_card().attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = 128 * kKi;
  const auto device = open(10, 3, 160);
  EXPECT_EQ(device->target(), "sm_103");
  EXPECT_EQ(spec_of(*device).name, "cuda:0 (Made-up)");
  EXPECT_EQ(spec_of(*device).multiprocessors, 160);
  EXPECT_EQ(spec_of(*device).registers_per_multiprocessor, 128 * kKi);
  EXPECT_EQ(open(11, 0, 20)->target(), "sm_110");
  EXPECT_EQ(open(13, 0, 200)->target(), "sm_130");
}

// A product of [rows, depth] and [depth, columns] in f16.
KernelResult make_product(Device& device, int64_t rows, int64_t columns, int64_t depth,
                          std::span<const std::byte> tactic) {
  const MatMul op;
  const auto operand = [](int64_t rows, int64_t columns) {
    const Dims dims = {rows, columns};
    return Operand{.type = {DataType::kF16, shape_of(dims)},
                   .strides = shape_of(row_major_strides(dims))};
  };
  const std::vector<Operand> inputs = {operand(rows, depth), operand(depth, columns)};
  const std::vector<Operand> outputs = {operand(rows, columns)};
  const SizeTable sizes;
  const Op as_op = op;
  return find_kernel(cuda_backend(), "cuda.matmul.mma")
      ->make({as_op, {}, 2, inputs, outputs, sizes, device, tactic});
}

std::vector<std::string> names(Device& device) {
  std::vector<std::string> names;
  for (const auto& function : code_of(device).functions()) names.push_back(function->name);
  return names;
}

// What is in an engine file is found by the function's text; the tactic decides that, not the card.
TEST_F(CardTest, APlanMadeForTheArchitectureRunsOnEveryCardOfIt) {
  const auto offline = open_device("sm_90");
  for (const int64_t rows : {64, 1024, 8192}) {
    const KernelResult planned = make_product(*offline, rows, 768, 768, {});
    ASSERT_EQ(planned.reason(), "");
    const auto tactic = (*planned)->tactic();
    ASSERT_FALSE(names(*offline).empty());
    for (const int multiprocessors : {16, 78, 132, 144}) {
      const auto card = open(9, 0, multiprocessors);
      const KernelResult loaded = make_product(*card, rows, 768, 768, tactic);
      ASSERT_EQ(loaded.reason(), "") << multiprocessors;
      EXPECT_EQ(names(*card), names(*offline)) << multiprocessors;
    }
  }
}

// Tiles that fill 132 multiprocessors are small for 16.
TEST_F(CardTest, ChoicesDependOnTheCard) {
  const auto full = open(9, 0, 132), part = open(9, 0, 16);
  const KernelResult on_full = make_product(*full, 1024, 768, 768, {});
  const KernelResult on_part = make_product(*part, 1024, 768, 768, {});
  ASSERT_TRUE(on_full && on_part);
  EXPECT_NE((*on_full)->tactic(), (*on_part)->tactic());
}

}  // namespace
}  // namespace anneal::cuda
