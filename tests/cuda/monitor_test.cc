#include "anneal/kernels/cuda/api/monitor.h"

#include <gmock/gmock.h>

#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cuda/fake_driver.h"

namespace anneal::cuda {
namespace {

using testing::ElementsAre;

LibraryTable<Nvml> fake_nvml() {
  const Setting list("ANNEAL_CUDA_LIB_PATH", FAKE_NVML_FOLDER);
  return open_nvml();
}

const std::vector<std::string> kFirst = {"0000:0A:00.0"};

TEST(Monitor, WhatACardTells) {
  const Cards cards = read_cards(kFirst, fake_nvml());
  EXPECT_EQ(cards.why_not, "");
  EXPECT_EQ(cards.driver_version, "580.65.06");
  ASSERT_EQ(cards.cards.size(), 1u);
  EXPECT_EQ(cards.cards[0].bus_id, "0000:0A:00.0");
  EXPECT_EQ(cards.cards[0].used_bytes, 400u << 20);
  EXPECT_EQ(cards.cards[0].milliwatts, std::nullopt) << "NVML says: Not Supported";
  EXPECT_EQ(text_of(cards),
            "driver 580.65.06\n"
            "NVIDIA Made-up 1, 400 of 1000 MiB used, 71 % busy (13 % memory), 1980 MHz, memory "
            "2619 MHz, 41 C\n");
}

// CUDA_VISIBLE_DEVICES=1,0 and CUDA_VISIBLE_DEVICES=1
TEST(Monitor, CardsAreInTheDriversOrder) {
  const auto names = [] {
    std::vector<std::string> names;
    for (const CardState& card : read_cards(bus_ids(fake_driver()), fake_nvml()).cards)
      names.push_back(card.name);
    return names;
  };
  fake_card() = {};
  EXPECT_THAT(names(), ElementsAre("NVIDIA Made-up 1", "NVIDIA Made-up 2"));
  fake_card().on_bus = {1, 0};
  EXPECT_THAT(names(), ElementsAre("NVIDIA Made-up 2", "NVIDIA Made-up 1"));
  fake_card().devices = 1;
  EXPECT_THAT(names(), ElementsAre("NVIDIA Made-up 2"));
  fake_card().fails["cuInit"] = CUDA_ERROR_NO_DEVICE;
  EXPECT_THAT(names(), ElementsAre());
}

TEST(Monitor, ACardThatNvmlDoesNotKnow) {
  const std::vector<std::string> elsewhere = {"0000:0F:00.0"};
  EXPECT_EQ(text_of(read_cards(elsewhere, fake_nvml())),
            "driver 580.65.06\na card that NVML does not know\n");
}

TEST(Monitor, WithoutTheLibrary) {
  EXPECT_EQ(text_of(read_cards(kFirst, {{}, {}, "libnvidia-ml.so.1: cannot open"})),
            "there is no NVML here (libnvidia-ml.so.1: cannot open)\n");
}

TEST(Monitor, AnNvmlThatDoesNotStart) {
  auto nvml = fake_nvml();
  ASSERT_TRUE(nvml.table);
  nvml.table->nvmlInit_v2 = [] { return nvmlReturn_t{3}; };
  EXPECT_EQ(text_of(read_cards(kFirst, nvml)), "NVML does not start: Not Supported\n");
}

}  // namespace
}  // namespace anneal::cuda
