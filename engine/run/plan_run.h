// PlanRun: a plan with memory and bound tensors, ready to run, with the bodies of its control flow.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/memory_budget.h"
#include "anneal/engine/run/separate_slots.h"
#include "anneal/engine/run/shape_cache.h"

namespace anneal {

// State that all runs of a context share.
struct RunResources {
  std::span<const Tensor> weights;
  // By device of the engine; the last is the CPU.
  std::span<const std::unique_ptr<Device>> devices;
  std::span<const std::unique_ptr<Stream>> streams;
  std::span<const std::vector<std::byte*>> weight_data;
  int threads = 1;
  int shape_cache_size = 1;
  MemoryBudget* budget = nullptr;
  bool synchronous_steps = false;
  std::optional<size_t> red_zone = {};                // with EngineOptions::separate_slots
  const SeparateWeights* separate_weights = nullptr;  // then
};

class PlanRun {
 public:
  // The plan and the resources must outlive the run.
  PlanRun(const LoadedPlan& loaded, const RunResources& resources);
  ~PlanRun();
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;

  const Plan& plan() const { return plan_; }
  // Memory must stay until the run is over. Any strides: what differs from the plan's is staged.
  void set_input(size_t index, const TensorView& memory);
  // Where output `index` is to be stored; without, in memory of this run.
  void set_output(size_t index, const TensorView& memory);
  void clear_outputs();  // all are stored in memory of this run again
  // Fails with kInvalidArgument unless the memory of an output has the dims that it is to have.
  void check_output(size_t index, const TensorView& memory, const Dims& dims) const;
  bool has_input(size_t index) const { return inputs_[index].bound; }
  const Dims& input_dims(size_t index) const {
    return input_dims_[index];
  }  // of the last set_input
  // Sizes of everything for the inputs at hand, and what kernels prepare for them; nothing is
  // computed for shapes that are kept. outer: symbols that are known outside; the plan's own are
  // those that its inputs, and then its steps, give.
  void bind(const SymbolValues& outer = {});
  // Binds inputs of these dims ahead, and bodies as far as the dims of their inputs follow, so that
  // a run finds them kept. What is set stays set; what the last run gave is gone.
  void prepare(std::span<const Dims> input_dims, const SymbolValues& outer = {});
  // After bind(): nullopt where values decide.
  std::optional<Dims> output_dims(size_t index) const;
  // Allocates what a run stages inputs and outputs in, so that the run does not. Whether there is
  // any. REQUIRES: as run()
  bool place_staging();
  // REQUIRES: bind() since the last set_input()
  void run(ThreadTeam& team);
  void profile(ThreadTeam& team,
               std::vector<StepTime>& times);  // the same, adding the time of each step
  // Whether the last run() came to its end, and nothing has been bound since. Only then do outputs
  // stand in memory that is theirs.
  bool has_run() const { return has_run_ && now_ && !pointers_stale_; }
  TensorView output(size_t index) const;  // REQUIRES: has_run()
  void observe(const Observer& observer);
  std::span<const std::string> remarks() const { return remarks_; }
  size_t memory_bytes() const;
  size_t arena_bytes() const;  // of activations alone, for the shapes bound, bodies included

 private:
  // A port's memory: the caller's, or staging where there is none or its strides are not the
  // plan's.
  struct Binding {
    TensorView user;
    bool bound = false;
    bool staged = false;
    std::unique_ptr<Buffer> staging;
  };
  // What a Loop or Scan keeps from iteration to iteration.
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

