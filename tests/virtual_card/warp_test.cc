// Instructions of a warp as a whole: votes, atomic operations, matrix products, mbarriers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/tests/virtual_card/ptx/float8.h"
#include "anneal/tests/virtual_card/run_text.h"

namespace anneal::ptx {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr const char* kShared = ".shared .align 16 .b8 buffer[1024];\n";
// %r5: the address of `buffer`; %rd3: the thread's word of memory, %r3 a copy of it.
constexpr const char* kPlaces =
    "mov.u64 %rd4, buffer;\ncvt.u32.u64 %r5, %rd4;\nmul.wide.u32 %rd2, %r1, 4;\n"
    "add.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r3, [%rd3];\n";

// Each thread has a word of memory and leaves one in %r9.
std::vector<uint32_t> words_of(const std::string& body, std::vector<uint32_t> words,
                               uint64_t seed = 0) {
  Card card;
  const auto threads = static_cast<uint32_t>(words.size());
  const uint64_t memory = card.upload(words);
  card.run(program(kPlaces + body + "\nst.global.u32 [%rd3], %r9;", kShared), memory,
           {.grid = {}, .block = {.x = threads}, .seed = seed});
  return card.download<uint32_t>(memory);
}
std::string fault_of(const std::string& body, uint32_t threads = 32) {
  try {
    words_of(body, std::vector<uint32_t>(threads));
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "none";
}
std::vector<uint32_t> numbers(uint32_t count) {
  std::vector<uint32_t> values(count);
  for (uint32_t i = 0; i < count; ++i) values[i] = i;
  return values;
}

TEST(PtxWarp, Votes) {
  const auto vote = [](const std::string& kind, const std::string& condition) {
    return words_of("setp." + condition + ";\nvote.sync." + kind +
                        ".pred %p2, %p1, -1;\nselp.u32 %r9, 1, 0, %p2;",
                    numbers(32));
  };
  EXPECT_THAT(vote("all", "lt.u32 %p1, %r3, 32"), Each(1u));
  EXPECT_THAT(vote("all", "lt.u32 %p1, %r3, 31"), Each(0u));
  EXPECT_THAT(vote("any", "eq.u32 %p1, %r3, 7"), Each(1u));
  EXPECT_THAT(vote("any", "eq.u32 %p1, %r3, 77"), Each(0u));
  EXPECT_THAT(vote("uni", "eq.u32 %p1, %r3, 77"), Each(1u));
  EXPECT_THAT(vote("uni", "eq.u32 %p1, %r3, 7"), Each(0u));
  EXPECT_THAT(
      words_of("setp.lt.u32 %p1, %r3, 4;\nvote.sync.ballot.b32 %r9, !%p1, -1;", numbers(32)),
      Each(0xfffffff0));
  // Only members count.
  EXPECT_EQ(words_of("mov.u32 %r9, 0;\nsetp.lt.u32 %p1, %r3, 8;\nsetp.eq.u32 %p2, %r3, 3;\n"
                     "@%p1 vote.sync.ballot.b32 %r9, %p2, 0xff;",
                     numbers(32))[5],
            8u);
  EXPECT_EQ(words_of("mov.u32 %r9, 0;\nsetp.lt.u32 %p1, %r3, 8;\n@%p1 activemask.b32 %r9;",
                     numbers(32))[2],
            0xffu);
  EXPECT_THAT(fault_of("setp.lt.u32 %p1, %r1, 8;\nmov.u32 %r9, 0;\n"
                       "@%p1 vote.sync.ballot.b32 %r9, %p1, 0x7f;"),
              HasSubstr("lane 7 votes with the mask 0000007f"));
}

// What `operation` leaves in a word that was 5, and what it gives.
std::pair<uint32_t, uint32_t> update(const std::string& operation, const std::string& operands) {
  Card card;
  const uint64_t memory = card.upload(std::vector<uint32_t>{5, 0});
  card.run(program("atom.global." + operation + " %r9, [%rd1], " + operands +
                   ";\nst.global.u32 [%rd1+4], %r9;"),
           memory, {.grid = {}, .block = {}});
  const auto words = card.download<uint32_t>(memory);
  return {words[0], words[1]};
}

TEST(PtxWarp, AtomicOperations) {
  using Words = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(update("add.u32", "7"), Words(12, 5));
  EXPECT_EQ(update("relaxed.gpu.add.s32", "-7"), Words(0xfffffffe, 5));
  EXPECT_EQ(update("min.s32", "-7"), Words(0xfffffff9, 5));
  EXPECT_EQ(update("min.u32", "-7"), Words(5, 5));
  EXPECT_EQ(update("max.u32", "-7"), Words(0xfffffff9, 5));
  EXPECT_EQ(update("inc.u32", "6"), Words(6, 5));
  EXPECT_EQ(update("inc.u32", "5"), Words(0, 5));
  EXPECT_EQ(update("dec.u32", "9"), Words(4, 5));
  EXPECT_EQ(update("dec.u32", "3"), Words(3, 5));
  EXPECT_EQ(update("and.b32", "4"), Words(4, 5));
  EXPECT_EQ(update("or.b32", "8"), Words(13, 5));
  EXPECT_EQ(update("xor.b32", "1"), Words(4, 5));
  EXPECT_EQ(update("exch.b32", "9"), Words(9, 5));
  EXPECT_EQ(update("cas.b32", "5, 9"), Words(9, 5));
  EXPECT_EQ(update("cas.b32", "4, 9"), Words(5, 5));
  EXPECT_THROW(update("min.f32", "1"), Refused);
  EXPECT_THROW(update("add.b32", "1"), Refused);
}

TEST(PtxWarp, AtomicSumsOfFloatsFlushSubnormalsOnlyInGlobalMemory) {
  const auto tiny = std::bit_cast<uint32_t>(0x1p-149F);
  const auto sum = [&](const std::string& space, const std::string& address) {
    return words_of("st.shared.u32 [%r5], 0;\nmov.b32 %f1, %r3;\nmov.u32 %r9, 0;\natom." + space +
                        ".add.f32 %f2, [" + address + "], %f1;\nld." + space + ".u32 %r9, [" +
                        address + "];",
                    {tiny})[0];
  };
  EXPECT_EQ(sum("global", "%rd1"), 0u);
  EXPECT_EQ(sum("shared", "%r5"), tiny);
}

// All threads add to one word: no race, in one block or in several.
TEST(PtxWarp, AtomicOperationsNeedNoBarrier) {
  for (const uint64_t seed : {0, 1, 2})
    EXPECT_THAT(
        words_of("setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $add;\nst.shared.u32 [%r5], 0;\n$add:\n"
                 "bar.sync 0;\nred.shared.add.u32 [%r5], %r3;\nbar.sync 0;\n"
                 "ld.shared.u32 %r9, [%r5];",
                 numbers(64), seed),
        Each(63u * 64 / 2));
  Card card;
  const uint64_t memory = card.upload(std::vector<uint32_t>{0});
  card.run(program("red.global.add.u32 [%rd1], 1;"), memory,
           {.grid = {.x = 5}, .block = {.x = 64}, .seed = 3});
  EXPECT_EQ(card.download<uint32_t>(memory)[0], 320u);
}

TEST(PtxWarp, AtomicOperationsRaceWithLoadsAndStores) {
  const std::string begin = "st.shared.u32 [%r5+128], %r1;\nmov.u32 %r9, 0;\n";
  EXPECT_THAT(fault_of("setp.ne.u32 %p1, %r1, 0;\nmov.u32 %r9, 0;\n@%p1 bra $add;\n"
                       "st.shared.u32 [%r5], 0;\n$add:\nred.shared.add.u32 [%r5], 1;"),
              HasSubstr("an atomic of 4 bytes at byte 0 of shared memory, which thread 0 uses"));
  EXPECT_THAT(fault_of("setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $add;\nst.shared.u32 [%r5], 0;\n$add:\n"
                       "bar.sync 0;\nred.shared.add.u32 [%r5], 1;\nld.shared.u32 %r9, [%r5];",
                       64),
              HasSubstr("a load of 4 bytes at byte 0 of shared memory"));
  const auto fault_of_blocks = [](const std::string& body, uint32_t blocks) {
    Card card;
    const uint64_t memory = card.upload(std::vector<uint32_t>{0});
    try {
      card.run(program(body), memory, {.grid = {.x = blocks}, .block = {}});
    } catch (const Fault& fault) {
      return std::string(fault.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(
      fault_of_blocks("red.global.add.u32 [%rd1], 1;\nld.global.u32 %r9, [%rd1];", 2),
      HasSubstr("an atomic of 4 bytes at byte 0, which block 0 of the same launch has read"));
  EXPECT_THAT(fault_of_blocks("mov.u32 %r2, %ctaid.x;\nsetp.eq.u32 %p1, %r2, 2;\n"
                              "@!%p1 red.global.add.u32 [%rd1], 1;\n"
                              "@%p1 ld.global.u32 %r9, [%rd1];",
                              3),
              HasSubstr("which several blocks of the same launch have written"));
}

// Fragments as the manual lays them out: which element of a (of b) byte or word `part` of register
// `i` of a lane holds.
struct Element {
  size_t row, column;
};
struct Shape {
  size_t depth, registers_a, registers_b, parts;
  Element (*a)(size_t lane, size_t i, size_t part);
  Element (*b)(size_t lane, size_t i, size_t part);
};
constexpr Shape kBytes = {32,
                          4,
                          2,
                          4,
                          [](size_t lane, size_t i, size_t part) {
                            return Element{lane / 4 + (i == 1 || i == 3 ? 8 : 0),
                                           lane % 4 * 4 + part + (i >= 2 ? 16 : 0)};
                          },
                          [](size_t lane, size_t i, size_t part) {
                            return Element{lane % 4 * 4 + part + (i == 1 ? 16 : 0), lane / 4};
                          }};
constexpr Shape kTf32 = {
    8,
    4,
    2,
    1,
    [](size_t lane, size_t i, size_t) {
      return Element{lane / 4 + (i == 1 || i == 3 ? 8 : 0), lane % 4 + (i >= 2 ? 4 : 0)};
    },
    [](size_t lane, size_t i, size_t) {
      return Element{lane % 4 + (i == 1 ? 4 : 0), lane / 4};
    }};
constexpr Shape kTf32Short = {4,
                              2,
                              1,
                              1,
                              [](size_t lane, size_t i, size_t) {
                                return Element{lane / 4 + 8 * i, lane % 4};
                              },
                              [](size_t lane, size_t, size_t) {
                                return Element{lane % 4, lane / 4};
                              }};
constexpr Shape kHalves = {
    16,
    4,
    2,
    2,
    [](size_t lane, size_t i, size_t part) {
      return Element{lane / 4 + (i == 1 || i == 3 ? 8 : 0), lane % 4 * 2 + part + (i >= 2 ? 8 : 0)};
    },
    [](size_t lane, size_t i, size_t part) {
      return Element{lane % 4 * 2 + part + (i == 1 ? 8 : 0), lane / 4};
    }};

struct Product {
  Shape shape;
  std::string opcode;
  std::vector<uint32_t> a, b;  // bits of the elements, by row and column
  std::vector<uint32_t> c;     // 16 x 8
  // Registers of a, by the number that the instruction names in their place.
  std::vector<size_t> order = {0, 1, 2, 3};
};
std::vector<uint32_t> run(const Product& p, Arithmetic arithmetic = {}) {
  const Shape& s = p.shape;
  const size_t all = s.registers_a + s.registers_b + 4, bits = 32 / s.parts;
  std::vector<uint32_t> words(32 * all);
  for (size_t lane = 0; lane < 32; ++lane) {
    uint32_t* to = &words[lane * all];
    for (size_t i = 0; i < s.registers_a; ++i, ++to)
      for (size_t part = 0; part < s.parts; ++part) {
        const Element at = s.a(lane, i, part);
        *to |= p.a[at.row * s.depth + at.column] << (part * bits);
      }
    for (size_t i = 0; i < s.registers_b; ++i, ++to)
      for (size_t part = 0; part < s.parts; ++part) {
        const Element at = s.b(lane, i, part);
        *to |= p.b[at.row * 8 + at.column] << (part * bits);
      }
    for (size_t i = 0; i < 4; ++i) *to++ = p.c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
  }
  std::string body =
      fmt::format("mul.wide.u32 %rd2, %r1, {};\nadd.s64 %rd3, %rd1, %rd2;\n", 4 * all);
  for (size_t i = 0; i < all; ++i)
    body += fmt::format("ld.global.u32 %r{}, [%rd3+{}];\n", 10 + i, 4 * i);
  const auto list = [](size_t first, size_t count, const std::vector<size_t>& order) {
    std::string text;
    for (size_t i = 0; i < count; ++i)
      text += fmt::format("{}%r{}", i == 0 ? "" : ", ", first + (order.empty() ? i : order[i]));
    return text;
  };
  const size_t b = 10 + s.registers_a, c = b + s.registers_b;
  body += fmt::format("{} {{{}}}, {{{}}}, {{{}}}, {{{}}};\n", p.opcode, list(c, 4, {}),
                      list(10, s.registers_a, p.order), list(b, s.registers_b, {}), list(c, 4, {}));
  for (size_t i = 0; i < 4; ++i)
    body += fmt::format("st.global.u32 [%rd3+{}], %r{};\n", 4 * i, c + i);
  Card card;
  card.arithmetic = arithmetic;
  const uint64_t memory = card.upload(words);
  card.run(program(body), memory, {.grid = {}, .block = {.x = 32}});
  const auto results = card.download<uint32_t>(memory);
  std::vector<uint32_t> d(16 * 8);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i)
      d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = results[lane * all + i];
  return d;
}

// c + a b, for elements with these values.
template <class T, class Value>
std::vector<T> expected(const Product& p, Value value_a, Value value_b) {
  std::vector<T> sums(16 * 8);
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      T& sum = sums[row * 8 + column];
      sum = static_cast<T>(std::bit_cast<std::conditional_t<std::is_same_v<T, double>, float, T>>(
          p.c[row * 8 + column]));
      for (size_t k = 0; k < p.shape.depth; ++k)
        sum += static_cast<T>(value_a(p.a[row * p.shape.depth + k])) *
               static_cast<T>(value_b(p.b[k * 8 + column]));
    }
  return sums;
}

template <class Bits>
Product product_of(const Shape& shape, const std::string& kind, Bits bits) {
  Product p{shape, "mma.sync.aligned." + kind, {}, {}, {}};
  std::mt19937 random(7);
  std::uniform_real_distribution<float> values(-2, 2);
  p.a.resize(16 * shape.depth);
  p.b.resize(shape.depth * 8);
  p.c.resize(16 * 8);
  for (auto* const of : {&p.a, &p.b})
    for (uint32_t& each : *of) each = bits(values(random));
  for (uint32_t& each : p.c) each = std::bit_cast<uint32_t>(values(random));
  return p;
}

using ValueOf = float (*)(uint32_t);
void expect_product(const Product& p, ValueOf a, ValueOf b, double most_cut) {
  const auto wanted = expected<double>(p, a, b);
  const auto exact = run(p), cut = run(p, {.tensor_sums = TensorSums::kCut}),
             in_order = run(p, {.tensor_sums = TensorSums::kInOrder});
  EXPECT_NE(exact, cut);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(std::bit_cast<float>(exact[i]), static_cast<float>(wanted[i])) << i;
    EXPECT_NEAR(std::bit_cast<float>(cut[i]), wanted[i], most_cut) << i;
    EXPECT_NEAR(std::bit_cast<float>(in_order[i]), wanted[i], 1e-4) << i;
  }
}

uint32_t to_tf32(float value) { return std::bit_cast<uint32_t>(value) & ~0x1fffu; }

TEST(PtxWarp, ProductsOfTf32) {
  const ValueOf value = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  Product p = product_of(kTf32, "m16n8k8.row.col.f32.tf32.tf32.f32", to_tf32);
  expect_product(p, value, value, 1e-5);
  Product four = product_of(kTf32Short, "m16n8k4.row.col.f32.tf32.tf32.f32", to_tf32);
  expect_product(four, value, value, 1e-5);
  p.a[3] |= 1;
  try {
    run(p);
    FAIL();
  } catch (const Fault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("an operand was not converted to tf32"));
  }
}

template <Float8 type>
uint32_t float8_bits(float value) {
  return to_float8(type, value);
}
template <Float8 type>
float float8_value(uint32_t bits) {
  return to_f32(type, static_cast<uint8_t>(bits));
}

TEST(PtxWarp, ProductsOfFloatsOf8Bits) {
  using enum Float8;
  // 13 bits behind the first one of the largest addend are kept.
  expect_product(product_of(kBytes, "m16n8k32.row.col.f32.e4m3.e4m3.f32", float8_bits<kE4m3>),
                 float8_value<kE4m3>, float8_value<kE4m3>, 33 * 0x1p-10);
  expect_product(product_of(kBytes, "m16n8k32.row.col.f32.e5m2.e5m2.f32", float8_bits<kE5m2>),
                 float8_value<kE5m2>, float8_value<kE5m2>, 33 * 0x1p-10);
  expect_product(product_of(kBytes, "m16n8k32.row.col.f32.e4m3.e5m2.f32", float8_bits<kE4m3>),
                 float8_value<kE4m3>, float8_value<kE5m2>, 1e3);
  expect_product(product_of(kBytes, "m16n8k32.row.col.f32.e5m2.e4m3.f32", float8_bits<kE4m3>),
                 float8_value<kE5m2>, float8_value<kE4m3>, 1e3);
}

TEST(PtxWarp, ProductsOfBytes) {
  using Value = int32_t (*)(uint32_t);
  const Value is_signed = [](uint32_t bits) { return int32_t{static_cast<int8_t>(bits)}; };
  const Value is_unsigned = [](uint32_t bits) { return static_cast<int32_t>(bits); };
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      const auto kind =
          fmt::format("m16n8k32.row.col.s32.{}.{}.s32", a ? "s8" : "u8", b ? "s8" : "u8");
      const Product p = product_of(kBytes, kind, [](float value) {
        return static_cast<uint32_t>(static_cast<int>(value * 64)) & 0xff;
      });
      const auto sums =
          expected<int32_t>(p, a ? is_signed : is_unsigned, b ? is_signed : is_unsigned);
      const auto got = run(p);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(static_cast<int32_t>(got[i]), sums[i]) << kind << " " << i;
    }
}

