// Memory of this process and load of the machine, as the system reports them.
#pragma once
#include <cstdint>
#include <string>

namespace anneal {

struct ResidentMemory {
  uint64_t now = 0, peak = 0;  // bytes; 0 where the system does not say
};
ResidentMemory resident_memory();
void forget_peak_memory();  // the peak starts again from now, where the system can

// Ticks of all cores since the machine started; 0 where the system does not say.
struct MachineTicks {
  double busy = 0;  // of all processes, and what a hypervisor took
  double all = 0;
};
// proc: where the file system of processes is mounted.
MachineTicks machine_ticks(const std::string& proc = "/proc");

// The processors' time since the machine and this process started.
struct ProcessorTime {
  double busy_seconds = 0;  // of all processes on all cores, and what a hypervisor took
  double own_seconds = 0;
};
ProcessorTime processor_time();
// Seconds that this thread was ready to run and had no core.
double waited_seconds();

// How much the machine did for others while something was measured.
struct MachineLoad {
  double other_cores = 0;   // used by other processes, on average
  double waited_share = 0;  // of the measuring threads' time, without a core
  int cores = 1;            // of the machine
  // Times measured then say little.
  bool busy() const { return other_cores > 0.1 * cores || waited_share > 0.02; }
};
MachineLoad load_between(const ProcessorTime& before, const ProcessorTime& after, double seconds,
                         double waited_share);

}  // namespace anneal
