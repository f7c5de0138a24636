// RunObserver: passes each tensor of a plan to an observer when a step has computed it.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/run_state.h"

namespace anneal {

class RunObserver {
 public:
  explicit RunObserver(RunState& run) : run_(run) {}  // which must outlive it

  void set(const Observer& observer);  // may be empty
  // For a body: its inputs are observed, too, since no step computes them.
  void add_inputs();
  bool is_set() const { return static_cast<bool>(observer_); }
  // For a body that `step` of `outer` runs; iteration: of a loop.
  void enter(const RunObserver& outer, std::string_view step, std::optional<int64_t> iteration);
  // Observes the tensors that are complete after this number of steps. REQUIRES: is_set(), and no
  // step is in flight
  void observe_until(size_t steps_done);

 private:
  bool is_known(const Step& transfer) const;
  TensorView on_host(uint32_t slot);
  void give_back(uint32_t slot, const TensorView& here);

  RunState& run_;
  Observer observer_;
  std::vector<std::vector<uint32_t>> watched_;  // slots_by_step(), while there is an observer
  std::vector<LoopIteration> loops_;            // around this body, while there is one
  std::vector<std::byte> copy_;                 // host copy of the observed tensor
};

}  // namespace anneal