// The rows of the right product that each row of `got` has, where that is another one: "row 0 is
// row 8; ...".
std::string exchanged_rows(const std::vector<uint32_t>& got, const std::vector<uint32_t>& right) {
  constexpr size_t kRows = 16;
  const size_t columns = right.size() / kRows;
  const auto row = [&](const std::vector<uint32_t>& of, size_t i) {
    return std::vector<uint32_t>(of.begin() + static_cast<ptrdiff_t>(i * columns),
                                 of.begin() + static_cast<ptrdiff_t>((i + 1) * columns));
  };
  std::string named;
  for (size_t i = 0; i < kRows; ++i) {
    if (row(got, i) == row(right, i)) continue;
    size_t other = 0;
    while (other < kRows && row(got, i) != row(right, other)) ++other;
    named += fmt::format("{}row {} is {}", named.empty() ? "" : "; ", i,
                         other == kRows ? "none of the product" : fmt::format("row {}", other));
  }
  return named;
}

// Planted: the registers of rows 0 to 7 and of rows 8 to 15 are exchanged. The program breaks no
// rule, so the card has no fault to report: each register has a value, and is used as one. What
// catches it by name is the comparison of results, which op cases and `anneal compare` make: its
// element, here the row. tests/cuda plants the same in the text of a kernel
// (AProductWithSwappedRows).
TEST(PtxWarp, SwappedRowsOfAFragmentAreNamedByTheComparison) {
  const ValueOf value = [](uint32_t bits) { return to_f32(Float16{static_cast<uint16_t>(bits)}); };
  Product p = product_of(kHalves, "m16n8k16.row.col.f32.f16.f16.f32",
                         [](float x) { return uint32_t{to_f16(x).bits}; });
  expect_product(p, value, value, 1e-5);
  p.c.assign(p.c.size(), 0);
  const auto right = run(p);
  EXPECT_EQ(exchanged_rows(right, right), "");
  p.order = {1, 0, 3, 2};
  std::string all;
  for (size_t row = 0; row < 16; ++row)
    all += fmt::format("{}row {} is row {}", row == 0 ? "" : "; ", row, (row + 8) % 16);
  EXPECT_EQ(exchanged_rows(run(p), right), all) << "no fault, and no other difference";
}

