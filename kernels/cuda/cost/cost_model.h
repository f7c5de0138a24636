// The time of a kernel on a GPU, from published figures alone. It is the same on every machine, and
// so are choices that use it. A floor for any launch, and an estimate for products in tiles.
#pragma once
#include <cstdint>
#include <string>

#include "anneal/kernels/cuda/cost/device_spec.h"

namespace anneal::cuda {

// The work of one launch.
struct Work {
  double bytes = 0;             // to and from device memory
  double f32_flops = 0;         // FMA counted as two
  double f16_tensor_flops = 0;  // those of tensor cores
  int64_t blocks = 1;
  int threads_per_block = 1;
  int shared_bytes_per_block = 0;
  int registers_per_thread = 0;  // 0: not known
};

struct Floor {
  double seconds;             // launch, and the longer of the next two
  double memory_seconds;      // all bytes at full bandwidth
  double arithmetic_seconds;  // all flops at full rate, stretched by imbalance
  int resident_blocks;        // of a multiprocessor at once; 0: a block does not fit
  int64_t waves;              // of as many blocks as are resident on the whole card
  double imbalance;           // the busiest multiprocessor's blocks over the average, >= 1
  bool operator==(const Floor&) const = default;
};
// REQUIRES: blocks and threads_per_block >= 1.
Floor floor_of(const DeviceSpec& spec, const Work& work);

// Blocks of a multiprocessor at once; 0: a block does not fit. REQUIRES: threads_per_block >= 1
int resident_blocks(const DeviceSpec& spec, const Work& work);

// A launch whose blocks compute tiles of products, a piece of the depth after the other.
struct TiledWork {
  int64_t blocks = 1, pieces = 1;
  int resident_blocks = 1, threads_per_block = 1;
  // Of the whole card, reached where that many threads of a multiprocessor are busy.
  double operations_per_second = 0;
  int full_rate_threads = 1;
  double piece_operations = 0, piece_bytes = 0;  // of one block
  double piece_latency = 0;       // seconds from one piece to the next if nothing else is to do
  double exposed_operations = 0;  // of a piece's time of operations: the share that nothing hides
  double start_seconds = 0;       // of a block, before its first piece and after its last
};
// Roughly what the busiest multiprocessor spends on its blocks. Good for comparing tiles.
double seconds_of(const DeviceSpec& spec, const TiledWork& work);

// One line: "H100 SXM: 12.9 us (memory 11.4 us, arithmetic 3.1 us; 2 waves of 132 x 4 blocks,
// imbalance 1.03)".
std::string text_of(const DeviceSpec& spec, const Floor& floor);

}  // namespace anneal::cuda
