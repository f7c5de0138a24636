// What the emulated device counts, on functions whose accesses are known.
#include <gmock/gmock.h>

#include <algorithm>

#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cuda/emulated.h"

namespace anneal::cuda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AccessCountsTest : public testing::TestWithParam<std::string> {
 protected:
  CUfunction function(const std::string& text, std::vector<std::string_view> headers = {}) {
    return e.function(text, std::move(headers), true);
  }
  // Of one launch with operands x and y of 64 KiB each.
  std::vector<SiteCounts> sites_of(const std::string& body, unsigned threads = 32,
                                   std::vector<std::string_view> headers = {}) {
    const auto f =
        function("KERNEL($name, 1024)(In<f32> x, Out<f32> y) {\n" + body + "\n}", headers);
    const auto x = e.allocate(65536), y = e.allocate(65536);
    EmulatedTarget::check(e.launch(f, 1, threads, x, y));
    EmulatedTarget::check(e.wait());
    const auto functions = emulated_counts(e.stream);
    EXPECT_EQ(functions.size(), 1u);
    return functions.empty() ? std::vector<SiteCounts>() : functions[0].sites;
  }
  static SiteCounts of_kind(const std::vector<SiteCounts>& sites, AccessKind kind) {
    for (const SiteCounts& site : sites)
      if (site.kind == kind) return site;
    ADD_FAILURE() << "no " << to_string(kind);
    return {};
  }
  // Of what x is read by: requests, sectors, ideal sectors, lines.
  std::vector<int64_t> loads(const std::string& element, const std::string& before = "") {
    const auto site = of_kind(sites_of("const i32 lane = threadIdx.x;\n" + before +
                                       "const f32 a = " + element + ";\ny[lane] = a;"),
                              AccessKind::kGlobalLoad);
    return {site.requests, site.sectors, site.ideal_sectors, site.lines};
  }
  // Of a statement that accesses 32 KiB of shared memory `s` of T: requests, wavefronts, ideal.
  std::vector<int64_t> shared(const std::string& type, const std::string& statement,
                              AccessKind kind) {
    const auto sites = sites_of("SHARED(" + type + ", s, 32768 / sizeof(" + type + "));\n" +
                                    "const i32 lane = threadIdx.x;\n" + statement,
                                32, {"program.h", "lanes.h", "mma.h"});
    const auto site = of_kind(sites, kind);
    return {site.requests, site.wavefronts, site.ideal_wavefronts};
  }

  EmulatedTarget e{GetParam()};
};

TEST_P(AccessCountsTest, GlobalLoads) {
  EXPECT_THAT(loads("x[lane]"), ElementsAre(1, 4, 4, 1)) << "neighbours";
  EXPECT_THAT(loads("x[lane + 1]"), ElementsAre(1, 5, 4, 2)) << "neighbours off a boundary";
  EXPECT_THAT(loads("x[31 - lane]"), ElementsAre(1, 4, 4, 1)) << "backwards";
  EXPECT_THAT(loads("x[2 * lane]"), ElementsAre(1, 8, 4, 2)) << "every second";
  EXPECT_THAT(loads("x[32 * lane]"), ElementsAre(1, 32, 4, 32)) << "a column";
  EXPECT_THAT(loads("x[0]"), ElementsAre(1, 1, 1, 1)) << "one for all";
  EXPECT_THAT(loads("x[lane / 16 * 1024]"), ElementsAre(1, 2, 1, 2)) << "one for each half";
  EXPECT_THAT(loads("load<4>(x, 4 * lane)[0]"), ElementsAre(1, 16, 16, 4)) << "vectors";
  EXPECT_THAT(loads("load<4>(x, 32 * lane)[0]"), ElementsAre(1, 32, 16, 32))
      << "vectors of a column";
}

TEST_P(AccessCountsTest, GlobalStores) {
  const auto stores = [&](const std::string& statement) {
    const auto site =
        of_kind(sites_of("const i32 lane = threadIdx.x;\n" + statement), AccessKind::kGlobalStore);
    return std::vector<int64_t>{site.requests, site.sectors, site.ideal_sectors, site.active_lanes};
  };
  EXPECT_THAT(stores("y[lane] = 1;"), ElementsAre(1, 4, 4, 32));
  EXPECT_THAT(stores("y[8 * lane] = 1;"), ElementsAre(1, 32, 4, 32));
  EXPECT_THAT(stores("store(y, 2 * lane, Vec<f32, 2>{{1, 2}});"), ElementsAre(1, 8, 8, 32));
  EXPECT_THAT(stores("if (lane % 8 == 0) y[lane] = 1;"), ElementsAre(1, 4, 1, 4));
}