TEST(PtxWarp, FloatsOf8BitsConvert) {
  // Every value is its own nearest one.
  for (const Float8 type : {Float8::kE4m3, Float8::kE5m2})
    for (uint32_t bits = 0; bits < 256; ++bits) {
      const float value = to_f32(type, static_cast<uint8_t>(bits));
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(to_float8(type, value), bits);
    }
  EXPECT_EQ(to_f32(Float8::kE4m3, 0x7e), 448);
  EXPECT_EQ(to_f32(Float8::kE4m3, 0x01), 0x1p-9F);
  EXPECT_TRUE(std::isnan(to_f32(Float8::kE4m3, 0xff)));
  EXPECT_EQ(to_f32(Float8::kE5m2, 0x7b), 57344);
  EXPECT_EQ(to_float8(Float8::kE4m3, 1e9F), 0x7e);
  EXPECT_EQ(to_float8(Float8::kE4m3, -INFINITY), 0xfe);
  EXPECT_EQ(to_float8(Float8::kE4m3, 1 + 0x1p-4F), 0x38);      // 1: the tie's even neighbour
  EXPECT_EQ(to_float8(Float8::kE4m3, 1 + 3 * 0x1p-4F), 0x3a);  // 1.25
  EXPECT_EQ(to_float8(Float8::kE4m3, 1.9999F), 0x40);          // 2: a carry
  const auto word = [](float a, float b) {
    return words_of(fmt::format("cvt.rn.satfinite.e4m3x2.f32 %rs1, 0f{:08X}, 0f{:08X};\n"
                                "cvt.u32.u16 %r9, %rs1;",
                                std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b)),
                    {0})[0];
  };
  EXPECT_EQ(word(1, 2), 0x3840u);
  EXPECT_EQ(words_of("mov.u16 %rs1, 0x3840;\ncvt.rn.f16x2.e4m3x2 %r9, %rs1;", {0})[0], 0x3c004000u);
  const auto tf32 = [](const std::string& rounding, float value) {
    return std::bit_cast<float>(words_of(
        fmt::format("cvt.{}.tf32.f32 %r9, 0f{:08X};", rounding, std::bit_cast<uint32_t>(value)),
        {0})[0]);
  };
  EXPECT_EQ(tf32("rna", 1 + 0x1p-11F), 1 + 0x1p-10F);
  EXPECT_EQ(tf32("rn", 1 + 0x1p-11F), 1);
  EXPECT_EQ(tf32("rz", -1 - 0x1.cp-11F), -1);
}

