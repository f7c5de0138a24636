// Faults planted in programs, each found with its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/virtual_card/run_text.h"

namespace anneal::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kShared = ".shared .align 16 .b8 buffer[4096];\n";
// The thread's place in `buffer`: %r2. Its place in memory: %rd3.
constexpr const char* kPlaces =
    "mov.u64 %rd4, buffer;\ncvt.u32.u64 %r5, %rd4;\nshl.b32 %r6, %r1, 2;\nadd.s32 %r2, %r5, %r6;\n"
    "cvt.u64.u32 %rd2, %r6;\nadd.s64 %rd3, %rd1, %rd2;\n";

// Memory is one u32 per thread.
std::string fault_of(const std::string& body, uint32_t threads = 64, Launch launch = {},
                     const std::string& declared = kShared) {
  Card card;
  const uint64_t memory = card.upload(std::vector<uint32_t>(threads));
  launch.block = {.x = threads};
  try {
    card.run(program((declared.empty() ? "" : kPlaces) + body, declared), memory, launch);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "none";
}

// Each thread reads what the last one of the next warp has stored.
std::string exchange(const std::string& between) {
  return "st.shared.u32 [%r2], %r1;\n" + between +
         "xor.b32 %r7, %r6, 128;\nadd.s32 %r8, %r5, %r7;\nld.shared.u32 %r9, [%r8];\n"
         "st.global.u32 [%rd3], %r9;";
}

TEST(Fault, MissingBarrier) {
  EXPECT_EQ(fault_of(exchange("bar.sync 0;\n")), "none");
  for (const uint64_t seed : {0, 1, 2})
    EXPECT_THAT(fault_of(exchange(""), 64, {.grid = {}, .block = {}, .seed = seed}),
                ::testing::AnyOf(HasSubstr("which thread"), HasSubstr("has no value")));
}

TEST(Fault, ReadBeforeTheNextWriteNeedsABarrier) {
  const std::string rounds = exchange("bar.sync 0;\n");
  EXPECT_EQ(fault_of(rounds + "\nbar.sync 0;\nst.shared.u32 [%r2], %r9;"), "none");
  EXPECT_THAT(fault_of(rounds + "\nst.shared.u32 [%r2], %r9;"),
              HasSubstr("without a barrier between"));
}

TEST(Fault, WithinAWarpABarrierOfTheWarpIsEnough) {
  const std::string body =
      "st.shared.u32 [%r2], %r1;\n{}xor.b32 %r7, %r6, 4;\nadd.s32 %r8, %r5, %r7;\n"
      "ld.shared.u32 %r9, [%r8];\nst.global.u32 [%rd3], %r9;";
  const auto with = [&](const std::string& between) {
    std::string text = body;
    return text.replace(text.find("{}"), 2, between);
  };
  EXPECT_EQ(fault_of(with("bar.warp.sync -1;\n"), 32), "none");
  EXPECT_THAT(fault_of(with(""), 32), HasSubstr("without a barrier between"));
  // Exchanges and votes do not order memory.
  EXPECT_THAT(fault_of(with("shfl.sync.bfly.b32 %r4|%p2, %r1, 1, 31, -1;\n"), 32),
              HasSubstr("without a barrier between"));
  EXPECT_THAT(fault_of(with("setp.eq.s32 %p1, %r1, 0;\nvote.sync.any.pred %p2, %p1, -1;\n"), 32),
              HasSubstr("without a barrier between"));
}

TEST(Fault, AccessesOfMemory) {
  EXPECT_THAT(fault_of("st.global.u32 [%rd3+4], %r1;"),
              HasSubstr("a store of 4 bytes at byte 256 of an allocation of 256 bytes"));
  EXPECT_THAT(fault_of("ld.global.u32 %r9, [%rd3+65536];"),
              HasSubstr("of an allocation of 256 bytes"));
  EXPECT_THAT(fault_of("mov.u64 %rd9, 64;\nld.global.u32 %r9, [%rd9];"),
              HasSubstr("a load of 4 bytes at 0x40, where nothing is allocated"));
  EXPECT_THAT(fault_of("st.global.v4.u32 [%rd1+8], {%r1, %r1, %r1, %r1};", 1),
              HasSubstr("of an allocation"));
  EXPECT_THAT(fault_of("st.global.v4.u32 [%rd1+8], {%r1, %r1, %r1, %r1};"),
              HasSubstr("a store of 16 bytes at byte 8, which is not a multiple of it"));
  EXPECT_THAT(fault_of("st.shared.v2.u32 [%r2], {%r1, %r1};"), HasSubstr("not a multiple of it"));
  EXPECT_THAT(fault_of("st.shared.u32 [%r2+4096], %r1;"),
              HasSubstr("of 4096 bytes of shared memory"));
  EXPECT_THAT(fault_of("ld.shared.u32 %r9, [%r2];"), HasSubstr("which has no value"));
}

TEST(Fault, UninitializedGlobalMemory) {
  Card card;
  const uint64_t memory = card.memory.allocate(64);
  try {
    card.run(program("ld.global.u32 %r9, [%rd1+8];"), memory);
    FAIL();
  } catch (const Fault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("a load of 4 bytes at byte 8, which has no value"));
    EXPECT_EQ(fault.kind(), Fault::kUndefined);
  }
}