TEST_P(AccessCountsTest, BanksOfSharedMemory) {
  const auto stores = [&](const std::string& type, const std::string& statement) {
    return shared(type, statement, AccessKind::kSharedStore);
  };
  EXPECT_THAT(stores("f32", "s[lane] = 1;"), ElementsAre(1, 1, 1));
  EXPECT_THAT(stores("f32", "s[2 * lane] = 1;"), ElementsAre(1, 2, 1));
  EXPECT_THAT(stores("f32", "s[4 * lane] = 1;"), ElementsAre(1, 4, 1));
  EXPECT_THAT(stores("f32", "s[32 * lane] = 1;"), ElementsAre(1, 32, 1));
  EXPECT_THAT(stores("f32", "s[33 * lane] = 1;"), ElementsAre(1, 1, 1)) << "a padded column";
  EXPECT_THAT(stores("u16", "s[lane] = 1;"), ElementsAre(1, 1, 1)) << "two lanes to a word";
  EXPECT_THAT(stores("u16", "s[64 * lane] = 1;"), ElementsAre(1, 32, 1));
  EXPECT_THAT(stores("f32", "store(s, 2 * lane, Vec<f32, 2>{{1, 2}});"), ElementsAre(1, 2, 2));
  EXPECT_THAT(stores("f32", "store(s, 4 * lane, Vec<f32, 4>{});"), ElementsAre(1, 4, 4));
  EXPECT_THAT(stores("f32", "store(s, 8 * lane, Vec<f32, 4>{});"), ElementsAre(1, 8, 4));
  EXPECT_THAT(stores("f32", "store(s, 36 * lane, Vec<f32, 4>{});"), ElementsAre(1, 4, 4))
      << "rows that are 4 words longer than the banks";
  const auto loads = shared("f32",
                            "if (lane == 0) s[5] = 1;\n__syncwarp();\n"
                            "const f32 a = s[5];\ny[lane] = a;",
                            AccessKind::kSharedLoad);
  EXPECT_THAT(loads, ElementsAre(1, 1, 1)) << "one word for all";
}

TEST_P(AccessCountsTest, MatricesAreReadRowByRow) {
  const auto matrices = [&](const std::string& place) {
    return shared("u16",
                  "for (i32 i = lane; i < 32 * 64; i += 32) s[i] = 0;\n__syncwarp();\n"
                  "const auto m = ldmatrix_x4(s, " +
                      place + ");\ny[lane] = m[0];",
                  AccessKind::kMatrixLoad);
  };
  EXPECT_THAT(matrices("lane * 64"), ElementsAre(1, 32, 4)) << "rows of 128 bytes";
  EXPECT_THAT(matrices("lane * 64 + (lane % 8) * 8"), ElementsAre(1, 4, 4)) << "swizzled";
  EXPECT_THAT(matrices("lane * 32"), ElementsAre(1, 16, 4)) << "rows of 64 bytes";
  EXPECT_THAT(matrices("lane * 8"), ElementsAre(1, 4, 4)) << "consecutive rows";
}

TEST_P(AccessCountsTest, AsynchronousCopiesHaveTwoSides) {
  const auto sites = sites_of(
      "SHARED(f32, s, 256);\nconst i32 lane = threadIdx.x;\n"
      "copy_async<16>(s, 4 * lane, x, 8 * lane, lane < 16);\n"
      "copy_async_commit();\ncopy_async_wait<0>();\n__syncthreads();\ny[lane] = f32(s[lane]);",
      32, {"program.h", "lanes.h", "mma.h"});
  const auto load = of_kind(sites, AccessKind::kCopyLoad);
  const auto store = of_kind(sites, AccessKind::kCopyStore);
  EXPECT_EQ(load.memory, "x");
  EXPECT_EQ(load.lane_bytes, 16u);
  EXPECT_THAT((std::vector{load.requests, load.active_lanes, load.sectors, load.ideal_sectors}),
              ElementsAre(1, 16, 16, 8));
  EXPECT_EQ(store.memory, "s");
  EXPECT_THAT((std::vector{store.requests, store.active_lanes, store.wavefronts}),
              ElementsAre(1, 32, 4));
  EXPECT_EQ(of_kind(sites, AccessKind::kBarrier).requests, 1);
}

