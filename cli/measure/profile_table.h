// Times of steps, summed over runs, as tables.
#pragma once
#include <string>
#include <vector>

#include "anneal/cli/measure/access_table.h"

namespace anneal {

class ProfileTable {
 public:
  void add(const std::vector<CountedStep>& times);  // of one run
  // Per step that ran, then per kernel with the longest first: microseconds of a run, and share;
  // how often a run takes each step, where that is not once. Counted accesses of functions, if they
  // were counted.
  std::string text() const;
  Json json() const;  // per step

 private:
  struct StepTotal {
    std::string step, kernel;
    double microseconds = 0;
    int64_t times = 0;
    std::vector<FunctionCounts> functions;
  };
  double all() const;
  std::string accesses() const;

  std::vector<StepTotal> totals_;
  int runs_ = 0;
};

}  // namespace anneal
