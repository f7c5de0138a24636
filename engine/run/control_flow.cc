#include "anneal/engine/run/control_flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/run/late_steps.h"
#include "anneal/engine/run/plan_run.h"

namespace anneal {
namespace {

template <class T>
TensorView scalar_view(DataType dtype, T& value) {
  return row_major_view(dtype, {}, reinterpret_cast<std::byte*>(&value));
}

template <class T>
T scalar_value(const TensorView& view, std::string_view what) {
  if (count(view.dims) != 1)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the {} is {}, not one value", what, to_string(view.dims)));
  return *view.as<T>();
}

bool is_true(const TensorView& view) { return scalar_value<uint8_t>(view, "condition") != 0; }

size_t dense_bytes(DataType dtype, const Dims& dims) {
  return static_cast<size_t>(count(dims)) * size_of(dtype);
}

// Element `index` along an axis, which the result does not have.
TensorView slice_of(const TensorView& whole, int axis, int64_t index) {
  TensorView slice;
  slice.dtype = whole.dtype;
  slice.place = whole.place;
  slice.data =
      whole.data + index * whole.strides[axis] * static_cast<int64_t>(size_of(whole.dtype));
  for (int i = 0; i < whole.dims.rank(); ++i) {
    if (i == axis) continue;
    slice.dims.push_back(whole.dims[i]);
    slice.strides.push_back(whole.strides[i]);
  }
  return slice;
}

Dims with_axis(const Dims& dims, int axis, int64_t size) {
  Dims result;
  for (int i = 0; i <= dims.rank(); ++i) {
    if (i == axis) result.push_back(size);
    if (i < dims.rank()) result.push_back(dims[i]);
  }
  return result;
}

}  // namespace

ControlFlow::ControlFlow(RunState& run, RunMemory& memory, const RunObserver& observer,
                         std::span<const std::unique_ptr<PlanRun>> bodies)
    : run_(run),
      memory_(memory),
      observer_(observer),
      bodies_(bodies),
      iterations_(run.plan.steps.size()) {}

size_t ControlFlow::bytes() const {
  size_t bytes = 0;
  const auto add = [&](const std::unique_ptr<Buffer>& buffer) {
    bytes += buffer ? buffer->size() : 0;
  };
  for (const Iteration& iteration : iterations_) {
    for (const auto& carried : iteration.carried)
      for (const auto& buffer : carried.buffers) add(buffer);
    for (const auto& stacked : iteration.stacked) add(stacked.buffer);
  }
  return bytes;
}

void ControlFlow::settle(uint32_t slot, const Dims& dims) {
  set_slot_dims(run_, memory_, slot, dims);
}

size_t ControlFlow::device_of_output(const PlanRun& body, size_t index) const {
  const Plan& plan = body.plan();
  const size_t device = plan.slots[plan.outputs[index]].device;
  return device + 1 == plan.devices.size() ? run_.host() : device;
}

void ControlFlow::copy(const TensorView& to, const TensorView& from) {
  if (to.place.kind != MemoryKind::kCuda && from.place.kind != MemoryKind::kCuda)
    return strided_copy(to, from);
  const size_t bytes = dense_bytes(to.dtype, to.dims);
  if (bytes == 0 || to.data == from.data) return;
  run_.device(0).copy(to.data, from.data, bytes, run_.stream(0));
  run_.stream(0).wait();
}

TensorView ControlFlow::room(std::unique_ptr<Buffer>& buffer, DataType dtype, const Dims& dims,
                             size_t device) {
  memory_.ensure(buffer, dense_bytes(dtype, dims), device);
  TensorView view = row_major_view(dtype, dims, buffer->data());
  if (device != run_.host()) view.place = {MemoryKind::kCuda};
  return view;
}

bool ControlFlow::run(size_t index, ThreadTeam& team) {
  const Step& step = run_.plan.steps[index];
  if (const auto* branch = std::get_if<If>(&step.op)) {
    run_if(step, *branch, team);
  } else if (const auto* loop = std::get_if<Loop>(&step.op)) {
    run_loop(step, *loop, iterations_[index], team);
  } else if (const auto* scan = std::get_if<Scan>(&step.op)) {
    run_scan(step, *scan, iterations_[index], team);
  } else {
    return false;
  }
  for (size_t k = 0; k < step.outputs.size(); ++k)
    run_.steps[index].outputs[k] = run_.slots[step.outputs[k]];
  return true;
}

void ControlFlow::run_if(const Step& step, const If& op, ThreadTeam& team) {
  const bool condition = is_true(run_.slots[step.inputs[0]]);
  PlanRun& body = this->body(condition ? op.then_body : op.else_body);
  for (size_t i = 1; i < step.inputs.size(); ++i)
    body.ports().set_input(i - 1, run_.tensor(step.inputs[i]));
  body.bind(run_.symbols);
  for (size_t k = 0; k < step.outputs.size(); ++k) {
    const auto dims = body.output_dims(k);
    if (!dims) continue;
    settle(step.outputs[k], *dims);
    body.ports().set_output(k, run_.tensor(step.outputs[k]));
  }
  body.run_as_body(observer_, step, std::nullopt, team);
  for (size_t k = 0; k < step.outputs.size(); ++k) {
    if (body.output_dims(k)) continue;
    const TensorView result = body.output(k);
    settle(step.outputs[k], result.dims);
    copy(run_.tensor(step.outputs[k]), result);
  }
}

void ControlFlow::begin_carried(const Step& step, size_t first_input, size_t count,
                                Iteration& state) {
  state.number = 0;
  state.length = 0;
  state.carried.resize(count);
  for (size_t k = 0; k < count; ++k)
    state.carried[k].value = run_.tensor(step.inputs[first_input + k]);
  state.stacked.resize(step.outputs.size() - count);
  for (auto& stacked : state.stacked) stacked.element.reset();
}

// The next iteration reads what the last one gave, and writes to the other buffer.
void ControlFlow::give_carried(PlanRun& body, size_t first_input, size_t first_output,
                               Iteration& state) {
  for (size_t k = 0; k < state.carried.size(); ++k)
    body.ports().set_input(first_input + k, state.carried[k].value);
  body.bind(run_.symbols);
  for (size_t k = 0; k < state.carried.size(); ++k) {
    const auto dims = body.output_dims(first_output + k);
    if (!dims) continue;
    auto& [value, buffers] = state.carried[k];
    body.ports().set_output(first_output + k, room(buffers[state.number % 2], value.dtype, *dims,
                                                   device_of_output(body, first_output + k)));
  }
}

void ControlFlow::take_carried(PlanRun& body, size_t first_output, Iteration& state) {
  for (size_t k = 0; k < state.carried.size(); ++k) {
    auto& carried = state.carried[k];
    const TensorView result = body.output(first_output + k);
    carried.value = result;
    if (body.output_dims(first_output + k)) continue;
    carried.value = room(carried.buffers[state.number % 2], result.dtype, result.dims,
                         device_of_output(body, first_output + k));
    copy(carried.value, result);
  }
}

void ControlFlow::finish_carried(const Step& step, const Iteration& state) {
  for (size_t k = 0; k < state.carried.size(); ++k) {
    settle(step.outputs[k], state.carried[k].value.dims);
    copy(run_.tensor(step.outputs[k]), state.carried[k].value);
  }
}

// The place of element k of this iteration of a Loop: its place in the result, or room after the
// elements stacked so far if their number is known only at run time.
TensorView ControlFlow::next_element(const Step& step, const Dims& dims, Iteration& state,
                                     size_t k) {
  auto& [element, buffer] = state.stacked[k];
  const uint32_t output = step.outputs[state.carried.size() + k];
  const Slot& slot = run_.plan.slots[output];
  if (!element) element = dims;
  if (*element != dims)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("\"{}\" is stacked of {} in iteration {}, and of {} before", slot.name,
                     to_string(dims), state.number, to_string(*element)));
  if (slot.storage != Storage::kDataDependent) {
    const Dims& whole = run_.slots[output].dims;
    if (state.number >= whole[0] || with_axis(dims, 0, whole[0]) != whole)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" of {} has no place for {} in iteration {}", slot.name,
                       to_string(whole), to_string(dims), state.number));
    return slice_of(run_.tensor(output), 0, state.number);
  }
  const size_t bytes = dense_bytes(slot.type.dtype, dims);
  const size_t used = bytes * static_cast<size_t>(state.length);
  memory_.grow(buffer, used, used + bytes);
  return row_major_view(slot.type.dtype, dims, buffer->data() + used);
}

