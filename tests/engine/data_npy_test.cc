#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/data/npy.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

std::string npy(const std::string& header, const std::string& content, char major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += major;
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  if (major > 1) bytes += std::string(2, '\0');
  return bytes + header + content;
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

Tensor read(const std::string& bytes) { return read_npy(std::as_bytes(std::span(bytes))); }

TEST(Npy, ReadsWhatNumpyWrites) {
  const Tensor a = read(npy(dict("<i2", "(2, 3)"), std::string("\1\0\2\0\3\0\4\0\5\0\6\0", 12)));
  EXPECT_EQ(a, Tensor::of<int16_t>(DataType::kI16, {2, 3}, std::vector<int16_t>{1, 2, 3, 4, 5, 6}));
  const Tensor scalar = read(npy(dict("|u1", "()"), "\7", 2));
  EXPECT_EQ(scalar, Tensor::of<uint8_t>(DataType::kU8, {}, std::vector<uint8_t>{7}));
  const Tensor empty = read(npy(dict("<f4", "(0, 5)"), ""));
  EXPECT_EQ(empty.dims(), (Dims{0, 5}));
  const Tensor one = read(npy("{\"shape\":(1,),\"descr\":\"|b1\",\"fortran_order\":False}", "\5"));
  EXPECT_EQ(one, Tensor::of<uint8_t>(DataType::kBool, {1}, std::vector<uint8_t>{1}));
}

TEST(Npy, TurnsBigEndianAndFortranOrder) {
  const Tensor swapped = read(npy(dict(">i2", "(2,)"), std::string("\0\1\0\2", 4)));
  EXPECT_EQ(swapped, Tensor::of<int16_t>(DataType::kI16, {2}, std::vector<int16_t>{1, 2}));
  const Tensor turned = read(npy(dict("|u1", "(2, 3)", "True"), "\1\4\2\5\3\6"));
  EXPECT_EQ(turned,
            Tensor::of<uint8_t>(DataType::kU8, {2, 3}, std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Npy, RefusesWithAReason) {
  const struct {
    std::string bytes, reason;
  } cases[] = {
      {"", "first bytes"},
      {"\xff\xd8\xff\xe0 JFIF", "first bytes"},
      {"\x93NUMPY\x01", "cut off"},
      {npy(dict("<f4", "(1,)"), "abcd").substr(0, 20), "within its header"},
      {npy(dict("<f4", "(1,)"), "abcd", 9), "version 9"},
      {npy(dict("<f4", "(2,)"), "abcd"), "needs 2 elements"},
      {npy(dict("<f4", "(1,)"), "abcde"), "needs 1 elements"},
      {npy(dict("<f4", "(-1,)"), "abcd"), "no size"},
      {npy(dict("<f4", "(99999999999999999999,)"), "abcd"), "no size"},
      {npy(dict("<f4", "(9223372036854775807, 9223372036854775807)"), "abcd"), "elements in"},
      {npy(dict("<f4", "(1,1,1,1,1,1,1,1,1)"), "abcd"), "8 axes"},
      {npy(dict("<c8", "(1,)"), "abcdefgh"), "'<c8'"},
      {npy(dict("|O", "(1,)"), "abcdefgh"), "'|O'"},
      {npy(dict("", "(1,)"), "abcd"), "type ''"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "abcd"),
       "structured"},
      {npy("{'descr': '<f4', 'shape': (1,)}", "abcd"), "lacks"},
      {npy("{'descr': '<f4', 'descr': '<f4'}", "abcd"), "repeated key"},
      {npy("{'descr': '<f4", "abcd"), "does not end"},
      {npy("{", "abcd"), "no text"},
      {npy("", "abcd"), "no '{'"},
      {npy("{'fortran_order': 1, 'shape': (1,)}", "abcd"), "neither True nor False"},
      {npy("{} x", "abcd"), "bytes follow"},
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

TEST(Npy, AnyPrefixAndAnyFlippedByteIsRefusedOrRead) {
  const std::string whole = npy(dict("<f4", "(2,)"), "abcdefgh");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read(whole.substr(0, size)), Error) << size;
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int flip : {1, 16, 128}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      try {
        EXPECT_LE(read(damaged).bytes().size(), whole.size());
      } catch (const Error&) {
      }
    }
}

TEST(Npy, WrittenArraysReadBack) {
  for (const DataType dtype : all_dtypes()) {
    if (dtype == DataType::kString || dtype == DataType::kBF16) continue;
    for (const Dims& dims : {Dims{}, Dims{1}, Dims{7}, Dims{2, 3, 5}, Dims{3, 0}}) {
      const Tensor tensor = random_sample(dtype, dims, 1);
      const auto bytes = write_npy(tensor.view());
      EXPECT_EQ((bytes.size() - tensor.bytes().size()) % 64, 0u);
      EXPECT_EQ(read_npy(bytes), tensor) << to_string(dtype) << to_string(dims);
    }
  }
  const Tensor bf16 = random_sample(DataType::kBF16, {4}, 1);
  const Tensor read_back = read_npy(write_npy(bf16.view()));
  EXPECT_EQ(read_back.dtype(), DataType::kF32);
}

TEST(Npy, WritesStridedViewsInTheirOrder) {
  const Tensor tensor =
      Tensor::of<int32_t>(DataType::kI32, {2, 2}, std::vector<int32_t>{1, 2, 3, 4});
  ConstTensorView turned = tensor.view();
  turned.strides = {1, 2};
  EXPECT_EQ(read_npy(write_npy(turned)),
            Tensor::of<int32_t>(DataType::kI32, {2, 2}, std::vector<int32_t>{1, 3, 2, 4}));
}

}  // namespace
}  // namespace anneal
