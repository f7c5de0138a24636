// Each instruction computes what the PTX manual says, and lanes that part meet again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/tests/virtual_card/run_text.h"

namespace anneal::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One thread stores what `body` leaves in %r9.
uint32_t word_of(const std::string& body, Arithmetic arithmetic = {}) {
  Card card;
  card.arithmetic = arithmetic;
  const uint64_t result = card.upload(std::vector<uint32_t>{0});
  card.run(program(body + "\nst.global.u32 [%rd1], %r9;"), result, {.grid = {}, .block = {}});
  return card.download<uint32_t>(result)[0];
}
uint64_t long_of(const std::string& body) {
  Card card;
  const uint64_t result = card.upload(std::vector<uint64_t>{0});
  card.run(program(body + "\nst.global.u64 [%rd1], %rd9;"), result, {.grid = {}, .block = {}});
  return card.download<uint64_t>(result)[0];
}
std::string bits(float value) { return fmt::format("0f{:08X}", std::bit_cast<uint32_t>(value)); }
float float_of(const std::string& body, Arithmetic arithmetic = {}) {
  return std::bit_cast<float>(word_of(body + "\nmov.b32 %r9, %f9;", arithmetic));
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Ptx, Integers) {
  EXPECT_EQ(word_of("mul.hi.s32 %r9, -2, 2147483647;"), 0xffffffff);
  EXPECT_EQ(word_of("mul.hi.u32 %r9, 4294967295, 4294967295;"), 0xfffffffe);
  EXPECT_EQ(long_of("mul.wide.s32 %rd9, -3, 5;"), static_cast<uint64_t>(-15));
  EXPECT_EQ(long_of("mul.wide.u32 %rd9, 4294967295, 2;"), 0x1fffffffeu);
  EXPECT_EQ(long_of("mul.hi.u64 %rd9, -1, -1;"), ~uint64_t{0} - 1);
  EXPECT_EQ(word_of("rem.s32 %r9, -7, 3;"), static_cast<uint32_t>(-1));
  EXPECT_EQ(word_of("div.s32 %r9, -7, 3;"), static_cast<uint32_t>(-2));
  EXPECT_EQ(word_of("div.u32 %r9, 7, 0;"), 0xffffffff);
  EXPECT_EQ(word_of("shl.b32 %r9, 1, 31;"), 0x80000000);
  EXPECT_EQ(word_of("shl.b32 %r9, 1, 32;"), 0u);
  EXPECT_EQ(word_of("shr.s32 %r9, -8, 1;"), static_cast<uint32_t>(-4));
  EXPECT_EQ(word_of("shr.s32 %r9, -8, 99;"), 0xffffffff);
  EXPECT_EQ(word_of("shr.u32 %r9, -8, 99;"), 0u);
  EXPECT_EQ(word_of("prmt.b32 %r9, 0x33221100, 0x77665544, 0x7250;"), 0x77225500u);
  EXPECT_EQ(word_of("prmt.b32 %r9, 0x33221180, 0, 0x8888;"), 0xffffffff);
  EXPECT_EQ(word_of("lop3.b32 %r9, 0x12345678, 0x0000f0f0, 0x4b400000, 0xea;"), 0x4b405070u);
  EXPECT_EQ(word_of("lop3.b32 %r9, 0x12345678, 0x0ff00ff0, 0x00ffff00, 0x96;"), 0x1d3ba688u);
  EXPECT_EQ(word_of("bfi.b32 %r9, 0xff, 0, 4, 3;"), 0x70u);
  EXPECT_EQ(word_of("bfe.s32 %r9, 0x70, 4, 3;"), 0xffffffff);
  EXPECT_EQ(word_of("bfe.u32 %r9, 0x70, 4, 3;"), 7u);
  EXPECT_EQ(word_of("dp4a.s32.s32 %r9, 0x01ff0203, 0x02020304, 10;"), 10u + 12 + 6 - 2 + 2);
  EXPECT_EQ(word_of("dp2a.lo.s32.s32 %r9, 0xffff0002, 0x00000503, 1;"), 1u + 6 - 5);
  EXPECT_EQ(word_of("clz.b32 %r9, 0x00ffffff;"), 8u);
  EXPECT_EQ(word_of("mov.u64 %rd2, 0;\nclz.b64 %r9, %rd2;"), 64u);
  EXPECT_EQ(word_of("popc.b32 %r9, 0x80000003;"), 3u);
  EXPECT_EQ(word_of("shf.l.wrap.b32 %r9, 0x89abcdef, 0x01234567, 40;"), 0x23456789u);
  EXPECT_EQ(word_of("shf.l.clamp.b32 %r9, 0x89abcdef, 0x01234567, 40;"), 0x89abcdefu);
  EXPECT_EQ(word_of("shf.r.wrap.b32 %r9, 0x89abcdef, 0x01234567, 8;"), 0x6789abcdu);
  EXPECT_EQ(word_of("shf.r.clamp.b32 %r9, 0x89abcdef, 0x01234567, 32;"), 0x01234567u);
  EXPECT_EQ(word_of("min.s32 %r9, -1, 1;"), 0xffffffff);
  EXPECT_EQ(word_of("min.u32 %r9, -1, 1;"), 1u);
  EXPECT_EQ(long_of("cvt.s64.s32 %rd9, -5;"), static_cast<uint64_t>(-5));
  EXPECT_EQ(long_of("cvt.u64.u32 %rd9, -5;"), 0xfffffffbu);
  EXPECT_EQ(word_of("mov.u32 %r1, 0x1fffd;\ncvt.s32.s16 %r9, %r1;"), 0xfffffffdu);
  EXPECT_EQ(word_of("mov.u32 %r1, 0x1fffd;\ncvt.u32.u16 %r9, %r1;"), 0xfffdu);
  EXPECT_EQ(long_of("mov.u32 %r1, 0x1fffd;\ncvt.s64.s16 %rd9, %r1;"), ~uint64_t{2});
  EXPECT_EQ(long_of("mov.u64 %rd2, 0x1fffd;\ncvt.u64.u16 %rd9, %rd2;"), 0xfffdu);
  EXPECT_EQ(word_of("cvt.s32.s8 %r9, %r1;"), 0u);
  EXPECT_EQ(word_of("mov.u32 %r2, 0x1280;\ncvt.s32.s8 %r9, %r2;"), 0xffffff80);
  EXPECT_EQ(word_of("cvt.s8.s32 %rs1, 0x1280;\ncvt.u32.u16 %r9, %rs1;"), 0xff80u);
  EXPECT_EQ(word_of("cvt.u8.u32 %rs1, 0x1280;\ncvt.u32.u16 %r9, %rs1;"), 0x80u);
  EXPECT_EQ(word_of("cvt.s8.s64 %r9, -2;"), 0xfffffffe);
}

