// The file of kernel times: written, read, damaged, and shared by several builds.
#include "anneal/engine/builder/timing_cache.h"

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
    "anneal timings 1\n"
    "# anneal\tmachine\tthreads\tlayer\tkernel=microseconds ...\n"
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
  ASSERT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.begin()->first.machine, "AMD EPYC, full, no oneDNN");
  EXPECT_EQ(cache.begin()->first.threads, 1);
  EXPECT_EQ(cache.begin()->second, (KernelTimes{{"cpu.softmax.a", 12.5}, {"cpu.softmax.b", 0.07}}));
  EXPECT_EQ(to_string(cache), kText);
  EXPECT_TRUE(parse_timing_cache("anneal timings 1").empty());
}

TEST(TimingCache, DamageIsRefusedByLine) {
  const std::pair<std::string, std::string> wrong[] = {
      {"", "line 1: \"anneal timings 1\" is expected"},
      {"anneal timings 2\n", "line 1: \"anneal timings 1\" is expected"},
      {"anneal timings 1\n\n0.1.0\tm\t1\tlayer\n", "line 3: 5 columns with tabs"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=1\tmore\n", "line 2: 5 columns with tabs"},
      {"anneal timings 1\n0.1.0\tm\tone\tlayer\ta=1\n", "line 2: \"one\" is no number of threads"},
      {"anneal timings 1\n0.1.0\tm\t0\tlayer\ta=1\n", "line 2: \"0\" is no number of threads"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta\n", "line 2: \"a\" is no kernel=microseconds"},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\t=1\n", "line 2: \"=1\" is no kernel="},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=1x\n", "line 2: \"a=1x\" is no kernel="},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=nan\n", "line 2: \"a=nan\" is no kernel="},
      {"anneal timings 1\n0.1.0\tm\t1\tlayer\ta=-1\n", "line 2: \"a=-1\" is no kernel="},
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
                add_to_timing_cache(path(), {{key_of("a"), {{"k", 1}}}});
              }),
              expected);
}

TEST_F(TimingCacheFile, TimesAreAddedToThoseOfOthers) {
  add_to_timing_cache(path(), {{key_of("a"), {{"k", 1}, {"l", 2}}}});
  add_to_timing_cache(path(), {{key_of("b"), {{"k", 3}}}});
  add_to_timing_cache(path(), {{key_of("a"), {{"k", 4}}}});
  EXPECT_EQ(read_timing_cache(path()),
            (TimingCache{{key_of("a"), {{"k", 4}}}, {key_of("b"), {{"k", 3}}}}));
}

TEST_F(TimingCacheFile, BuildsAtOnceLoseNothing) {
  constexpr int kBuilds = 8, kTimes = 5;
  std::vector<std::thread> builds;
  builds.reserve(kBuilds);
  for (int build = 0; build < kBuilds; ++build)
    builds.emplace_back([&, build] {
      for (int i = 0; i < kTimes; ++i)
        add_to_timing_cache(path(), {{key_of(std::to_string(build * kTimes + i)), {{"k", 1}}}});
    });
  for (std::thread& build : builds) build.join();
  EXPECT_EQ(read_timing_cache(path()).size(), static_cast<size_t>(kBuilds * kTimes));
}

}  // namespace
}  // namespace anneal::testing
