// ControlFlow: runs the steps that have bodies (If, Loop, Scan).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/run/run_memory.h"
#include "anneal/engine/run/run_observer.h"

namespace anneal {

class PlanRun;

// The results of a body are written to their final place if their dims are known before it runs,
// else copied there. Conditions and trip counts are on the host. Nothing is in flight on a stream
// before a body runs or after it; slices of tensors on a GPU are dense.
class ControlFlow {
 public:
  // bodies: runs of the plan's bodies, in their order. All must outlive it.
  ControlFlow(RunState& run, RunMemory& memory, const RunObserver& observer,
              std::span<const std::unique_ptr<PlanRun>> bodies);

  bool run(size_t step, ThreadTeam& team);  // false: a step without bodies
  size_t bytes() const;                     // of values between iterations

 private:
  // The state of a Loop or Scan between iterations.
  struct Iteration {
    int64_t number = 0;
    bool condition = true;
    int64_t length = 0;  // of stacked elements so far
    struct CarriedValue {
      TensorView value;  // now
      std::unique_ptr<Buffer> buffers[2];
    };
    std::vector<CarriedValue> carried;
    struct StackedOutput {
      std::optional<Dims> element;
      std::unique_ptr<Buffer> buffer;
    };
    std::vector<StackedOutput> stacked;
  };

  PlanRun& body(int64_t index) const { return *bodies_[static_cast<size_t>(index)]; }
  void settle(uint32_t slot, const Dims& dims);
  // The device, of the plan's, on which output `index` of the body lies.
  size_t device_of_output(const PlanRun& body, size_t index) const;
  void copy(const TensorView& to, const TensorView& from);
  // Room for a tensor on a device of the plan.
  TensorView room(std::unique_ptr<Buffer>& buffer, DataType dtype, const Dims& dims, size_t device);
  void run_if(const Step& step, const If& op, ThreadTeam& team);
  void run_loop(const Step& step, const Loop& op, Iteration& state, ThreadTeam& team);
  void run_scan(const Step& step, const Scan& op, Iteration& state, ThreadTeam& team);
  void begin_carried(const Step& step, size_t first_input, size_t count, Iteration& state);
  void give_carried(PlanRun& body, size_t first_input, size_t first_output, Iteration& state);
  void take_carried(PlanRun& body, size_t first_output, Iteration& state);
  void finish_carried(const Step& step, const Iteration& state);
  TensorView next_element(const Step& step, const Dims& dims, Iteration& state, size_t k);
  Dims dims_of_nothing(const Shape& shape) const;

  RunState& run_;
  RunMemory& memory_;
  const RunObserver& observer_;
  std::span<const std::unique_ptr<PlanRun>> bodies_;
  std::vector<Iteration> iterations_;  // by step
};

}  // namespace anneal