// 128 bits of four words, as NVRTC's own functions compute with them.
TEST(Ptx, IntegersOfSeveralWords) {
  EXPECT_EQ(word_of("mov.u32 %r2, 0xffffffff;\nadd.cc.u32 %r3, %r2, 1;\naddc.cc.u32 %r4, %r2, 0;\n"
                    "addc.u32 %r9, 5, 6;"),
            12u);
  EXPECT_EQ(
      word_of("mov.u32 %r2, 0xffffffff;\nadd.cc.u32 %r3, %r2, 1;\naddc.cc.u32 %r9, %r2, %r2;"),
      0xffffffffu);
  EXPECT_EQ(word_of("mov.u32 %r2, 3;\nsub.cc.u32 %r3, %r2, 4;\nsubc.cc.u32 %r4, 0, 0;\n"
                    "subc.u32 %r9, 9, 1;"),
            7u);
  EXPECT_EQ(word_of("mov.u32 %r2, 3;\nsub.cc.u32 %r3, %r2, 3;\nsubc.u32 %r9, 9, 1;"), 8u);
  // 0x12345678_9abcdef0 squared: its second, third and fourth word.
  const std::string squared =
      "mov.u32 %r2, 0x9abcdef0;\nmov.u32 %r3, 0x12345678;\nmul.hi.u32 %r5, %r2, %r2;\n"
      "mad.lo.cc.u32 %r5, %r2, %r3, %r5;\nmadc.hi.u32 %r6, %r2, %r3, 0;\n"
      "mad.lo.cc.u32 %r5, %r3, %r2, %r5;\nmadc.hi.cc.u32 %r6, %r3, %r2, %r6;\n"
      "madc.hi.u32 %r7, %r3, %r3, 0;\nmad.lo.cc.u32 %r6, %r3, %r3, %r6;\n"
      "addc.u32 %r7, %r7, 0;\nmov.u32 %r9, ";
  const auto whole = static_cast<unsigned __int128>(0x123456789abcdef0) * 0x123456789abcdef0;
  for (int word = 1; word < 4; ++word)
    EXPECT_EQ(word_of(fmt::format("{}%r{};", squared, 4 + word)),
              static_cast<uint32_t>(whole >> 32 * word));
  EXPECT_EQ(word_of("mov.u32 %r2, 0;\nadd.cc.u32 %r3, %r2, %r2;\nmadc.hi.s32 %r9, -1, 5, 0;"),
            0xffffffffu);
  // Each lane has its carry.
  Card card;
  const uint64_t result = card.upload(std::vector<uint32_t>(32));
  card.run(program("mov.u32 %r2, 0xfffffff0;\nadd.cc.u32 %r3, %r2, %r1;\naddc.u32 %r5, 0, 0;\n"
                   "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                   "st.global.u32 [%rd3], %r5;"),
           result, {.grid = {}, .block = {.x = 32}});
  EXPECT_EQ(card.download<uint32_t>(result)[15], 0u);
  EXPECT_EQ(card.download<uint32_t>(result)[16], 1u);
}

TEST(Ptx, Floats) {
  const float tiny = std::bit_cast<float>(1u);  // subnormal: kept without ftz
  EXPECT_EQ(float_of("add.rn.f32 %f9, " + bits(tiny) + ", " + bits(tiny) + ";"), 2 * tiny);
  // 1 + 2^-24 is between two floats.
  const std::string almost = bits(1) + ", " + bits(1) + ", " + bits(0x1p-24F) + ";";
  EXPECT_EQ(float_of("fma.rn.f32 %f9, " + almost), 1);
  EXPECT_EQ(float_of("fma.rm.f32 %f9, " + almost), 1);
  EXPECT_EQ(float_of("fma.rp.f32 %f9, " + almost), 1 + 0x1p-23F);
  EXPECT_EQ(float_of("fma.rz.f32 %f9, " + bits(-1) + ", " + bits(1) + ", " + bits(-0x1p-24F) + ";"),
            -1);
  for (const auto& [rounding, sum, product] : {std::tuple{"rn", 1.F, 1.F + 0x1p-22F},
                                               {"rm", 1.F, 1.F + 0x1p-22F},
                                               {"rz", 1.F, 1.F + 0x1p-22F},
                                               {"rp", 1.F + 0x1p-23F, 1.F + 3 * 0x1p-23F}}) {
    const auto result = [&](const std::string& operation, float a, float b) {
      return float_of(fmt::format("{}.{}.f32 %f9, {}, {};", operation, rounding, bits(a), bits(b)));
    };
    EXPECT_EQ(result("add", 1, 0x1p-24F), sum) << rounding;
    EXPECT_EQ(result("sub", 1, -0x1p-24F), sum) << rounding;
    EXPECT_EQ(result("mul", 1 + 0x1p-23F, 1 + 0x1p-23F), product) << rounding;
    // Zeros of a product have the sign of the product, those of a sum of opposites that of
    // rounding.
    EXPECT_TRUE(std::signbit(result("mul", -0.F, 1))) << rounding;
    EXPECT_FALSE(std::signbit(result("mul", 0.F, 1))) << rounding;
    EXPECT_EQ(std::signbit(result("add", 1, -1)), rounding == std::string("rm")) << rounding;
  }
  EXPECT_EQ(long_of("mov.f64 %fd1, 0d3FF0000000000000;\nmov.f64 %fd2, 0d3CA0000000000000;\n"
                    "add.rp.f64 %fd3, %fd1, %fd2;\nmov.b64 %rd9, %fd3;"),
            0x3ff0000000000001u);
  EXPECT_EQ(float_of("min.f32 %f9, " + bits(kNan) + ", " + bits(2) + ";"), 2);
  EXPECT_TRUE(std::signbit(float_of("min.f32 %f9, " + bits(0.0F) + ", " + bits(-0.0F) + ";")));
  EXPECT_FALSE(std::signbit(float_of("max.f32 %f9, " + bits(-0.0F) + ", " + bits(0.0F) + ";")));
  EXPECT_EQ(word_of("add.rn.f32 %f9, " + bits(kInfinity) + ", " + bits(-kInfinity) +
                    ";\nmov.b32 %r9, %f9;"),
            0x7fffffffu);
  EXPECT_EQ(float_of("copysign.f32 %f9, " + bits(-1) + ", " + bits(3) + ";"), -3);
  EXPECT_EQ(float_of("cvt.sat.f32.f32 %f9, " + bits(kNan) + ";"), 0);
  EXPECT_EQ(float_of("cvt.sat.f32.f32 %f9, " + bits(1.5F) + ";"), 1);
  for (const auto& [value, even, zero, down, up] : {std::tuple{2.5F, 2.F, 2.F, 2.F, 3.F},
                                                    {-2.5F, -2.F, -2.F, -3.F, -2.F},
                                                    {3.5F, 4.F, 3.F, 3.F, 4.F}}) {
    EXPECT_EQ(float_of("cvt.rni.f32.f32 %f9, " + bits(value) + ";"), even);
    EXPECT_EQ(float_of("cvt.rzi.f32.f32 %f9, " + bits(value) + ";"), zero);
    EXPECT_EQ(float_of("cvt.rmi.f32.f32 %f9, " + bits(value) + ";"), down);
    EXPECT_EQ(float_of("cvt.rpi.f32.f32 %f9, " + bits(value) + ";"), up);
  }
  EXPECT_EQ(word_of("cvt.rzi.s32.f32 %r9, " + bits(kNan) + ";"), 0u);
  EXPECT_EQ(word_of("cvt.rzi.s32.f32 %r9, " + bits(3e9F) + ";"), 0x7fffffffu);
  EXPECT_EQ(word_of("cvt.rzi.s32.f32 %r9, " + bits(-3e9F) + ";"), 0x80000000u);
  EXPECT_EQ(word_of("cvt.rzi.u32.f32 %r9, " + bits(-3) + ";"), 0u);
  EXPECT_EQ(word_of("cvt.rzi.u32.f32 %r9, " + bits(4e9F) + ";"), 4000000000u);
  EXPECT_EQ(word_of("cvt.rn.f16.f32 %rs1, " + bits(65520) + ";\ncvt.u32.u16 %r9, %rs1;"), 0x7c00u);
  EXPECT_EQ(word_of("cvt.rn.bf16.f32 %rs1, " + bits(1 + 0x1p-8F) + ";\ncvt.u32.u16 %r9, %rs1;"),
            0x3f80u);
}

TEST(Ptx, ApproximationsStayWithinTheManualsBounds) {
  for (const int ulps : {-9, 0, 9})
    for (const float value : {-125.5F, -1.25F, 0.F, 0.1F, 1.F, 10.75F, 127.F}) {
      const float got = float_of("ex2.approx.ftz.f32 %f9, " + bits(value) + ";",
                                 {.tensor_sums = TensorSums::kExact, .approximate_ulps = ulps});
      // 2 units from the nearest float.
      EXPECT_NEAR(got / std::exp2(double{value}), 1, 2.5 * 0x1p-23) << value << " " << ulps;
    }
  EXPECT_EQ(float_of("ex2.approx.ftz.f32 %f9, " + bits(-150) + ";"), 0);
  EXPECT_EQ(float_of("ex2.approx.f32 %f9, " + bits(-149) + ";"), 0x1p-149F) << "without ftz";
  const auto quotient = [](float a, float b, int ulps) {
    return float_of("div.approx.ftz.f32 %f9, " + bits(a) + ", " + bits(b) + ";",
                    {.tensor_sums = TensorSums::kExact, .approximate_ulps = ulps});
  };
  EXPECT_EQ(quotient(3, -2, 0), -1.5F);
  EXPECT_EQ(quotient(3, -2, 9), -1.5F + 2 * 0x1p-23F);
  EXPECT_EQ(quotient(3, 0x1p127F, 0), 0) << "the manual's range of the divisor ends at 2^126";
  EXPECT_TRUE(std::isnan(quotient(kInfinity, 0x1p127F, 0)));
  EXPECT_EQ(quotient(3, kInfinity, 0), 0);
  const auto coarse = [](const std::string& opcode, double of) {
    return std::bit_cast<double>(
        long_of(fmt::format("mov.f64 %fd1, 0d{:016X};\n{} %fd2, %fd1;\n"
                            "mov.b64 %rd9, %fd2;",
                            std::bit_cast<uint64_t>(of), opcode)));
  };
  for (const double value : {3.0, -0.7, 1e200}) {
    const double got = coarse("rcp.approx.ftz.f64", value);
    EXPECT_NEAR(got * value, 1, 0x1p-18);
    EXPECT_EQ(std::bit_cast<uint64_t>(got) & 0xffffffff, 0u);
  }
  EXPECT_NEAR(coarse("rsqrt.approx.ftz.f64", 2), std::sqrt(0.5), 0x1p-18);
  EXPECT_EQ(coarse("rcp.approx.ftz.f64", 1e-310), kInfinity) << "a subnormal number counts as 0";
  EXPECT_EQ(float_of("rcp.approx.ftz.f32 %f9, " + bits(-0.0F) + ";"), -kInfinity);
}

TEST(Ptx, Comparisons) {
  const auto is = [](const std::string& word, float a, float b) {
    return word_of("setp." + word + ".f32 %p1, " + bits(a) + ", " + bits(b) +
                   ";\nselp.u32 %r9, 1, 0, %p1;") != 0;
  };
  EXPECT_TRUE(is("lt", 1, 2) && is("le", 2, 2) && is("ne", 1, 2) && is("geu", 1, kNan) &&
              is("nan", kNan, 1) && is("num", 1, 2) && is("equ", kNan, kNan));
  EXPECT_FALSE(is("ne", kNan, 1) || is("ge", kNan, 1) || is("eq", kNan, kNan) ||
               is("num", 1, kNan) || is("ltu", 2, 1));
  EXPECT_EQ(word_of("setp.gt.s32 %p1, 2, 1;\nsetp.eq.and.s32 %p2, 1, 1, !%p1;\n"
                    "selp.u32 %r9, 1, 0, %p2;"),
            0u);
}

// Thread i loops i times, and all meet at the exchange.
TEST(Ptx, LanesMeetAfterLoopsOfDifferentLength) {
  Card card;
  const uint64_t result = card.upload(std::vector<uint32_t>(32));
  card.run(program("mov.u32 %r2, 0;\nmov.u32 %r3, 0;\n"
                   "$loop:\nsetp.ge.u32 %p1, %r2, %r1;\n@%p1 bra $done;\n"
                   "add.s32 %r3, %r3, 2;\nadd.s32 %r2, %r2, 1;\nbra.uni $loop;\n"
                   "$done:\nshfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;\n"
                   "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                   "st.global.u32 [%rd3], %r4;"),
           result, {.grid = {}, .block = {.x = 32}});
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(card.download<uint32_t>(result)[i], 2 * (i ^ 1)) << i;
}

// Half of the lanes branch to instructions that follow the exchange in the text.
TEST(Ptx, LanesWaitForOthersWhoseWayLiesBehind) {
  Card card;
  const uint64_t result = card.upload(std::vector<uint32_t>(32));
  card.run(program("and.b32 %r2, %r1, 1;\nsetp.eq.u32 %p1, %r2, 0;\nmov.u32 %r3, %r1;\n"
                   "@%p1 bra $far;\n"
                   "$meet:\nshfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;\n"
                   "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                   "st.global.u32 [%rd3], %r4;\nret;\n"
                   "$far:\nadd.s32 %r3, %r3, 100;\nbra.uni $meet;"),
           result, {.grid = {}, .block = {.x = 32}});
  EXPECT_EQ(card.download<uint32_t>(result)[0], 1u);
  EXPECT_EQ(card.download<uint32_t>(result)[1], 100u);
}

TEST(Ptx, ModulesHaveVariables) {
  Card card;
  const uint64_t table = card.upload(std::vector<uint8_t>{3, 1, 4, 1});
  const TextModule module = parse(program("", ".global .align 4 .b8 digits[4] = {3, 1, 4, 1};\n"));
  ASSERT_EQ(module.global.size(), 1u);
  EXPECT_EQ(module.global[0].values[2], std::byte{4});
  const TextModule reads =
      parse(program("mov.u64 %rd2, digits;\nld.global.u8 %r2, [%rd2+2];\n"
                    "st.global.u8 [%rd1], %r2;"));
  const Function function = decode(reads, reads.functions[0], {{"digits", table}});
  const uint64_t result = card.upload(std::vector<uint8_t>{0});
  run(function, reinterpret_cast<const std::byte*>(&result), {}, card.memory);
  EXPECT_THAT(card.download<uint8_t>(result), ElementsAre(4));
}

// As NVRTC calls the slow part of a sine in f64. Odd threads get their number times 3, and the
// others 100 more, by a call in each way of a branch; registers and labels of the function are its
// own.
TEST(Ptx, CallsOfFunctions) {
  const std::string head =
      ".func (.param .align 8 .b8 func_retval0[8]) times\n(\n.param .b32 times_param_0,\n"
      ".param .b32 times_param_1\n)";
  const auto call = [](const std::string& factor) {
    return "{ // callseq 0, 0\n.reg .b32 temp_param_reg;\n.param .b32 param0;\n"
           "st.param.b32 [param0+0], %r1;\n.param .b32 param1;\nst.param.b32 [param1+0], " +
           factor +
           ";\n.param .align 8 .b8 retval0[8];\n"
           "call.uni (retval0),\ntimes,\n(\nparam0,\nparam1\n);\n"
           "ld.param.b32 %r3, [retval0+4];\n}\n";
  };
  std::string text = program("and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $L_1;\n" +
                                 call("3") + "bra.uni $L_2;\n$L_1:\n" + call("100") +
                                 "$L_2:\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                                 "st.global.u32 [%rd3], %r3;",
                             head + ";");
  text += head +
          "{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n"
          "ld.param.b32 %r1, [times_param_0];\nld.param.b32 %r2, [times_param_1];\n"
          "mul.lo.s32 %r3, %r1, %r2;\nsetp.eq.s32 %p1, %r2, 3;\n@%p1 bra $L_1;\n"
          "add.s32 %r3, %r1, %r2;\nst.param.b32 [func_retval0+4], %r3;\nret;\n"
          "$L_1:\nst.param.b32 [func_retval0+4], %r3;\nret;\n}\n";
  Card card;
  const uint64_t result = card.upload(std::vector<uint32_t>(64));
  card.run(text, result, {.grid = {}, .block = {.x = 64}});
  const auto found = card.download<uint32_t>(result);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(found[i], i % 2 == 1 ? 3 * i : i + 100) << i;
  EXPECT_THROW(parse(program("call.uni nothing;")), Refused);
}

// Each thread has its own.
TEST(Ptx, LocalMemory) {
  Card card;
  const uint64_t result = card.upload(std::vector<uint32_t>(64));
  const std::string begin =
      ".local .align 4 .b8 depot[8];\n.local .align 8 .b8 other[8];\nmov.u64 %rd5, other;\n"
      "st.local.u32 [%rd5+-8], %r1;\nst.local.v2.u16 [depot+4], {%rs1, %rs1};\n"
      "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n";
  card.run(program("mov.u16 %rs1, 7;\n" + begin +
                   "ld.local.u32 %r2, [depot];\nst.global.u32 [%rd3], %r2;"),
           result, {.grid = {}, .block = {.x = 64}});
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(card.download<uint32_t>(result)[i], i);
  const auto fault = [&](const std::string& body) {
    try {
      card.run(program("mov.u16 %rs1, 7;\n" + begin + body), result, {.grid = {}, .block = {}});
    } catch (const Fault& found) {
      return std::string(found.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(fault("ld.local.u32 %r2, [other];"),
              HasSubstr("byte 8 of local memory, which has no"));
  EXPECT_THAT(fault("st.local.u32 [other+8], %r1;"),
              HasSubstr("byte 16 of 16 bytes of local memory"));
  EXPECT_THAT(fault("st.local.u32 [depot+2], %r1;"), HasSubstr("which is not a multiple of it"));
}

// Fragments as the manual lays them out: element (row, column) of a and b, and of the result.
struct Matrices {
  std::vector<float> a = std::vector<float>(16 * 16), b = std::vector<float>(16 * 8),
                     c = std::vector<float>(16 * 8);
};
std::vector<float> product_on_card(const Matrices& m, Arithmetic arithmetic) {
  // By lane: 4 registers of a, 2 of b, 4 of c.
  std::vector<uint32_t> words(32 * 10);
  const auto two = [](float low, float high) {
    return uint32_t{to_f16(high).bits} << 16 | to_f16(low).bits;
  };
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, t = lane % 4;
    const auto a = [&](size_t row, size_t column) {
      return two(m.a[row * 16 + column], m.a[row * 16 + column + 1]);
    };
    uint32_t* const to = &words[lane * 10];
    to[0] = a(g, 2 * t);
    to[1] = a(g + 8, 2 * t);
    to[2] = a(g, 2 * t + 8);
    to[3] = a(g + 8, 2 * t + 8);
    to[4] = two(m.b[2 * t * 8 + g], m.b[(2 * t + 1) * 8 + g]);
    to[5] = two(m.b[(2 * t + 8) * 8 + g], m.b[(2 * t + 9) * 8 + g]);
    for (size_t i = 0; i < 4; ++i)
      to[6 + i] = std::bit_cast<uint32_t>(m.c[(g + i / 2 * 8) * 8 + 2 * t + i % 2]);
  }
  Card card;
  card.arithmetic = arithmetic;
  const uint64_t memory = card.upload(words);
  std::string body = "mul.wide.u32 %rd2, %r1, 40;\nadd.s64 %rd3, %rd1, %rd2;\n";
  for (int i = 0; i < 10; ++i)
    body += fmt::format("ld.global.u32 %r{}, [%rd3+{}];\n", 10 + i, 4 * i);
  for (int i = 0; i < 4; ++i) body += fmt::format("mov.b32 %f{}, %r{};\n", 1 + i, 16 + i);
  body +=
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
      "{%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f2, %f3, %f4};\n";
  for (int i = 0; i < 4; ++i)
    body += fmt::format("st.global.f32 [%rd3+{}], %f{};\n", 24 + 4 * i, 1 + i);
  card.run(program(body), memory, {.grid = {}, .block = {.x = 32}});
  const auto results = card.download<uint32_t>(memory);
  std::vector<float> c(16 * 8);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i)
      c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] =
          std::bit_cast<float>(results[lane * 10 + 6 + i]);
  return c;
}

TEST(Ptx, MatrixProducts) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(-2, 2);
  Matrices m;
  for (auto* const values : {&m.a, &m.b, &m.c})
    for (float& value : *values) value = to_f32(to_f16(numbers(random)));
  std::vector<double> expected(16 * 8);
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      expected[row * 8 + column] = m.c[row * 8 + column];
      for (size_t k = 0; k < 16; ++k)
        expected[row * 8 + column] += double{m.a[row * 16 + k]} * m.b[k * 8 + column];
    }
  const std::vector<float> exact = product_on_card(m, {});
  const std::vector<float> cut = product_on_card(m, {.tensor_sums = TensorSums::kCut});
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(exact[i], static_cast<float>(expected[i])) << i;
    EXPECT_NEAR(cut[i], expected[i], 8 * 17 * 0x1p-24) << i;
  }
  EXPECT_NE(exact, cut);
}

TEST(Ptx, WhatIsMissingIsNamed) {
  const auto refusal = [](const std::string& body) {
    try {
      const TextModule module = parse(program(body));
      decode(module, module.functions[0]);
    } catch (const Refused& refused) {
      return std::string(refused.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal("frob.b32 %r2, %r1;"), HasSubstr("frob.b32: the interpreter does not have"));
  EXPECT_THAT(refusal("add.s32 %r2, %rd1, 1;"), HasSubstr("a register of another width"));
  EXPECT_THAT(refusal("bra $nowhere;"), HasSubstr("there is no such label"));
  EXPECT_THAT(refusal("mov.u32 %r2, %clock;"), HasSubstr("%clock is not implemented"));
}

}  // namespace
}  // namespace anneal::ptx
