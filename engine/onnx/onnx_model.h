// An ONNX model to read.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace anneal {

// An ONNX model: a file, or bytes in memory, which must stay valid until the call returns. External
// data is read from the folder of the file, or from `folder`; without a folder it is refused.
class OnnxModel {
 public:
  OnnxModel(std::string path) : path_(std::move(path)) {}   // NOLINT(google-explicit-constructor)
  OnnxModel(const char* path) : path_(path ? path : "") {}  // NOLINT(google-explicit-constructor)
  OnnxModel(std::span<const std::byte> bytes,               // NOLINT(google-explicit-constructor)
            std::string folder = {})
      : bytes_(bytes), folder_(std::move(folder)) {}
  OnnxModel(const std::vector<std::byte>& bytes,  // NOLINT(google-explicit-constructor)
            std::string folder = {})
      : OnnxModel(std::span(bytes), std::move(folder)) {}

  const std::string& path() const { return path_; }  // empty: in memory
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
  std::string folder_;
};

}  // namespace anneal
