#include "anneal/engine/run/plan_ports.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/plan_check.h"

namespace anneal {

PlanPorts::PlanPorts(RunState& run, RunMemory& memory)
    : run_(run),
      memory_(memory),
      inputs_(run.plan.inputs.size()),
      outputs_(run.plan.outputs.size()),
      input_dims_(run.plan.inputs.size()) {}

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

void PlanPorts::place(Port& port, uint32_t slot) {
  if (is_data_dependent(slot)) return;
  TensorView& wanted = run_.slots[slot];
  // Memory that other devices copy from and to keeps its address.
  port.is_staged = run_.host() != 0 || !port.is_set || port.user.dims != wanted.dims ||
                   port.user.strides != wanted.strides;
  if (port.is_staged)
    memory_.ensure(port.staging, static_cast<size_t>(extent(wanted.dims, wanted.strides)) *
                                     size_of(wanted.dtype));
  wanted.data = port.is_staged ? port.staging->data() : port.user.data;
}

void PlanPorts::place() {
  for (size_t i = 0; i < inputs_.size(); ++i) place(inputs_[i], run_.plan.inputs[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const uint32_t slot = run_.plan.outputs[i];
    if (outputs_[i].is_set && !is_data_dependent(slot))
      check_output(i, outputs_[i].user, run_.slots[slot].dims);
    place(outputs_[i], slot);
  }
  changed_ = false;
}

bool PlanPorts::any_staged() const {
  const auto is_staged = [](const Port& port) { return port.is_staged; };
  return std::ranges::any_of(inputs_, is_staged) || std::ranges::any_of(outputs_, is_staged);
}

bool PlanPorts::all_inputs_staged() const {
  return std::ranges::all_of(inputs_, [](const Port& port) { return port.is_staged; });
}

void PlanPorts::copy_in(ThreadTeam& team) const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].is_staged) strided_copy(run_.slots[run_.plan.inputs[i]], inputs_[i].user, team);
}

void PlanPorts::copy_out(ThreadTeam& team) const {
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].is_set && outputs_[i].is_staged)
      strided_copy(outputs_[i].user, run_.slots[run_.plan.outputs[i]], team);
}

TensorView PlanPorts::output(size_t index) const {
  const uint32_t slot = run_.plan.outputs[index];
  const bool at_user = outputs_[index].is_set && !is_data_dependent(slot);
  return at_user ? outputs_[index].user : run_.slots[slot];
}

size_t PlanPorts::bytes() const {
  size_t bytes = 0;
  for (const auto* ports : {&inputs_, &outputs_})
    for (const Port& port : *ports) bytes += port.staging ? port.staging->size() : 0;
  return bytes;
}

}  // namespace anneal
