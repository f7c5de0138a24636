// A fixed number of workers for all teams, on a machine with any number of cores.
#pragma once
#include "anneal/core/parallel.h"

namespace anneal::testing {

class WorkerBudget {
 public:
  explicit WorkerBudget(int workers) : before_(largest_team() - 1) { set_worker_budget(workers); }
  ~WorkerBudget() { set_worker_budget(before_); }
  WorkerBudget(const WorkerBudget&) = delete;
  WorkerBudget& operator=(const WorkerBudget&) = delete;

 private:
  const int before_;
};

}  // namespace anneal::testing