// The dims of a result without iterations: undecided sizes are 0.
Dims ControlFlow::dims_of_nothing(const Shape& shape) const {
  Dims dims;
  for (const Size size : shape) {
    const auto symbols = run_.plan.sizes->symbols_in(size);
    const bool decided = std::all_of(symbols.begin(), symbols.end(), [&](uint32_t symbol) {
      return run_.symbols[symbol].has_value();
    });
    dims.push_back(decided ? run_.plan.sizes->evaluate(size, run_.symbols) : 0);
  }
  return dims;
}

void ControlFlow::run_loop(const Step& step, const Loop& op, Iteration& state, ThreadTeam& team) {
  PlanRun& body = this->body(op.body);
  const auto carried = static_cast<size_t>(op.carried);
  const bool has_count = step.inputs[0] != kNoSlot;
  const int64_t trips =
      has_count ? scalar_value<int64_t>(run_.slots[step.inputs[0]], "trip count") : 0;
  state.condition = op.counted || step.inputs[1] == kNoSlot || is_true(run_.slots[step.inputs[1]]);
  begin_carried(step, 2, carried, state);
  for (size_t i = 2 + carried; i < step.inputs.size(); ++i)
    body.ports().set_input(i, run_.tensor(step.inputs[i]));

  const size_t first_stacked = 1 + carried;
  for (; state.condition && (!has_count || state.number < trips); ++state.number) {
    body.ports().set_input(0, scalar_view(DataType::kI64, state.number));
    body.ports().set_input(1, scalar_view(DataType::kBool, state.condition));
    give_carried(body, 2, 1, state);
    for (size_t k = 0; k < state.stacked.size(); ++k)
      if (const auto dims = body.output_dims(first_stacked + k))
        body.ports().set_output(first_stacked + k, next_element(step, *dims, state, k));
    body.run_as_body(observer_, step, state.number, team);
    for (size_t k = 0; k < state.stacked.size(); ++k) {
      if (body.output_dims(first_stacked + k)) continue;
      const TensorView result = body.output(first_stacked + k);
      copy(next_element(step, result.dims, state, k), result);
    }
    take_carried(body, 1, state);
    ++state.length;
    state.condition = op.counted || is_true(body.output(0));
  }

  finish_carried(step, state);
  for (size_t k = 0; k < state.stacked.size(); ++k) {
    auto& [element, buffer] = state.stacked[k];
    const uint32_t output = step.outputs[carried + k];
    if (run_.plan.slots[output].storage != Storage::kDataDependent) {
      if (run_.slots[output].dims[0] != state.length)
        fail(ErrorCode::kInvalidArgument,
             fmt::format("\"{}\" of {} is stacked of {} iterations", run_.plan.slots[output].name,
                         to_string(run_.slots[output].dims), state.length));
      continue;
    }
    if (!element)
      element =
          dims_of_nothing(body.plan().slots[body.plan().outputs[first_stacked + k]].type.shape);
    settle(output, with_axis(*element, 0, state.length));
    const TensorView& to = run_.slots[output];
    if (count(to.dims) != 0) strided_copy(to, row_major_view(to.dtype, to.dims, buffer->data()));
  }
}

