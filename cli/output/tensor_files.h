// Tensors in files: those that a command reads, and FOLDER/NAME.npy that it writes.
#pragma once
#include <optional>
#include <set>
#include <string>

#include "anneal/core/tensor.h"

namespace anneal {

// The tensor of a .npy, .pb or idx file, or of raw bytes of this type and shape. Fails with kIo or
// kInvalidArgument, also on raw bytes without a shape.
Tensor read_tensor(const std::string& path, DataType raw_type, const std::optional<Dims>& raw_dims);

class TensorFiles {
 public:
  explicit TensorFiles(std::string folder);  // made if it is missing; fails with kCannotWrite
  // The path written. Characters that a shell or a file system does not accept in a name becomes
  // '_', and names that then are equal get a number.
  std::string write(const std::string& name, const ConstTensorView& view);

 private:
  std::string folder_;
  std::set<std::string> taken_;
};

}  // namespace anneal
