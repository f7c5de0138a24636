// The file of kernel times: written, read, damaged, and shared by several builds.
#include "anneal/engine/builder/timing/timing_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "anneal/core/file.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kText =
    "anneal timings 2\n"
    "# anneal\tmachine\tthreads\tlayer\tkernel{tactic}=microseconds ...\n"
    "0.1.0\tAMD EPYC, full, no oneDNN\t1\tSoftmax axis=1 (f32[2,3]{3,1}) -> f32[2,3]{3,1}\t"
    "cpu.softmax.a=12.5 cpu.softmax.b=0.07\n"
    "0.1.0\tAMD EPYC, full, no oneDNN\t2\tSoftmax axis=1 (f32[2,3]{3,1}) -> f32[2,3]{3,1}\t"
    "cpu.softmax.a=1e+08\n";

TimingKey key_of(const std::string& layer) { return {"0.1.0", "a machine", 1, layer}; }

class TimingCacheFile : public ::testing::Test {
 protected:
  TimingCacheFile() {
    std::string folder = (std::filesystem::temp_directory_path() / "anneal-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  ~TimingCacheFile() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "times").string(); }
  void write(std::string_view text) const { std::ofstream(path()) << text; }

  std::filesystem::path folder_;
};

TEST(TimingCache, TextReadsBack) {
  const TimingCache cache = parse_timing_cache(kText);
  ASSERT_EQ(cache.layers.size(), 2u);
  EXPECT_EQ(cache.layers.begin()->first.machine, "AMD EPYC, full, no oneDNN");
  EXPECT_EQ(cache.layers.begin()->first.threads, 1);
  EXPECT_EQ(cache.layers.begin()->second,
            (KernelTimes{{"cpu.softmax.a", 12.5}, {"cpu.softmax.b", 0.07}}));
  EXPECT_EQ(to_string(cache), kText);
  EXPECT_TRUE(parse_timing_cache("anneal timings 2").empty());
}

TEST(TimingCache, TacticsReadBack) {
  const Tactic tactic = {std::byte{0x7b}, std::byte{0}, std::byte{0xff}};
  TimingCache cache{
      .layers = {{key_of("a"),
                  {{"cuda.matmul.mma{64x64x64, 2x2 warps, 3 stages}", 12.5},
                   {"cuda.matmul.simt{4x32x32, 4x1 a thread, 8 slices}", kWrongResult},
                   {"cudnn.matmul{engine 4 #" + tactic_digest(tactic) + "}", 8.25},
                   {"k", 3}}}},
      .tactics = {{tactic_digest(tactic), tactic}}};
  const std::string text = to_string(cache);
  EXPECT_EQ(parse_timing_cache(text), cache);
  EXPECT_EQ(to_string(parse_timing_cache(text)), text);
  EXPECT_THAT(text, HasSubstr("cuda.matmul.mma{64x64x64, 2x2 warps, 3 stages}=12.5 "));
  EXPECT_THAT(text, HasSubstr(" a thread, 8 slices}=wrong "));
  EXPECT_THAT(text, HasSubstr("\n@ " + tactic_digest(tactic) + "\t7b00ff\n"));
}

TEST(TimingCache, VersionOneIsRead) {
  std::string text(kText);
  text.replace(text.find('2'), 1, "1");
  EXPECT_EQ(parse_timing_cache(text), parse_timing_cache(kText));
}

TEST(TimingCache, ALaterOneReplacesLayers) {
  TimingCache all{.layers = {{key_of("a"), {{"k", 1}}}, {key_of("b"), {{"k", 2}}}}};
  merge({.layers = {{key_of("b"), {{"l", 3}}}}, .tactics = {{"1", {}}}}, all);
  EXPECT_EQ(all, (TimingCache{.layers = {{key_of("a"), {{"k", 1}}}, {key_of("b"), {{"l", 3}}}},
                              .tactics = {{"1", {}}}}));
}

TEST(TimingCache, DamageIsRefusedByLine) {
  const std::pair<std::string, std::string> wrong[] = {
      {"", "line 1: \"anneal timings 2\" is expected"},
      {"anneal timings 3\n", "line 1: \"anneal timings 2\" is expected"},
      {"anneal timings 1\n\n0.1.0\tm\t1\tlayer\n", "line 3: 5 columns, separated by tabs"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=1\tmore\n", "line 2: 5 columns, separated by tabs"},
      {"anneal timings 1\n0.1.0\tm\tone\tlayer\ta=1\n", "line 2: \"one\" is no number of threads"},
      {"anneal timings 1\n0.1.0\tm\t0\tlayer\ta=1\n", "line 2: \"0\" is no number of threads"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta\n", "line 2: \"a\" is no kernel=microseconds"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\t=1\n", "line 2: \"=1\" is no kernel="},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=1x\n", "line 2: \"a=1x\" is no kernel="},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=nan\n", "line 2: \"a=nan\" is no kernel="},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=-1\n", "line 2: \"a=-1\" is no kernel="},
      {"anneal timings 2\n0.1.0\tm\t1\tlayer\ta{b c=1\n", "line 2: \"a{b c=1\" is no kernel="},
      {"anneal timings 2\n@ 0123456789abcdef\t00\n", "line 2: these are not the bytes of a tactic"},
      {"anneal timings 2\n@ 0123456789abcdef\t0g\n", "line 2: these are not the bytes of a tactic"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=1 a=2\n", "line 2: kernel \"a\" occurs twice"},
      {"anneal timings 1\n0\tm\t1\tx\ta=1\n0\tm\t1\tx\ta=2\n", "line 3: this layer occurs twice"},
  };
  for (const auto& [text, error] : wrong)
    EXPECT_THAT(error_of([&] { parse_timing_cache(text); }), HasSubstr(error)) << text;
}

