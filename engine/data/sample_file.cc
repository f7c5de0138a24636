#include "anneal/engine/data/sample_file.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/idx.h"
#include "anneal/engine/data/inflate.h"
#include "anneal/engine/data/npy.h"
#include "anneal/importer/onnx/tensor_file.h"

namespace anneal {
namespace {

Tensor read_raw(std::span<const std::byte> bytes, const RawFormat& raw) {
  if (!raw.dims)
    fail(ErrorCode::kInvalidArgument,
         "the file is taken for raw bytes (it is no .npy, .pb or idx file), and its shape is not "
         "known; give it with --shapes NAME:1x3x224x224");
  const auto wanted = static_cast<uint64_t>(count(*raw.dims));
  const size_t element = size_of(raw.dtype);
  if (wanted != bytes.size() / element || bytes.size() % element != 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("raw {} of shape {} is {} elements of {} bytes, the file has {} bytes",
                     to_string(raw.dtype), to_string(*raw.dims), wanted, element, bytes.size()));
  auto read = allocate_tensor(raw.dtype, *raw.dims);
  if (bytes.empty()) return read.tensor;
  std::memcpy(read.data.data(), bytes.data(), bytes.size());
  if (raw.dtype == DataType::kBool)
    for (std::byte& byte : read.data) byte = static_cast<std::byte>(byte != std::byte{0});
  return read.tensor;
}

std::string_view without_gz(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path;
}

bool has_idx_name(std::string_view path) {
  return path.ends_with("-ubyte") || path.ends_with(".idx");
}

}  // namespace

Tensor read_sample(const std::string& path, const RawFormat& raw) {
  const FileBytes file = read_file(path);
  return with_context([&] { return fmt::format("while reading {}", path); },
                      [&] {
                        const std::string_view file_name = without_gz(path);
                        std::vector<std::byte> unpacked;
                        std::span<const std::byte> bytes = file.bytes;
                        if (file_name != path) bytes = unpacked = gunzip(bytes);
                        if (is_npy(bytes) || file_name.ends_with(".npy")) return read_npy(bytes);
                        if (file_name.ends_with(".pb")) return load_tensor_proto(bytes, nullptr);
                        if (has_idx_name(file_name)) return read_idx(bytes);
                        return read_raw(bytes, raw);
                      });
}

void write_sample(const std::string& path, const ConstTensorView& view) {
  write_file_atomically(path, write_npy(view));
}

bool has_array_name(std::string_view path) {
  const std::string_view file_name = without_gz(path);
  return file_name.ends_with(".npy") || file_name.ends_with(".npz") || has_idx_name(file_name);
}

}  // namespace anneal
