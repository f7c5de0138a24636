// CUDA's driver API on the host, for tests of correctness: it checks every access of a kernel and
// measures no speed. It refuses memory, copies, launches and captures where a GPU may refuse them
// or give wrong results.
//
// The environment is read when the context is made. ANNEAL_EMULATED_MEMORY is a number of bytes
// (default 8G). ANNEAL_EMULATED_ORDER=reversed runs the last block and thread first.
// ANNEAL_EMULATED_BOUNDS=allocations allows accesses beyond a tensor inside its allocation, as a
// GPU does.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/kernels/cuda/api/driver.h"

namespace anneal::cuda {

// One device with the properties of an H100. Thread-safe; what it runs, it runs in one thread.
const Driver& emulated_driver();

// Of the last call of this thread that failed, or of what the context was lost by: function, line,
// block, thread and what was wrong; "" where the error's name says it all.
std::string emulated_fault();

// What functions that count did in the work done on a stream since the last call; none of a stream
// that is not there.
std::vector<FunctionCounts> emulated_counts(CUstream stream);

// A kernel that is given an address in the allocation that holds these bytes may access them alone.
CUresult emulated_limit_access(CUdeviceptr begin, size_t bytes);

// Allocations of device memory that were not freed.
size_t emulated_live_allocations();

}  // namespace anneal::cuda
