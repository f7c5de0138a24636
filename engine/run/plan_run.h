// PlanRun: a plan with memory and bound tensors, ready to run, with the bodies of its control flow.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/run/control_flow.h"
#include "anneal/engine/run/device_steps.h"
#include "anneal/engine/run/plan_ports.h"
#include "anneal/engine/run/step_timer.h"

namespace anneal {

class PlanRun {
 public:
  // The plan and the resources must outlive the run.
  PlanRun(const LoadedPlan& loaded, const RunResources& resources);
  ~PlanRun();
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;

  const Plan& plan() const { return state_.plan; }
  PlanPorts& ports() { return ports_; }
  const PlanPorts& ports() const { return ports_; }
  // Computes all sizes for the present inputs and prepares the kernels; nothing is computed for
  // cached shapes. outer: symbols of the enclosing plan; the plan's own follow from its inputs and
  // then its steps.
  void bind(const SymbolValues& outer = {});
  // Binds inputs of these dims ahead, and bodies as far as the dims of their inputs follow, so that
  // a run finds them cached. Set inputs stay set; outputs of the last run become invalid.
  void prepare(std::span<const Dims> input_dims, const SymbolValues& outer = {});
  // After bind(): nullopt if the dims depend on values.
  std::optional<Dims> output_dims(size_t index) const;
  // Allocates what a run stages inputs and outputs in, so that the run does not. Whether there is
  // any. REQUIRES: as run()
  bool place_staging();
  // REQUIRES: bind() since an input was set
  void run(ThreadTeam& team) {
    start(team);
    finish(team);
  }
  // The two halves of run(): steps of other devices may be in flight between them, those of the CPU
  // are not. inputs_read, if not null, is called when the memory of the inputs is not read any
  // more; not by start() where steps in flight read it.
  void start(ThreadTeam& team, const std::function<void()>* inputs_read = nullptr);
  void finish(ThreadTeam& team);  // REQUIRES: after start(), which did not fail
  // As run(), for `step` of a plan that has this one as a body; iteration: of a loop.
  void run_as_body(const RunObserver& outer, const Step& step, std::optional<int64_t> iteration,
                   ThreadTeam& team);
  // The same as run(), adding the time of each step.
  void profile(ThreadTeam& team, std::vector<CountedStep>& times);
  // Whether the last run() came to its end, and nothing has been bound since. Only then are outputs
  // valid.
  bool has_run() const { return has_run_ && state_.now && !ports_.changed(); }
  TensorView output(size_t index) const { return ports_.output(index); }  // REQUIRES: has_run()
  void observe(const Observer& observer);
  std::span<const std::string> remarks() const { return device_steps_.remarks(); }
  HeldMemory memory() const;
  size_t arena_bytes() const;  // of activations alone, for the shapes bound, bodies included

 private:
  BoundShapes* make_bound(const SymbolValues& outer);
  void prepare_bodies();
  void resolve_pointers();
  size_t start_step(size_t index, ThreadTeam& team);
  bool uses_page_locked(size_t index) const;
  bool is_one_by_one() const { return observer_.is_set() || state_.resources.synchronous_steps; }
  // Observers read ports on the host.
  bool ports_may_stay() const { return state_.host() == 0 || !observer_.is_set(); }
  void run_step(size_t index, ThreadTeam& team);
  void run_here(size_t index, ThreadTeam& team);

  RunState state_;
  RunMemory memory_;
  PlanPorts ports_;
  ShapeCache kept_;
  std::vector<std::unique_ptr<PlanRun>> bodies_;
  DeviceSteps device_steps_;
  RunObserver observer_;
  StepTimer timer_;
  ControlFlow control_flow_;
  const size_t steps_with_inputs_;  // steps up to the last one that reads an input
  bool has_run_ = false;
};

}  // namespace anneal