TEST_P(AccessCountsTest, LanesThatPartAreOneRequestEach) {
  const auto halves = sites_of(
      "const i32 lane = threadIdx.x;\n"
      "if (lane < 16) {\n  y[lane] = 1;\n} else {\n  y[64 * lane] = 1;\n}\n"
      "y[lane] = 2;");
  ASSERT_EQ(halves.size(), 3u);
  const auto text = [](const SiteCounts& site) {
    return std::vector<int64_t>{site.line, site.requests, site.active_lanes, site.sectors};
  };
  EXPECT_THAT(text(halves[0]), ElementsAre(4, 1, 16, 2));
  EXPECT_THAT(text(halves[1]), ElementsAre(6, 1, 16, 16));
  EXPECT_THAT(text(halves[2]), ElementsAre(8, 1, 32, 4));
  // A lane's own number of rounds.
  const auto rounds = of_kind(sites_of("const i32 lane = threadIdx.x;\n"
                                       "for (i32 i = 0; i < lane + 1; ++i) y[32 * i + lane] = 1;"),
                              AccessKind::kGlobalStore);
  EXPECT_EQ(rounds.requests, 32);
  EXPECT_EQ(rounds.active_lanes, 32 * 33 / 2);
}

TEST_P(AccessCountsTest, ABarrierPutsLanesInStepAgain) {
  // Odd lanes skip the first round: without the barrier their second round would be their first.
  const auto site = of_kind(sites_of("const i32 lane = threadIdx.x;\n"
                                     "for (i32 i = 0; i < 2; ++i) {\n"
                                     "  if (i == 1 || lane % 2 == 0) y[1024 * i + lane] = 1;\n"
                                     "  __syncwarp();\n}"),
                            AccessKind::kGlobalStore);
  EXPECT_THAT((std::vector{site.requests, site.active_lanes, site.sectors, site.ideal_sectors}),
              ElementsAre(2, 48, 8, 6));
}

TEST_P(AccessCountsTest, WarpsAndBlocksAddUp) {
  const auto f = function(
      "KERNEL($name, 64)(Out<i32> y) {\n"
      "  y[i32(blockIdx.x * blockDim.x + threadIdx.x)] = "
      "__shfl_sync(0xffffffff, i32(threadIdx.x), 0);\n"
      "  __syncthreads();\n}");
  const auto y = e.allocate(65536);
  EmulatedTarget::check(e.launch(f, 5, 40, y));
  EmulatedTarget::check(e.launch(f, 1, 40, y));
  EmulatedTarget::check(e.wait());
  const auto functions = emulated_counts(e.stream);
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_EQ(functions[0].launches, 2);
  EXPECT_EQ(functions[0].warps, 12);
  EXPECT_EQ(of_kind(functions[0].sites, AccessKind::kShuffle).requests, 12);
  EXPECT_EQ(of_kind(functions[0].sites, AccessKind::kBarrier).requests, 12);
  const auto stores = of_kind(functions[0].sites, AccessKind::kGlobalStore);
  EXPECT_EQ(stores.requests, 12);
  EXPECT_EQ(stores.active_lanes, 240);
  EXPECT_THAT(emulated_counts(e.stream), IsEmpty()) << "they were taken";
}

TEST_P(AccessCountsTest, WhatIsRepeatedTooOftenCountsLikeTheAverage) {
  const auto site =
      of_kind(sites_of("for (i32 i = 0; i < 10000; ++i) y[2 * i32(threadIdx.x)] = f32(i);"),
              AccessKind::kGlobalStore);
  EXPECT_EQ(site.requests, 10000);
  EXPECT_EQ(site.active_lanes, 320000);
  EXPECT_EQ(site.sectors, 80000);
}

