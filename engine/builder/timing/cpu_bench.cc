#include "anneal/engine/builder/timing/cpu_bench.h"

#include <algorithm>

namespace anneal {

CpuBench::CpuBench(const Request& request, int threads)
    : device_(request.device), threads_(threads), team_(threads), operands_(request, threads) {}

void CpuBench::add(const Kernel& kernel) {
  Added added{&kernel, kernel.prepare(operands_.inputs(), operands_.outputs(), threads_), {}};
  added.workspace = device_.allocate(std::max<size_t>(added.prepared->workspace_bytes, 1));
  added_.push_back(std::move(added));
  microseconds(added_.size() - 1);
}

double CpuBench::microseconds(size_t kernel) {
  const Added& added = added_[kernel];
  operands_.lie_as_in_a_network(team_);
  return operands_.stream().microseconds([&] {
    added.kernel->launch({operands_.inputs(), operands_.outputs(), added.prepared.get(),
                          added.workspace->data(), operands_.stream(), team_});
  });
}

}  // namespace anneal