void ControlFlow::run_scan(const Step& step, const Scan& op, Iteration& state, ThreadTeam& team) {
  PlanRun& body = this->body(op.body);
  const auto carried = static_cast<size_t>(op.carried);
  const size_t sequences = op.axes.size();
  begin_carried(step, 0, carried, state);
  const TensorView& first = run_.slots[step.inputs[carried]];
  const int64_t length = first.dims[static_cast<int>(op.axes[0])];
  for (size_t i = 1; i < sequences; ++i) {
    const int64_t other = run_.slots[step.inputs[carried + i]].dims[static_cast<int>(op.axes[i])];
    if (other != length)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("sequences of lengths {} and {} are scanned together", length, other));
  }
  for (size_t i = carried + sequences; i < step.inputs.size(); ++i)
    body.ports().set_input(i, run_.tensor(step.inputs[i]));

  const auto place = [&](size_t k, const Dims& dims) {
    auto& element = state.stacked[k].element;
    const int axis = static_cast<int>(op.output_axes[k]);
    const uint32_t output = step.outputs[carried + k];
    if (!element) settle(output, with_axis(dims, axis, length));
    if (element && *element != dims)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" changes its shape from {} to {}", run_.plan.slots[output].name,
                       to_string(*element), to_string(dims)));
    element = dims;
    const int64_t at = op.output_reverse[k] != 0 ? length - 1 - state.number : state.number;
    return slice_of(run_.tensor(output), axis, at);
  };
  for (; state.number < length; ++state.number) {
    for (size_t i = 0; i < sequences; ++i) {
      const int64_t at = op.reverse[i] != 0 ? length - 1 - state.number : state.number;
      body.ports().set_input(carried + i, slice_of(run_.tensor(step.inputs[carried + i]),
                                                   static_cast<int>(op.axes[i]), at));
    }
    give_carried(body, 0, 0, state);
    for (size_t k = 0; k < state.stacked.size(); ++k)
      if (const auto dims = body.output_dims(carried + k))
        body.ports().set_output(carried + k, place(k, *dims));
    body.run_as_body(observer_, step, state.number, team);
    for (size_t k = 0; k < state.stacked.size(); ++k)
      if (!body.output_dims(carried + k)) {
        const TensorView result = body.output(carried + k);
        copy(place(k, result.dims), result);
      }
    take_carried(body, 0, state);
  }

  finish_carried(step, state);
  for (size_t k = 0; k < state.stacked.size(); ++k)
    if (!state.stacked[k].element) {
      const Shape& shape = body.plan().slots[body.plan().outputs[carried + k]].type.shape;
      settle(step.outputs[carried + k],
             with_axis(dims_of_nothing(shape), static_cast<int>(op.output_axes[k]), length));
    }
}

}  // namespace anneal