// mbarrier at the end of `buffer`; thread 0 makes it for `arrivals`.
std::string with_barrier(uint32_t arrivals, const std::string& body) {
  return fmt::format(
      "setp.ne.u32 %p9, %r1, 0;\n@%p9 bra $made;\nmbarrier.init.shared::cta.b64 [%r5+512], {};\n"
      "$made:\nbar.sync 0;\nshl.b32 %r6, %r1, 2;\nadd.s32 %r7, %r5, %r6;\n{}",
      arrivals, body);
}
constexpr const char* kArrive = "mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5+512];\n";
constexpr const char* kWait =
    "$wait:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r5+512], 0;\n"
    "@!%p1 bra $wait;\n";
// Each thread reads the word of the thread of the other warp.
constexpr const char* kExchange =
    "xor.b32 %r8, %r6, 128;\nadd.s32 %r8, %r5, %r8;\nld.shared.u32 %r9, [%r8];";

TEST(PtxWarp, MemoryBarriersOrderWhatIsBeforeThem) {
  const std::string body = std::string("st.shared.u32 [%r7], %r3;\n") + kArrive + kWait + kExchange;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const auto words = words_of(with_barrier(64, body), numbers(64), seed);
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], i ^ 32) << seed;
  }
  EXPECT_THAT(
      fault_of(with_barrier(64, std::string("st.shared.u32 [%r7], %r1;\n") + kArrive + kExchange),
               64),
      ::testing::AnyOf(HasSubstr("has no value"), HasSubstr("without a barrier between")));
  // By the state of the arrival.
  EXPECT_EQ(
      fault_of(with_barrier(64, std::string("st.shared.u32 [%r7], %r1;\n") + kArrive +
                                    "$wait:\nmbarrier.test_wait.shared.b64 %p1, [%r5+512], %rd9;\n"
                                    "@!%p1 bra $wait;\n" +
                                    kExchange),
               64),
      "none");
}

