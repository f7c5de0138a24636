// Tensors as FOLDER/NAME.npy.
#pragma once
#include <set>
#include <string>

#include "anneal/core/tensor.h"

namespace anneal {

class TensorFiles {
 public:
  explicit TensorFiles(std::string folder);  // made if it is missing; fails with kCannotWrite
  // The path written. Characters that a shell or a file system does not accept in a name becomes
  // '_', and names that then are equal get a number.
  std::string write(const std::string& name, const TensorView& view);

 private:
  std::string folder_;
  std::set<std::string> taken_;
};

}  // namespace anneal
