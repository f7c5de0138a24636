// Every allocation of the test program is counted.
#pragma once
#include <cstdint>

namespace anneal::testing {

int64_t allocations_so_far();

}  // namespace anneal::testing
