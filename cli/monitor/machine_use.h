// How much of the CPU and of its memory the machine uses.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "anneal/cli/measure/process_facts.h"

namespace anneal {

// What is not set was not told.
struct MachineSample {
  std::optional<double> busy_percent;  // of all cores, since the sample before
  std::optional<uint64_t> used_bytes, total_bytes;
};

class MachineUse {
 public:
  // proc: where the file system of processes is mounted.
  explicit MachineUse(std::string proc = "/proc");
  MachineSample read();

 private:
  std::string proc_;
  MachineTicks before_;
};

}  // namespace anneal
