// Work in child processes. A child that crashes, hangs or exceeds its memory affects no other.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/output/interrupt_watch.h"

namespace anneal {

struct PoolOptions {
  int jobs = 1;
  double time_limit_seconds = 0;  // of one item; 0: none
};

struct ItemOutcome {
  std::optional<std::vector<std::byte>> answer;
  std::string died;  // if there is no answer: "ended by signal 11 (Segmentation fault)"
  double seconds = 0;
};

// Calls work(i) for each i < count in a process of its own, `jobs` at a time, and done(i, outcome)
// here, in ascending order of i, as soon as all before it are done. `tick` is called about once a
// second. Fails with all children ended when interrupted. REQUIRES: this process has one thread and
// has used neither NVRTC nor a GPU, which do not work in a forked child then.
void run_in_processes(size_t count, const PoolOptions& options, InterruptWatch& interrupts,
                      const std::function<std::vector<std::byte>(size_t)>& work,
                      const std::function<void(size_t, ItemOutcome)>& done,
                      const std::function<void(size_t finished)>& tick);

}  // namespace anneal
