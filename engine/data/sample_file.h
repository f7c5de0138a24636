// One tensor in one file: .npy, TensorProto (.pb), idx, or raw bytes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "anneal/core/tensor.h"

namespace anneal {

// The content of a raw file; the other formats say it themselves.
struct RawFormat {
  DataType dtype = DataType::kF32;
  std::optional<Dims> dims;  // nullopt: not known, and a raw file is refused
};

// The first bytes (.npy) or the name decide the format: *.npy, *.pb, *idx?-ubyte or *.idx; all
// other files are raw, row-major and little-endian. A file with .gz after its name is unpacked.
// Fails with kIo or kInvalidArgument, naming the file.
Tensor read_sample(const std::string& path, const RawFormat& raw);

// As .npy, whole or not at all. Fails with kCannotWrite.
void write_sample(const std::string& path, const ConstTensorView& view);

// By its name: .npy, .npz or idx, also with .gz.
bool has_array_name(std::string_view path);

}  // namespace anneal
