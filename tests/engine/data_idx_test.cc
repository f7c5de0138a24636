#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "anneal/core/error.h"
#include "anneal/engine/data/idx.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

Tensor read(const std::string& bytes) { return read_idx(std::as_bytes(std::span(bytes))); }

TEST(Idx, ReadsPicturesLabelsAndNumbers) {
  EXPECT_EQ(read(std::string("\0\0\x08\1\0\0\0\3abc", 11)),
            Tensor::of<char>(DataType::kU8, {3}, std::vector<char>{'a', 'b', 'c'}));
  EXPECT_EQ(read(std::string("\0\0\x0B\2\0\0\0\1\0\0\0\2\1\2\xff\xfe", 16)),
            Tensor::of<int16_t>(DataType::kI16, {1, 2}, std::vector<int16_t>{258, -2}));
  EXPECT_EQ(read(std::string("\0\0\x08\2\0\0\0\0\0\0\0\5", 12)).dims(), (Dims{0, 5}));
}

TEST(Idx, RefusesWithAReason) {
  const struct {
    std::string bytes, reason;
  } cases[] = {
      {"", "first two bytes"},
      {"\xff\xd8\xff\xe0", "first two bytes"},
      {"\x1f\x8b\x08", "gunzip"},
      {std::string("\0\0\x08", 3), "first two bytes"},
      {std::string("\0\0\x0A\1\0\0\0\1a", 9), "0x0a"},
      {std::string("\0\0\x08\x09", 4), "9 axes"},
      {std::string("\0\0\x08\2\0\0\0\1", 8), "within its header"},
      {std::string("\0\0\x08\1\0\0\0\3ab", 10), "says 3 elements"},
      {std::string("\0\0\x08\1\0\0\0\1ab", 10), "says 1 elements"},
      {std::string("\0\0\x0D\1\0\0\0\1abcde", 13), "says 1 elements"},
      {std::string("\0\0\x08\3", 4) + std::string(12, '\xff'), "elements"},
  };
  for (const auto& test : cases) {
    try {
      read(test.bytes);
      ADD_FAILURE() << "accepted; expected: " << test.reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(test.reason));
    }
  }
}

}  // namespace
}  // namespace anneal
