// Memory for the constants that kernels pack when an engine is loaded.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "anneal/core/new_tensor.h"

namespace anneal {

// Pieces of blocks with large pages: a product of few rows reads each weight once in a run, and
// with small pages it misses the TLB for each. A block is freed with its last piece. Not
// thread-safe.
class PackedMemory {
 public:
  NewTensor allocate(size_t bytes);  // u8, zeroed, 64-byte aligned

 private:
  std::shared_ptr<const void> owner_;  // of the block that has room
  std::span<std::byte> room_;
  size_t bytes_ = 0;  // of all pieces
};

}  // namespace anneal
