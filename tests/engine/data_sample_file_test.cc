#include "anneal/core/error.h"
#include "anneal/engine/data/sample_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace anneal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SampleFile : public ::testing::Test {
 protected:
  SampleFile() {
    std::string path = (fs::temp_directory_path() / "anneal-test-XXXXXX").string();
    root_ = mkdtemp(path.data());
  }
  ~SampleFile() override { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(root_ / name, std::ios::binary) << bytes;
    return (root_ / name).string();
  }
  fs::path root_;
};

// A TensorProto: dims 2, data_type INT32, raw_data.
const std::string kTensorProto("\x08\x02\x10\x06\x4a\x08\1\0\0\0\2\0\0\0", 14);
const std::string kIdx("\0\0\x08\1\0\0\0\2ab", 10);

TEST_F(SampleFile, TheFormatIsToldByBytesOrName) {
  const auto ints = [](int a, int b) {
    return Tensor::of<int32_t>(DataType::kI32, {2}, std::vector<int32_t>{a, b});
  };
  const RawFormat raw{DataType::kI32, Dims{2}};
  EXPECT_EQ(read_sample(write("input_0.pb", kTensorProto), raw), ints(1, 2));
  EXPECT_EQ(read_sample(write("t10k.idx1-ubyte", kIdx), raw).dtype(), DataType::kU8);
  EXPECT_EQ(read_sample(write("x.idx", kIdx), raw).dims(), (Dims{2}));
  EXPECT_EQ(read_sample(write("x.raw", std::string("\3\0\0\0\4\0\0\0", 8)), raw), ints(3, 4));
  const std::string npy = std::string("\x93NUMPY\1\0\x3a\0", 10) +
                          "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), } " +
                          std::string("\5\0\0\0\6\0\0\0", 8);
  EXPECT_EQ(read_sample(write("any.name", npy), raw), ints(5, 6));
}

TEST_F(SampleFile, RefusalsNameTheFile) {
  const struct {
    std::string name, bytes, reason;
    std::optional<Dims> dims;
  } cases[] = {
      {"x.npy", "\xff\xd8\xff", "x.npy: .npy: the first bytes", {}},
      {"x.pb", "\xff\xd8\xff", "x.pb", {}},
      {"x.idx3-ubyte", "abc", "idx: ", {}},
      {"x.bin", "abc", "its shape is not known", {}},
      {"x.bin", "abc", "is 2 elements of 4 bytes, the file has 3 bytes", Dims{2}},
      {"x.bin", "abcdefghi", "the file has 9 bytes", Dims{2}},
      {"x.bin", "", "the file has 0 bytes", Dims{1}},
  };
  for (const auto& test : cases) {
    try {
      read_sample(write(test.name, test.bytes), {DataType::kF32, test.dims});
      ADD_FAILURE() << "accepted; expected: " << test.reason;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(test.reason));
    }
  }
  EXPECT_THROW(read_sample(root_.string(), {}), Error);
  EXPECT_THROW(read_sample((root_ / "missing.npy").string(), {}), Error);
}

}  // namespace
}  // namespace anneal
