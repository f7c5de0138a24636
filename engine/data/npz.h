// NumPy's .npz: a zip archive of .npy files.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

struct NamedArray {
  std::string name;  // without ".npy"
  Tensor array;
};

// Stored or deflated members, below 4 GiB, in the archive's order. Fails with kInvalidArgument,
// naming the member.
std::vector<NamedArray> read_npz(std::span<const std::byte> bytes);

}  // namespace anneal
