#include "anneal/core/bytes.h"

#include <gtest/gtest.h>

#include <random>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/tests/worker_budget.h"

namespace anneal {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> sample() {
  ByteWriter writer;
  writer.number(uint8_t{1});
  writer.number(int64_t{-7});
  writer.number(0.5f);
  writer.text("conv1");
  writer.text("");
  writer.align(8);
  writer.blob(bytes_of("weights"));
  writer.number(uint32_t{3});
  writer.raw(bytes_of("abcdef"));
  return writer.take();
}

void read_sample(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "the sample");
  const bool flag = reader.boolean();
  const auto number = reader.number<int64_t>();
  const auto fraction = reader.number<float>();
  const std::string name = reader.text(), empty = reader.text();
  reader.raw(6);
  const auto blob = reader.blob();
  const size_t count = reader.count(2);
  reader.raw(2 * count);
  reader.expect_end();
  if (bytes.size() != sample().size() || !std::ranges::equal(bytes, sample())) return;
  EXPECT_TRUE(flag);
  EXPECT_EQ(number, -7);
  EXPECT_EQ(fraction, 0.5f);
  EXPECT_EQ(name, "conv1");
  EXPECT_EQ(empty, "");
  EXPECT_TRUE(std::ranges::equal(blob, bytes_of("weights")));
  EXPECT_EQ(count, 3u);
}

TEST(Bytes, ComeBackAsWritten) { read_sample(sample()); }

TEST(Bytes, EveryTruncationIsRefused) {
  const auto bytes = sample();
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      read_sample(std::span(bytes).first(size));
      ADD_FAILURE() << size << " bytes were enough";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan);
      EXPECT_TRUE(std::string_view(error.what()).starts_with("the sample: at byte "))
          << error.what();
    }
  }
}

TEST(Bytes, EveryFlippedByteIsReadOrRefused) {
  auto bytes = sample();
  for (std::byte& byte : bytes)
    for (int value = 1; value < 256; ++value) {
      byte ^= static_cast<std::byte>(value);
      try {
        read_sample(bytes);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan);
      }
      byte ^= static_cast<std::byte>(value);
    }
}

TEST(Bytes, LengthsThatWouldOverflowAreRefused) {
  ByteWriter writer;
  writer.number(~uint64_t{0});
  writer.number(~uint64_t{0});
  const auto bytes = writer.take();
  EXPECT_THROW(ByteReader(bytes, "x").blob(), Error);
  EXPECT_THROW(ByteReader(bytes, "x").text(), Error);
  EXPECT_THROW(ByteReader(bytes, "x").raw(~size_t{0}), Error);
  EXPECT_THROW(ByteReader(bytes, "x").count(1), Error);
  EXPECT_THROW(ByteReader(bytes, "x").boolean(), Error);
  EXPECT_THROW(ByteReader(bytes, "x").expect_end(), Error);
}

uint32_t crc_by_bits(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(bytes_of("a")), 0xc1d04330u);
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
  EXPECT_EQ(crc32c(ones), 0x62a8ab43u);
}

TEST(Crc32c, ATeamFindsTheSame) {
  const testing::WorkerBudget budget(3);
  std::mt19937 random(2);
  std::vector<std::byte> data((size_t{3} << 20) + 12345);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    for (const size_t size : {size_t{0}, size_t{5}, size_t{1} << 20, data.size()})
      for (const uint32_t seed : {0u, 0xc1d04330u})
        EXPECT_EQ(crc32c(std::span(data).first(size), team, seed),
                  crc32c(std::span(data).first(size), seed))
            << size << " bytes, " << threads << " threads";
  }
}

TEST(Crc32c, AgreesWithTheDefinitionAtEverySizeAndAlignment) {
  std::mt19937 random(1);
  std::vector<std::byte> data(70000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  const size_t sizes[] = {1,   7,    8,    9,     23,    129,   767,   768,
                          769, 1537, 4099, 24575, 24576, 24577, 49153, 69000};
  for (size_t size : sizes)
    for (size_t start : {0, 1, 7}) {
      const auto bytes = std::span(data).subspan(start, size);
      const uint32_t expected = crc_by_bits(bytes);
      EXPECT_EQ(crc32c(bytes), expected) << size << " from " << start;
      EXPECT_EQ(crc32c(bytes.subspan(size / 3), crc32c(bytes.first(size / 3))), expected);
    }
}

TEST(HashBytes, IsFnv1a) {
  EXPECT_EQ(hash_bytes({}), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_bytes(bytes_of("a")), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_bytes(bytes_of("foobar")), 0x85944171f73967e8u);
  EXPECT_EQ(hash_bytes(bytes_of("bar"), hash_bytes(bytes_of("foo"))), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace anneal
