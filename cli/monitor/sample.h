// What a monitor reads at one moment.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/monitor/machine_use.h"
#include "anneal/cli/monitor/nvml_session.h"

namespace anneal {

// A process that holds a GPU. `held` is "compute", or the device file that it has open.
struct ProcessSample {
  CardSample card;  // all unknown: of a file of no card that NVML shows
  int pid = 0;
  std::string name, held;
  std::optional<uint64_t> used_bytes;
};

struct MonitorSample {
  std::chrono::system_clock::time_point time;
  MachineSample machine;
  std::string driver_version;
  std::vector<CardSample> cards;
  std::vector<ProcessSample> processes;  // if asked for
};

}  // namespace anneal
