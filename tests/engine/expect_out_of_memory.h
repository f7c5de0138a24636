// Each allocation of a call fails once: the call must report that memory ran out, as an Error.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "anneal/core/error.h"
#include "anneal/tests/engine/counting_new.h"

namespace anneal::testing {

enum class Ending { kDone, kOutOfMemory, kOther };

inline Ending ending_of(const std::function<void()>& call, int64_t after, bool for_good) {
  const FailingAllocations failing(after, for_good);
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kOutOfMemory ? Ending::kOutOfMemory : Ending::kOther;
  } catch (...) {
    return Ending::kOther;
  }
  return Ending::kDone;
}

// The call fails with kOutOfMemory, or does without the memory, whichever allocation fails.
inline void expect_errors(const std::string& what, const std::function<void()>& call) {
  for (const bool for_good : {false, true}) {
    int failed = 0;
    for (int64_t after = 0;; after += 1 + after / 50) {
      const int64_t before = allocations_so_far();
      const Ending ending = ending_of(call, after, for_good);
      ASSERT_NE(ending, Ending::kOther) << what << ", allocation " << after;
      if (ending == Ending::kOutOfMemory) ++failed;
      if (allocations_so_far() - before <= after) break;  // none was to fail
    }
    EXPECT_GT(failed, 0) << what;
  }
  call();  // and works again
}

}  // namespace anneal::testing
