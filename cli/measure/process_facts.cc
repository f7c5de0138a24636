#include "anneal/cli/measure/process_facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace anneal {

ResidentMemory resident_memory() {
  ResidentMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    words >> name >> kilobytes;
    if (name == "VmRSS:") memory.now = kilobytes * 1024;
    if (name == "VmHWM:") memory.peak = kilobytes * 1024;
  }
  return memory;
}

void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

MachineTicks machine_ticks(const std::string& proc) {
  // cpu user nice system idle iowait irq softirq steal: what is neither idle nor waiting is busy.
  std::ifstream stat(proc + "/stat");
  std::string cpu;
  double ticks[8] = {};
  stat >> cpu;
  MachineTicks machine;
  for (double& each : ticks) {
    stat >> each;
    machine.all += each;
  }
  machine.busy = machine.all - ticks[3] - ticks[4];
  return machine;
}

ProcessorTime processor_time() {
  ProcessorTime time;
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& value) {
    return static_cast<double>(value.tv_sec) + 1e-6 * static_cast<double>(value.tv_usec);
  };
  time.own_seconds = seconds(own.ru_utime) + seconds(own.ru_stime);

  time.busy_seconds =
      machine_ticks().busy / static_cast<double>(std::max(sysconf(_SC_CLK_TCK), 1L));
  return time;
}

double waited_seconds() {
  std::ifstream stat("/proc/thread-self/schedstat");
  double ran = 0, waited = 0;
  stat >> ran >> waited;
  return 1e-9 * waited;
}

MachineLoad load_between(const ProcessorTime& before, const ProcessorTime& after, double seconds,
                         double waited_share) {
  MachineLoad load;
  load.cores = static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  load.waited_share = waited_share;
  if (seconds <= 0) return load;
  const double others =
      (after.busy_seconds - before.busy_seconds) - (after.own_seconds - before.own_seconds);
  load.other_cores = std::clamp(others / seconds, 0.0, static_cast<double>(load.cores));
  return load;
}

}  // namespace anneal