TEST(Fault, ResultOfAnotherBlock) {
  const std::string body =
      "mov.u32 %r20, %ctaid.x;\nsetp.ne.u32 %p1, %r20, 0;\n@%p1 bra $second;\n"
      "st.global.u32 [%rd3], %r1;\nret;\n$second:\nld.global.u32 %r9, [%rd3];\n";
  EXPECT_THAT(fault_of(body, 64, {.grid = {.x = 2}, .block = {}}),
              HasSubstr("which block 0 of the same launch has written"));
  // With a seed the reader may come first.
  for (const uint64_t seed : {1, 2, 3, 4})
    EXPECT_THAT(fault_of(body, 64, {.grid = {.x = 2}, .block = {}, .seed = seed}),
                ::testing::AnyOf(HasSubstr("which block 0 of the same launch has written"),
                                 HasSubstr("which block 1 of the same launch has read")))
        << seed;
  // Blocks may have bytes beside each other.
  EXPECT_EQ(fault_of("mov.u32 %r20, %ctaid.x;\ncvt.u64.u32 %rd5, %r20;\nadd.s64 %rd6, %rd3, %rd5;\n"
                     "ld.global.u8 %r9, [%rd6];\nst.global.u8 [%rd6], %r9;",
                     64, {.grid = {.x = 4}, .block = {}}),
            "none");
  EXPECT_THAT(fault_of("st.global.u32 [%rd3], %r1;", 64, {.grid = {.x = 2}, .block = {}}),
              HasSubstr("which block 0 of the same launch has written"));
}

// Block 0 reads, and block 1 writes.
std::string read_before(const std::string& read, const std::string& write) {
  return "mov.u32 %r20, %ctaid.x;\nsetp.ne.u32 %p1, %r20, 0;\n@%p1 bra $second;\n.loc 1 12 3\n" +
         read + "\nret;\n$second:\n.loc 1 34 3\n" + write;
}

TEST(Fault, WhatAnotherBlockHasRead) {
  const auto fault = [](const std::string& read, const std::string& write) {
    return fault_of(read_before(read, write), 64, {.grid = {.x = 2}, .block = {}});
  };
  const auto names_both = [](const std::string& what) {
    return AllOf(HasSubstr("f, line 34 (PTX line "), HasSubstr("block [1,0,0]"),
                 HasSubstr(what + ", which block 0 of the same launch has read at line 12"));
  };
  const std::string store = "st.global.u32 [%rd3], %r1;", load = "ld.global.u32 %r9, [%rd3];";
  EXPECT_THAT(fault(load, store), names_both("a store of 4 bytes at byte 0"));
  EXPECT_THAT(fault("ld.global.nc.u32 %r9, [%rd3];", store),
              names_both("a store of 4 bytes at byte 0"));
  EXPECT_THAT(fault("ld.global.u8 %r9, [%rd3+2];", store),
              names_both("a store of 4 bytes at byte 0"));
  EXPECT_THAT(fault(load, "st.global.u16 [%rd3+2], 1;"),
              names_both("a store of 2 bytes at byte 2"));
  EXPECT_THAT(fault(load, "red.global.add.u32 [%rd3], 1;"),
              names_both("an atomic of 4 bytes at byte 0"));
  EXPECT_THAT(fault("cp.async.ca.shared.global [%r2], [%rd3], 4, 4;\ncp.async.wait_all;", store),
              names_both("a store of 4 bytes at byte 0"));
  // What the other block has written is named with its line, too.
  EXPECT_THAT(fault(store, load),
              AllOf(HasSubstr("f, line 34"), HasSubstr("block 0 of the same launch has written at "
                                                       "line 12")));
  // Other bytes of a word, and a block that writes what it has read itself.
  EXPECT_EQ(fault("ld.global.u8 %r9, [%rd3];", "st.global.u8 [%rd3+1], 1;"), "none");
  EXPECT_EQ(fault("", load + store), "none");
  // A block that has read before it is no excuse for the one that reads later.
  EXPECT_THAT(
      fault_of(load + "\nmov.u32 %r20, %ctaid.x;\nsetp.ne.u32 %p1, %r20, 2;\n@%p1 ret;\n" + store,
               64, {.grid = {.x = 3}, .block = {}}),
      HasSubstr("which block 0 of the same launch has read"));
}

