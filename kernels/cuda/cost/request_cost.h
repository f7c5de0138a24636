// The memory cost of one instruction of a warp: sectors and lines of global memory, and cycles of
// the banks of shared memory.
#pragma once
#include <array>
#include <cstdint>

namespace anneal::cuda {

// The addresses of one instruction: of each thread that takes part, `bytes` at a multiple of them.
struct WarpRequest {
  uint32_t active = 0;  // a bit for each lane
  std::array<uint64_t, 32> at;
};

struct GlobalCost {
  int sectors = 0;  // of 32 bytes
  int ideal = 0;    // the fewest that hold the bytes that lanes ask for, each byte once
  int lines = 0;    // of 128 bytes
};
GlobalCost global_cost(const WarpRequest& request, uint32_t bytes);

// Shared memory has 32 banks of 4 bytes. In one cycle (a wavefront) each bank gives one word to any
// number of lanes. Lanes of 8 bytes are served in two halves of a warp, lanes of 16 bytes in four
// quarters, which is also how ldmatrix reads the 8 rows of each of its matrices.
struct SharedCost {
  int wavefronts = 0;
  int ideal = 0;  // the bytes of all active lanes over 128
};
SharedCost shared_cost(const WarpRequest& request, uint32_t bytes);

}  // namespace anneal::cuda
