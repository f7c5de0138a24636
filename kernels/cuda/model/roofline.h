// The least time of a kernel on a GPU, from published figures alone. It is the same on every
// machine, and so are choices that use it.
#pragma once
#include <cstdint>
#include <string>

#include "anneal/kernels/cuda/model/device_spec.h"

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

// One line: "H100 SXM: 12.9 us (memory 11.4 us, arithmetic 3.1 us; 2 waves of 132 x 4 blocks,
// imbalance 1.03)".
std::string text_of(const DeviceSpec& spec, const Floor& floor);

}  // namespace anneal::cuda