TEST(Fault, ALaterLaunchMayWriteWhatAnEarlierOneHasRead) {
  Card card;
  const uint64_t memory = card.upload(std::vector<uint32_t>(64));
  card.run(program(std::string(kPlaces) + "ld.global.u32 %r9, [%rd3];", kShared), memory,
           {.grid = {.x = 2}, .block = {.x = 64}, .number = 1});
  card.run(program(std::string(kPlaces) + "st.global.u32 [%rd3], %r1;", kShared), memory,
           {.grid = {}, .block = {.x = 64}, .number = 2});
}

TEST(Fault, Barriers) {
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 40;\n@%p1 bar.sync 0;"),
              HasSubstr("some threads wait at a barrier that others of their warp miss"));
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $out;\nbar.sync 0;\n$out:"),
              HasSubstr("1 of 2 warps wait, the others have ended"));
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $first;\nbar.sync 0;\nret;\n"
                       "$first:\nbar.sync 0;"),
              HasSubstr("different barriers"));
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 7;\n@%p1 ret;\n"
                       "shfl.sync.bfly.b32 %r4|%p2, %r1, 1, 31, -1;",
                       32),
              HasSubstr("which is not here"));
}

TEST(Fault, AProgramWithoutAnEnd) {
  EXPECT_THAT(
      fault_of("$again:\nbra.uni $again;", 32, {.grid = {}, .block = {}, .most_steps = 1000}),
      HasSubstr("1000 instructions of a warp without an end"));
}

// 16 bytes per thread from memory to `buffer`.
std::string copies(const std::string& wait, const std::string& bytes = "16, 16") {
  return "shl.b32 %r10, %r1, 4;\nadd.s32 %r11, %r5, %r10;\ncvt.u64.u32 %rd5, %r10;\n"
         "add.s64 %rd6, %rd1, %rd5;\n"
         "cp.async.cg.shared.global [%r11], [%rd6], " +
         bytes +
         ";\ncp.async.commit_group;\n"
         "cp.async.commit_group;\n" +
         wait + "ld.shared.u32 %r9, [%r11];\ncp.async.wait_all;";
}

