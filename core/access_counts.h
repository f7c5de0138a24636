// Memory requests of GPU functions for each line of their text, counted by the emulated device.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anneal {

// How a warp accesses memory with one instruction. An asynchronous copy counts twice: as a load
// from global memory and as a store to shared memory.
enum class AccessKind : uint8_t {
  kGlobalLoad,
  kGlobalStore,
  kGlobalAtomic,
  kCopyLoad,
  kCopyStore,
  kSharedLoad,
  kSharedStore,
  kSharedAtomic,
  kMatrixLoad,
  kMatrixMultiply,
  kShuffle,
  kWarpBarrier,
  kBarrier
};
std::string_view to_string(AccessKind kind);  // "global load"
bool is_global(AccessKind kind);              // has sectors
bool is_shared(AccessKind kind);              // has wavefronts

// One line of a function's text, and its accesses.
struct SiteCounts {
  std::string file;  // "mma_product.h"; empty: the function's own text
  int line = 0;      // from 1
  std::string text;  // of the line
  AccessKind kind = AccessKind::kGlobalLoad;
  std::string memory;        // the parameter or the shared array: "x0", "stages"
  uint32_t lane_bytes = 0;   // that one thread accesses
  int64_t requests = 0;      // instructions of warps
  int64_t active_lanes = 0;  // threads that took part, of all requests
  // Global memory: sectors of 32 bytes and lines of 128 bytes that requests touched. ideal_sectors:
  // the fewest sectors that hold the requested bytes.
  int64_t sectors = 0, ideal_sectors = 0, lines = 0;
  // Shared memory: cycles of its 32 banks. ideal_wavefronts: the fewest cycles that move the
  // requested bytes.
  int64_t wavefronts = 0, ideal_wavefronts = 0;

  void add(const SiteCounts& more);   // counts of the same site
  double sectors_over_ideal() const;  // 0 without sectors
  double bank_conflict() const;       // wavefronts over ideal; 0 without wavefronts
  // Above 1.5 times the ideal number of sectors, or above conflicts of two.
  bool is_wasteful() const;
};

struct FunctionCounts {
  std::string function;
  int64_t launches = 0, warps = 0;
  std::vector<SiteCounts> sites = {};  // by file and line

  void add(const SiteCounts& site);
};

// Sums for each function and site.
void add_counts(std::vector<FunctionCounts>& all, const std::vector<FunctionCounts>& more);

}  // namespace anneal