  // Memory of a device of the plan. That of the CPU is what copies to others are quick from.
  std::unique_ptr<Buffer> allocate(size_t device, size_t bytes);
  void ensure(std::unique_ptr<Buffer>& buffer, size_t bytes, size_t device);
  void ensure(std::unique_ptr<Buffer>& buffer, size_t bytes) { ensure(buffer, bytes, host()); }
  void check_memory_limit(const BoundShapes& bound) const;
  void ensure_arenas(const BoundShapes& bound);
  size_t host() const { return plan_.devices.size() - 1; }
  Device& device(size_t index) const { return *resources_.devices[loaded_.first_device + index]; }
  Stream& stream(size_t index) const { return *resources_.streams[loaded_.first_device + index]; }
  void grow(std::unique_ptr<Buffer>& buffer, size_t used, size_t wanted);
  void stage(Binding& binding, const TensorView& wanted);
  BoundShapes* make_bound(const SymbolValues& outer);
  void resolve_pointers();
  void forget_recordings_elsewhere();
  void prepare_bodies();
  void prepare_step(size_t index, StepState& state) const;
  void run_step(size_t index, ThreadTeam& team);
  void run_here(size_t index,
                ThreadTeam& team);  // with its place in errors, timed if times are taken
  void run_on_device(size_t begin, size_t end, ThreadTeam& team);
  void transfer(const Step& step);
  void wait_for_devices();
  std::string in_flight_text() const;  // REQUIRES: in_flight_
  void give_up_in_flight();
  void run_steps(ThreadTeam& team);
  void check_red_zones(size_t begin, size_t end);  // after these steps
  void run_size_tensor(const Step& step);
  void infer_late(size_t index, ThreadTeam& team);
  void settle(uint32_t slot, const Dims& dims);
  void tell_observer(size_t steps_done);
  TensorView on_host(uint32_t slot);
  void give_back(uint32_t slot, const TensorView& here);
  void run_body(PlanRun& body, const Step& step, std::optional<int64_t> iteration,
                ThreadTeam& team);
  void start_timing();
  void stop_timing();
  void run_timed(size_t step, ThreadTeam& team);
  void add_times(std::vector<StepTime>& times) const;

  // control_flow.cc
  bool run_control_flow(size_t index, ThreadTeam& team);  // false: another op
  void run_if(const Step& step, const If& op, ThreadTeam& team);
  void run_loop(const Step& step, const Loop& op, Iteration& state, ThreadTeam& team);
  void run_scan(const Step& step, const Scan& op, Iteration& state, ThreadTeam& team);
  void begin_carried(const Step& step, size_t first_input, size_t count, Iteration& state);
  void give_carried(PlanRun& body, size_t first_input, size_t first_output, Iteration& state);
  void take_carried(PlanRun& body, size_t first_output, Iteration& state);
  void finish_carried(const Step& step, const Iteration& state);
  TensorView next_element(const Step& step, const Dims& dims, Iteration& state, size_t k);
  Dims dims_of_nothing(const Shape& shape) const;

  const Plan& plan_;
  const LoadedPlan& loaded_;
  const RunResources& resources_;
  std::vector<std::unique_ptr<PlanRun>> bodies_;

  std::vector<Binding> inputs_, outputs_;
  std::vector<Dims> input_dims_;  // of the last set_input
  ShapeCache kept_;
  BoundShapes* now_ = nullptr;   // what the run is bound to
  std::span<TensorView> slots_;  // of now_, with data
  std::span<StepState> steps_;   // of now_
  bool pointers_stale_ = true;
  bool has_run_ = false;
  SymbolValues symbols_;                       // those of now_, and those found during the run
  std::vector<Iteration> iterations_;          // by step
  std::vector<std::unique_ptr<Buffer>> late_;  // by slot
  std::vector<std::unique_ptr<Buffer>> arenas_, workspaces_;  // by device
  std::vector<bool> never_recorded_;  // by step that begins a run of steps: recording it failed
  std::vector<std::string> remarks_;
  std::unique_ptr<SeparateSlots> separate_;  // instead of arenas on devices other than the CPU
  // Steps on other devices than the CPU that nobody has waited for: [first, last].
  std::optional<std::pair<size_t, size_t>> in_flight_;
  std::vector<std::byte> observed_;  // the host's copy of what an observer is told
  Observer observer_;
  std::vector<std::vector<uint32_t>> watched_;  // slots_by_step(), while there is an observer
  std::vector<LoopIteration> loops_;            // around this body, while there is one
  struct StepTotal {
    double microseconds = 0;
    int64_t times = 0;
    std::vector<FunctionCounts> functions = {};
  };
  std::vector<StepTotal> spent_;  // by step, while times are taken
  double spent_in_all_ = 0;       // with the steps of bodies
};

}  // namespace anneal
