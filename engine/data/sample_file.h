// Reading of one tensor from one file: .npy, TensorProto (.pb), idx, or raw bytes.
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

// The format is told by the first bytes (.npy) or the name: *.npy, *.pb, *idx?-ubyte or *.idx; all
// else is raw, row-major and little-endian. With .gz behind its name a file is unpacked. Fails with
// kIo or kInvalidArgument, naming the file.
Tensor read_sample(const std::string& path, const RawFormat& raw);

// By its name: .npy, .npz or idx, also with .gz.
bool has_array_name(std::string_view path);

}  // namespace anneal