TEST_P(AccessCountsTest, AtomicsAndProducts) {
  const auto sites = sites_of(
      "SHARED(i32, s, 32);\nconst i32 lane = threadIdx.x;\ns[lane] = 0;\n__syncwarp();\n"
      "atomic_add(s, lane, 1);\natomic_max(y, 0, 1.f);\n"
      "Vec<f32, 4> c{};\nmma_m16n8k16<h16>(c, Vec<u32, 4>{}, 0, 0);",
      32, {"program.h", "lanes.h", "mma.h"});
  EXPECT_EQ(of_kind(sites, AccessKind::kSharedAtomic).wavefronts, 1);
  EXPECT_EQ(of_kind(sites, AccessKind::kGlobalAtomic).sectors, 1);
  EXPECT_EQ(of_kind(sites, AccessKind::kMatrixMultiply).requests, 1);
  EXPECT_EQ(of_kind(sites, AccessKind::kWarpBarrier).requests, 1);
}

TEST_P(AccessCountsTest, PlacesAreThoseOfTheFiles) {
  const auto sites = sites_of("y[0] = load_lanes<4>(x, 0, true)[0];", 32, {"program.h", "lanes.h"});
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].file, "");
  EXPECT_EQ(sites[0].line, 2);
  EXPECT_EQ(sites[0].text, "y[0] = load_lanes<4>(x, 0, true)[0];");
  EXPECT_EQ(sites[0].memory, "y");
  EXPECT_EQ(sites[1].file, "lanes.h");
  EXPECT_EQ(sites[1].text, "if (aligned) return load<N>(from, i);");
  EXPECT_EQ(sites[1].memory, "x");
}

INSTANTIATE_TEST_SUITE_P(Orders, AccessCountsTest, testing::Values("forward", "reversed"));

TEST(AccessCounts, AreOffUnlessAskedFor) {
  EmulatedTarget e;
  const auto f = e.function("KERNEL($name, 32)(Out<i32> y) { y[i32(threadIdx.x)] = 1; }");
  const auto y = e.allocate(128);
  EmulatedTarget::check(e.launch(f, 1, 32, y));
  EmulatedTarget::check(e.wait());
  EXPECT_THAT(emulated_counts(e.stream), IsEmpty());
  EXPECT_NE(host_compiler(true).identity(), host_compiler().identity()) << "images are kept apart";
}

TEST(AccessCounts, RecordedLaunchesCountWhenTheyAreDone) {
  EmulatedTarget e;
  const auto f = e.function("KERNEL($name, 32)(Out<i32> y) { y[i32(threadIdx.x)] = 1; }", {}, true);
  const auto y = e.allocate(128);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EmulatedTarget::check(e.d.cuStreamBeginCapture(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EmulatedTarget::check(e.launch(f, 1, 32, y));
  EmulatedTarget::check(e.d.cuStreamEndCapture(e.stream, &graph));
  EmulatedTarget::check(e.d.cuGraphInstantiate(&executable, graph, 0));
  EmulatedTarget::check(e.wait());
  EXPECT_THAT(emulated_counts(e.stream), IsEmpty());
  for (int i = 0; i < 3; ++i) EmulatedTarget::check(e.d.cuGraphLaunch(executable, e.stream));
  EmulatedTarget::check(e.wait());
  const auto functions = emulated_counts(e.stream);
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_EQ(functions[0].launches, 3);
  EXPECT_EQ(functions[0].sites[0].sectors, 12);
}

TEST(AccessCounts, TheCountingDeviceRunsPlansOfTheEmulatedOne) {
  const auto device = open_device("emulated:counting");
  EXPECT_EQ(device->target(), "emulated");
  EXPECT_EQ(device->kind(), DeviceKind::kCuda);
}

TEST(AccessCounts, SumsOfFunctionsAndSites) {
  SiteCounts site;
  site.requests = 2;
  site.sectors = 8;
  site.ideal_sectors = 4;
  SiteCounts other = site;
  other.line = 7;
  std::vector<FunctionCounts> all = {{"f", 1, 4, {site}}};
  add_counts(all, {{"f", 1, 4, {site, other}}, {"g", 1, 1, {}}});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].warps, 8);
  ASSERT_EQ(all[0].sites.size(), 2u);
  EXPECT_EQ(all[0].sites[0].sectors, 16);
  EXPECT_EQ(all[0].sites[0].sectors_over_ideal(), 2.0);
  EXPECT_TRUE(all[0].sites[0].is_wasteful());
  EXPECT_EQ(SiteCounts{}.bank_conflict(), 0.0);
}

}  // namespace
}  // namespace anneal::cuda
