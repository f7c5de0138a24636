// Ceilings: of this CPU, kept in the cache folder, and of cards.
#include "anneal/engine/onnx/roofline/ceilings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>

#include "anneal/core/error.h"
#include "anneal/core/files/temporary_folder.h"
#include "anneal/core/isa.h"
#include "anneal/engine/onnx/roofline/cpu_loops.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/tests/cuda/environment.h"

namespace anneal {
namespace {

// An empty cache folder.
struct CacheFolder {
  TemporaryFolder folder{"anneal-ceilings"};
  cuda::Setting setting{"ANNEAL_CACHE_DIR", folder.path()};
};

RooflineCeilings made_up() {
  RooflineCeilings made;
  made.device = cpu::processor_model();
  made.isa = "avx2";
  made.threads = 3;
  made.date = "2026-11-26 15:20 UTC";
  made.levels = {{"L2", 1 << 20, 3e11, 2e11}, {"memory", 0, 4e10, 5e10}};
  made.rates = {{ProductType::kF32, 1e11}, {ProductType::kInt8, 2e11}};
  made.start_seconds = 1e-6;
  return made;
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(Ceilings, AreKeptForTheProcessorItsIsaAndTheThreads) {
  const CacheFolder folder;
  EXPECT_FALSE(kept_ceilings("avx2", 3));
  keep_ceilings(made_up());
  const auto kept = kept_ceilings("avx2", 3);
  ASSERT_TRUE(kept);
  EXPECT_EQ(ceilings_text_as_json(*kept), ceilings_text_as_json(made_up()));
  EXPECT_FALSE(kept_ceilings("avx2", 2));
  EXPECT_FALSE(kept_ceilings("full", 3));
  std::filesystem::copy(ceilings_path("avx2", 3), ceilings_path("avx2", 2));
  EXPECT_FALSE(kept_ceilings("avx2", 2)) << "of another number of threads";
}

TEST(Ceilings, ADamagedFileIsNoCeiling) {
  const CacheFolder folder;
  keep_ceilings(made_up());
  const std::string path = ceilings_path("avx2", 3), whole = ceilings_text_as_json(made_up());
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string(), std::string("null"), std::string("[]"), std::string("\xff\xfe"),
        whole.substr(0, whole.size() / 2), with("\"version\": 1", "\"version\": 0"),
        with("\"levels\"", "\"level\""), with("\"f32\": 1", "\"f32\": -1"),
        with("\"f32\"", "\"f31\""), with("\"bytes\": 0", "\"bytes\": 7"),
        with("\"threads\": 3", "\"threads\": \"3\"")}) {
    write(path, text);
    EXPECT_FALSE(kept_ceilings("avx2", 3)) << text;
  }
  keep_ceilings(made_up());
  EXPECT_TRUE(kept_ceilings("avx2", 3));
}

TEST(Ceilings, WithoutAFolderNothingIsKept) {
  for (const char* const folder : {"", "/proc/nothing"}) {
    const cuda::Setting setting("ANNEAL_CACHE_DIR", folder);
    keep_ceilings(made_up());
    EXPECT_FALSE(kept_ceilings("avx2", 3));
    EXPECT_EQ(ceilings_path("avx2", 3).empty(), folder[0] == '\0');
  }
}

TEST(Ceilings, OfATypeAndOfALevel) {
  const RooflineCeilings ceilings = made_up();
  EXPECT_EQ(ceilings.rate(ProductType::kInt8), 2e11);
  EXPECT_EQ(ceilings.rate(ProductType::kBF16), 1e11);
  EXPECT_EQ(ceilings.level_of(1 << 20).name, "L2");
  EXPECT_EQ(ceilings.level_of((1 << 20) + 1).name, "memory");
  EXPECT_EQ(ceilings.level_of(1).bandwidth(), 3e11);
  EXPECT_EQ(ceilings.levels[1].bandwidth(), 5e10);
}

TEST(Ceilings, OfThisCpu) {
  const RooflineCeilings best = probe_cpu(std::string(to_string(current_isa())), 2);
  EXPECT_EQ(best.device, cpu::processor_model());
  EXPECT_EQ(best.levels.back().bytes, 0u);
  for (const MemoryLevel& level : best.levels) EXPECT_GT(level.bandwidth(), 1e8) << level.name;
  for (const ProductRate& rate : best.rates) EXPECT_GT(rate.per_second, 1e8);
  EXPECT_EQ(best.date.size(), std::string_view("2026-11-26 15:20 UTC").size());
  EXPECT_THROW(probe_cpu("avx9", 1), Error);
}

TEST(Ceilings, LoopsOfEachInstructionSetRun) {
  std::vector<std::byte> memory(4 * kStreamBlock + 64, std::byte{7});
  void* at = memory.data();
  size_t room = memory.size();
  auto* const from = static_cast<std::byte*>(std::align(64, 2 * kStreamBlock, at, room));
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kFull}) {
    if (isa > current_isa()) continue;
    for (const PeakLoop& loop : peak_loops(isa, cpu::computes_bf16(isa))) {
      EXPECT_GT(loop.operations, 0);
      loop.run(10);
    }
    std::byte* const to = from + kStreamBlock;
    std::fill(to, to + kStreamBlock, std::byte{0});
    stream_loops(isa).copy(to, from, kStreamBlock);
    EXPECT_TRUE(std::equal(from, from + kStreamBlock, to)) << to_string(isa);
    stream_loops(isa).read(from, 2 * kStreamBlock);
  }
}

TEST(Ceilings, OfCardsArePublished) {
  const RooflineCeilings h100 = card_ceilings("sm_90");
  EXPECT_EQ(h100.device, "H100 SXM");
  EXPECT_TRUE(h100.date.empty());
  EXPECT_EQ(h100.rate(ProductType::kF16), 989.5e12);
  EXPECT_EQ(h100.rate(ProductType::kInt8), 1979e12);
  EXPECT_EQ(h100.rate(ProductType::kF32), 67e12);
  EXPECT_EQ(h100.level_of(1e12).bandwidth(), 3350e9);
  EXPECT_EQ(card_ceilings("sm_120").rate(ProductType::kInt8), 838e12);
  EXPECT_EQ(card_ceilings("emulated").device, "H100 SXM");
}

}  // namespace
}  // namespace anneal
