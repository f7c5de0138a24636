// Times of steps, summed over runs, as tables.
#pragma once
#include <string>
#include <vector>

#include "anneal/cli/measure/access_table.h"

namespace anneal {

// The time of a step in a run, as the median of all runs, and its mean number of executions.
struct TypicalStep {
  double microseconds = 0, times = 0;
};

class ProfileTable {
 public:
  void add(const std::vector<CountedStep>& times);  // of one run
  // Per step that ran, then per kernel with the longest first: microseconds of a run, and share;
  // how often a run takes each step, where that is not once. Counted accesses of functions, if they
  // were counted.
  std::string text() const;
  Json json() const;                         // per step
  std::vector<TypicalStep> typical() const;  // in the order of add()

 private:
  struct StepTotal {
    std::string step, kernel;
    double microseconds = 0;
    std::vector<double> of_runs;  // microseconds of each
    int64_t times = 0;
    std::vector<FunctionCounts> functions;
  };
  double all() const;
  std::string accesses() const;

  std::vector<StepTotal> totals_;
  int runs_ = 0;
};

}  // namespace anneal
