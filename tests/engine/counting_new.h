// Every allocation of the test program is counted, and may be made to fail.
#pragma once
#include <cstdint>

namespace anneal::testing {

int64_t allocations_so_far();

// As long as it lives, one allocation fails: the one after `after` others. for_good: so do all
// later ones.
class FailingAllocations {
 public:
  explicit FailingAllocations(int64_t after, bool for_good = false);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
};

}  // namespace anneal::testing
