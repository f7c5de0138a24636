// DeviceSpec: published figures of a GPU, from which configurations are chosen. The choice is
// therefore the same on every machine.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace anneal::cuda {

struct DeviceSpec {
  int architecture;       // 90: sm_90
  std::string_view name;  // the card whose figures these are: "H100 SXM"
  int multiprocessors;
  int threads_per_multiprocessor, blocks_per_multiprocessor;  // resident at once, at most
  int registers_per_multiprocessor, shared_bytes_per_multiprocessor;
  int shared_bytes_per_block;  // the most a launch may ask for
  int l2_bytes;
  double bandwidth;         // bytes per second of device memory
  double f32_flops;         // per second, FMA counted as two
  double f16_tensor_flops;  // dense, f32 accumulation
  double mma_share;         // of these flops that mma.sync reaches, which our kernels use
  double launch_seconds;    // of an empty kernel in a captured graph
};

std::span<const DeviceSpec> device_specs();
// That of the architecture, else of the nearest one below it of the same generation; null: none.
const DeviceSpec* find_spec(int architecture);

}  // namespace anneal::cuda