TEST(PtxWarp, MemoryBarriersThatNeverEnd) {
  EXPECT_THAT(fault_of(with_barrier(65, std::string(kArrive) + kWait + "mov.u32 %r9, 0;"), 64),
              HasSubstr("waits for a phase of an mbarrier that does not end"));
  EXPECT_THAT(fault_of(with_barrier(64, std::string(kArrive) + kArrive + "mov.u32 %r9, 0;"), 64),
              HasSubstr("none"));
  EXPECT_THAT(fault_of(with_barrier(1, std::string(kArrive) + "mov.u32 %r9, 0;")),
              HasSubstr("none"));
  EXPECT_THAT(fault_of("st.shared.u64 [%r5+512], 0;\nmov.u32 %r9, 0;\n" + std::string(kArrive), 1),
              HasSubstr("there is no mbarrier at byte 512"));
  EXPECT_THAT(fault_of(with_barrier(4, "mbarrier.arrive.shared.b64 %rd9, [%r5+512], 5;"), 1),
              HasSubstr("5 arrivals at an mbarrier that expects 4 more"));
  EXPECT_THAT(fault_of(with_barrier(0, "mov.u32 %r9, 0;")), HasSubstr("an mbarrier of 0 arrivals"));
  // Without the barrier of the block behind its making.
  EXPECT_THAT(
      fault_of("setp.ne.u32 %p9, %r1, 0;\n@%p9 bra $made;\nmbarrier.init.shared.b64 [%r5], 64;\n"
               "$made:\nmov.u32 %r9, 0;\nmbarrier.arrive.shared.b64 _, [%r5];",
               64),
      HasSubstr("which thread 0 uses without a barrier between"));
}

TEST(PtxWarp, MemoryBarriersExpectBytes) {
  const auto body = [](const std::string& bytes) {
    return with_barrier(
        32,
        "mov.u32 %r20, 4;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r5+512], %r20;\n"
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r5+512], " +
            bytes + ";\n" + kWait + "mov.u32 %r9, 7;");
  };
  EXPECT_THAT(words_of(body("4"), numbers(32)), Each(7u));
  EXPECT_THAT(fault_of(body("3")), HasSubstr("does not end"));
}

// Copies that arrive at the barrier, as late as waiting for it allows.
TEST(PtxWarp, MemoryBarriersWaitForCopies) {
  const auto body = [](const std::string& wait) {
    return with_barrier(64,
                        "cp.async.ca.shared.global [%r7], [%rd3], 4, 4;\n"
                        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r5+512];\n" +
                            wait + kExchange);
  };
  for (const uint64_t seed : {0, 1, 2}) {
    const auto words = words_of(body(kWait), numbers(64), seed);
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], i ^ 32) << seed;
  }
  EXPECT_THAT(fault_of(body(""), 64), HasSubstr("which has no value"));
}

}  // namespace
}  // namespace anneal::ptx
