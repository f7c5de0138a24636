#include "anneal/cli/monitor/machine_use.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

namespace anneal {

MachineUse::MachineUse(std::string proc) : proc_(std::move(proc)), before_(machine_ticks(proc_)) {}

MachineSample MachineUse::read() {
  MachineSample sample;
  const MachineTicks now = machine_ticks(proc_);
  const double all = now.all - before_.all;
  if (all > 0) sample.busy_percent = std::clamp(100 * (now.busy - before_.busy) / all, 0.0, 100.0);
  // Between two ticks of the clock the next sample continues from here.
  if (all > 0) before_ = now;

  std::ifstream memory(proc_ + "/meminfo");
  std::optional<uint64_t> available;
  for (std::string line; std::getline(memory, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kibibytes = 0;
    if (!(words >> name >> kibibytes)) continue;
    if (name == "MemTotal:") sample.total_bytes = kibibytes * 1024;
    if (name == "MemAvailable:") available = kibibytes * 1024;
  }
  if (sample.total_bytes && available)
    sample.used_bytes = *sample.total_bytes - std::min(*available, *sample.total_bytes);
  return sample;
}

}  // namespace anneal
