// One card for each architecture. Sizes of multiprocessors are those of the CUDA C++ Programming
// Guide 13.0, table "Technical Specifications per Compute Capability"; a block may ask for 1 KiB of
// shared memory less than a multiprocessor has. The rest is the card's, from the papers named.
//
// The share of mma.sync is that of NVIDIA's model: bench/gpu/tensor_rates.py asks it, docs/gpu.md
// has its answers. Hopper reaches its full rate by wgmma alone, and Blackwell of data centers by
// tcgen05.
#include <array>

#include "anneal/kernels/cuda/cost/device_spec.h"

namespace anneal::cuda {
namespace {

constexpr int kKi = 1024, kMi = 1024 * 1024;
constexpr int kRegisters = 64 * kKi;  // of a multiprocessor, in all architectures here
constexpr double kGiga = 1e9, kTera = 1e12;
// Vendors do not publish this: an assumption for every card until it is measured.
constexpr double kLaunch = 1.5e-6;

constexpr std::array<DeviceSpec, 6> kSpecs = {{
    // "NVIDIA A100 Tensor Core GPU" datasheet (2021), 80 GB SXM: 2,039 GB/s, 19.5 and 312 TFLOPS.
    // "NVIDIA A100 Tensor Core GPU Architecture" whitepaper: 108 SMs, 40 MB of L2.
    {80, "A100 SXM 80GB", 108, 2048, 32, kRegisters, 164 * kKi, 163 * kKi, 40 * kMi, 2039 * kGiga,
     19.5 * kTera, 312 * kTera, 1, kLaunch},
    // "NVIDIA A10 Tensor Core GPU" datasheet (2021): 600 GB/s, 31.2 TFLOPS, 125 TFLOPS dense.
    // "NVIDIA Ampere GA102 GPU Architecture" whitepaper: 128 CUDA cores in an SM, hence 72 SMs;
    // 6 MB of L2.
    {86, "A10", 72, 1536, 16, kRegisters, 100 * kKi, 99 * kKi, 6 * kMi, 600 * kGiga, 31.2 * kTera,
     125 * kTera, 1, kLaunch},
    // "NVIDIA L4 Tensor Core GPU" datasheet (2023): 300 GB/s, 30.3 TFLOPS, 242 TFLOPS sparse, hence
    // 121 dense. "NVIDIA Ada GPU Architecture" whitepaper: AD104 with 58 SMs, 48 MB of L2.
    {89, "L4", 58, 1536, 24, kRegisters, 100 * kKi, 99 * kKi, 48 * kMi, 300 * kGiga, 30.3 * kTera,
     121 * kTera, 1, kLaunch},
    // "NVIDIA H100 Tensor Core GPU" datasheet (2023), SXM: 3.35 TB/s, 67 TFLOPS, 1,979 TFLOPS
    // sparse, hence 989.5 dense. "NVIDIA H100 Tensor Core GPU Architecture" whitepaper: 132 SMs,
    // 50 MB of L2.
    {90, "H100 SXM", 132, 2048, 32, kRegisters, 228 * kKi, 227 * kKi, 50 * kMi, 3350 * kGiga,
     67 * kTera, 989.5 * kTera, 0.5, kLaunch},
    // "NVIDIA Blackwell Architecture Technical Brief" and HGX B200 datasheet (2024): 8 TB/s, 75
    // TFLOPS, 4.5 PFLOPS sparse, hence 2.25 dense. SMs and L2 as the card reports them: 148, 126
    // MB.
    {100, "B200", 148, 2048, 32, kRegisters, 228 * kKi, 227 * kKi, 126 * kMi, 8000 * kGiga,
     75 * kTera, 2250 * kTera, 0.25, kLaunch},
    // "NVIDIA RTX Blackwell GPU Architecture" whitepaper (2025), GeForce RTX 5090: 170 SMs, 96 MB
    // of L2, 1,792 GB/s, 104.8 TFLOPS, 209.5 TFLOPS dense with f32 accumulation.
    {120, "RTX 5090", 170, 1536, 24, kRegisters, 100 * kKi, 99 * kKi, 96 * kMi, 1792 * kGiga,
     104.8 * kTera, 209.5 * kTera, 1, kLaunch},
}};

}  // namespace

std::span<const DeviceSpec> device_specs() { return kSpecs; }

const DeviceSpec* find_spec(int architecture) {
  const DeviceSpec* found = nullptr;
  for (const DeviceSpec& spec : kSpecs)
    if (spec.architecture <= architecture && spec.architecture / 10 == architecture / 10)
      found = &spec;
  return found;
}

}  // namespace anneal::cuda
