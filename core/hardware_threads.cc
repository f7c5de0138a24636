// How many cores there are for this process. Containers limit them by a quota that the affinity
// mask does not show.
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "anneal/core/parallel.h"

namespace anneal {
namespace {

int affinity_cores() {
  // The kernel refuses a mask that is smaller than its own.
  for (int cores = 1024; cores <= 1 << 20; cores *= 2) {
    cpu_set_t* set = CPU_ALLOC(cores);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(cores);
    const bool known = sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(1, count);
  }
  return 1;
}

// Cores that a file cpu.max ("max 100000", "150000 100000") grants, rounded up.
int quota_cores(const std::string& path, int otherwise) {
  std::ifstream file(path);
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return otherwise;
  const double cores = quota / period;
  return cores >= otherwise ? otherwise : std::max(1, static_cast<int>(cores + 0.999));
}

// The least quota from this process's cgroup up to the root.
int cgroup_cores(int otherwise) {
  std::ifstream file("/proc/self/cgroup");
  std::string group;
  while (std::getline(file, group) && !group.starts_with("0::")) {
  }
  if (!group.starts_with("0::")) return otherwise;
  group.erase(0, 3);
  int cores = otherwise;
  for (;;) {
    cores = quota_cores("/sys/fs/cgroup" + group + "/cpu.max", cores);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return cores;
    group.erase(slash);
  }
}

}  // namespace

int hardware_threads() {
  static const int cores = cgroup_cores(affinity_cores());
  return cores;
}

}  // namespace anneal
