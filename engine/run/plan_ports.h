// PlanPorts: the memory of a plan's inputs and outputs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/run/port_copies.h"
#include "anneal/engine/run/run_memory.h"

namespace anneal {

// A port lies in the caller's memory, or in staging memory of the run: where the caller gave none,
// or its strides are not the plan's. In a plan for a GPU it lies in the caller's memory if that is
// the GPU's and no step of the CPU uses it; then kernels use the memory itself where it is aligned,
// else a copy. So it does in page-locked memory of the host, from and to which the GPU copies; no
// recording holds such a copy, because the caller may free the memory and the driver give its
// address away. Other host memory is staged. A port of a body may be planned for the GPU: it lies
// in aligned memory of the GPU that it is given, else is staged there.
class PlanPorts {
 public:
  PlanPorts(RunState& run, RunMemory& memory);  // which must outlive it

  // Memory must stay until the run is over. Any strides: what differs from the plan's is staged.
  // Memory of a GPU is that of the plan's first device, dense and row-major.
  void set_input(size_t index, const TensorView& memory);
  // Where output `index` is to be stored; without, in memory of the run.
  void set_output(size_t index, const TensorView& memory);
  void clear_output(size_t index);
  void clear_outputs();  // all are stored in memory of the run again
  bool has_input(size_t index) const { return inputs_[index].is_set; }
  // Of the inputs set last, or those that swap_input_dims() put in their place.
  const std::vector<Dims>& input_dims() const { return input_dims_; }
  void swap_input_dims(std::vector<Dims>& dims) { std::swap(input_dims_, dims); }
  // Fails with kInvalidArgument unless the memory of an output has the dims that it is to have.
  void check_output(size_t index, const TensorView& memory, const Dims& dims) const;

  // Gives the slots of ports their addresses, but for data-dependent ones. may_stay: false: all
  // ports are where the CPU can read them. REQUIRES: run.now
  void place(bool may_stay);
  bool may_stay() const { return may_stay_; }  // of the last place()
  // Whether the slot is page-locked memory of the caller, or a view of it, after place().
  bool is_page_locked(uint32_t slot) const { return !page_locked_.empty() && page_locked_[slot]; }
  // Moves slots of the GPU that are copies of ports into their memory. REQUIRES: place(), and the
  // slots have addresses.
  void place_copies();
  // Whether a port was set since place().
  bool changed() const { return changed_; }
  void set_changed() { changed_ = true; }
  bool any_staged() const;
  bool all_inputs_staged() const;
  // Whether steps of a GPU read an input in the caller's memory.
  bool reads_late() const;
  void copy_in(ThreadTeam& team) const;   // staged inputs from the caller's memory
  void copy_out(ThreadTeam& team) const;  // staged outputs to it, if both are the host's
  bool any_copied_out_by_gpu() const;
  void copy_out_by_gpu() const;  // the other staged outputs, and waits
  // A sentence for each port of a GPU's memory that is copied through the host, once.
  std::vector<std::string> take_remarks() { return std::move(remarks_); }
  TensorView output(size_t index) const;
  size_t bytes() const;

 private:
  struct Port {
    TensorView user;
    bool is_set = false, is_staged = false;
    bool is_remarked = false;
    std::unique_ptr<Buffer> staging;

    bool is_on_gpu() const { return is_set && user.place.kind == MemoryKind::kCuda; }
    bool is_page_locked() const { return is_set && user.place.kind == MemoryKind::kPinnedHost; }
  };
  void place(Port& port, uint32_t slot, const PortCopies& copies, bool may_stay);
  void find_page_locked();
  bool stays(const Port& port, uint32_t slot, const PortCopies& copies) const;
  bool is_copied_by_gpu(const Port& port, uint32_t slot) const {
    return port.is_set && port.is_staged && (port.is_on_gpu() || run_.is_on_gpu(slot));
  }
  bool is_data_dependent(uint32_t slot) const {
    return run_.plan.slots[slot].storage == Storage::kDataDependent;
  }

  RunState& run_;
  RunMemory& memory_;
  std::vector<Port> inputs_, outputs_;
  std::vector<PortCopies> input_copies_, output_copies_;  // of host ports in a plan for a GPU
  std::vector<std::string> remarks_;
  std::vector<uint32_t> placed_;   // by place_copies()
  std::vector<bool> page_locked_;  // by slot; empty: none
  std::vector<Dims> input_dims_;
  bool changed_ = true, may_stay_ = true;
};

}  // namespace anneal
