#include "anneal/engine/run/plan_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/memory_planner.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

// Of equal dims: whether each element has the same offset.
bool lies_alike(const TensorView& a, const TensorView& b) {
  for (int axis = 0; axis < a.dims.rank(); ++axis)
    if (a.dims[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  return true;
}

// As kernels may assume of slots in an arena.
bool is_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % kArenaAlignment == 0;
}

}  // namespace

PlanPorts::PlanPorts(RunState& run, RunMemory& memory)
    : run_(run),
      memory_(memory),
      inputs_(run.plan.inputs.size()),
      outputs_(run.plan.outputs.size()),
      input_copies_(run.plan.inputs.size()),
      output_copies_(run.plan.outputs.size()),
      input_dims_(run.plan.inputs.size()) {
  if (run.host() == 0) return;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!run.is_on_gpu(run.plan.inputs[i]))
      input_copies_[i] = copies_of_input(run.plan, run.plan.inputs[i]);
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (!run.is_on_gpu(run.plan.outputs[i]))
      output_copies_[i] = copies_of_output(run.plan, run.plan.outputs[i]);
}

void PlanPorts::set_input(size_t index, const TensorView& memory) {
  inputs_[index].user = memory;
  inputs_[index].is_set = true;
  input_dims_[index] = memory.dims;
  changed_ = true;
}

void PlanPorts::set_output(size_t index, const TensorView& memory) {
  outputs_[index].user = memory;
  outputs_[index].is_set = true;
  changed_ = true;
}

void PlanPorts::clear_output(size_t index) {
  outputs_[index].is_set = false;
  changed_ = true;
}

void PlanPorts::clear_outputs() {
  for (Port& output : outputs_) output.is_set = false;
  changed_ = true;
}

void PlanPorts::check_output(size_t index, const TensorView& memory, const Dims& dims) const {
  if (memory.dims != dims)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the memory set for output \"{}\" has shape {}, with these inputs it is {}",
                     run_.plan.slots[run_.plan.outputs[index]].name, to_string(memory.dims),
                     to_string(dims)));
}

// Whether the port's slot is the caller's memory.
bool PlanPorts::stays(const Port& port, uint32_t slot, const PortCopies& copies) const {
  const TensorView& wanted = run_.slots[slot];
  if (!port.is_set || port.user.dims != wanted.dims) return false;
  if (run_.host() == 0) return port.user.strides == wanted.strides;
  if (run_.is_on_gpu(slot)) return port.is_on_gpu() && is_aligned(port.user);
  if (copies.is_used_by_cpu) return false;
  return port.is_on_gpu() || (port.is_page_locked() && lies_alike(port.user, wanted));
}

void PlanPorts::place(Port& port, uint32_t slot, const PortCopies& copies, bool may_stay) {
  if (is_data_dependent(slot)) return;
  TensorView& wanted = run_.slots[slot];
  const bool on_gpu = run_.is_on_gpu(slot);
  if ((port.is_on_gpu() || (port.is_set && on_gpu)) && port.user.dims == wanted.dims)
    check(lies_alike(port.user, wanted), "the ports of a GPU's plan are row-major");
  port.is_staged = !(may_stay || on_gpu) || !stays(port, slot, copies);
  if (port.is_staged) memory_.ensure(port.staging, bytes_of(wanted), run_.plan.slots[slot].device);
  wanted.data = port.is_staged ? port.staging->data() : port.user.data;
  if (!port.is_staged || !port.is_on_gpu() || on_gpu || !may_stay ||
      std::exchange(port.is_remarked, true))
    return;
  remarks_.push_back(
      fmt::format("\"{}\" is copied through host memory in every run, which is slower: steps on "
                  "the CPU use it",
                  run_.plan.slots[slot].name));
}

void PlanPorts::find_page_locked() {
  page_locked_.clear();
  const auto mark = [&](const std::vector<Port>& ports, const std::vector<uint32_t>& port_slots) {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (run_.host() == 0 || ports[i].is_staged || !ports[i].is_page_locked()) continue;
      page_locked_.resize(run_.slots.size());
      for (uint32_t slot = 0; slot < page_locked_.size(); ++slot)
        if (base_of(run_.plan, slot) == port_slots[i]) page_locked_[slot] = true;
    }
  };
  mark(inputs_, run_.plan.inputs);
  mark(outputs_, run_.plan.outputs);
}

