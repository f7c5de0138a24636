#include "anneal/kernels/cuda/monitor.h"

#include <gmock/gmock.h>

#include "anneal/tests/cuda/environment.h"

namespace anneal::cuda {
namespace {

Opened<Nvml> fake_nvml() {
  const Setting list("ANNEAL_CUDA_LIB_PATH", FAKE_NVML_FOLDER);
  return open_nvml();
}

TEST(Monitor, WhatACardTells) {
  const Cards cards = read_cards(fake_nvml());
  EXPECT_EQ(cards.why_not, "");
  EXPECT_EQ(cards.driver_version, "580.65.06");
  ASSERT_EQ(cards.cards.size(), 1u);
  EXPECT_EQ(cards.cards[0].used_bytes, 400u << 20);
  EXPECT_EQ(cards.cards[0].milliwatts, std::nullopt) << "NVML says: Not Supported";
  EXPECT_EQ(text_of(cards),
            "driver 580.65.06\n"
            "NVIDIA Made-up 1, 400 of 1000 MiB used, 71 % busy (13 % memory), 1980 MHz, memory "
            "2619 MHz, 41 C\n");
}

TEST(Monitor, WithoutTheLibrary) {
  EXPECT_EQ(text_of(read_cards({{}, {}, "libnvidia-ml.so.1: cannot open"})),
            "there is no NVML here (libnvidia-ml.so.1: cannot open)\n");
}

TEST(Monitor, AnNvmlThatDoesNotStart) {
  auto nvml = fake_nvml();
  ASSERT_TRUE(nvml.table);
  nvml.table->nvmlInit_v2 = [] { return nvmlReturn_t{3}; };
  EXPECT_EQ(text_of(read_cards(nvml)), "NVML does not start: Not Supported\n");
}

}  // namespace
}  // namespace anneal::cuda