TEST(Fault, AsynchronousCopies) {
  const auto run = [](const std::string& body) {
    Card card;
    const uint64_t memory = card.upload(std::vector<uint32_t>(128, 7));
    try {
      card.run(program(kPlaces + body, kShared), memory, {.grid = {}, .block = {.x = 32}});
    } catch (const Fault& fault) {
      return std::string(fault.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(run(copies("cp.async.wait_group 1;\n")), "none");
  EXPECT_THAT(run(copies("")), HasSubstr("which has no value"));
  EXPECT_THAT(run(copies("cp.async.wait_group 2;\n")), HasSubstr("which has no value"));
  EXPECT_THAT(run(copies("cp.async.wait_all;\n", "12, 12")), HasSubstr("cp.async of 12 bytes"));
  EXPECT_THAT(run(copies("cp.async.wait_all;\n", "8, 8")), HasSubstr("cp.async of 8 bytes"));
  EXPECT_THAT(
      run("setp.eq.u32 %p1, %r1, 0;\n@%p1 cp.async.cg.shared.global [%r5], [%rd1], 16, 16;"),
      HasSubstr("a thread ends while its cp.async"));
  // A part that is not read becomes 0, and its source may lie outside.
  EXPECT_EQ(run(copies("cp.async.wait_all;\n", "16, 4")), "none");
}

TEST(Fault, RegistersWithoutAValue) {
  const std::string store = "\nst.global.u32 [%rd3], %r9;";
  EXPECT_THAT(fault_of(".loc 1 42 3\nst.global.u32 [%rd3], %r20;"),
              AllOf(HasSubstr("line 42"), HasSubstr("st.global.u32"),
                    HasSubstr("register %r20 has no value in thread 0")));
  EXPECT_THAT(
      fault_of(".loc 1 42 3\nadd.s32 %r21, %r20, 1;\n.loc 1 43 3\nadd.s32 %r9, %r21, %r1;" + store),
      HasSubstr("register %r9 has no value in thread 0, since register %r20 has none at line 42"));
  EXPECT_THAT(fault_of("ld.global.u32 %r9, [%rd20];"), HasSubstr("register %rd20 has no value"));
  EXPECT_THAT(fault_of("@%p7 add.s32 %r9, %r1, 1;"),
              HasSubstr("predicate %p7 has no value in thread 0"));
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r20, 1;\n@%p1 bra $out;\n$out:"),
              HasSubstr("predicate %p1 has no value in thread 0, since register %r20 has none"));
  // Written by some threads only.
  const std::string some = "setp.ne.u32 %p1, %r1, 5;\n@%p1 mov.u32 %r20, 1;\n";
  EXPECT_THAT(fault_of(some + "add.s32 %r9, %r20, 1;" + store),
              HasSubstr("register %r9 has no value in thread 5, since register %r20 has none"));
  EXPECT_EQ(fault_of(some + "@%p1 add.s32 %r9, %r20, 1;\n@%p1 st.global.u32 [%rd3], %r9;"), "none");
  // Registers do not keep values from block to block.
  EXPECT_THAT(fault_of("mov.u32 %r21, %ctaid.x;\nsetp.eq.u32 %p1, %r21, 0;\n@%p1 mov.u32 %r20, 1;\n"
                       "setp.eq.u32 %p2, %r20, 0;\n@%p2 bra $out;\n$out:",
                       32, {.grid = {.x = 2}, .block = {}}),
              HasSubstr("block [1,0,0], warp 0: predicate %p2 has no value"));
}

// A compiler may compute with them where the result does not depend on it.
TEST(Fault, RegistersWithoutAValueThatDoNotMatter) {
  const std::string store = "\nst.global.u32 [%rd3], %r9;";
  EXPECT_EQ(fault_of("setp.lt.u32 %p1, %r1, 64;\nselp.b32 %r9, %r1, %r20, %p1;" + store), "none");
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 63;\nselp.b32 %r9, %r1, %r20, %p1;" + store),
              HasSubstr("register %r9 has no value in thread 63, since register %r20 has none"));
  const auto join = [&](const std::string& operation, const std::string& other) {
    return fault_of("setp.lt.u32 %p1, %r1, 64;\nsetp.eq.u32 %p2, %r20, 0;\n" + operation +
                    ".pred %p3, " + other + "%p1, %p2;\n@%p3 bra $out;\n$out:");
  };
  EXPECT_EQ(join("or", ""), "none");
  EXPECT_EQ(join("and", "!"), "none");
  EXPECT_THAT(join("and", ""), HasSubstr("predicate %p3 has no value"));
  EXPECT_THAT(join("or", "!"), HasSubstr("predicate %p3 has no value"));
  EXPECT_THAT(join("xor", ""), HasSubstr("predicate %p3 has no value"));
  EXPECT_EQ(
      fault_of(
          "setp.lt.u32 %p1, %r1, 64;\nsetp.eq.or.u32 %p3, %r20, 0, %p1;\n@%p3 bra $out;\n$out:"),
      "none");
}

// As of text that NVRTC makes for sm_100: dp2a uses two bytes of the four.
TEST(Fault, BytesWithoutAValueThatDoNotMatter) {
  const std::string begin =
      "prmt.b32 %r21, %r20, %r20, 0x3340;\nprmt.b32 %r22, %r1, %r21, 0x5410;\n";
  const std::string store = "\nst.global.u32 [%rd3], %r9;";
  EXPECT_EQ(fault_of(begin + "dp2a.lo.u32.u32 %r9, %r1, %r22, %r1;" + store), "none");
  EXPECT_THAT(fault_of(begin + "dp2a.hi.u32.u32 %r9, %r1, %r22, %r1;" + store),
              HasSubstr("register %r9 has no value in thread 0, since register %r20 has none"));
  EXPECT_THAT(fault_of(begin + "add.u32 %r9, %r22, 1;" + store), HasSubstr("has no value"));
  const std::string halves =
      "cvt.u16.u32 %rs1, %r1;\ncvt.u16.u32 %rs2, %r20;\nmov.b32 %r22, {%rs1, %rs2};\n";
  EXPECT_EQ(fault_of(halves + "dp2a.lo.u32.u32 %r9, %r1, %r22, %r1;" + store), "none");
  EXPECT_THAT(fault_of(halves + "dp2a.hi.u32.u32 %r9, %r1, %r22, %r1;" + store),
              HasSubstr("register %r9 has no value in thread 0, since register %r20 has none"));
}

// As of text that NVRTC makes of a pair of which one number is used.
TEST(Fault, HalfOfAPairWithoutAValueThatDoesNotMatter) {
  const std::string store = "\nst.global.u32 [%rd3], %r9;";
  EXPECT_EQ(fault_of("mov.b64 %rd9, {%r1, %r20};\ncvt.u32.u64 %r9, %rd9;" + store), "none");
  EXPECT_THAT(fault_of("mov.b64 %rd9, {%r20, %r1};\ncvt.u32.u64 %r9, %rd9;" + store),
              HasSubstr("register %r9 has no value in thread 0, since register %r20 has none"));
  EXPECT_THAT(fault_of("mov.b64 %rd9, {%r1, %r20};\nadd.s64 %rd9, %rd9, 1;\n"
                       "cvt.u32.u64 %r9, %rd9;" +
                       store),
              HasSubstr("has no value"));
}

// What half of the lanes wrote says nothing of the others.
TEST(Fault, BytesWithoutAValueOfOtherLanes) {
  const std::string text =
      "prmt.b32 %r22, %r20, %r20, 0x3210;\nsetp.lt.u32 %p1, %r1, 16;\n"
      "@%p1 prmt.b32 %r22, %r1, %r20, 0x7610;\ndp2a.lo.u32.u32 %r9, %r1, %r22, %r1;"
      "\nst.global.u32 [%rd3], %r9;";
  EXPECT_THAT(fault_of(text), HasSubstr("register %r9 has no value in thread 16"));
}

TEST(Fault, VectorsOf32Bytes) {
  const std::string load =
      "shl.b32 %r10, %r1, 5;\ncvt.u64.u32 %rd5, %r10;\nadd.s64 %rd6, %rd1, %rd5;\n"
      "ld.global.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd6";
  EXPECT_EQ(fault_of("setp.lt.u32 %p1, %r1, 8;\n@!%p1 ret;\n" + load + "];"), "none");
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 7;\n@!%p1 ret;\n" + load + "+16];"),
              HasSubstr("a load of 32 bytes at byte 16, which is not a multiple of it"));
}

