// Shared memory of a block on the emulated device: arrays, and the last accesses to each element.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/kernels/cuda/device/emulator.h"

namespace anneal::cuda {

// The time of a thread's access, for ordering accesses: barriers of the block so far, and of the
// thread's warp since the last barrier of the block.
struct Moment {
  uint32_t thread, block_syncs, warp_syncs;
  bool follows(const Moment& other) const {
    return block_syncs != other.block_syncs || thread == other.thread ||
           (thread / 32 == other.thread / 32 && other.warp_syncs < warp_syncs);
  }
};

class EmulatedShared {
 public:
  static constexpr size_t kMostBytes = 227 * 1024, kMostStaticBytes = 48 * 1024;

  EmulatedShared() : memory_(kMostBytes + kGuard) {}

  // Without `checks`, only the bounds of accesses are checked.
  void begin_launch(uint32_t dynamic_bytes, bool checks);
  // Everything is poison and unwritten. `block_syncs` is a number that no block had before.
  void begin_block(uint32_t block_syncs);

  // Never null. Refuses what does not fit or is declared in two ways.
  Result<emulator::SharedArray*> declare(const void* key, uint64_t bytes, uint32_t element,
                                         const char* name);

  // The fault of an access, or "". Checks bounds and alignment, then accesses of other threads, and
  // records the access.
  std::string access(const emulator::SharedArray& array, uint64_t at, uint32_t bytes,
                     emulator::Access access, int line, const Moment& now);
  // As a write whose bytes may not be touched before end_copy(), which is a write as well.
  std::string begin_copy(const emulator::SharedArray& array, uint64_t at, uint32_t bytes, int line,
                         const Moment& now);
  void end_copy(const emulator::SharedArray& array, uint64_t at, uint32_t bytes, int line,
                const Moment& now);

 private:
  static constexpr size_t kGuard = 256;
  static constexpr int kMostArrays = 64;
  struct Cell {
    Moment written{}, read{};  // the last of each
    uint16_t written_line = 0, read_line = 0;
    bool atomic = false;      // written by one
    bool many = false;        // read by several threads of one warp since its last barrier
    bool many_warps = false;  // read by several warps since the last barrier of the block
    bool under_way = false;   // a copy to it is
  };
  struct Array : emulator::SharedArray {
    const void* key;
    int granule;  // a cell is 1 << granule bytes
    std::vector<Cell> cells;
  };

  Array& of(const emulator::SharedArray& array);
  std::string out_of_bounds(const Array& array, uint64_t at, uint32_t bytes) const;
  // False if it may not; then why_not() says why.
  bool read(Cell& cell, int line, const Moment& now) const;
  bool write(Cell& cell, bool atomic, int line, const Moment& now) const;
  std::string why_not(const Cell& cell, emulator::Access access, const Moment& now) const;

  std::vector<std::byte> memory_;
  std::array<Array, kMostArrays> arrays_;
  int count_ = 0;
  uint64_t used_ = 0, dynamic_bytes_ = 0;
  uint32_t first_sync_ = 0;
  bool checks_ = true;
};

}  // namespace anneal::cuda
