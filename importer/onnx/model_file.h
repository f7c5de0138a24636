// An ONNX file as the generated classes see it.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace anneal_onnx {
class ModelProto;
class TensorProto;
}  // namespace anneal_onnx

namespace anneal {

// Fail with kInvalidModel naming the actual kind of file, kUnsupported above 2 GiB (the limit of
// the format: weights beyond it are external data), kIo if the file cannot be read. A
// pipe is read to its end.
std::shared_ptr<const anneal_onnx::ModelProto> read_model(const std::string& path);
std::shared_ptr<const anneal_onnx::ModelProto> parse_model(std::span<const std::byte> bytes);
std::unique_ptr<anneal_onnx::TensorProto> parse_tensor(std::span<const std::byte> bytes);

}  // namespace anneal
