// Memory for the constants that kernels pack when an engine is loaded.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "anneal/core/new_tensor.h"

namespace anneal {

// Pieces of blocks with large pages: a product of few rows reads all of its weights once in a run,
// and misses the TLB at every page. A block is freed with its last piece. With the address
// sanitizer each piece has an allocation of its own. Not thread-safe.
class PackedMemory {
 public:
  NewTensor allocate(size_t bytes);  // u8, zeroed, 64-byte aligned

 private:
  std::shared_ptr<const void> owner_;  // of the block that has room
  std::span<std::byte> room_;
  size_t bytes_ = 0;  // of pieces that a block may hold
};

}  // namespace anneal
