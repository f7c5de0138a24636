// CUDA's driver API on the host, for tests of correctness: it checks every access of a kernel and
// measures no speed. It refuses memory, copies, launches and captures where a GPU may refuse them
// or give wrong results.
//
// The environment is read when the context is made. ANNEAL_EMULATED_MEMORY is a number of bytes
// (default 8G). ANNEAL_EMULATED_ORDER=reversed runs the last block and thread first.
// ANNEAL_EMULATED_BOUNDS=allocations allows accesses beyond a tensor inside its allocation, as a
// GPU does. ANNEAL_EMULATED_KERNELS=skip checks launches and runs none: results have no meaning.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/kernels/cuda/api/driver.h"

namespace anneal::cuda {

// One device with the properties of an H100. Thread-safe; what it runs, it runs in one thread.
const Driver& emulated_driver();

// The last failed call of this thread, or the fault that the context was lost by: function, line,
// block, thread and the fault; "" where the error's name says it all.
std::string emulated_fault();

// Counts of the functions that ran on a stream since the last call; none for an unknown stream.
std::vector<FunctionCounts> emulated_counts(CUstream stream);

// A kernel that is given an address in the allocation that holds these bytes may access them alone.
CUresult emulated_limit_access(CUdeviceptr begin, size_t bytes);

// Allocations of device memory that were not freed.
size_t emulated_live_allocations();

// What copies moved between the host and the device so far, in bytes.
uint64_t emulated_bus_bytes();

}  // namespace anneal::cuda