void PlanPorts::place(bool may_stay) {
  may_stay_ = may_stay;
  for (size_t i = 0; i < inputs_.size(); ++i)
    place(inputs_[i], run_.plan.inputs[i], input_copies_[i], may_stay);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const uint32_t slot = run_.plan.outputs[i];
    if (outputs_[i].is_set && !is_data_dependent(slot))
      check_output(i, outputs_[i].user, run_.slots[slot].dims);
    place(outputs_[i], slot, output_copies_[i], may_stay);
  }
  find_page_locked();
  changed_ = false;
}

void PlanPorts::place_copies() {
  placed_.clear();
  const auto place_at = [&](const Port& port, const PortCopies& copies) {
    if (port.is_staged || !port.is_on_gpu() || !is_aligned(port.user)) return;
    for (const uint32_t slot : copies.slots) {
      if (std::ranges::find(placed_, slot) != placed_.end()) continue;
      run_.slots[slot].data = port.user.data;
      placed_.push_back(slot);
    }
  };
  for (size_t i = 0; i < inputs_.size(); ++i) place_at(inputs_[i], input_copies_[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) place_at(outputs_[i], output_copies_[i]);
}

bool PlanPorts::reads_late() const {
  return run_.host() != 0 && std::ranges::any_of(inputs_, [](const Port& port) {
           return port.is_set && !port.is_staged;
         });
}

bool PlanPorts::any_staged() const {
  const auto is_staged = [](const Port& port) { return port.is_staged; };
  return std::ranges::any_of(inputs_, is_staged) || std::ranges::any_of(outputs_, is_staged);
}

bool PlanPorts::all_inputs_staged() const {
  return std::ranges::all_of(inputs_, [](const Port& port) { return port.is_staged; });
}

void PlanPorts::copy_in(ThreadTeam& team) const {
  bool is_copying = false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Port& port = inputs_[i];
    if (!port.is_staged) continue;
    const TensorView& staged = run_.slots[run_.plan.inputs[i]];
    if (!is_copied_by_gpu(port, run_.plan.inputs[i])) {
      strided_copy(staged, port.user, team);
    } else if (const size_t bytes = bytes_of(staged); bytes != 0) {
      run_.device(0).copy(staged.data, port.user.data, bytes, run_.stream(0));
      is_copying = true;
    }
  }
  if (is_copying) run_.stream(0).wait();
}

void PlanPorts::copy_out(ThreadTeam& team) const {
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].is_set && outputs_[i].is_staged &&
        !is_copied_by_gpu(outputs_[i], run_.plan.outputs[i]))
      strided_copy(outputs_[i].user, run_.slots[run_.plan.outputs[i]], team);
}

bool PlanPorts::any_copied_out_by_gpu() const {
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (is_copied_by_gpu(outputs_[i], run_.plan.outputs[i])) return true;
  return false;
}

void PlanPorts::copy_out_by_gpu() const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!is_copied_by_gpu(outputs_[i], run_.plan.outputs[i])) continue;
    const TensorView& staged = run_.slots[run_.plan.outputs[i]];
    if (const size_t bytes = bytes_of(staged); bytes != 0)
      run_.device(0).copy(outputs_[i].user.data, staged.data, bytes, run_.stream(0));
  }
  run_.stream(0).wait();
}

TensorView PlanPorts::output(size_t index) const {
  const uint32_t slot = run_.plan.outputs[index];
  const bool at_user = outputs_[index].is_set && !is_data_dependent(slot);
  return at_user ? outputs_[index].user : run_.tensor(slot);
}

size_t PlanPorts::bytes() const {
  size_t bytes = 0;
  for (const auto* ports : {&inputs_, &outputs_})
    for (const Port& port : *ports) bytes += port.staging ? port.staging->size() : 0;
  return bytes;
}

}  // namespace anneal
