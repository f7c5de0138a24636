// StepTimer: the time of each step of a plan and of its bodies, during one run.
#pragma once
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/run/counted_steps.h"
#include "anneal/engine/run/run_state.h"

namespace anneal {

class StepTimer {
 public:
  explicit StepTimer(RunState& run) : run_(run) {}  // which must outlive it
  // In the order of the plan's bodies. It must outlive this.
  void add_body(StepTimer& body) { bodies_.push_back(&body); }

  // Both also of bodies. Between them, times are taken.
  void start();
  void stop();
  bool is_on() const { return !spent_.empty(); }
  // Does the work of a step. The time of bodies that it runs is theirs.
  void run(size_t step, FunctionRef<void()> work);
  // Appends the times of all steps, each followed by those of its bodies.
  void add_to(std::vector<CountedStep>& times) const;

 private:
  struct StepTotal {
    double microseconds = 0;
    int64_t times = 0;
    std::vector<FunctionCounts> functions = {};
  };
  double spent_in_bodies(size_t step) const;

  RunState& run_;
  std::vector<StepTimer*> bodies_;
  std::vector<StepTotal> spent_;  // by step; empty: no times are taken
  double spent_in_all_ = 0;       // with the steps of bodies
};

}  // namespace anneal
