// Our wire format against Debian's: every model of the ONNX test data is read by both, and both
// write the same bytes.
#include <gtest/gtest.h>

#define ONNX_ML 1
#include <onnx/onnx_pb.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

template <class Message>
std::string rewritten(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message.SerializeAsString();
}

TEST(Proto, ReadsAndWritesAsTheStandardDoes) {
  const fs::path data = "/usr/share/libonnx-testdata/data";
  if (!fs::exists(data)) GTEST_SKIP() << "no package libonnx-testdata";
  int models = 0, tensors = 0;
  for (const auto& entry : fs::recursive_directory_iterator(data)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".onnx" && path.extension() != ".pb") continue;
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const std::string name = path.filename().string();
    SCOPED_TRACE(path.string());
    if (path.extension() == ".onnx") {
      ++models;
      EXPECT_EQ(rewritten<anneal_onnx::ModelProto>(bytes), rewritten<onnx::ModelProto>(bytes));
    } else if (path.string().find("sequence") == std::string::npos &&
               path.string().find("optional") == std::string::npos) {
      ++tensors;
      EXPECT_EQ(rewritten<anneal_onnx::TensorProto>(bytes), rewritten<onnx::TensorProto>(bytes));
    }
  }
  EXPECT_GT(models, 1000);
  EXPECT_GT(tensors, 1000);
}

}  // namespace
}  // namespace anneal