TEST(Fault, ThreadsOfAWarpThatStoreDifferentValuesAtOneAddress) {
  EXPECT_THAT(fault_of("st.global.u32 [%rd1], %r1;"),
              HasSubstr("threads 0 and 1 store different values at one address"));
  EXPECT_EQ(fault_of("mov.u32 %r9, 3;\nst.global.u32 [%rd1], %r9;"), "none");
  EXPECT_THAT(
      fault_of("and.b32 %r10, %r6, 124;\nxor.b32 %r10, %r10, 64;\nsetp.eq.u32 %p1, %r1, 9;\n"
               "@%p1 mov.u32 %r10, 0;\ncvt.u64.u32 %rd5, %r10;\nadd.s64 %rd6, %rd1, %rd5;\n"
               "st.global.u32 [%rd6], %r1;"),
      HasSubstr("threads 9 and 16 store different values at one address"));
  EXPECT_THAT(fault_of("st.shared.u32 [%r5], %r1;"), HasSubstr("without a barrier between"));
}

TEST(Fault, LoadsByNcOfWhatTheLaunchWrites) {
  EXPECT_EQ(fault_of("ld.global.nc.u32 %r9, [%rd3];"), "none");
  EXPECT_THAT(fault_of("st.global.u32 [%rd3], %r1;\nld.global.nc.u32 %r9, [%rd3];"),
              HasSubstr("a load by .nc at byte 0, which the same launch has written"));
}

TEST(Fault, NamesFunctionLineBlockAndWarp) {
  EXPECT_THAT(fault_of(".loc 1 77 3\nst.global.u32 [%rd3+4], %r1;"),
              AllOf(HasSubstr("f, line 77 (PTX line "),
                    HasSubstr("st.global.u32), block [0,0,0], warp 1")));
}

}  // namespace
}  // namespace anneal::ptx
