// CUDA's driver API on the host: for correctness, with every access of a kernel checked; it says
// nothing about speed. Memory, copies, launches and captures are refused or found at fault where a
// card may refuse them, and where it may give wrong results.
//
// The environment is read when the context is made: ANNEAL_EMULATED_MEMORY, bytes, 8G unless said;
// ANNEAL_EMULATED_ORDER=reversed runs the last block and thread first.
#pragma once
#include <cstddef>
#include <string>

#include "anneal/kernels/cuda/driver.h"

namespace anneal::cuda {

// One device with the properties of an H100. Thread-safe; what it runs, it runs in one thread.
const Driver& emulated_driver();

// Of the last call of this thread that failed, or of what the context was lost by: function, line,
// block, thread and what was wrong; "" where the error's name says it all.
std::string emulated_fault();

// Allocations of device memory that were not freed.
size_t emulated_live_allocations();

}  // namespace anneal::cuda
