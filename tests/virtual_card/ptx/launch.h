// A launch: all blocks of a grid, one after the other.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/tests/virtual_card/ptx/warp.h"

namespace anneal::ptx {

struct Launch {
  Dim3 grid, block;
  size_t dynamic_shared_bytes = 0;
  uint32_t number = 1;                      // of the launches of this memory; none has the same
  uint64_t most_steps = uint64_t{1} << 30;  // of a block, in instructions of a warp
  Touched* touched = nullptr;               // gets the bytes of global memory that are accessed
  uint64_t seed = 0;  // 0: blocks and warps in ascending order; else in one of its own
};

// parameters: as the function's list places them. Returns the instructions of warps that ran. Fails
// with Fault.
uint64_t run(const Function& function, const std::byte* parameters, const Launch& launch,
             GlobalMemory& global, const Arithmetic& arithmetic = {});

}  // namespace anneal::ptx
