// A table of kernels, good and hostile, of the domain "test".
#pragma once
#include <atomic>

#include "anneal/engine/run/library/c_kernels.h"
#include "anneal/graph/op/custom_operator.h"

namespace anneal::testing {

// What the kernels have met; the tests of a process run one after another.
struct KernelRecord {
  std::atomic<int> runs{0};        // of Counted
  std::atomic<int> states{0};      // made and not destroyed
  std::atomic<int> parts{0};       // of the last run of Threads
  std::atomic<int> last_dtype{0};  // that infer() of Scale was given
  std::atomic<int> run_dtype{0};   // of the last run or launch of Half
  std::atomic<int> mood{0};        // of infer() of Moody; 1: it refuses, 2: it gives f64
};
KernelRecord& kernel_record();

// All kernels; since() and version() of Scale may be chosen.
CustomOperators test_operators(int32_t since = 1, int32_t version = 3);

}  // namespace anneal::testing
