// PlanPorts: the memory of a plan's inputs and outputs.
#pragma once
#include <memory>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/run/run_memory.h"

namespace anneal {

// A port lies in the caller's memory, or in staging memory of the run: where the caller gave none,
// its strides are not the plan's, or another device copies from or to it.
class PlanPorts {
 public:
  PlanPorts(RunState& run, RunMemory& memory);  // which must outlive it

  // Memory must stay until the run is over. Any strides: what differs from the plan's is staged.
  void set_input(size_t index, const TensorView& memory);
  // Where output `index` is to be stored; without, in memory of the run.
  void set_output(size_t index, const TensorView& memory);
  void clear_outputs();  // all are stored in memory of the run again
  bool has_input(size_t index) const { return inputs_[index].is_set; }
  // Of the inputs set last, or those that swap_input_dims() put in their place.
  const std::vector<Dims>& input_dims() const { return input_dims_; }
  void swap_input_dims(std::vector<Dims>& dims) { std::swap(input_dims_, dims); }
  // Fails with kInvalidArgument unless the memory of an output has the dims that it is to have.
  void check_output(size_t index, const TensorView& memory, const Dims& dims) const;

  // Gives the slots of ports their addresses, but for data-dependent ones. REQUIRES: run.now
  void place();
  // Whether a port was set since place().
  bool changed() const { return changed_; }
  void set_changed() { changed_ = true; }
  bool any_staged() const;
  bool all_inputs_staged() const;
  void copy_in(ThreadTeam& team) const;   // staged inputs from the caller's memory
  void copy_out(ThreadTeam& team) const;  // staged outputs to it
  TensorView output(size_t index) const;
  size_t bytes() const;

 private:
  struct Port {
    TensorView user;
    bool is_set = false, is_staged = false;
    std::unique_ptr<Buffer> staging;
  };
  void place(Port& port, uint32_t slot);
  bool is_data_dependent(uint32_t slot) const {
    return run_.plan.slots[slot].storage == Storage::kDataDependent;
  }

  RunState& run_;
  RunMemory& memory_;
  std::vector<Port> inputs_, outputs_;
  std::vector<Dims> input_dims_;
  bool changed_ = true;
};

}  // namespace anneal