TEST_F(TimingCacheFile, MissingIsEmpty) { EXPECT_TRUE(read_timing_cache(path()).empty()); }

TEST_F(TimingCacheFile, ErrorsNameTheFileAndTheWayOut) {
  write("anneal timings 1\nnonsense\n");
  const auto expected = AllOf(HasSubstr(path()), HasSubstr("line 2"), HasSubstr("remove the file"));
  EXPECT_THAT(error_of([&] { read_timing_cache(path()); }), expected);
  EXPECT_THAT(error_of([&] {
                add_to_timing_cache(path(), {.layers = {{key_of("a"), {{"k", 1}}}}});
              }),
              expected);
}

TEST_F(TimingCacheFile, TimesAreAddedToThoseOfOthers) {
  add_to_timing_cache(path(), {.layers = {{key_of("a"), {{"k", 1}, {"l", 2}}}}});
  add_to_timing_cache(path(), {.layers = {{key_of("b"), {{"k", 3}}}}});
  add_to_timing_cache(path(), {.layers = {{key_of("a"), {{"k", 4}}}}});
  EXPECT_EQ(read_timing_cache(path()),
            (TimingCache{.layers = {{key_of("a"), {{"k", 4}}}, {key_of("b"), {{"k", 3}}}}}));
}

TEST_F(TimingCacheFile, BuildsAtOnceLoseNothing) {
  constexpr int kBuilds = 8, kTimes = 5;
  std::vector<std::thread> builds;
  builds.reserve(kBuilds);
  for (int build = 0; build < kBuilds; ++build)
    builds.emplace_back([&, build] {
      for (int i = 0; i < kTimes; ++i)
        add_to_timing_cache(path(),
                            {.layers = {{key_of(std::to_string(build * kTimes + i)), {{"k", 1}}}}});
    });
  for (std::thread& build : builds) build.join();
  EXPECT_EQ(read_timing_cache(path()).layers.size(), static_cast<size_t>(kBuilds * kTimes));
}

}  // namespace
}  // namespace anneal::testing
