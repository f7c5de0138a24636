#include "anneal/importer/onnx/model_file.h"

#include <fmt/format.h>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::ModelProto;

// A graph inside an attribute costs three levels of messages. More graphs than control_flow.cc
// allows are read, so that it can say so.
constexpr int kMaxMessageDepth = 1000;

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view what;
};
constexpr Signature kForeign[] = {
    {0, "\xff\xd8\xff", "a JPEG picture"},
    {0, "\x89PNG", "a PNG picture"},
    {0, "PK\x03\x04", "a zip archive, as PyTorch writes its checkpoints"},
    {0, "\x89HDF", "an HDF5 file, as Keras writes"},
    {4, "TFL3", "a TensorFlow Lite model"},
    {0, "\x1f\x8b", "compressed with gzip"},
    {0, "\x28\xb5\x2f\xfd", "compressed with zstd"},
    {1, "ANNEAL\n", "an engine that Anneal has built already: give the model it was built from"},
    {0, "version https://git-lfs", "a Git LFS pointer, not the file itself"},
};

std::string foreign(std::string_view bytes) {
  for (const Signature& signature : kForeign)
    if (bytes.size() >= signature.offset &&
        bytes.substr(signature.offset).starts_with(signature.bytes))
      return "it is " + std::string(signature.what);
  const std::string_view start = bytes.substr(0, 256);
  const bool text = start.find_first_not_of("\t\n\r") != start.npos &&
                    std::ranges::all_of(start, [](unsigned char c) {
                      return c == '\t' || c == '\n' || c == '\r' || (c >= 32 && c < 127);
                    });
  return text ? "it is text" : "";
}

void check_size(uint64_t size) {
  if (size > INT_MAX)
    fail(
        ErrorCode::kUnsupported,
        fmt::format("{} bytes, but an ONNX file ends at 2 GiB: export the weights as external data",
                    size));
}

// The message may hold part of the bytes when the answer is no.
bool parse(google::protobuf::MessageLite& message, google::protobuf::io::CodedInputStream& stream) {
  stream.SetRecursionLimit(kMaxMessageDepth);
  return message.ParsePartialFromCodedStream(&stream) && stream.ConsumedEntireMessage();
}

bool parse(google::protobuf::MessageLite& message, std::span<const std::byte> bytes) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  return parse(message, stream);
}

// Without a copy of the file's bytes beside the message. Null: parse_model() says why.
std::shared_ptr<const ModelProto> parse_blocks(const std::string& path) {
  constexpr int kBlock = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  google::protobuf::io::IstreamInputStream blocks(&file, kBlock);
  google::protobuf::io::CodedInputStream stream(&blocks);
  auto model = std::make_shared<ModelProto>();
  return parse(*model, stream) && model->has_graph() ? model : nullptr;
}

}  // namespace

std::shared_ptr<const ModelProto> parse_model(std::span<const std::byte> bytes) {
  check_size(bytes.size());
  if (bytes.empty()) fail(ErrorCode::kInvalidModel, "not an ONNX model: the file is empty");
  auto model = std::make_shared<ModelProto>();
  const bool whole = parse(*model, bytes);
  if (whole && model->has_graph()) return model;
  const std::string what = foreign({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!what.empty()) fail(ErrorCode::kInvalidModel, fmt::format("not an ONNX model: {}", what));
  if (!whole && model->ir_version() > 0)
    fail(ErrorCode::kInvalidModel,
         fmt::format("a damaged or truncated ONNX model (or one of more than 300 graphs inside "
                     "each other): the data ends or makes no sense before its end, at {} bytes",
                     bytes.size()));
  if (whole && model->ir_version() > 0)
    fail(ErrorCode::kInvalidModel, "a damaged or truncated ONNX model: it holds no graph");
  fail(ErrorCode::kInvalidModel, "not an ONNX model");
}

std::shared_ptr<const ModelProto> read_model(const std::string& path) {
  constexpr uint64_t kLarge = 1 << 24;
  std::error_code unknown;  // of a pipe, or where reading will say why
  const uint64_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) with_context([&] { return path; }, [&] { check_size(size); });
  if (!unknown && size >= kLarge)
    if (auto model = parse_blocks(path)) return model;
  const FileBytes file = read_file(path);
  return with_context([&] { return path; }, [&] { return parse_model(file.bytes); });
}

std::unique_ptr<anneal_onnx::TensorProto> parse_tensor(std::span<const std::byte> bytes) {
  check_size(bytes.size());
  auto tensor = std::make_unique<anneal_onnx::TensorProto>();
  if (!parse(*tensor, bytes) || !tensor->has_data_type())
    fail(ErrorCode::kInvalidModel, "not an ONNX tensor, or a truncated one");
  return tensor;
}

}  // namespace anneal
