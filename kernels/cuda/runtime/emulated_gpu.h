// The emulated GPU. Its code is a library of its own, libanneal_emulated.so, because it is for
// tests and holds a compiler driver: a process that never asks for it never loads it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/kernels/cuda/api/driver.h"
#include "anneal/kernels/cuda/code/compiler.h"

namespace anneal::cuda {

// What the library gives: CUDA's driver API on the host, and the compilers of its functions. The
// functions are those of kernels/cuda/emulated/driver.h.
struct EmulatedGpu {
  const Driver& driver;
  const Compiler& compiler;
  const Compiler& counting_compiler;  // functions that it compiles count what they do
  std::string (*fault)();
  std::vector<FunctionCounts> (*take_counts)(CUstream);
  CUresult (*limit_access)(CUdeviceptr begin, size_t bytes);
  size_t (*live_allocations)();
  uint64_t (*bus_bytes)();
};

// Opens the library the first time. Fails with kDevice if it is not installed, or is of another
// version. Thread-safe.
const EmulatedGpu& emulated_gpu();

}  // namespace anneal::cuda
